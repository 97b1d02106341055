"""Runs a graph: what has to be computed, in which order, and how long each tensor has to be kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import ExecutionError, MlinspectError, UnsupportedError
from mlinspect.execute.control import Jump, Update, truth

Compute = Callable[..., tuple[Any, ...]]
STEP_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """One layer to compute: ``compute(*values of inputs) -> values of outputs``."""

    layer: ir.Layer
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    compute: Compute | None
    free: tuple[int, ...] = ()  # tensors that nobody needs after this step


@dataclass(frozen=True, slots=True)
class Routine:
    """A subgraph that can be called. A call that gives the subgraph's own results (a tail call) is its last step."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that lead to the wanted tensors, and the constants that they use.

    ``step_limit``: how many subgraphs one call may lead through before it counts as an endless loop.
    """

    steps: tuple[Step, ...]
    constants: Mapping[int, np.ndarray]
    wanted: tuple[int, ...]
    needed: frozenset[int]
    graphs: Mapping[int, Routine] = field(default_factory=dict)
    step_limit: int = STEP_LIMIT

    def check(self) -> None:
        """Raise before anything is computed if a layer has no arithmetic."""
        for step in itertools.chain(self.steps, *(routine.steps for routine in self.graphs.values())):
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

    Raises
    ------
    ExecutionError
        A needed constant cannot be loaded, as its parameters do not fit its numbers; the message names it.
    """
    wanted = tuple(wanted)
    needed = set(wanted)
    constant = {tensor.index for tensor in network.tensors.values() if tensor.data is not None}
    main, *others = network.graphs
    known = constant | {port.tensor for port in main.inputs}
    chosen = _choose(main.layers, needed, known, calls=bool(others))
    steps = _steps(chosen, bind, None if others else set(wanted) | constant)
    graphs = {}
    for graph in others if any(layer.op in _CALLS for layer in chosen) else ():
        needed.update(port.tensor for port in graph.outputs)
        inner = _choose(graph.layers, needed, constant | {port.tensor for port in graph.inputs}, calls=True)
        graphs[graph.index] = _routine(graph, _steps(inner, bind, None))
    constants = {tensor: _loaded(load, network.tensors[tensor]) for tensor in needed & constant}
    return Program(steps, constants, wanted, frozenset(needed), graphs)


def _loaded(load: Callable[[ir.Tensor], np.ndarray], tensor: ir.Tensor) -> np.ndarray:
    try:
        return load(tensor)
    except MlinspectError:
        raise
    except Exception as error:
        q = tensor.quantization
        scales = "" if q is None else f", {len(q.scale)} scales along axis {q.axis}"
        raise ExecutionError(
            f"constant {tensor.index} {tensor.name!r} ({tensor.vendor_dtype}{list(tensor.shape or ())}{scales}) cannot "
            f"be loaded: its parameters do not fit its numbers, the file is probably damaged ({error})"
        ) from error


# layers that run subgraphs
_CALLS = ("Call", "While", "PartialFusion", "Partial")


def _choose(layers: Sequence[ir.Layer], needed: set[int], known: set[int], calls: bool) -> list[ir.Layer]:
    """The layers that lead to the needed tensors, last first (and calls, if wanted); adds what they need in turn."""
    chosen = []
    for layer in reversed(layers):
        leads = any(tensor in needed and tensor not in known for tensor in layer.outputs)
        if leads or (calls and layer.op in _CALLS):
            chosen.append(layer)
            needed.update(layer.inputs)
    return chosen


def _steps(
    chosen: Sequence[ir.Layer], bind: Callable[[ir.Layer], Compute | None], keep: set[int] | None
) -> tuple[Step, ...]:
    """Layers, last first, as steps in order. `keep`: tensors to keep to the end; None: all."""
    steps: list[Step] = []
    last_seen: set[int] = set()
    for layer in chosen:  # from the last layer back: a tensor met for the first time is used for the last time
        touched = dict.fromkeys((*layer.inputs, *layer.outputs))
        free = () if keep is None else tuple(t for t in touched if t not in last_seen and t not in keep)
        last_seen.update(touched)
        steps.append(Step(layer, layer.inputs, layer.outputs, bind(layer), free))
    return tuple(reversed(steps))


