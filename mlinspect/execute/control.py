"""MindSpore Lite's control flow: a subgraph with its arguments is a value, which Switch chooses and Call runs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mlinspect.errors import ExecutionError
from mlinspect.execute.registry import Call, op

mslite = partial(op, "mslite", stored=True)


class Handle(NamedTuple):
    """What PartialFusion gives: a subgraph, ready to be called."""

    graph: int
    arguments: tuple[Any, ...]


class Jump(NamedTuple):
    """What a layer gives instead of its results when a subgraph computes them; the engine goes there."""

    graph: int
    arguments: tuple[Any, ...]


class Loop(NamedTuple):
    """What a While of files before MindSpore Lite 1.5 gives: run ``body`` as long as ``condition`` gives true."""

    condition: int
    body: int
    arguments: tuple[Any, ...]


class Update(NamedTuple):
    """A layer's results, and what it makes of its operands (by position): optimisers and assignments write to them."""

    results: tuple[Any, ...]
    operands: dict[int, np.ndarray]


def truth(condition: Any) -> bool:
    """The boolean that a branch depends on: the first element."""
    return bool(np.asarray(condition).reshape(-1)[0])


@mslite("PartialFusion")
def partial_fusion(call: Call, *arguments: Any) -> tuple[Handle] | Jump:
    """A handle where a Switch or a Call takes it; older files have it run the subgraph itself."""
    graph = int(call.attrs["sub_graph_index"])
    return (Handle(graph, arguments),) if call.memo["handle"] else Jump(graph, arguments)


@mslite("Switch")
def switch(call: Call, condition: np.ndarray, *values: Any) -> tuple[Any, ...]:
    """The first of two handles where the condition holds, else the second."""
    if len(call.outputs) == 1:
        return (values[0 if truth(condition) else 1],)
    # before 1.5: the operands go to the first half of the outputs or to the second; the other half stays dead
    dead = (None,) * (len(call.outputs) - len(values))
    return values + dead if truth(condition) else dead + values


@mslite("SwitchLayer")
def switch_layer(call: Call, index: np.ndarray, *branches: Any) -> tuple[Any]:
    """The handle of that number; negative ones count from the end."""
    return (branches[int(np.asarray(index).reshape(-1)[0])],)


@mslite("Merge")
def merge(call: Call, *values: Any) -> tuple[Any, ...]:
    """What is alive of two lists of operands."""
    half = len(values) // 2
    return values[half:] if any(value is None for value in values[:half]) else values[:half]


@mslite("Call")
def call_graph(call: Call, handle: Any, *arguments: Any) -> Jump:
    """On to the handle's subgraph."""
    if not isinstance(handle, Handle):
        raise ExecutionError("Call was given no subgraph to run")
    return Jump(handle.graph, handle.arguments + arguments)


@mslite("While")
def while_loop(call: Call, *arguments: Any) -> Loop:
    """The operands go round the two subgraphs."""
    return Loop(int(call.attrs["cond_subgraph_index"]), int(call.attrs["body_subgraph_index"]), arguments)
