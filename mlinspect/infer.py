"""Shapes and types of tensors, found by running layers on zeros: so they always agree with those of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, MlinspectError, UnsupportedError
from mlinspect.execute.engine import execute
from mlinspect.execute.programs import Programs, references
from mlinspect.execute.values import numpy_dtype
from mlinspect.formats.packing import VENDOR_DTYPES

Shape = tuple[int, ...]
_PASSIVE = ("Input", "Output", "Constant")
CALLS = ("Call", "PartialFusion", "Partial", "While")  # layers that run other graphs of the file


def inferred(network: ir.Network, edited: Collection[int], moved: Collection[int] = ()) -> ir.Network:
    """The network with the shapes and types after an edit computed anew.

    Parameters
    ----------
    network : Network
        After the edit.
    edited : collection of int
        Layers whose outputs may have changed.
    moved : collection of int
        Tensors whose shape or type the edit itself changed.

    Raises
    ------
    InputError
        The edit makes the graph inconsistent; the message says which layer fails, and how.
    UnsupportedError
        A later layer whose operands change has no arithmetic.
    """
    if not moved and all(_gives_what_it_gave(network, network.layers[layer]) for layer in edited):
        return network
    behind = _behind(network, edited, moved)
    try:
        values = _values_armnn(network, behind) if network.format == "armnn" else _values_mslite(network, behind)
    except UnsupportedError:
        raise
    except MlinspectError as error:
        raise InputError(f"the model would not be consistent: {_plainly(error)}") from error
    tensors = dict(network.tensors)
    for i in behind & values.keys():
        tensors[i] = as_given(tensors[i], values[i], network.format)
    return replace(network, tensors=tensors)


def _plainly(error: MlinspectError) -> str:
    """What an error says; which operands do not fit before what numpy says to them."""
    if error.__cause__ is None or isinstance(error.__cause__, MlinspectError):
        return str(error)
    layer, failed, operands = str(error).removesuffix(f"): {error.__cause__}").rpartition(" failed on (")
    if not failed:
        return str(error)
    return (
        f"{layer} would not fit its operands {operands}: keep their shapes and types, or change this layer as well "
        f"(it fails with: {error.__cause__})"
    )


def as_given(tensor: ir.Tensor, value: Any, model_format: str) -> ir.Tensor:
    """The tensor with the shape that it had in a run, and the type, if its numbers are not quantised."""
    if not isinstance(value, np.ndarray) or tensor.data is not None:
        return tensor
    unknown = value.size == 0 and tensor.shape is not None and 0 not in tensor.shape  # zeros stood for sizes
    if tensor.shape != value.shape and not unknown:
        tensor = replace(tensor, shape=value.shape)
        if tensor.layout is not None and model_format == "armnn" and len(tensor.layout) != value.ndim:
            tensor = replace(tensor, layout=None)
    # the runtime of MindSpore Lite computes half floats as float32
    if value.dtype == numpy_dtype(tensor) or (tensor.dtype == "float16" and value.dtype == np.float32):
        return tensor
    vendor = VENDOR_DTYPES[model_format].get(value.dtype.name)
    if vendor is None:
        raise InputError(f"tensor {tensor.name!r} would hold {value.dtype}, which the format has no name for")
    return replace(tensor, dtype=value.dtype.name, vendor_dtype=vendor, quantization=None, quantized=False)


def zeros(tensor: ir.Tensor) -> np.ndarray:
    """Zeros in a tensor's place; an unknown size counts as 1.

    Raises
    ------
    InputError
        They would take more than a gigabyte.
    """
    shape = [max(size, 1) if size < 0 else size for size in tensor.shape or ()]
    dtype = numpy_dtype(tensor)
    if (needed := math.prod(shape) * dtype.itemsize) > 1 << 30:
        raise InputError(
            f"tensor {tensor.name!r} of shape {shape} needs {needed / 1e9:.1f} GB to find shapes by running"
        )
    return np.zeros(shape, dtype)


def alone(network: ir.Network, layer: ir.Layer, outputs: Mapping[int, Shape | None]) -> ir.Network:
    """A network of one layer, whose outputs have the given shapes (None: to be found)."""
    ids = dict.fromkeys((*layer.inputs, *layer.outputs))
    tensors = {i: network.tensors[i] for i in ids}
    tensors |= {i: replace(tensors[i], shape=shape) for i, shape in outputs.items() if tensors[i].shape != shape}
    entries = tuple(ir.Port(str(i), i) for i in dict.fromkeys(layer.inputs) if tensors[i].data is None)
    exits = tuple(ir.Port(str(i), i) for i in layer.outputs)
    graph = ir.Graph(0, "", entries, exits, (layer,))
    return replace(network, graphs=(graph,), tensors=tensors)


def run_alone(
    network: ir.Network, layer: ir.Layer, operands: Mapping[int, np.ndarray], outputs: Mapping[int, Shape | None]
) -> dict[int, np.ndarray]:
    """Outputs of one layer for some operands; the other operands are zeros."""
    single = alone(network, layer, outputs)
    feeds = {
        port.tensor: operands[port.tensor] if port.tensor in operands else zeros(single.tensors[port.tensor])
        for port in single.graphs[0].inputs
    }
    return execute(Programs(single).get("vendor", layer.outputs), feeds)


def _gives_what_it_gave(network: ir.Network, layer: ir.Layer) -> bool:
    """Whether a layer, run alone on zeros, still returns the declared shapes and types."""
    if layer.op in _PASSIVE:
        return True
    if layer.op in CALLS:  # its outputs depend on other graphs
        return False
    wanted = {i: network.tensors[i] for i in layer.outputs}
    try:
        found = run_alone(network, layer, {}, sizes(network, layer))
    except UnsupportedError:  # without arithmetic there is nothing to compare
        return True
    except MlinspectError:
        return False
    return all(as_given(tensor, found[i], network.format) is tensor for i, tensor in wanted.items())


def _behind(network: ir.Network, edited: Collection[int], moved: Collection[int]) -> set[int]:
    """Tensors that may be other than they were."""
    found = set(moved)
    for graph in network.graphs:
        for layer in graph.layers:
            if layer.index in edited or not found.isdisjoint(layer.inputs):
                found.update(layer.outputs)
    if len(network.graphs) > 1:  # data go from graph to graph by position: anything may follow
        return set(network.tensors)
    return found


def _values_mslite(network: ir.Network, behind: set[int]) -> dict[int, np.ndarray]:
    """Every tensor of a run on zeros. Files need not hold true shapes of intermediates, so all are computed."""
    main = network.graphs[0]
    by_user = {i for i, whose in references(network).items() if whose == "user"}  # whose results are held to shapes
    unknown = {
        i: replace(network.tensors[i], shape=None)
        for layer in by_user
        for i in network.layers[layer].outputs
        if i in behind
    }
    network = replace(network, tensors={**network.tensors, **unknown})
    program = Programs(network).get("vendor", [port.tensor for port in main.outputs])
    return execute(program, {port.tensor: zeros(network.tensors[port.tensor]) for port in main.inputs}, keep_all=True)


def _values_armnn(network: ir.Network, behind: set[int]) -> dict[int, np.ndarray]:
    """The tensors behind an edit, and the integers that may be shapes to a layer there."""
    values: dict[int, np.ndarray] = {}
    for layer in network.graphs[0].layers:
        integers = any(network.tensors[i].dtype in ("int32", "int64") for i in layer.outputs)
        changes = not behind.isdisjoint(layer.outputs)
        if layer.op in _PASSIVE or not (integers or changes):
            continue
        found = {i: as_given(network.tensors[i], values[i], "armnn") for i in layer.inputs if i in values}
        now = replace(network, tensors={**network.tensors, **found})
        try:
            values |= run_alone(now, layer, values, sizes(now, layer))
        except UnsupportedError:
            if changes:
                raise
    return values


def sizes(network: ir.Network, layer: ir.Layer) -> dict[int, Shape | None]:
    """Shapes of the outputs where a layer's arithmetic asks for them; None where it finds them itself."""
    if network.format == "mslite":
        return {i: network.tensors[i].shape if layer.op == "Reshape" else None for i in layer.outputs}
    shapes = [network.tensors[i].shape or () for i in layer.inputs]
    declared = [network.tensors[i].shape for i in layer.outputs]
    rule = _RULES.get(layer.op)
    return dict(zip(layer.outputs, rule(layer, shapes, declared) if rule else [None] * len(declared), strict=True))


