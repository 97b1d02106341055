"""Two networks joined at the points where they hold the same values, so that either can compute any stretch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.analysis.layouts import Layout, best_layout
from mlinspect.analysis.match import Point, match, paired_ports, passed, with_outputs
from mlinspect.analysis.operations import MOVES
from mlinspect.analysis.samples import Sample, feeds
from mlinspect.errors import InputError
from mlinspect.execute.conditions import real_values
from mlinspect.execute.engine import Program, Step, advance, execute
from mlinspect.execute.ports import require_inputs
from mlinspect.execute.programs import Programs
from mlinspect.execute.values import numpy_dtype, quantize_array


@dataclass(frozen=True)
class Stretch:
    """The steps that lead to a point's tensor from the points before it."""

    steps: tuple[Step, ...]
    reads: tuple[int, ...]  # positions of the points that it starts from


class Side:
    """One of the two networks: its program, and how it gets from point to point."""

    def __init__(self, network: ir.Network, mode: str, tensors: list[int]) -> None:
        self.network, self.mode, self.tensors = network, mode, tensors
        self.program: Program = Programs(network).get(mode, dict.fromkeys(tensors))
        self.program.check()
        self.stretches = [self._stretch(i) for i in range(len(tensors))]

    def _stretch(self, position: int) -> Stretch:
        known = {tensor: i for i, tensor in enumerate(self.tensors[:position])}
        needed, steps, reads = {self.tensors[position]}, [], set()
        for step in reversed(self.program.steps):
            if needed.isdisjoint(step.outputs):
                continue
            steps.append(step)
            reads |= {known[t] for t in step.inputs if t in known}
            needed |= {t for t in step.inputs if t not in known}
        return Stretch(tuple(reversed(steps)), tuple(sorted(reads)))

    def moved(self, position: int) -> ir.Tensor | None:
        """A tensor whose numbers a point's tensor holds as they were, in other places; None where it is not so."""
        stretch = self.stretches[position]
        read = [self.network.tensors[self.tensors[i]] for i in stretch.reads]
        moves = all(_moves(self.network, step.layer) for step in stretch.steps)
        return read[0] if stretch.steps and moves and len({_coding(tensor) for tensor in read}) == 1 else None

    def folded(self, position: int, layer: int | None) -> list[str]:
        """Names of the layers that compute on the way to a point's tensor, beside the one that the point is of."""
        steps = [step.layer for step in self.stretches[position].steps if step.layer.index != layer]
        return [one.name or one.op for one in steps if not _moves(self.network, one)]

    def real(self, position: int, array: np.ndarray) -> np.ndarray:
        """Real values of a point's tensor."""
        return real_values(array, self.network.tensors[self.tensors[position]])

    def stored(self, position: int, values: np.ndarray) -> np.ndarray:
        """Real values as the point's tensor holds them."""
        tensor = self.network.tensors[self.tensors[position]]
        if tensor.quantized and self.mode != "float":
            return quantize_array(values.astype(np.float32, copy=False), tensor)
        return values.astype(np.float32 if tensor.quantized else numpy_dtype(tensor), copy=False)


Coding = tuple[str, bytes, bytes]


def _coding(tensor: ir.Tensor) -> Coding:
    """How a tensor stores real numbers: equal for tensors that hold the same numbers in the same way."""
    q = tensor.quantization if tensor.quantized else None
    return (tensor.dtype, b"", b"") if q is None else (tensor.dtype, q.scale.tobytes(), q.zero_point.tobytes())


def _moves(network: ir.Network, layer: ir.Layer) -> bool:
    """Whether a layer only moves numbers or makes them real, so that it rounds none."""
    taken, given = ([network.tensors[i] for i in ids] for ids in (layer.inputs, layer.outputs))
    if layer.kind == "dequantize":
        return all(tensor.dtype == "float32" for tensor in given)
    # integers are indices and shapes, constants are no part of what flows
    flowing = [t for t in (*taken, *given) if t.data is None and (t.quantized or t.dtype.startswith("float"))]
    return layer.kind in MOVES and len({_coding(tensor) for tensor in flowing}) == 1


