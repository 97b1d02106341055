"""Chains of layers that make a number of one 8-bit number, as tables of the 256 results: the same bits, sooner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.execute.engine import Program, Step, advance
from mlinspect.kernels.quantize import lookup, table_of

# kinds of layers whose every result depends on one number, wherever it stands
_NUMBER_BY_NUMBER = ("activation", "dequantize", "quantize", "requantize")


def with_tables(program: Program, network: ir.Network, known: Callable[[ir.Layer], bool]) -> Program:
    """A program that computes such chains in one step where nobody wants what lies inside them.

    Parameters
    ----------
    program : Program
        Is not changed.
    network : ir.Network
    known : callable
        Whether a layer's arithmetic is this package's: of a user's function nothing is known.

    Returns
    -------
    Program

    Notes
    -----
    MindSpore Lite's converter leaves activations without an int8 kernel (HSWISH, ...) in float32 between two casts.
    """
    readers = Counter(tensor for step in program.steps for tensor in step.inputs)
    chains: dict[int, list[Step]] = {}  # by the tensor that they lead to
    for step in program.steps:
        if step.compute is None or not (_is_plain(step, network) and known(step.layer)):
            continue
        (source,), (result,) = step.inputs, step.outputs
        inside = readers[source] == 1 and source in step.free
        chain = chains.pop(source) if source in chains and inside else []
        if chain or network.tensors[source].dtype in ("int8", "uint8"):
            chains[result] = [*chain, step]
    merged: dict[int, Step | None] = {}  # by layer: what takes its place
    for chain in chains.values():
        if len(chain) > 1:
            merged |= {step.layer.index: None for step in chain}
            merged[chain[0].layer.index] = _one_step(program, chain)
    steps = (merged.get(step.layer.index, step) for step in program.steps)
    return replace(program, steps=tuple(step for step in steps if step is not None))


def _is_plain(step: Step, network: ir.Network) -> bool:
    """One operand, one result, one scale for all of each."""
    tensors = [network.tensors[i] for i in (*step.inputs, *step.outputs)]
    return (
        step.layer.kind in _NUMBER_BY_NUMBER
        and len(step.inputs) == len(step.outputs) == 1
        and all(t.quantization is None or not t.quantization.per_channel for t in tensors)
    )


def _one_step(program: Program, chain: list[Step]) -> Step:
    source, result = chain[0].inputs[0], chain[-1].outputs[0]
    inside = {step.outputs[0] for step in chain[:-1]}
    tables: dict[str, np.ndarray] = {}

    def follow(numbers: np.ndarray) -> np.ndarray:
        values = {source: numbers}
        for step in chain:
            advance(program, values, step)
        return values[result]

    def compute(q: Any) -> tuple[Any]:
        if type(q) is not np.ndarray or q.dtype.char not in "bB":
            return (follow(q),)
        if q.dtype.char not in tables:
            tables[q.dtype.char] = table_of(follow, q.dtype)
        return (lookup(q, tables[q.dtype.char]),)

    free = tuple(tensor for step in chain for tensor in step.free if tensor not in inside)
    return Step(chain[-1].layer, (source,), (result,), compute, free)
