"""What a model costs: arithmetic, weights, memory, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.columns import frame
from mlinspect.analysis.operands import network_of
from mlinspect.analysis.operations import count_operations
from mlinspect.errors import InputError, UnsupportedError, near
from mlinspect.execute.engine import execute
from mlinspect.execute.programs import Programs
from mlinspect.execute.values import numpy_dtype
from mlinspect.macs import count_elements, count_macs, count_params


class Cost(pd.DataFrame):
    """The cost table, one row a layer, and what follows from it.

    Attributes
    ----------
    liveness : DataFrame
        One row a layer of the main graph: which activations are in memory while it runs, and how many bytes they take.
    peak : int or NA
        Most bytes of activations at one time.
    peak_layer : int or NA
        The first layer at which they are reached.
    peak_tensors : DataFrame
        The activations that make it, largest first.
    """

    _liveness: pd.DataFrame
    _network: ir.Network
    _metadata: ClassVar[list[str]] = ["_liveness", "_network"]  # what pandas keeps in a pickle, too

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame  # a part of the table is a plain table

    @property
    def liveness(self) -> pd.DataFrame:
        """What is in memory while each layer of the main graph runs."""
        return self._liveness

    @property
    def peak(self) -> Any:
        """Most bytes of activations at one time; NA when a size is unknown."""
        live = self._liveness["live_bytes"]
        return pd.NA if live.isna().any() or live.empty else int(live.max())

    @property
    def peak_layer(self) -> Any:
        """The first layer at which the peak is reached."""
        if self.peak is pd.NA:
            return pd.NA
        return int(self._liveness["layer"].iloc[int(self._liveness["live_bytes"].argmax())])

    @property
    def peak_tensors(self) -> pd.DataFrame:
        """The activations at the peak: tensor, name, shape, bytes, share of the peak; largest first."""
        alive: Sequence[int] = ()
        if self.peak is not pd.NA:
            alive = self._liveness["tensors"].iloc[int(self._liveness["live_bytes"].argmax())]
        tensors = sorted((self._network.tensors[i] for i in alive), key=lambda t: (-(tensor_bytes(t) or 0), t.index))
        return frame(
            "peak_tensors",
            [
                {"tensor": t.index, "name": t.name, "shape": t.shape, "bytes": tensor_bytes(t)}
                | {"share": (tensor_bytes(t) or 0) / self.peak if self.peak else np.nan}
                for t in tensors
            ],
        )


def cost(model: Any, shapes: Mapping[str | int, Sequence[int]] | None = None) -> Cost:
    """Arithmetic, weights and memory of every layer.

    Parameters
    ----------
    model : Model or Network
    shapes : mapping of str or int to sequence of int, optional
        Shapes of inputs by name or position, for models whose file leaves sizes open. The model is then run once on
        zeros, which tells the shape of everything else.

    Returns
    -------
    Cost
        A DataFrame, one row a layer in execution order; columns as ``mlinspect.describe("cost")`` says. Its attributes
        ``liveness`` and ``peak`` tell the memory that activations take; parts and copies of it are plain DataFrames.

    Raises
    ------
    InputError
        No such input, or a shape that contradicts the file.
    UnsupportedError
        Shapes were given, but a layer cannot be run.

    Notes
    -----
    An activation lives from the layer that gives it (an input: from the start) to the last that reads it (an output: to
    the end). No layer works in place, and constants do not count. That is the least memory of any runtime that keeps
    each tensor in a buffer of its own and runs the layers in the file's order.

    Examples
    --------
    >>> import mlinspect as mi
    >>> table = cost(mi.open(mi.samples.path("digits_cnn.ms")))
    >>> int(table.macs.sum()), table.peak, table.peak_layer
    (198976, 12288, 2)
    """
    network = network_of(model)
    if shapes:
        network = with_shapes(network, shapes)
    rows = [_row(layer, network.tensors) for layer in network.layers.values()]
    table = Cost(frame("cost", rows))
    object.__setattr__(table, "_network", network)
    object.__setattr__(table, "_liveness", liveness(network))
    return table


def _row(layer: ir.Layer, tensors: Mapping[int, ir.Tensor]) -> dict[str, Any]:
    ins, outs = [tensors[i] for i in layer.inputs], [tensors[i] for i in layer.outputs]
    held = list({t.index: t for t in ins if t.data is not None}.values())
    read = list({t.index: t for t in ins if t.data is None}.values())
    macs, others = count_macs(layer, ins, outs), count_operations(layer, ins, outs)
    logical, taken, given = (_total(part) for part in (held, read, [t for t in outs if t.data is None]))
    moved = None if logical is None or taken is None or given is None else logical + taken + given
    known = macs is not None and others is not None
    return {
        "layer": layer.index,
        "name": layer.name,
        "op": layer.op,
        "kind": layer.kind,
        "graph": layer.graph,
        "macs": macs,
        "other_ops": others,
        "params": count_params(layer.kind, held),
        "weight_bytes": sum(t.nbytes for t in held),
        "weight_bytes_logical": logical,
        "bytes_in": taken,
        "bytes_out": given,
        "intensity": (2 * macs + others) / moved if known and moved else np.nan,  # type: ignore[operator]
    }


def tensor_bytes(tensor: ir.Tensor) -> int | None:
    """Bytes of a tensor in memory, one number after the other; None when its size or type is unknown.

    Examples
    --------
    >>> tensor_bytes(ir.Tensor(0, "x", 0, "activation", "float16", "Float16", (2, 3)))
    12
    """
    count = count_elements(tensor.shape)
    if count is None or tensor.dtype.startswith(("unknown", "string")):
        return None
    try:
        return count * numpy_dtype(tensor).itemsize
    except UnsupportedError:
        return None


def _total(tensors: Sequence[ir.Tensor]) -> int | None:
    sizes = [tensor_bytes(t) for t in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def liveness(network: ir.Network) -> pd.DataFrame:
    """Activations that are in memory while each layer of the main graph runs.

    Parameters
    ----------
    network : Network

    Returns
    -------
    DataFrame
        One row a layer that computes something, in execution order; columns as ``mlinspect.describe("liveness")`` says.
    """
    if not network.graphs:
        return frame("liveness", [])
    graph = network.graphs[0]
    layers = [layer for layer in graph.layers if layer.kind not in ("input", "output", "constant")]
    first = {port.tensor: 0 for port in graph.inputs}
    last: dict[int, int] = dict.fromkeys(first, -1)
    for step, layer in enumerate(layers):
        for tensor in layer.outputs:
            first.setdefault(tensor, step)
            last[tensor] = max(last.get(tensor, step), step)
        for tensor in layer.inputs:
            last[tensor] = step
    last |= {port.tensor: len(layers) - 1 for port in graph.outputs}
    flowing = [i for i in first if network.tensors[i].data is None and last[i] >= first[i]]
    born: list[list[int]] = [[] for _ in layers]
    gone: list[list[int]] = [[] for _ in layers]
    for i in sorted(flowing):
        born[first[i]].append(i)
        gone[last[i]].append(i)
    rows: list[dict[str, Any]] = []
    alive: set[int] = set()
    for step, layer in enumerate(layers):
        alive.update(born[step])
        row: dict[str, Any] = {"step": step, "layer": layer.index, "name": layer.name, "tensors": tuple(sorted(alive))}
        row |= {"allocated": tuple(born[step]), "freed": tuple(gone[step])}
        rows.append(row | {"live_bytes": _total([network.tensors[i] for i in alive])})
        alive.difference_update(gone[step])
    return frame("liveness", rows)


def with_shapes(network: ir.Network, shapes: Mapping[str | int, Sequence[int]]) -> ir.Network:
    """The network with the shapes that everything has for inputs of those shapes."""
    ports = network.graphs[0].inputs
    feeds = {port.tensor: _zeros(network.tensors[port.tensor], port.name) for port in ports}
    names = [port.name for port in ports]
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes={shapes!r} is no dict: give sizes by input, as {{{names[0]!r}: (1, 8, 8, 1)}}")
    for key, shape in shapes.items():
        position = names.index(key) if isinstance(key, str) and key in names else key
        if not isinstance(position, int | np.integer) or not 0 <= position < len(ports):
            takes = ", ".join(map(repr, names))
            raise InputError(f"the model has no input {key!r}; it takes {takes}{near(key, names)}")
        tensor = network.tensors[ports[position].tensor]
        known = tensor.shape
        if known is not None and (
            len(known) != len(shape) or any(a not in (-1, b) for a, b in zip(known, shape, strict=True))
        ):
            raise InputError(
                f"input {key!r} has shape {known} in the file, not {tuple(shape)}: ask for the cost of what "
                "model.with_input_shape gives"
            )
        feeds[tensor.index] = np.zeros(tuple(shape), numpy_dtype(tensor))
    missing = [port.name for port in ports if feeds[port.tensor] is None]
    if missing:
        raise InputError(f"no shape was given for {', '.join(map(repr, missing))}")
    wanted = [port.tensor for port in network.graphs[0].outputs]
    with np.errstate(all="ignore"):
        values = execute(Programs(network).get("vendor", wanted), feeds, keep_all=True)  # type: ignore[arg-type]
    found = {i: tuple(value.shape) for i, value in (feeds | values).items() if isinstance(value, np.ndarray)}
    tensors = {
        i: replace(t, shape=found[i]) if i in found and t.data is None else t for i, t in network.tensors.items()
    }
    return replace(network, tensors=tensors)


def _zeros(tensor: ir.Tensor, name: str) -> np.ndarray | None:
    if tensor.shape is None or min(tensor.shape, default=0) < 0:
        return None
    return np.zeros(tensor.shape, numpy_dtype(tensor))