class Bridge:
    """Model `a` and reference `b`, and the points where they meet.

    Parameters
    ----------
    a, b : ir.Network
    modes : pair of {"vendor", "float"}
    sample : dict of int to ndarray
        One input, to see how values are laid out on either side.

    Attributes
    ----------
    points : list of Point
        In the order of `a`, inputs first.
    sides : tuple of Side
    outputs : list of int
        Positions of the points that are the models' outputs.
    moved : list of Tensor or None
        For each point the tensor of `a` whose numbers it holds in other places, if that is all.
    """

    def __init__(self, a: ir.Network, b: ir.Network, modes: tuple[str, str], sample: Sample) -> None:
        self.networks, self.modes = (a, b), modes
        points = self._behind_casts(with_outputs(a, b, match(a, b, modes)))
        self.points, self.layouts, self.shapes = self._alike(points, sample)
        self.sides = tuple(
            Side(network, mode, [(point.a, point.b)[i] for point in self.points])
            for i, (network, mode) in enumerate(zip((a, b), modes, strict=True))
        )
        ends = [port.tensor for port in a.graphs[0].outputs]
        self.outputs = [i for i, point in enumerate(self.points) if point.a in ends]
        self.moved = [self.sides[0].moved(i) for i in range(len(self.points))]
        if not self.outputs:
            raise InputError("the models' outputs do not match: neither by name nor by structure nor by size")

    def _behind_casts(self, points: list[Point]) -> list[Point]:
        """The points, those at the outputs moved behind the casts that follow."""
        a, b = self.networks
        points = list(points)
        for one, other in paired_ports(a.graphs[0].outputs, b.graphs[0].outputs):
            before_a, before_b = passed(a, one.tensor), passed(b, other.tensor)
            for i, point in reversed(list(enumerate(points))):
                if point.a in before_a and point.b in before_b:
                    points[i] = replace(point, a=one.tensor, b=other.tensor)
                    break
        return points

    def _alike(self, points: list[Point], sample: Sample) -> tuple[list[Point], list[Layout], list[tuple[int, ...]]]:
        """The points whose tensors are of one size, each tensor in one point only; how b's becomes a's; b's shape."""
        traces = []
        for network, mode, side in zip(self.networks, self.modes, "ab", strict=True):
            program = Programs(network).get(mode, dict.fromkeys(getattr(point, side) for point in points))
            fed = feeds(network, sample, mode)
            require_inputs(network, fed, set(program.needed))
            traces.append(execute(program, fed, keep_all=True))
        found: list[Point] = []
        layouts, shapes = [], []
        for point in points:
            a, b = traces[0].get(point.a), traces[1].get(point.b)
            taken = any(point.a == other.a or point.b == other.b for other in found)
            if taken or not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
                continue
            tensors = self.networks[0].tensors[point.a], self.networks[1].tensors[point.b]
            layout = best_layout(real_values(b, tensors[1]), real_values(a, tensors[0]))
            if layout is not None and a.dtype.kind in "iuf" and b.dtype.kind in "iuf":
                found.append(point)
                layouts.append(layout)
                shapes.append(b.shape)
        return found, layouts, shapes

    def start(self, sample: Sample) -> Run:
        """A run of one sample, at its beginning."""
        fed = tuple(feeds(side.network, sample, side.mode) for side in self.sides)
        return Run(self, fed, tuple({**side.program.constants, **f} for side, f in zip(self.sides, fed, strict=True)))


class Run:
    """Values of both sides by tensor; a point's value on one side becomes that of the other when it is read there."""

    def __init__(
        self, bridge: Bridge, fed: tuple[Mapping[int, np.ndarray], ...], values: tuple[dict[int, Any], ...]
    ) -> None:
        self.bridge, self.fed, self.values = bridge, fed, values
        self.made: dict[int, int] = {}  # point -> the side that computed it

    def fork(self) -> Run:
        """A run that goes its own way from here."""
        other = Run(self.bridge, self.fed, tuple(dict(env) for env in self.values))
        other.made = dict(self.made)
        return other

    def compute(self, side: int, position: int) -> None:
        """Compute a point's tensor on one side (0 is `a`) from the points before it, whichever side they are from."""
        this = self.bridge.sides[side]
        stretch, tensor, env = this.stretches[position], this.tensors[position], self.values[side]
        for read in stretch.reads:
            self.bring(side, read)
        for step in stretch.steps:
            advance(this.program, env, step)
        if not stretch.steps:
            given = self.fed[side] if tensor in self.fed[side] else this.program.constants
            env[tensor] = given[tensor]
        self.values[1 - side].pop(self.bridge.sides[1 - side].tensors[position], None)
        self.made[position] = side

    def compute_all(self, side: int) -> None:
        """Compute every point on one side."""
        for i in range(len(self.bridge.points)):
            self.compute(side, i)

    def compute_changed(self, side: int, changed: set[int]) -> None:
        """Compute what depends on points that have changed, as far as it changes; all behind them is of that side."""
        this, changed = self.bridge.sides[side], set(changed)
        for i in range(min(changed, default=len(this.tensors)) + 1, len(this.tensors)):
            if not changed.isdisjoint(this.stretches[i].reads):
                before = self.values[side].get(this.tensors[i])
                self.compute(side, i)
                if before is None or not equal(before, self.values[side][this.tensors[i]]):
                    changed.add(i)

    def bring(self, side: int, position: int) -> None:
        """Have a point's value on a side, from the other if it was computed there."""
        here, there = self.bridge.sides[side], self.bridge.sides[1 - side]
        tensor = here.tensors[position]
        if tensor in self.values[side]:
            return
        values = there.real(position, self.values[1 - side][there.tensors[position]])
        layout = self.bridge.layouts[position]
        values = layout.undo(values, self.bridge.shapes[position]) if side else layout.apply(values)
        self.values[side][tensor] = here.stored(position, np.ascontiguousarray(values))

    def stored(self, side: int, position: int) -> np.ndarray:
        """A point's value as a side stores it."""
        self.bring(side, position)
        return self.values[side][self.bridge.sides[side].tensors[position]]

    def real(self, side: int, position: int) -> np.ndarray:
        """Real values of a point as `side` computed them, in the layout of `a`."""
        this = self.bridge.sides[side]
        values = this.real(position, self.values[side][this.tensors[position]])
        return self.bridge.layouts[position].apply(values) if side else values

    def outputs(self) -> dict[int, np.ndarray]:
        """Real values of the output points, by position, from whichever side computed them."""
        return {i: self.real(self.made[i], i) for i in self.bridge.outputs}


def equal(one: np.ndarray, other: np.ndarray) -> bool:
    """The same numbers; NaN is like NaN."""
    return np.array_equal(one, other, equal_nan=True)
