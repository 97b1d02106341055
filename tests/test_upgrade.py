"""Old words in new ones: every operator of every old layout; what cannot be said is refused."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, save, upgrade
from mlinspect.errors import UnsupportedError
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema

OLD = {
    "ms_v0_r1_0": ("1.0.0", 138),
    "ms_v0_compat": ("1.0.1", 179),
    "msl1_r1_1": ("1.1.0", 179),
    "msl2_r1_1_1": ("1.1.0", 165),
    "msl2_r1_2": ("1.2.0", 185),
    "msl2_r1_3": ("1.3.0", 199),
}
# refused in any case: control flow of before 1.5, and what has no words today
CONTROL = {"If", "Loop", "Merge", "Partial", "PartialFusion", "While"}


def one_node(filler, layout, tag, **attrs):
    """A file of an old layout with one operator."""
    schema = layout_schema("mslite", layout)
    op = schema.enums["PrimitiveType"].members[tag]
    variable = "CNode" if schema.tables["Tensor"]["nodeType"].type == "NodeType" else 2
    tensor = {"dims": [1, 4], "dataType": 43, "nodeType": variable}
    record = filler(schema).table(op) | attrs
    node = {"name": "n", "primitive": {"value_type": tag, "value": record}, "inputIndex": [0], "outputIndex": [1]}
    root = {"version": f"MindSpore Lite {OLD[layout][0]}", "inputIndex": [0], "outputIndex": [1], "nodes": [node]}
    return mi.open(encode(schema, root | {"allTensors": [tensor, tensor]})).network


@pytest.mark.parametrize("layout", OLD)
def test_every_operator_is_upgraded_or_refused(filler, layout):
    upgraded, refused = [], {}
    for tag, op in layout_schema("mslite", layout).enums["PrimitiveType"].members.items():
        network = one_node(filler, layout, tag)
        try:
            again = mi.open(save.to_bytes(network)).network
        except UnsupportedError as error:
            refused[op] = str(error)
            continue
        upgraded.append(op)
        assert again.layout == "msl2_newest"
        # what became constant operands is there
        layer = again.layers[0]
        assert all(again.tensors[i].data is not None for i in layer.inputs[1:])
        assert layer.inputs[0] == 0
    assert len(upgraded) >= OLD[layout][1]
    known = set(layout_schema("mslite", layout).enums["PrimitiveType"].members.values())
    assert CONTROL & known <= set(refused)
    for op, reason in refused.items():
        assert "layer 0 'n'" in reason, op


def test_attributes_that_became_operands(filler):
    tags = {op: tag for tag, op in layout_schema("mslite", "ms_v0_compat").enums["PrimitiveType"].members.items()}
    wanted = {
        "Reshape": ({"shape": [2, -1]}, [[2, -1]]),
        "Transpose": ({"perm": [1, 0]}, [[1, 0]]),
        "Nchw2Nhwc": ({}, [[0, 2, 3, 1]]),
        "Nhwc2Nchw": ({}, [[0, 3, 1, 2]]),
        "Slice": ({"begin": [0, 1], "size": [1, 2]}, [[0, 1], [1, 2]]),
        "Tile": ({"multiples": [2, 3]}, [[2, 3]]),
        "TopK": ({"k": 3}, [3]),
        "Gather": ({"axis": 1}, None),  # has its indices for operand 1
        "Power": ({"power": 2.0}, [2.0]),
        "Reduce": ({"axes": [1]}, [[1]]),
        "ExpandDims": ({"dim": 1}, [1]),
    }
    for op, (attrs, operands) in wanted.items():
        again = mi.open(save.to_bytes(one_node(filler, "ms_v0_compat", tags[op], **attrs))).network
        found = [again.tensors[i].array.tolist() for i in again.layers[0].inputs[1:]]
        assert operands is None or found == operands, op


def test_conv_attributes(filler):
    tags = {op: tag for tag, op in layout_schema("mslite", "ms_v0_compat").enums["PrimitiveType"].members.items()}
    given = {"kernelH": 3, "kernelW": 5, "strideH": 2, "strideW": 1, "dilateH": 1, "dilateW": 1, "channelIn": 6}
    given |= {"channelOut": 7, "group": 1, "padMode": "SAME_UPPER"}
    given |= {"padUp": 1, "padDown": 2, "padLeft": 3, "padRight": 4}
    attrs = mi.open(save.to_bytes(one_node(filler, "ms_v0_compat", tags["Conv2D"], **given))).network.layers[0].attrs
    assert (attrs["kernel_size"], attrs["stride"], attrs["pad_list"]) == ((3, 5), (2, 1), (1, 2, 3, 4))
    assert (attrs["pad_mode"], attrs["in_channel"], attrs["out_channel"]) == ("SAME", 6, 7)
    deep = {name: value for name, value in given.items() if name not in ("group", "channelOut")} | {
        "channelMultiplier": 2
    }
    network = one_node(filler, "ms_v0_compat", tags["DepthwiseConv2D"], **deep)
    attrs = mi.open(save.to_bytes(network)).network.layers[0].attrs
    assert (attrs["group"], attrs["in_channel"], attrs["out_channel"]) == (6, 6, 12)


def test_channels_that_the_new_version_would_move_are_refused():
    """Before 1.6 readers took the channels of a product's three-dimensional operand to lie along axis 1."""
    weights = build.quantized(np.ones((2, 4, 4), np.int8), np.ones(4), axis=2)
    network = build.mslite().input("x", (2, 3, 4)).layer("MatMulFusion", "mm", weights).output().model().network
    assert upgrade.newest(network) is network
    tensor = next(t for t in network.tensors.values() if t.data is not None)
    old = replace(
        network,
        layout="msl2_r1_3",
        version="MindSpore Lite 1.3.0",
        tensors={
            **network.tensors,
            tensor.index: replace(tensor, quantization=replace(tensor.quantization, axis=1)),
        },
    )
    with pytest.raises(UnsupportedError, match="channels lie along axis 1, which readers of the newest layout"):
        upgrade.newest(old)


