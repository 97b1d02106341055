"""States of a run between its layers: how one follows from the other, and which of them are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError
from mlinspect.execute.engine import Compute, Program, Step
from mlinspect.execute.programs import Programs
from mlinspect.execute.registry import Call, Function
from mlinspect.execute.supplied import compute_by
from mlinspect.execute.values import numpy_dtype, shape_fits


@dataclass(frozen=True, slots=True)
class State:
    """All that a run depends on between two layers. It never changes, so it can be kept.

    Attributes
    ----------
    values : mapping of int to array
        What was computed and is still needed, or has just been computed.
    program : Program
        What remains to be computed.
    patches : mapping of int to ndarray
        By tensor: what the user put in its place.
    functions : mapping of int to (function, bool)
        By layer: what the user put in its place, and whether it takes stored numbers.
    """

    values: Mapping[int, Any]
    program: Program
    patches: Mapping[int, np.ndarray]
    functions: Mapping[int, tuple[Function, bool]]


class Timeline:
    """States by position. Those that the user changed stay; of the others as many as memory allows, evenly spread."""

    def __init__(self, first: State, limit: int, end: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int | float | np.number) or not limit >= 0:
            raise InputError(f"keep_bytes is how much memory earlier layers may take, in bytes, not {limit!r}")
        self.limit = limit
        self.states = {0: first}
        self.changed = {0}
        self._end = end
        self._uses: Counter[int] = Counter()  # how many states hold an array, by its id
        self._bytes = 0

    def nearest(self, position: int) -> int:
        """The last kept position that is not behind this one."""
        return max(p for p in self.states if p <= position)

    def add(self, position: int, state: State) -> None:
        """Keep a state for now."""
        self.states[position] = state
        for array in _arrays(state):
            self._uses[id(array)] += 1
            self._bytes += array.nbytes if self._uses[id(array)] == 1 else 0

    def change(self, position: int, state: State) -> None:
        """Continue from a state that the user changed: what followed from the old one is void."""
        self.forget(position)
        self.add(position, state)
        self.changed.add(position)

    def undo(self, position: int, present: int) -> None:
        """Go back: changes that were made after the position are void."""
        undone = [p for p in self.changed if position < p <= present]
        if undone:
            self.forget(min(undone))

    def forget(self, position: int) -> None:
        """Drop all states from a position on."""
        for p in [p for p in self.states if p >= position]:
            self._drop(p)
        self.changed = {p for p in self.changed if p < position} | {0}

    def thin(self, present: int) -> None:
        """Drop states until they fit into the limit, those first whose neighbours are nearest."""
        while self._bytes > self.limit:
            kept = sorted(self.states)
            after = [*kept[1:], self._end + 1]
            gaps = [
                (after[i] - kept[i - 1], p)
                for i, p in enumerate(kept)
                if i and p != present and p not in self.changed
            ]  # fmt: skip
            if not gaps:
                return
            self._drop(min(gaps)[1])

    def _drop(self, position: int) -> None:
        for array in _arrays(self.states.pop(position)):
            self._uses[id(array)] -= 1
            if not self._uses[id(array)]:
                del self._uses[id(array)]
                self._bytes -= array.nbytes


def _arrays(state: State) -> list[np.ndarray]:
    return [value for value in state.values.values() if isinstance(value, np.ndarray)]


def live_tensors(program: Program) -> list[set[int]] | None:
    """For each position, the tensors that are read later; None where subgraphs may read any."""
    if program.graphs:
        return None
    live = [set(program.wanted)]
    for step in reversed(program.steps):
        live.append((live[-1] - set(step.outputs)) | set(step.inputs))
    return live[::-1]


def subprogram(program: Program, graph: int | None) -> Program:
    """A subgraph as a program of its own; None: the program itself."""
    if graph is None:
        return program
    routine = program.graphs[graph]
    return replace(program, steps=routine.steps, wanted=routine.outputs)


def changed_program(network: ir.Network, start: Program, state: State, mode: str, graph: int | None) -> Program:
    """The program with a state's patched constants and replaced functions.

    Parameters
    ----------
    network : ir.Network
    start : Program
        Without changes.
    state : State
    mode : {"vendor", "float"}
    graph : int or None
        The subgraph that the program computes.
    """
    program = start
    constants = {i: array for i, array in state.patches.items() if network.tensors[i].data is not None}
    if constants:  # layers may have prepared what they make of a constant, so they are bound anew
        changed = {i: replace(network.tensors[i], data=array) for i, array in constants.items()}
        network = replace(network, tensors={**network.tensors, **changed})
        wanted = start.wanted if graph is None else tuple(port.tensor for port in network.graphs[0].outputs)
        program = subprogram(Programs(network).get(mode, wanted, start.step_limit), graph)

    def swapped(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            replace(step, compute=_replacement(step.layer, network, mode, *state.functions[step.layer.index]))
            if step.layer.index in state.functions
            else step
            for step in steps
        )

    graphs = {index: replace(routine, steps=swapped(routine.steps)) for index, routine in program.graphs.items()}
    return replace(program, steps=swapped(program.steps), graphs=graphs)


def _replacement(layer: ir.Layer, network: ir.Network, mode: str, function: Function, stored: bool) -> Compute:
    """A user's function in a layer's place."""
    inputs, outputs = (tuple(network.tensors[i] for i in ids) for ids in (layer.inputs, layer.outputs))
    return compute_by(function, Call(layer, inputs, outputs, mode), stored, network.format)


def check_patch(array: np.ndarray, tensor: ir.Tensor, present: Any, mode: str) -> None:
    """Raise InputError if an array cannot stand in a tensor's place (`present`: what stands there now, or None)."""
    if tensor.data is not None:
        present = tensor.array
    if isinstance(present, np.ndarray):
        dtype, shape = present.dtype, present.shape
    else:
        dtype = np.dtype(np.float32) if mode == "float" and tensor.quantized else numpy_dtype(tensor)
        shape = tensor.shape or array.shape
    if array.dtype != dtype or not shape_fits(array.shape, shape):
        raise InputError(f"tensor {tensor.name!r} wants {dtype}{list(shape)}, not {array.dtype}{list(array.shape)}")
