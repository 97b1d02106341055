"""Session: a run that stops between layers, goes back, and can be changed on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import html, ir
from mlinspect.errors import InputError, NotFoundError
from mlinspect.execute.conditions import Condition, Result, conditions, real_values, with_known_names
from mlinspect.execute.control import Jump
from mlinspect.execute.engine import Program, Step, advance
from mlinspect.execute.names import layer_among, tensor_among
from mlinspect.execute.ports import output_names
from mlinspect.execute.registry import Function
from mlinspect.execute.timeline import State, Timeline, changed_program, check_patch, live_tensors, subprogram
from mlinspect.execute.trace import Trace

KEEP_BYTES = 512 << 20


class Session:
    """Computes a model layer by layer.

    Made by ``model.session(inputs)``. Every array that it hands out is read-only, so that looking changes nothing.

    Parameters
    ----------
    network : ir.Network
    program : Program
    feeds : dict of int to ndarray
        Values of the inputs.
    mode : {"vendor", "float"}
    keep_bytes : int
        How much memory the values of earlier layers may take. Within it, going back computes nothing; beyond it, some
        layers are computed again from the nearest point that was kept.

    Attributes
    ----------
    position : int
        How many layers have been computed.
    stopped : str
        Why ``resume`` or ``run_until`` stopped, ``""`` when it ran to the end.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.armnn"))
    >>> session = model.session(mi.samples.digits().images[:1, ..., None].astype("float32") / 16)
    >>> session.run_to("stem/bn").op
    'BatchNormalization'
    >>> session.back().op, session.position
    ('Convolution2d', 1)
    >>> layer = session.run_until(below=0)
    >>> print(session.stopped)
    layer 2 'stem/bn', tensor 'stem/bn': 520 values below 0
    """

    def __init__(
        self,
        network: ir.Network,
        program: Program,
        feeds: Mapping[int, Any],
        mode: str = "vendor",
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.network = network
        self.keep_bytes = keep_bytes
        self._mode = mode
        self._feeds = dict(feeds)
        self._start = program
        self._graph: int | None = None  # the subgraph that this is a session of
        self._breaks: list[Condition] = []
        self._watched: list[tuple[str, int, Callable[[np.ndarray], Any] | None]] = []
        self.reset()

    def reset(self) -> None:
        """Go back to before the first layer and forget patches and replacements."""
        self.position = 0
        self.stopped = ""
        self._inner: Session | None = None
        self._timeline = Timeline(State({}, self._start, {}, {}), self.keep_bytes, len(self))
        self._records: dict[int, dict[str, Any]] = {}
        self._live = live_tensors(self._start)

    # --- where it stands ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._start.steps)

    @property
    def done(self) -> bool:
        """Every layer has been computed."""
        return self.position == len(self)

    @property
    def layers(self) -> tuple[ir.Layer, ...]:
        """The layers that are computed, in order."""
        return tuple(step.layer for step in self._start.steps)

    @property
    def layer(self) -> ir.Layer | None:
        """The layer that was computed last, None at the start."""
        return self._start.steps[self.position - 1].layer if self.position else None

    @property
    def next_layer(self) -> ir.Layer | None:
        """The layer that ``step`` would compute, None at the end."""
        return None if self.done else self._start.steps[self.position].layer

    # --- forward --------------------------------------------------------------------------------------------------

    def step(self) -> ir.Layer | None:
        """Compute one layer; gives it, or None if all are done.

        A layer that calls a subgraph is computed as one step: see :meth:`step_into`.
        """
        if self.done:
            return None
        if self.position + 1 not in self._timeline.states:
            self._timeline.add(self.position + 1, self._computed(self.position, self._state))
        self.position += 1
        self._inner = None
        self._timeline.thin(self.position)
        return self.layer

    step_over = step

    def __iter__(self) -> Iterator[ir.Layer]:
        """What ``step`` gives, up to the last layer."""
        return iter(self.step, None)

    def step_into(self) -> Session:
        """A session of the subgraph that the next layer calls.

        When this session steps on, the inner one is run to its end, with all that was changed in it, and gives the
        layer's results.

        Raises
        ------
        InputError
            The next layer calls no subgraph.
        """
        if self.done:
            raise InputError("all layers have been computed")
        program, values = self._state.program, self._all_values(self._state)
        step = program.steps[self.position]
        jump = step.compute(*[values[tensor] for tensor in step.inputs]) if step.compute is not None else None
        if not isinstance(jump, Jump):
            raise InputError(f"layer {step.layer.name!r} ({step.layer.op}) calls no subgraph: use step")
        self._timeline.forget(self.position + 1)  # what the call gave before is not what it gives now
        arguments = dict(zip(program.graphs[jump.graph].inputs, jump.arguments, strict=True))
        inner = subprogram(program, jump.graph)
        self._inner = Session(self.network, inner, values | arguments, self._mode, self.keep_bytes)
        self._inner._graph = jump.graph
        return self._inner

    def run_to(self, layer: int | str) -> ir.Layer:
        """Compute up to and including a layer, given by index or name.

        Raises
        ------
        InputError
            There is no such layer ahead, or several layers have the name.
        """
        position = self._place(layer)
        if position < self.position:
            raise InputError(f"no layer {layer!r} lies ahead of position {self.position}: it lies behind, use back_to")
        self.go_to(position + 1)
        return self._start.steps[position].layer

    def run_until(self, function: Callable[[np.ndarray], Any] | None = None, **ready: Any) -> ir.Layer | None:
        """Compute until a condition holds for what a layer gives.

        Parameters
        ----------
        function, **ready
            As for :func:`~mlinspect.execute.conditions.conditions`: a function of a tensor's real values, or
            ``layer= kind= nan= inf= clipped= below= above= sqnr= reference=``.

        Returns
        -------
        Layer or None
            The layer, which has been computed; None if all were computed without it. ``stopped`` says why.
        """
        return self._run(conditions(function, **with_known_names(ready, self.layers)))

    def break_when(self, function: Callable[[np.ndarray], Any] | None = None, **ready: Any) -> None:
        """Have ``resume`` stop where a condition holds; parameters as for :meth:`run_until`. Adds to earlier ones."""
        self._breaks += conditions(function, **with_known_names(ready, self.layers))

    def clear_breaks(self) -> None:
        """Forget the conditions of ``break_when``."""
        self._breaks.clear()

    def resume(self) -> ir.Layer | None:
        """Compute until a condition of ``break_when`` holds; gives the layer, or None at the end."""
        return self._run(self._breaks)

    def finish(self) -> dict[str, np.ndarray]:
        """Compute the rest, whatever the breaks; gives the outputs as ``model.run`` does."""
        self._run([])
        return self.outputs

    def _run(self, breaks: list[Condition]) -> ir.Layer | None:
        self.stopped = ""
        while (layer := self.step()) is not None:
            for tensor in layer.outputs if breaks else ():
                result = Result(layer, self.network.tensors[tensor], self._state.values[tensor])
                if reason := next((found for test in breaks if (found := test(result))), ""):
                    self.stopped = f"{result.where}: {reason}"
                    return layer
        return None

    # --- back -----------------------------------------------------------------------------------------------------

    def back(self, count: int = 1) -> ir.Layer | None:
        """Undo layers; gives the one that is then the last computed. What was changed on the way is undone, too.

        Raises
        ------
        InputError
            There are not so many.
        """
        if not _is_count(count):
            raise InputError(f"back takes how many layers to undo, 0 to {self.position}, not {count!r}")
        self.go_to(self.position - count)
        return self.layer

    def back_to(self, layer: int | str) -> ir.Layer:
        """Go back to just before a layer, given by index or name, so that ``step`` computes it again."""
        position = self._place(layer)
        if position >= self.position:
            raise InputError(f"no layer {layer!r} lies behind position {self.position}: it lies ahead, use run_to")
        self.go_to(position)
        return self._start.steps[position].layer

    def _place(self, layer: int | str) -> int:
        """Before which layer the position is that it is computed from."""
        return self.layers.index(layer_among(self.layers, layer))

    def go_to(self, position: int) -> None:
        """Go back or forth until so many layers are computed.

        Raises
        ------
        InputError
            There are not so many.
        """
        if not _is_count(position) or position > len(self):
            raise InputError(f"position {position} lies outside 0 to {len(self)}")
        self._timeline.undo(position, self.position)
        self._inner = None
        self.position = self._timeline.nearest(position)
        while self.position < position:
            self.step()

    # --- change ---------------------------------------------------------------------------------------------------

    def patch(self, tensor: int | str, array: np.ndarray) -> None:
        """Put other numbers in a tensor's place; the layers from here on read them.

        It holds for whatever is computed from here on, also when a later layer gives the tensor; going back to before
        this point undoes it.

        Parameters
        ----------
        tensor : int or str
            Id or name of an activation, an input or a constant.
        array : ndarray
            In the tensor's shape and stored type (real values in float mode, but for constants).

        Raises
        ------
        InputError
            No such tensor, the wrong shape or type, or no layer ahead reads it.
        """
        index = self._tensor(tensor)
        state, value = self._state, np.array(array)
        check_patch(value, self.network.tensors[index], self._all_values(state).get(index), self._mode)
        ahead = self._start.steps[self.position :]
        if not (self._start.graphs or index in self._start.wanted or any(index in step.inputs for step in ahead)):
            raise InputError(f"no layer ahead of position {self.position} reads tensor {tensor!r}: go back first")
        values = {**state.values, index: value} if index in state.values else state.values
        self._change(replace(state, values=values, patches={**state.patches, index: value}))

    def replace(self, layer: int | str, function: Function, *, stored: bool = False) -> None:
        """Have another function compute a layer from here on; going back to before this point undoes it.

        Parameters
        ----------
        layer : int or str
            Index or name.
        function : callable
            ``function(call, *arrays) -> array or tuple of arrays``, as for :func:`mlinspect.register_op`.
        stored : bool
            Operands and results are the stored numbers; otherwise real values.

        Raises
        ------
        InputError
            No such layer lies ahead, or several layers have the name.
        ExecutionError
            Later, when the layer is computed: the function gives too many or too few arrays, or one whose shape or
            type is not what the layer declares.
        """
        if not callable(function):
            raise InputError(f"a function must take the place of layer {layer!r}, not {type(function).__name__}")
        inner = [step.layer for routine in self._start.graphs.values() for step in routine.steps]
        found = layer_among([*self.layers, *inner], layer)
        if found in self.layers[: self.position] and found not in inner:
            raise InputError(f"no layer {layer!r} lies ahead of position {self.position}: go back first")
        state = self._state
        self._change(replace(state, functions={**state.functions, found.index: (function, stored)}))

    def _change(self, state: State) -> None:
        program = changed_program(self.network, self._start, state, self._mode, self._graph)
        self._timeline.change(self.position, replace(state, program=program))

    # --- look -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: int | str) -> np.ndarray:
        """A tensor that was computed, fed or is a constant, by id or name; computed again if it was not kept."""
        index = self._tensor(key)
        values = self._all_values(self._state)
        if index not in values:
            for position in reversed(range(self.position)):
                if index in self._start.steps[position].outputs:
                    values = self._state_at(position + 1).values  # type: ignore[assignment]
                    break
        if index not in values:
            raise NotFoundError(f"tensor {key!r} has not been computed at position {self.position}")
        return _read_only(values[index])

    def __contains__(self, key: object) -> bool:
        """Whether a tensor can be had at this position."""
        try:
            self[key]  # type: ignore[index]
        except InputError:
            return False
        return True

    def watch(
        self, tensor: int | str, function: Callable[[np.ndarray], Any] | None = None, name: str | None = None
    ) -> None:
        """Have :attr:`watches` tell about a tensor, which is kept whatever the memory limit.

        Parameters
        ----------
        tensor : int or str
        function : callable, optional
            What to tell, given the real values. Of an error that it raises, its text is told.
        name : str, optional
            What to call it.
        """
        index = self._tensor(tensor)
        if function is not None and not callable(function):
            raise InputError(f"what a watch tells is a function of the tensor's real values, not {function!r}")
        self._watched.append((name or self.network.tensors[index].name, index, function))

    @property
    def watches(self) -> pd.DataFrame:
        """One row a watched tensor: its range at this position, and what the watch's function gives for it."""
        rows = []
        for name, index, function in self._watched:
            row: dict[str, Any] = {"watch": name, "tensor": index, "shape": None}
            try:
                real = real_values(self[index], self.network.tensors[index])
            except NotFoundError:
                rows.append(row)
                continue
            row["shape"] = real.shape
            if real.size and real.dtype.kind in "iufb":
                row |= {"min": real.min(), "max": real.max(), "mean": real.mean(dtype=np.float64)}
            try:
                row["value"] = None if function is None else function(real)
            except Exception as error:  # whatever it is, it must not stop the run
                row["value"] = f"{type(error).__name__}: {error}"
            rows.append(row)
        return pd.DataFrame(rows, columns=["watch", "tensor", "shape", "min", "max", "mean", "value"])

    @property
    def history(self) -> pd.DataFrame:
        """One row a computed layer: position, layer, name, op, kind, shape, seconds, how often it was computed."""
        columns = ["position", "layer", "name", "op", "kind", "shape", "seconds", "computed"]
        rows = [self._records[p] for p in range(1, self.position + 1)]
        return pd.DataFrame(rows, columns=columns).set_index("position")

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs that have been computed so far, by name."""
        values = self._all_values(self._state)
        graph = self.network.graphs[0]
        if self._graph is not None:
            graph = next(g for g in self.network.graphs if g.index == self._graph)
        named = zip(output_names(graph.outputs), graph.outputs, strict=True)
        return {name: _read_only(values[port.tensor]) for name, port in named if port.tensor in values}

    @property
    def trace(self) -> Trace:
        """Everything computed so far; what was not kept is computed again."""
        values, state = dict(self._feeds), self._timeline.states[0]
        for position in range(self.position):
            state = self._timeline.states.get(position + 1) or self._computed(position, state)
            values |= state.values
        values |= {i: a for i, a in self._start.constants.items() if i in self._start.wanted}
        return Trace(self.network, {i: _read_only(a) for i, a in values.items()})

    def __repr__(self) -> str:
        following = "finished" if self.done else f"next: {self.next_layer.op} {self.next_layer.name!r}"  # type: ignore[union-attr]
        return f"<Session at {self.position} of {len(self)} layers, {following}>"

    def _repr_html_(self) -> str:
        return html.session([repr(self).strip("<>"), self.stopped], self.history, len(self))

    def _tensor(self, key: int | str) -> int:
        parts = {t for step in self._start.steps for t in (*step.inputs, *step.outputs)}
        return tensor_among(self.network.tensors, key, parts)

    # --- states ---------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._timeline.states[self.position]

    def _state_at(self, position: int) -> State:
        """The state at a position up to the present one, without going there."""
        start = self._timeline.nearest(position)
        state = self._timeline.states[start]
        for done in range(start, position):
            state = self._computed(done, state)
        return state

    def _all_values(self, state: State) -> dict[int, Any]:
        activations = {i: a for i, a in state.patches.items() if self.network.tensors[i].data is None}
        return {**state.program.constants, **self._feeds, **state.values, **activations}

    def _computed(self, position: int, state: State) -> State:
        """The state after one layer more."""
        step = state.program.steps[position]
        before = self._all_values(state)
        values = dict(before)
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            if self._inner is not None and position == self.position:
                values.update(self._inner._results(step))
            else:
                advance(state.program, values, step)
        seconds = time.perf_counter() - started
        values.update((i, state.patches[i]) for i in step.outputs if i in state.patches)
        self._record(position + 1, step.layer, values, seconds)
        live = self._live[position + 1] if self._live else None
        watched = {index for _, index, _ in self._watched}
        made = {i: a for i, a in values.items() if i in state.values or a is not before.get(i)}
        if live is not None:
            # constants and inputs that an optimiser wrote to are kept, too
            kept = {*live, *step.outputs, *watched, *state.program.constants, *self._feeds}
            made = {i: a for i, a in made.items() if i in kept}
        return replace(state, values=made)

    def _results(self, step: Step) -> dict[int, Any]:
        """What the layer gives whose subgraph this is a session of, and all that was computed in it."""
        self._run([])
        values = self._all_values(self._state)
        last = self._start.steps[-1] if self._start.steps else None
        given = last.outputs if last is not None and last.layer.op == "Call" else self._start.wanted
        return values | dict(zip(step.outputs, [values[tensor] for tensor in given], strict=True))

    def _record(self, position: int, layer: ir.Layer, values: Mapping[int, Any], seconds: float) -> None:
        array = values.get(layer.outputs[0]) if layer.outputs else None
        self._records[position] = {
            "position": position,
            "layer": layer.index,
            "name": layer.name,
            "op": layer.op,
            "kind": layer.kind,
            "shape": getattr(array, "shape", None),
            "seconds": seconds,
            "computed": self._records.get(position, {}).get("computed", 0) + 1,
        }


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def _read_only(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view
