"""Changed copies of a model: each function returns a new network, which shares all unchanged parts with the old one.

Shapes and types after an edit are computed anew; an edit that would make the graph inconsistent is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.constants import find_tensor
from mlinspect.errors import InputError, SchemaError, near
from mlinspect.execute.names import find_layer
from mlinspect.execute.values import grid, numpy_dtype, quantize_constant
from mlinspect.formats.attributes import check_attrs, checked_attrs, kind_with, repeated_attrs
from mlinspect.formats.packing import with_numbers
from mlinspect.formats.ports import with_ports
from mlinspect.formats.quantparams import channel_axis
from mlinspect.formats.records import layout_schema
from mlinspect.formats.typeids import version_number
from mlinspect.infer import inferred
from mlinspect.reshape import with_batch

Shapes = Mapping[int | str, Sequence[int]] | Sequence[int]


def with_attrs(network: ir.Network, layer: int | str, **attrs: Any) -> ir.Network:
    """A layer with other attributes.

    Parameters
    ----------
    network : Network
    layer : int or str
        By index or name.
    **attrs
        New values, by the schema's own names.

    Raises
    ------
    InputError
        No such layer; values that contradict the shape of the layer's weights; or an inconsistent model.
    SchemaError
        No such attribute, or a value that does not fit it.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.ms")).network
    >>> changed = with_attrs(network, 0, activation_type="RELU6")
    >>> changed.layers[0].attrs["activation_type"], network.layers[0].attrs["activation_type"]
    ('RELU6', 'RELU')
    """
    old = find_layer(network, layer)
    if old.op.startswith("Unknown("):
        raise InputError(f"layer {old.index} {old.name!r} is of a type that the schema does not know")
    new = replace(old, attrs=_attrs(network, old, attrs))
    if network.format == "mslite":
        check_attrs(new, network.tensors, attrs)
    changed = _with_layers(network, {old.index: replace(new, kind=kind_with(network.format, new, network.tensors))})
    if "layerBindingId" in attrs:
        changed = with_ports(network, changed)
    return inferred(changed, {old.index})


def _attrs(network: ir.Network, layer: ir.Layer, attrs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        schema = layout_schema(network.format, network.layout)
    except SchemaError:  # a user's own, which was given to open
        if stray := [name for name in attrs if name not in layer.attrs]:
            some = f"it has {', '.join(layer.attrs)}{near(stray[0], layer.attrs)}"
            raise SchemaError(f"{layer.op} has no {stray[0]!r}; {some}") from None
        return {**layer.attrs, **attrs}
    op = layer.op if layer.op != "MatMulFusion" or "MatMulFusion" in schema.tables else "MatMul"
    return checked_attrs(schema, network.format, op, {**layer.attrs, **attrs})


def with_constant(network: ir.Network, tensor: int | str, array: np.ndarray, *, quantize: bool = False) -> ir.Network:
    """A constant with other numbers.

    Parameters
    ----------
    network : Network
    tensor : int or str
        By id or name.
    array : ndarray
        Of the constant's stored dtype; of another shape only if the layers that read it allow that. Attributes that
        repeat the shape of a convolution's weights (``kernel_size``, ...) are updated.
    quantize : bool
        The array holds real values: quantise them with the constant's parameters, saturating at the ends of its range.

    Raises
    ------
    InputError
        No such constant, another dtype, numbers that do not fit its bit width, or an inconsistent model.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
    >>> changed = with_constant(model.network, "head.bias", model.weights["head.bias"] * 0)
    >>> int(mi.Model(changed).weights["head.bias"].any())
    0
    """
    old = find_tensor(network, tensor)
    if old.data is None:
        raise InputError(f"tensor {old.index} {old.name!r} is not a constant: its role is {old.role}")
    array = _numbers(f"constant {old.name!r}", array) if quantize else _array(f"constant {old.name!r}", array)
    if quantize:
        array = quantize_constant(array.astype(np.float32, copy=False), old)
    if array.dtype != numpy_dtype(old):
        hint = ", or pass quantize=True to give real values" if old.quantized else ""
        wanted = numpy_dtype(old)
        raise InputError(f"constant {old.name!r} wants {wanted}, not {array.dtype}: use .astype(np.{wanted}){hint}")
    new = with_numbers(old, array)
    q = old.quantization
    if q is not None and q.axis is not None:
        _check_channels(replace(new, quantization=None), q, q.axis)
    users = _users(network, old.index)
    changed = _with_tensor(network, new)
    if network.format == "mslite" and new.shape != old.shape:
        changed = _with_layers(changed, {i: _repeating(network.layers[i], network, changed) for i in users})
    return inferred(changed, users)


def _repeating(layer: ir.Layer, before: ir.Network, after: ir.Network) -> ir.Layer:
    """A layer whose attributes that repeated what its weights' shape says do so again."""
    old, new = (repeated_attrs(layer, network.tensors) for network in (before, after))
    follow = {name: value for name, value in new.items() if layer.attrs[name] == old.get(name)}
    return replace(layer, attrs={**layer.attrs, **follow})


