"""Networks of old layouts -> the newest layout of their format; Arm NN: also back to release 20.08."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mlinspect import ir
from mlinspect.errors import SchemaError, UnsupportedError
from mlinspect.execute.upgrade_mslite import upgraded
from mlinspect.flatbuffer import Schema
from mlinspect.formats import write_armnn, write_mslite
from mlinspect.formats.attributes import attribute_table, checked_attrs, kind_with
from mlinspect.formats.packing import constant_tensor
from mlinspect.formats.ports import PORTS, port_layers, with_ports
from mlinspect.formats.quantparams import channel_axis
from mlinspect.formats.records import layout_schema
from mlinspect.formats.typeids import version_number

# Arm NN's feature versions, as its newest release and as 20.08 write them
NEWEST_FEATURES = {"bindingIdsScheme": 1, "weightsLayoutScheme": 1, "constantTensorsAsInputs": 1}
_FEATURES_2008 = {"bindingIdsScheme": 1, "weightsLayoutScheme": 0, "constantTensorsAsInputs": 0}
# operators whose weights come through input slots today
WEIGHTS_AS_INPUTS = ("Convolution2d", "DepthwiseConvolution2d", "Convolution3d", "FullyConnected")
_DTYPES = {"QuantisedAsymm8": "QAsymmU8", "QuantisedSymm16": "QSymmS16"}
# deprecated operator -> today's, and the attributes that say the rest
_ARMNN_OPS: dict[str, tuple[str, dict[str, Any]]] = {
    "Merger": ("Concat", {}),
    "Equal": ("Comparison", {"operation": "Equal"}),
    "Greater": ("Comparison", {"operation": "Greater"}),
    "Abs": ("ElementwiseUnary", {"operation": "Abs"}),
    "Rsqrt": ("ElementwiseUnary", {"operation": "Rsqrt"}),
    "ResizeBilinear": ("Resize", {"method": "Bilinear"}),
}
_ARMNN_FIELDS = {"function": "activationFunction"}
_ARMNN_GONE = ("Reduce", ("targetHeight", "targetWidth"))  # fields that were there for a week

# MindSpore Lite: the first release that has today's layout was 1.5. Its readers choose the axis of per-channel weights
# by the version: up to 1.7 that of a transposed convolution as in all files before, and no default of theirs is other
# than the newest schema's from 1.6 on.
_MSLITE_VERSION = "MindSpore Lite 1.7.0"
_NODE_TYPES = {"ValueNode": 0, "Parameter": 1, "CNode": 2}
_NAMES = {"channelIn": "in_channel", "channelOut": "out_channel", "elementDType": "element_dtype"}
_FLOAT32, _INT8 = 43, 32  # TypeIds
# what files of 2020 say otherwise or not at all, beyond what computing asks for; from the channels of the first input
_MORE: Mapping[str, Callable[[Mapping[str, Any], int], dict[str, Any]]] = {
    "ConstantOfShape": lambda old, channels: {"data_type": old.get("dataType", _FLOAT32)},
    "DeDepthwiseConv2D": lambda old, channels: dict.fromkeys(("group", "in_channel", "out_channel"), channels),
    "DepthwiseConv2D": lambda old, channels: {"out_channel": old["channelIn"] * old["channelMultiplier"]},
    "OnnxInt8Dequantize": lambda old, channels: {"src_t": _INT8, "dst_t": _FLOAT32},
    "OnnxInt8Quantize": lambda old, channels: {"src_t": _FLOAT32, "dst_t": _INT8},
}
_OTHERWISE_MEANT = ("Custom", "DeConv2DGradFilter")  # names that have stayed over fields that have not
_OLD_LOOPS = ("If", "Loop", "Merge", "While")


def newest(network: ir.Network) -> ir.Network:
    """The network in its format's newest layout; the same object if it is in that layout already.

    Ids of layers and tensors stay; new layers and tensors get the next free ids.

    Parameters
    ----------
    network : Network

    Returns
    -------
    Network

    Raises
    ------
    UnsupportedError
        The newest layout cannot express something in it.

    Examples
    --------
    >>> import mlinspect as mi
    >>> old = mi.open(mi.samples.path("digits_cnn.armnn")).network
    >>> len(old.layers), len(newest(old).layers)
    (17, 27)
    """
    return _newest_armnn(network) if network.format == "armnn" else _newest_mslite(network)


# ---- Arm NN ----------------------------------------------------------------------------------------------------------


def _newest_armnn(network: ir.Network) -> ir.Network:
    members = any(layer.members and layer.op in WEIGHTS_AS_INPUTS for layer in network.layers.values())
    versions = network.meta.get("featureVersions")
    if network.layout == write_armnn.LAYOUT and versions == NEWEST_FEATURES and not members and not _loose(network):
        return network
    schema = layout_schema("armnn", write_armnn.LAYOUT)
    tensors = {
        i: replace(tensor, vendor_dtype=_DTYPES[tensor.vendor_dtype]) if tensor.vendor_dtype in _DTYPES else tensor
        for i, tensor in network.tensors.items()
    }
    layers = []
    for layer in network.graphs[0].layers:
        op, more = _ARMNN_OPS.get(layer.op, (layer.op, {}))
        if op.startswith("Unknown("):
            raise UnsupportedError(
                f"layer {layer.index} {layer.name!r} is of a type that the schema does not know, so it can only be "
                "kept as it is: save with release='unchanged'"
            )
        attrs = {_ARMNN_FIELDS.get(name, name): value for name, value in layer.attrs.items()} | more
        if op == _ARMNN_GONE[0]:
            attrs = {name: value for name, value in attrs.items() if name not in _ARMNN_GONE[1]}
        new = replace(layer, op=op, attrs=checked_attrs(schema, "armnn", op, attrs))
        new = replace(new, kind=kind_with("armnn", new, tensors))
        if op in WEIGHTS_AS_INPUTS:
            new = replace(new, members=())
        if op == "DepthwiseConvolution2d" and tensors[new.inputs[1]].layout == "MIHW":
            tensors[new.inputs[1]] = _depthwise_newest(tensors[new.inputs[1]])
        layers.append(new)
    graph = _with_binding_ids(replace(network.graphs[0], layers=tuple(layers)))
    meta = {**network.meta, "featureVersions": NEWEST_FEATURES}
    found = replace(network, layout=write_armnn.LAYOUT, graphs=(graph,), tensors=tensors, meta=meta)
    return with_constant_layers(with_ports(network, found))


def _loose(network: ir.Network) -> set[int]:
    """Constants at input slots that no layer produces."""
    given = {tensor for layer in network.layers.values() for tensor in layer.outputs}
    taken = {
        tensor
        for layer in network.layers.values()
        for tensor in layer.slots
        if network.tensors[tensor].data is not None
    }
    return taken - given


def with_constant_layers(network: ir.Network) -> ir.Network:
    """Arm NN: a Constant layer before its first user for each constant at an input slot that no layer produces."""
    loose = _loose(network)
    free = max(network.layers, default=-1) + 1
    layers: list[ir.Layer] = []
    for layer in network.graphs[0].layers:
        for tensor in layer.slots:
            if tensor in loose:
                loose.discard(tensor)
                name = network.tensors[tensor].name
                layers.append(ir.Layer(free, name, "Constant", "constant", 0, {}, (), (tensor,)))
                free += 1
        layers.append(layer)
    return replace(network, graphs=(replace(network.graphs[0], layers=tuple(layers)),))


def _depthwise_newest(tensor: ir.Tensor) -> ir.Tensor:
    """[M, I, H, W] -> [1, H, W, I * M]; the scales go by output channel i * M + m in both."""
    m, i, h, w = tensor.shape  # type: ignore[misc]
    quantization = tensor.quantization
    if quantization is not None and quantization.per_channel:
        quantization = replace(quantization, axis=3)
    data = tensor.array
    assert data is not None
    shape = (1, h, w, i * m)
    data = data.transpose(2, 3, 1, 0).reshape(shape)
    return replace(tensor, shape=shape, layout="1HWO", data=data, quantization=quantization, file_offset=None)


def _with_binding_ids(graph: ir.Graph) -> ir.Graph:
    """Ids that tell inputs and outputs apart: their own, or positions where a file of 2019 repeats them."""
    layers = {layer.index: layer for layer in graph.layers}
    for op in PORTS:
        own = port_layers(graph, op)
        ids = [layer.attrs.get("layerBindingId", 0) for layer in own]
        if len(set(ids)) < len(ids):
            ids = list(range(len(ids)))
        for layer, number in zip(own, ids, strict=True):
            layers[layer.index] = replace(layer, attrs={**layer.attrs, "layerBindingId": number})
    return replace(graph, layers=tuple(layers.values()))


def armnn_2008(network: ir.Network) -> ir.Network:
    """An Arm NN network as release 20.08 (August 2020, in Debian 12) can load it.

    Weights go back into their layers, depthwise weights into the order [M, I, H, W].

    Raises
    ------
    UnsupportedError
        That release cannot load something in it; the message says what.
    """
    network = newest(network)
    schema = layout_schema("armnn", write_armnn.LAYOUT)
    known = [schema.enums["Layer"].members[tag].removesuffix("Layer") for tag in range(1, _LAYERS_2008 + 1)]
    tensors = dict(network.tensors)
    layers: list[ir.Layer] = []
    moved: set[int] = set()
    for layer in network.graphs[0].layers:
        op = layer.op
        if op == "ElementwiseUnary":  # its loader forgot them, but not the operators that they replaced
            op = {"Abs": "Abs", "Rsqrt": "Rsqrt"}.get(layer.attrs["operation"], op)
        lost = [
            f"{name} other than {value}"
            for name, (value, rank) in _SINCE_2008.get(op, {}).items()
            if layer.attrs.get(name, value) not in (value, rank and rank(network, layer))
        ]
        lost += ["Signed64 numbers" for i in layer.outputs if tensors[i].vendor_dtype == "Signed64"]
        if op not in known or op == "ElementwiseUnary" or lost:
            what = f"{op} with {lost[0]}" if lost else op
            raise UnsupportedError(f"layer {layer.index} {layer.name!r}: Arm NN 20.08 cannot load {what}")
        attrs = {} if op != layer.op else dict(layer.attrs)
        new = replace(layer, op=op, attrs=attrs)
        if op in WEIGHTS_AS_INPUTS:
            members = ("weights", "bias")[: len(layer.inputs) - 1]
            if any(tensors[i].data is None for i in layer.inputs[1:]):
                raise UnsupportedError(f"layer {layer.index} {layer.name!r}: Arm NN 20.08 wants constant weights")
            new = replace(new, members=members)
            moved.update(layer.inputs[1:])
        if op == "DepthwiseConvolution2d":
            channels = tensors[layer.inputs[0]].shape[1 if attrs["dataLayout"] == "NCHW" else -1]  # type: ignore[index]
            tensors[layer.inputs[1]] = _depthwise_2008(tensors[layer.inputs[1]], channels)
        layers.append(new)
    still = {i for layer in layers for i in layer.slots}
    layers = [layer for layer in layers if layer.op != "Constant" or layer.outputs[0] in still | (set(tensors) - moved)]
    graph = replace(network.graphs[0], layers=tuple(layers))
    return replace(network, graphs=(graph,), tensors=tensors, meta={**network.meta, "featureVersions": _FEATURES_2008})


def _last_axis(network: ir.Network, layer: ir.Layer) -> int:
    return len(network.tensors[layer.inputs[0]].shape or ()) - 1


_LAYERS_2008 = 59  # members of its union of layers
# attributes that came later: the value that it assumes, and one that means the same for a layer
_SINCE_2008: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    "Softmax": {"axis": (-1, _last_axis)},
    "Pad": {"paddingMode": ("Constant", None)},
    "Splitter": {"hasAxis": (False, None)},
}


def _depthwise_2008(tensor: ir.Tensor, channels: int) -> ir.Tensor:
    if tensor.layout == "MIHW":
        return tensor
    _, h, w, outputs = tensor.shape  # type: ignore[misc]
    shape = (outputs // channels, channels, h, w)
    quantization = tensor.quantization
    if quantization is not None and quantization.per_channel:
        quantization = replace(quantization, axis=0)
    data = tensor.array
    assert data is not None
    data = data.reshape(h, w, channels, -1).transpose(3, 2, 0, 1)
    return replace(tensor, shape=shape, layout="MIHW", data=data, quantization=quantization, file_offset=None)


# ---- MindSpore Lite --------------------------------------------------------------------------------------------------


def _newest_mslite(network: ir.Network) -> ir.Network:
    if network.layout == write_mslite.LAYOUT or not _known_mslite(network.layout):
        return network
    schema = layout_schema("mslite", write_mslite.LAYOUT)
    tensors = {i: _tensor(tensor) for i, tensor in network.tensors.items()}
    takers = {tensor: layer.op for layer in network.layers.values() for tensor in layer.inputs}
    graphs = []
    for graph in network.graphs:
        layers = []
        for layer in graph.layers:
            _refuse_old_control(layer, takers)
            new, extra = upgraded(layer, network.layout)
            shape = tensors[layer.inputs[0]].shape if layer.inputs else None
            new = replace(new, attrs=_mslite_attrs(schema, layer, new, shape, not network.layout.startswith("msl2")))
            inputs = list(layer.inputs)
            for array in extra:
                number = max(tensors) + 1
                name = f"{layer.label}/input_{len(inputs)}"
                tensors[number] = constant_tensor("mslite", number, name, array, graph.index)
                inputs.append(number)
            meta = {name: value for name, value in layer.meta.items() if name != "nodeType"}
            new = replace(new, inputs=tuple(inputs), meta=meta | {"nodeType": 0, "deviceType": -1})
            layers.append(replace(new, kind=kind_with("mslite", new, tensors)))
        graphs.append(replace(graph, layers=tuple(layers)))
    found = replace(network, layout=write_mslite.LAYOUT, version=_MSLITE_VERSION, graphs=tuple(graphs), tensors=tensors)
    _check_axes(found)
    return found


def _mslite_attrs(
    schema: Schema, old: ir.Layer, new: ir.Layer, shape: tuple[int, ...] | None, of_2020: bool
) -> dict[str, Any]:
    """The attributes that the newest layout has, of a layer that got its new name."""
    try:
        if of_2020 and old.op in _OTHERWISE_MEANT:
            raise SchemaError("the newest layout means something else by that name")
        attribute_table(schema, "mslite", new.op)
        known = {item.name for item in schema.tables[new.op].fields}
        attrs = {_NAMES.get(name, name): value for name, value in old.attrs.items()} | dict(new.attrs)
        if of_2020 and old.op in _MORE:
            channels = shape[3] if shape is not None and len(shape) == 4 else 0
            attrs |= _MORE[old.op](old.attrs, max(channels, 0) or old.attrs.get("channelIn", 0))
        attrs = {name: "UNKNOWN" if value == "UNKNOW" else value for name, value in attrs.items() if name in known}
        return checked_attrs(schema, "mslite", new.op, attrs)
    except SchemaError as error:
        raise UnsupportedError(f"layer {old.index} {old.name!r}: {old.op} cannot be upgraded: {error}") from None


def _known_mslite(layout: str) -> bool:
    return layout.startswith(("ms_v0", "msl1", "msl2"))


def _refuse_old_control(layer: ir.Layer, takers: Mapping[int, str]) -> None:
    branches = layer.op == "Switch" and len(layer.outputs) > 1
    calls = layer.op in ("Partial", "PartialFusion") and takers.get(layer.outputs[0]) not in ("Switch", "Call")
    if layer.op in _OLD_LOOPS or branches or calls:
        raise UnsupportedError(
            f"layer {layer.index} {layer.name!r}: {layer.op}, as files before MindSpore Lite 1.5 have it, cannot be "
            "expressed in the newest layout"
        )


def _tensor(tensor: ir.Tensor) -> ir.Tensor:
    node_type = tensor.meta.get("nodeType")
    if isinstance(node_type, str):  # where loaders of MSL2 look whether a tensor is a constant
        node_type = _NODE_TYPES["CNode" if tensor.data is None else "ValueNode"]
    return replace(tensor, meta={**tensor.meta, "nodeType": node_type})


def _check_axes(network: ir.Network) -> None:
    """Refuse weights whose channels the runtime, which goes by the version, would expect along another axis."""
    version = version_number(network.version)
    for layer in network.layers.values():
        for position, number in enumerate(layer.inputs):
            tensor = network.tensors[number]
            q = tensor.quantization
            if tensor.data is None or q is None or not q.per_channel:
                continue
            axis = channel_axis(layer, position, len(tensor.shape or ()), version)
            if axis != q.axis:
                raise UnsupportedError(
                    f"constant {tensor.name!r}: its channels lie along axis {q.axis}, which readers of the newest "
                    f"layout would take to be {axis}"
                )