def _routine(graph: ir.Graph, steps: tuple[Step, ...]) -> Routine:
    used = {tensor for step in steps for tensor in step.inputs}
    ordered = sorted(steps, key=lambda step: step.layer.op == "Call" and used.isdisjoint(step.outputs))
    return Routine(
        tuple(port.tensor for port in graph.inputs), tuple(port.tensor for port in graph.outputs), tuple(ordered)
    )


def advance(program: Program, values: dict[int, np.ndarray], step: Step) -> None:
    """Compute one step and put its results among the values.

    Raises
    ------
    ExecutionError
        Naming the layer and its operands; the original error is its cause.
    """
    results = _compute(values, step)
    if type(results) is not tuple:
        results = _beyond(program, values, step, results)
    for tensor, result in zip(step.outputs, results, strict=True):
        values[tensor] = result


def _compute(values: dict[int, np.ndarray], step: Step) -> Any:
    if step.compute is None:
        raise missing_op(step.layer)
    try:
        return step.compute(*[values[tensor] for tensor in step.inputs])
    except MlinspectError as error:
        raise type(error)(f"{_where(step.layer)}: {error}") from error
    except Exception as error:
        operands = ", ".join(
            f"{values[tensor].dtype}{list(values[tensor].shape)}"
            if isinstance(values.get(tensor), np.ndarray)
            else type(values.get(tensor)).__name__
            for tensor in step.inputs
        )
        raise ExecutionError(f"{_where(step.layer)} failed on ({operands}): {error}") from error


def _beyond(program: Program, values: dict[int, np.ndarray], step: Step, results: Any) -> tuple[Any, ...]:
    """What a step gives that runs subgraphs or writes to its operands."""
    if isinstance(results, Update):
        for position, value in results.operands.items():
            values[step.inputs[position]] = value
        return results.results
    if isinstance(results, Jump):
        return _run_graph(program, values, step, results)
    state = results.arguments
    for _ in range(program.step_limit):
        (goes_on, *_) = _run_graph(program, values, step, Jump(results.condition, state))
        if not truth(goes_on):
            return state
        state = _run_graph(program, values, step, Jump(results.body, state))
    raise _endless(program, step)


def _run_graph(program: Program, values: dict[int, np.ndarray], step: Step, jump: Jump) -> tuple[Any, ...]:
    """Run a subgraph, and those that it leads on to by its last call: loops are such calls."""
    passed: set[tuple[int, ...]] = set()
    for _ in range(program.step_limit):
        routine = program.graphs[jump.graph]
        values.update(zip(routine.inputs, jump.arguments, strict=True))
        following = None
        for inner in routine.steps:
            if inner is routine.steps[-1] and inner.layer.op == "Call":
                following = _compute(values, inner)
                passed.add(inner.outputs)
            else:
                advance(program, values, inner)
        if following is None:
            results = tuple(values[tensor] for tensor in routine.outputs)
            for outputs in passed:
                values.update(zip(outputs, results, strict=True))
            return results
        jump = following
    raise _endless(program, step)


def _endless(program: Program, step: Step) -> ExecutionError:
    return ExecutionError(
        f"{_where(step.layer)}: {program.step_limit} subgraphs were run and there was no end; raise step_limit if the "
        "loop is meant to be so long"
    )


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
    with np.errstate(all="ignore"):  # NaN and Inf are answers, not accidents
        for step in program.steps:
            advance(program, values, step)
            if not keep_all:
                for tensor in step.free:
                    values.pop(tensor, None)
    missing = [tensor for tensor in program.wanted if tensor not in values]
    if missing:
        raise ExecutionError(f"tensors {missing} were not computed: they lie in a branch that was not taken")
    if not keep_all:
        return {tensor: values[tensor] for tensor in program.wanted}
    return {
        tensor: value for tensor, value in values.items() if tensor not in program.constants or tensor in program.wanted
    }


def as_tuple(result: Any) -> tuple[Any, ...]:
    """An operator's result as a tuple."""
    return result if isinstance(result, tuple) else (result,)
