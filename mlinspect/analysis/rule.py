"""What lint rules are made of: a registry, and a network with what rules ask it for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.operands import Use, is_weight, uses
from mlinspect.analysis.stats import stats
from mlinspect.errors import MlinspectError

SEVERITIES = ("error", "warning", "info")  # worst first
SUMS = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv3d", "fully_connected", "matmul")
NARROW = ("int8", "uint8", "int16")


class Finding(NamedTuple):
    """One place where a rule is broken."""

    layer: int | None
    tensor: int | None
    message: str


Check = Callable[["Look"], Iterator[Finding]]


class Rule(NamedTuple):
    """A check, and what is to be said of it."""

    id: str
    severity: str
    meaning: str
    fix: str
    check: Check


RULES: dict[str, Rule] = {}


def rule(name: str, severity: str, fix: str) -> Callable[[Check], Check]:
    """Register a check: a function that takes a :class:`Look` and yields findings; its docstring says what is wrong.

    Parameters
    ----------
    name : str
        The rule's id.
    severity : {"error", "warning", "info"}
        Error: wrong results, or the runtime refuses the model. Warning: accuracy or speed is lost. Info: good to know.
    fix : str
        What to do.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"severity {severity!r} is none of {SEVERITIES}")

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, severity, (check.__doc__ or "").strip(), fix, check)
        return check

    return register


class Look:
    """A network, and what more than one rule wants to know of it.

    Attributes
    ----------
    network : ir.Network
    tensors : mapping of int to Tensor
    layers : list of Layer
        In order of execution, subgraph after subgraph.
    unreadable : dict of int to str
        Constants whose bytes cannot be unpacked, and why.
    """

    def __init__(self, network: ir.Network) -> None:
        self.network = network
        self.tensors = network.tensors
        self.layers = list(network.layers.values())
        self.unreadable: dict[int, str] = {}
        for tensor in self.tensors.values():
            if isinstance(tensor.data, ir.PackedData):
                try:
                    tensor.data.load()
                except MlinspectError as error:
                    self.unreadable[tensor.index] = str(error)

    @cached_property
    def uses(self) -> dict[int, Use]:
        """Tensor -> its first reader."""
        return uses(self.network)

    @cached_property
    def readers(self) -> dict[int, list[Use]]:
        """Tensor -> every layer that reads it, and where."""
        found: dict[int, list[Use]] = defaultdict(list)
        for layer in self.layers:
            for slot, tensor in enumerate(layer.inputs):
                found[tensor].append(Use(layer, slot))
        return found

    @cached_property
    def producers(self) -> dict[int, ir.Layer]:
        """Tensor -> the layer that gives it."""
        return {tensor: layer for layer in reversed(self.layers) for tensor in layer.outputs}

    @cached_property
    def ports_in(self) -> set[int]:
        """Tensors that come from outside, of every graph."""
        return {port.tensor for graph in self.network.graphs for port in graph.inputs}

    @cached_property
    def ports_out(self) -> set[int]:
        """Tensors that are results, of every graph."""
        return {port.tensor for graph in self.network.graphs for port in graph.outputs}

    @cached_property
    def constants(self) -> list[ir.Tensor]:
        """Constants that can be read, in order of their ids."""
        return [t for _, t in sorted(self.tensors.items()) if t.data is not None and t.index not in self.unreadable]

    @cached_property
    def _sound(self) -> ir.Network:
        lost = {i: replace(self.tensors[i], data=None) for i in self.unreadable}
        return replace(self.network, tensors=dict(self.tensors) | lost)

    @cached_property
    def stats(self) -> dict[int, dict[str, Any]]:
        """Tensor -> the row of its statistics; None for what is missing."""
        table = stats(self._sound).astype(object)
        rows = table.where(table.notna(), None)
        return dict(zip(rows.index.tolist(), rows.to_dict("records"), strict=True))  # type: ignore[arg-type]

    @cached_property
    def flat_channels(self) -> dict[int, pd.DataFrame]:
        """Tensor -> the statistics of those of its channels whose values are all one."""
        table = stats(self._sound, by="channel")
        table = table[(table["elements"] > 1) & (table["std"] == 0)]
        return {t: table[table["tensor"] == t] for t in table["tensor"].unique().tolist()}

    def weights(self) -> Iterator[tuple[ir.Tensor, Use]]:
        """Constants that layers multiply with, and their first readers."""
        for tensor in self.constants:
            use = self.uses.get(tensor.index)
            if use is not None and is_weight(tensor, use):
                yield tensor, use

    def sums(self) -> Iterator[tuple[ir.Layer, ir.Tensor, ir.Tensor, ir.Tensor | None]]:
        """Layers that add up products: layer, input, weights, bias."""
        for layer in self.layers:
            if layer.kind in SUMS and len(layer.inputs) > 1:
                found = [self.tensors[i] for i in layer.inputs]
                yield layer, found[0], found[1], found[2] if len(found) > 2 else None

    def owner(self, tensor: ir.Tensor) -> int | None:
        """The layer to name for a tensor: its first reader, or what gives it."""
        if tensor.index in self.uses and (tensor.data is not None or tensor.index not in self.producers):
            return self.uses[tensor.index].layer.index
        return self.producers[tensor.index].index if tensor.index in self.producers else None

    def at(self, tensor: ir.Tensor, message: str) -> Finding:
        """A finding about a tensor."""
        return Finding(self.owner(tensor), tensor.index, f"{tensor.name}: {message}")


def narrow(tensor: ir.Tensor | None) -> bool:
    """8- or 16-bit quantised values."""
    return tensor is not None and tensor.quantized and tensor.dtype in NARROW


def scale_of(tensor: ir.Tensor) -> np.ndarray:
    """Scales of a tensor as float64; 0 where it has none."""
    q = tensor.quantization
    return np.zeros(1) if q is None or not len(q.scale) else np.asarray(q.scale, np.float64)