def with_quant(
    network: ir.Network,
    tensor: int | str,
    *,
    scale: float | Sequence[float] | np.ndarray | None = None,
    zero_point: int | Sequence[int] | np.ndarray | None = None,
    axis: int | None = None,
    bits: int | None = None,
) -> ir.Network:
    """A tensor with other quantisation parameters; the stored numbers of a constant stay.

    Parameters
    ----------
    network : Network
    tensor : int or str
        By id or name.
    scale : float or array of float, optional
        One, or one per channel; the old ones by default.
    zero_point : int or array of int, optional
        Likewise.
    axis : int, optional
        Axis that the channels lie along. With several scales, by default the old axis, or the one that the layer
        reading the tensor implies.
    bits : int, optional
        Width of the numbers' grid (MindSpore Lite).

    Raises
    ------
    InputError
        The tensor's type or format cannot have such parameters, or a constant stores numbers that do not fit `bits`;
        the message says why.

    Notes
    -----
    The parameters of other tensors stay, as those of a bias, which both vendors' converters make the product of the
    scales of input and weights: Arm NN warns when they are not and goes on.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn_u8.armnn")).network
    >>> tensor = network.graphs[0].layers[1].outputs[0]
    >>> with_quant(network, tensor, zero_point=3).tensors[tensor].quantization.zero_point
    array([3])
    """
    old = find_tensor(network, tensor)
    q = old.quantization
    if numpy_dtype(old).kind not in "iu" or old.dtype == "int64":
        raise InputError(f"tensor {old.name!r} is of type {old.vendor_dtype}, which holds no quantised values")
    if q is None:
        if scale is None:
            raise InputError(f"tensor {old.name!r} has no quantisation yet: give a scale")
        q = ir.Quantization(np.ones(1), np.zeros(1, np.int64), None, 8 * numpy_dtype(old).itemsize)
    scales: np.ndarray = np.atleast_1d(_numbers("scale", q.scale if scale is None else scale)).astype(np.float64)
    if scale is not None and zero_point is None and len(set(q.zero_point.tolist())) == 1:
        zero_point = int(q.zero_point[0])  # for however many channels there are now
    zeros = np.atleast_1d(_numbers("zero_point", q.zero_point if zero_point is None else zero_point))
    if zeros.dtype.kind not in "iu":
        raise InputError(f"zero points are integers, not {zeros.dtype}")
    if scales.ndim != 1 or zeros.ndim != 1 or len({len(scales), len(zeros), 1}) > 2:
        raise InputError(f"{scales.size} scales and {zeros.size} zero points do not go together")
    count = max(len(scales), len(zeros))
    scales, zeros = (np.broadcast_to(one, count).copy() for one in (scales, zeros.astype(np.int64)))
    if network.format == "armnn":
        scales = scales.astype(np.float32).astype(np.float64)  # what the file holds
    if axis is not None and not isinstance(axis, int | np.integer):
        raise InputError(f"axis is an integer, not {axis!r}")
    channels = count > 1 or (axis is not None)
    axis = (q.axis if axis is None else axis) if channels else None
    if channels and axis is None:
        axis = _axis_by_users(network, old)
    new = replace(
        q,
        scale=scales,
        zero_point=zeros,
        axis=axis,
        bits=q.bits if bits is None else bits,
        symmetric=q.symmetric if network.format == "armnn" else bool(old.dtype != "uint8" and not zeros.any()),
        extra={name: _fitted(values, count) for name, values in q.extra.items()},
    )
    _check_quantization(network, old, new)
    if network.format == "mslite" and count == 1:  # as the runtime reads one parameter
        new = replace(new, axis=None)
    if bits is not None:
        _check_numbers(old, bits)
    changed = _with_tensor(network, replace(old, quantization=new, quantized=True))
    makers = {layer.index for layer in network.layers.values() if old.index in layer.outputs}
    return inferred(changed, _users(network, old.index) | makers)


