"""Runs a graph: what has to be computed, in which order, and how long each tensor has to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import ExecutionError, MlinspectError, UnsupportedError

Compute = Callable[..., tuple[np.ndarray, ...]]


@dataclass(frozen=True, slots=True)
class Step:
    """One layer to compute: ``compute(*values of inputs) -> values of outputs``."""

    layer: ir.Layer
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    compute: Compute | None
    free: tuple[int, ...] = ()  # tensors that nobody needs after this step


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that lead to the wanted tensors, and the constants that they use."""

    steps: tuple[Step, ...]
    constants: Mapping[int, np.ndarray]
    wanted: tuple[int, ...]
    needed: frozenset[int]

    def check(self) -> None:
        """Raise before anything is computed if a layer has no arithmetic."""
        for step in self.steps:
            if step.compute is None:
                raise missing_op(step.layer)


def missing_op(layer: ir.Layer) -> UnsupportedError:
    """The error for a layer that nobody has arithmetic for."""
    return UnsupportedError(
        f"layer {layer.index} {layer.name!r}: there is no arithmetic for {layer.op}. Supply it with "
        f'mlinspect.register_op(format, "{layer.op}")(function), or ask for outputs that do not need it with outputs='
    )


def plan(
    network: ir.Network,
    wanted: Iterable[int],
    bind: Callable[[ir.Layer], Compute | None],
    load: Callable[[ir.Tensor], np.ndarray],
) -> Program:
    """Choose the steps that lead to the wanted tensors.

    Parameters
    ----------
    network : ir.Network
    wanted : iterable of int
        Tensor ids.
    bind : callable
        Gives the function that computes a layer, or None where there is none.
    load : callable
        Gives the numbers of a constant tensor.
    """
    wanted = tuple(wanted)
    needed = set(wanted)
    constant = {tensor.index for tensor in network.tensors.values() if tensor.data is not None}
    known = constant | {port.tensor for port in network.graphs[0].inputs}
    chosen = []
    for layer in reversed(network.graphs[0].layers):
        if any(tensor in needed and tensor not in known for tensor in layer.outputs):
            chosen.append(layer)
            needed.update(layer.inputs)
    keep = set(wanted) | constant
    steps: list[Step] = []
    last_seen: set[int] = set()
    for layer in chosen:  # from the last layer back: a tensor met for the first time is used for the last time
        touched = dict.fromkeys((*layer.inputs, *layer.outputs))
        free = tuple(tensor for tensor in touched if tensor not in last_seen and tensor not in keep)
        last_seen.update(touched)
        steps.append(Step(layer, layer.inputs, layer.outputs, bind(layer), free))
    constants = {tensor: load(network.tensors[tensor]) for tensor in needed & constant}
    return Program(tuple(reversed(steps)), constants, wanted, frozenset(needed))


def advance(program: Program, values: dict[int, np.ndarray], step: Step) -> None:
    """Compute one step and put its results among the values.

    Raises
    ------
    ExecutionError
        Naming the layer and its operands; the original error is its cause.
    """
    if step.compute is None:
        raise missing_op(step.layer)
    try:
        results = step.compute(*[values[tensor] for tensor in step.inputs])
    except MlinspectError as error:
        raise type(error)(f"{_where(step.layer)}: {error}") from error
    except Exception as error:
        operands = ", ".join(
            f"{values[tensor].dtype}{list(values[tensor].shape)}" if tensor in values else "nothing"
            for tensor in step.inputs
        )
        raise ExecutionError(f"{_where(step.layer)} failed on ({operands}): {error}") from error
    for tensor, result in zip(step.outputs, results, strict=True):
        values[tensor] = result


def _where(layer: ir.Layer) -> str:
    return f"layer {layer.index} {layer.name!r} ({layer.op})"


def execute(program: Program, feeds: Mapping[int, np.ndarray], keep_all: bool = False) -> dict[int, np.ndarray]:
    """Run a program from the values of its inputs.

    Parameters
    ----------
    program : Program
    feeds : mapping of int to ndarray
        Values of inputs, or of any tensor that shall not be computed.
    keep_all : bool
        Keep every tensor instead of only the wanted ones.

    Returns
    -------
    dict of int to ndarray
        By tensor id; constants only where they are wanted.
    """
    program.check()
    values: dict[int, np.ndarray] = dict(program.constants)
    values.update(feeds)
    for step in program.steps:
        advance(program, values, step)
        if not keep_all:
            for tensor in step.free:
                values.pop(tensor, None)
    if not keep_all:
        return {tensor: values[tensor] for tensor in program.wanted}
    return {tensor: value for tensor, value in values.items() if tensor not in program.constants or tensor in program.wanted}


def as_tuple(result: Any) -> tuple[Any, ...]:
    """An operator's result as a tuple."""
    return result if isinstance(result, tuple) else (result,)