def _pooled(layer: ir.Layer, shapes: list[Shape], declared: list[Shape | None]) -> list[Shape | None]:
    """Windows that begin inside the image or the padding before it, the last one cut off or left out by the rounding.

    A stride of 0 in all directions pools the whole image. Source: Arm NN, Pooling2dLayer and Pooling3dLayer.
    """
    a = layer.attrs
    axes = [("Top", "Bottom", "Height", "Y"), ("Left", "Right", "Width", "X")]
    if layer.op == "Pooling3d":
        axes.insert(0, ("Front", "Back", "Depth", "Z"))
    first = 2 if a["dataLayout"] in ("NCHW", "NCDHW") else 1
    shape = list(shapes[0])
    for axis, (before, after, size, step) in enumerate(axes, first):
        padded = shape[axis] + a[f"pad{before}"] + a[f"pad{after}"]
        stride, steps = a[f"stride{step}"], padded - a[f"pool{size}"]
        if a[f"pool{size}"] < 1:
            raise InputError(f"layer {layer.index} {layer.name!r}: pool{size} must be 1 or more")
        if steps < 0:
            raise InputError(f"layer {layer.index} {layer.name!r}: the window is larger than the padded image")
        count = 1
        if any(a[f"stride{step}"] for *_, step in axes):
            if not stride:
                raise InputError(f"layer {layer.index} {layer.name!r}: stride{step}=0, where the other strides are not")
            count += -(-steps // stride) if a["outputShapeRounding"] == "Ceiling" else steps // stride
            count -= (count - 1) * stride >= padded - a[f"pad{after}"]
        shape[axis] = count
    return [tuple(shape)]


def _joined(layer: ir.Layer, shapes: list[Shape], declared: list[Shape | None]) -> list[Shape | None]:
    origins = layer.attrs["viewOrigins"]
    if [len(origin) for origin in origins] != [len(shape) for shape in shapes]:
        raise InputError(
            f"layer {layer.index} {layer.name!r}: viewOrigins {list(origins)} do not fit operands of shapes {shapes}"
        )
    ends = [
        [start + size for start, size in zip(origin, shape, strict=True)]
        for origin, shape in zip(origins, shapes, strict=True)
    ]
    return [tuple(max(axis) for axis in zip(*ends, strict=True))]


def _dense(layer: ir.Layer, shapes: list[Shape], declared: list[Shape | None]) -> list[Shape | None]:
    """As declared, but for the batch and the units."""
    units = shapes[1][0 if layer.attrs["transposeWeightsMatrix"] else 1]
    return [None if shape is None else (*shapes[0][:1], *shape[1:-1], units) for shape in declared]


def _detected(layer: ir.Layer, shapes: list[Shape], declared: list[Shape | None]) -> list[Shape | None]:
    """As declared; Arm NN's own choice where nothing is."""
    rows = layer.attrs["maxDetections"] * layer.attrs["maxClassesPerDetection"]
    return [own or made for own, made in zip(declared, ((1, rows, 4), (1, rows), (1, rows), (1,)), strict=True)]


_RULES: Mapping[str, Callable[[ir.Layer, list[Shape], list[Shape | None]], list[Shape | None]]] = {
    "Concat": _joined,
    "DetectionPostProcess": _detected,
    "FullyConnected": _dense,
    "Merger": _joined,
    "Pooling2d": _pooled,
    "Pooling3d": _pooled,
    "Rank": lambda layer, shapes, declared: [(1,)],
}