def test_deprecated_arm_nn_layers(golden):
    found = golden("armnn-legacy.zip")
    replaced = {}
    for name in found.names:
        network = mi.open(found.model(name)).network
        newest = upgrade.newest(network)
        for index, layer in network.layers.items():
            if newest.layers[index].op != layer.op:
                replaced[layer.op] = newest.layers[index].op
    assert replaced.items() <= {
        ("Merger", "Concat"),
        ("Equal", "Comparison"),
        ("Greater", "Comparison"),
        ("Abs", "ElementwiseUnary"),
        ("Rsqrt", "ElementwiseUnary"),
        ("ResizeBilinear", "Resize"),
    }
    assert len(replaced) >= 4


def test_binding_ids_are_told_apart():
    """Files without featureVersions may give all inputs the same id."""
    model = build.armnn().input("a", (1, 2)).input("b", (1, 2)).layer("Addition", "sum", "a", "b").output("y").model()
    layers = [
        replace(layer, attrs={"layerBindingId": 5}) if layer.op == "Input" else layer
        for layer in model.network.graphs[0].layers
    ]
    ports = tuple(replace(port, binding_id=5) for port in model.network.graphs[0].inputs)
    graph = replace(model.network.graphs[0], layers=tuple(layers), inputs=ports)
    old = replace(model.network, graphs=(graph,), meta={})
    as_it_was = mi.open(save.to_bytes(old, "unchanged"))
    assert as_it_was.inputs.binding_id.tolist() == [5, 5]
    newest = mi.open(save.to_bytes(as_it_was.network))
    assert newest.inputs[["name", "binding_id"]].values.tolist() == [["a", 0], ["b", 1]]
    a, b = np.ones((1, 2), np.float32), np.full((1, 2), 2, np.float32)
    np.testing.assert_array_equal(newest.run([a, b])["y"], a + b)
    with pytest.raises(UnsupportedError, match="do not tell the Input layers apart"):
        save.to_bytes(replace(old, meta=model.network.meta), "unchanged")