def _array(what: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of unlike lengths
        raise InputError(f"{what} is no array: {error}") from None


def _numbers(what: str, value: Any) -> np.ndarray:
    array = _array(what, value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} wants numbers, not {repr(value) if isinstance(value, str) else array.dtype}")
    return array


def _fitted(values: np.ndarray, count: int) -> np.ndarray:
    return values if len(values) == count else np.repeat(values[:1], count)


def _axis_by_users(network: ir.Network, tensor: ir.Tensor) -> int | None:
    """Axis along which the runtime expects the channels; None if the file states it (Arm NN)."""
    if network.format == "armnn":
        return None
    version, rank = version_number(network.version), len(tensor.shape or ())
    for layer in network.layers.values():
        if tensor.index in layer.inputs:
            return channel_axis(layer, layer.inputs.index(tensor.index), rank, version)
    return 0


def _check_quantization(network: ir.Network, tensor: ir.Tensor, q: ir.Quantization) -> None:
    name = f"tensor {tensor.name!r}"
    if not (np.isfinite(q.scale) & (q.scale > 0)).all():
        raise InputError(f"{name}: scales must be positive and finite")
    info = np.iinfo(numpy_dtype(tensor))
    if not isinstance(q.bits, int | np.integer) or not 1 <= q.bits <= info.bits:
        raise InputError(f"{name}: {q.bits!r} bits do not fit {tensor.vendor_dtype}")
    if q.zero_point.min() < info.min or q.zero_point.max() > info.max:
        raise InputError(f"{name}: zero points of {tensor.vendor_dtype} go from {info.min} to {info.max}")
    if network.format == "armnn":
        if (q.symmetric or q.per_channel) and q.zero_point.any():
            raise InputError(f"{name}: {tensor.vendor_dtype}{' per channel' * q.per_channel} has no zero point")
        if q.bits != info.bits:
            raise InputError(f"{name}: Arm NN knows no other width than that of the type, {info.bits} bits")
    elif tensor.compression == "bitpacking" and tensor.quantization is not None and q.bits != tensor.quantization.bits:
        raise InputError(f"{name}: its numbers are packed into {tensor.quantization.bits} bits each")
    if q.per_channel or len(q.scale) > 1:
        _check_channels(tensor, q, q.axis)
        runtimes = _axis_by_users(network, tensor)
        if runtimes is not None and runtimes != q.axis:
            raise InputError(f"{name}: the runtime expects its channels along axis {runtimes}, not {q.axis}")


def _check_numbers(tensor: ir.Tensor, bits: int) -> None:
    array, (low, high) = tensor.array, grid(numpy_dtype(tensor), bits)
    if array is not None and array.size and (array.min() < low or array.max() > high):
        raise InputError(
            f"tensor {tensor.name!r} stores numbers from {array.min()} to {array.max()}, and {bits} bits hold {low} to "
            f"{high}: give it the scale of {bits} bits first, requantise its real values with "
            f"with_constant(..., quantize=True), and then set bits={bits}"
        )


def _check_channels(tensor: ir.Tensor, q: ir.Quantization, axis: int | None) -> None:
    shape = tensor.shape or ()
    if axis is None:
        raise InputError(f"tensor {tensor.name!r}: say along which axis its {len(q.scale)} channels lie")
    size = shape[axis] if 0 <= axis < len(shape) else 0
    if tensor.layout == "MIHW":  # the scales go by output channel, whatever the axis
        size = shape[0] * shape[1]
    if size != len(q.scale):
        raise InputError(f"tensor {tensor.name!r} has {size} channels along axis {axis}, not {len(q.scale)}")


def without(network: ir.Network, layer: int | str) -> ir.Network:
    """The network without a layer: the readers of its output read its first input instead.

    Raises
    ------
    InputError
        The layer has several outputs, or only constants as inputs; or an inconsistent model.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.ms")).network
    >>> softmax = network.graphs[0].layers[-1]
    >>> len(without(network, softmax.index).layers) == len(network.layers) - 1
    True
    """
    old = find_layer(network, layer)
    sources = [i for i in old.inputs if network.tensors[i].data is None]
    if len(old.outputs) != 1 or not sources:
        raise InputError(
            f"layer {old.index} {old.name!r} cannot be left out: it has {len(old.outputs)} outputs and {len(sources)} "
            "inputs that are not constants, and needs one output and at least one such input to replace it"
        )
    gone, source = old.outputs[0], sources[0]

    def rewired(one: ir.Layer) -> ir.Layer:
        if gone not in one.inputs:
            return one
        return replace(one, inputs=tuple(source if i == gone else i for i in one.inputs))

    graphs, edited = [], _users(network, gone)
    for graph in network.graphs:
        layers = [rewired(one) for one in graph.layers if one.index != old.index]
        unused = set(old.inputs).difference(*(one.inputs for one in layers))
        layers = [one for one in layers if one.op != "Constant" or one.outputs[0] not in unused]
        ports = tuple(
            replace(port, tensor=source, name=port.name if network.format == "armnn" else network.tensors[source].name)
            if port.tensor == gone
            else port
            for port in graph.outputs
        )
        graphs.append(replace(graph, layers=tuple(layers), outputs=ports))
    tensors = _still_used(network, graphs)
    if network.tensors[gone].role == "output" and tensors[source].role == "activation":
        tensors[source] = replace(tensors[source], role="output")
    changed = replace(network, graphs=tuple(graphs), tensors=tensors)
    before, after = network.tensors[gone], tensors[source]
    alike = (before.shape, before.dtype) == (after.shape, after.dtype)
    return inferred(changed, edited, () if alike else {source})


def _still_used(network: ir.Network, graphs: Sequence[ir.Graph]) -> dict[int, ir.Tensor]:
    used = {i for graph in graphs for layer in graph.layers for i in (*layer.inputs, *layer.outputs)}
    used |= {port.tensor for graph in graphs for port in (*graph.inputs, *graph.outputs)}
    return {i: tensor for i, tensor in network.tensors.items() if i in used}


def rename(
    network: ir.Network, layers: Mapping[int | str, str] | None = None, tensors: Mapping[int | str, str] | None = None
) -> ir.Network:
    """The network with other names.

    Parameters
    ----------
    network : Network
    layers : mapping of int or str to str, optional
        Layer, by index or name -> its new name.
    tensors : mapping of int or str to str, optional
        Tensor, by id or name -> its new name. Arm NN's file format has no names for tensors: there they are called
        after the layers that produce them.

    Raises
    ------
    InputError
        No such layer or tensor; a name that is no text; names for an Arm NN model's tensors.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.ms")).network
    >>> rename(network, tensors={"image": "x"}).graphs[0].inputs[0].name
    'x'
    """
    layers, tensors = _names("layers", layers), _names("tensors", tensors)
    if tensors and network.format == "armnn":
        raise InputError("Arm NN does not name tensors: rename the layers that produce them")
    new_layers = {
        old.index: replace(old, name=name) for key, name in layers.items() for old in [find_layer(network, key)]
    }
    found = dict(network.tensors)
    for key, name in tensors.items():
        old = find_tensor(network, key)
        found[old.index] = replace(old, name=name)
    if network.format == "armnn":
        for layer in new_layers.values():
            for slot, i in enumerate(layer.outputs):
                found[i] = replace(found[i], name=layer.label if len(layer.outputs) == 1 else f"{layer.label}:{slot}")
            for name, i in layer.held.items():
                found[i] = replace(found[i], name=f"{layer.label}/{name}")
    changed = _with_layers(replace(network, tensors=found), new_layers)
    return with_ports(network, changed)


def _names(what: str, given: Any) -> Mapping[int | str, str]:
    """New names, checked."""
    given, example = {} if given is None else given, f"rename({what}={{'old': 'new'}})"
    if not isinstance(given, Mapping):
        raise InputError(f"{what} is a dict of new names by old ones, as {example}, not {given!r}")
    wrong = [name for name in given.values() if not isinstance(name, str)]
    if wrong:
        raise InputError(f"a name is a str, not {wrong[0]!r} ({type(wrong[0]).__name__})")
    return given


def with_input_shape(network: ir.Network, shapes: Shapes) -> ir.Network:
    """The network for inputs of other shapes.

    Parameters
    ----------
    network : Network
    shapes : sequence of int, or mapping of int or str to sequence of int
        The new shape, if there is one input; else shapes by the inputs' positions or names.

    Raises
    ------
    InputError
        No such input, or an inconsistent model: fixed sizes, as those of a fully connected layer, do not change with
        the input. The batch does: also in shapes that layers hold as attributes or constants.

    Examples
    --------
    >>> import mlinspect as mi
    >>> network = mi.open(mi.samples.path("digits_cnn.ms")).network
    >>> changed = with_input_shape(network, (5, 8, 8, 1))
    >>> changed.tensors[changed.graphs[0].outputs[0].tensor].shape
    (5, 10)
    """
    ports = network.graphs[0].inputs
    if not isinstance(shapes, Mapping):
        if len(ports) != 1:
            raise InputError(f"the model has {len(ports)} inputs: give their shapes by name")
        shapes = {0: shapes}
    names = [port.name for port in ports]
    tensors, moved = dict(network.tensors), {}
    for key, shape in shapes.items():
        position = names.index(key) if key in names else key
        if not isinstance(position, int | np.integer) or not 0 <= position < len(ports):
            raise InputError(f"the model has no input {key!r}; it has {', '.join(map(repr, names))}{near(key, names)}")
        old = tensors[ports[position].tensor]
        size = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else (shape,)
        if not all(isinstance(n, int | np.integer) and n >= 1 for n in size):
            raise InputError(f"input {names[position]!r} cannot have the shape {shape!r}: give sizes of 1 or more")
        size = tuple(int(n) for n in size)
        moved[old.index] = (old.shape, size)
        tensors[old.index] = replace(old, shape=size)
    changed = with_batch(replace(network, tensors=tensors), moved)
    return inferred(changed, set(), set(moved))


# ---- shared ----------------------------------------------------------------------------------------------------------


def _users(network: ir.Network, tensor: int) -> set[int]:
    return {layer.index for layer in network.layers.values() if tensor in layer.inputs}


def _with_tensor(network: ir.Network, tensor: ir.Tensor) -> ir.Network:
    return replace(network, tensors={**network.tensors, tensor.index: tensor})


def _with_layers(network: ir.Network, changed: Mapping[int, ir.Layer]) -> ir.Network:
    graphs = tuple(
        replace(graph, layers=tuple(changed.get(layer.index, layer) for layer in graph.layers))
        if any(layer.index in changed for layer in graph.layers)
        else graph
        for graph in network.graphs
    )
    return replace(network, graphs=graphs)
