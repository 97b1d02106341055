"""Saving what none of the vendor-made files holds, and what no layout has words for."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, ir, save
from mlinspect.errors import UnsupportedError
from mlinspect.flatbuffer import Decoder, parse_schema
from mlinspect.flatbuffer.encode import encode
from mlinspect.formats.records import raw_table
from mlinspect.formats.write_records import Carrier, same_parameters


def relu(op="Activation", **attrs):
    return build.armnn().input("x", (1, 4)).layer(op, "relu", activationFunction="ReLu", **attrs).output("y").model()


def with_tensor(network, number, **changes):
    return replace(network, tensors={**network.tensors, number: replace(network.tensors[number], **changes)})


def with_layer(network, number, **changes):
    graph = network.graphs[0]
    layers = tuple(replace(one, **changes) if one.index == number else one for one in graph.layers)
    return replace(network, graphs=(replace(graph, layers=layers),))


def reopened(network):
    return mi.open(save.to_bytes(network)).network


@pytest.mark.parametrize("shape", [None, (-1, 4), (1, -1)])
def test_unknown_shapes_stay_unknown(shape):
    assert reopened(with_tensor(relu().network, 1, shape=shape)).tensors[1].shape == shape


def test_an_input_under_another_type_keeps_it():
    info = {"dimensions": (2, 2), "dataType": "Float32"}
    network = with_layer(relu().network, 1, meta={"overriddenTensorInfo": {0: info}})
    found = reopened(network).layers[1].meta["overriddenTensorInfo"][0]
    assert {name: found[name] for name in info} == info


def test_bfloat16_constants_come_back():
    model = (
        build.armnn().input("x", (1, 2)).layer("Addition", "sum", "x", np.ones((1, 2), np.float16)).output("y").model()
    )
    (number,) = [tensor.index for tensor in model.network.tensors.values() if tensor.data is not None]
    stored = np.array([[0x3F80, 0xC020]], np.uint16)
    found = reopened(
        with_tensor(model.network, number, dtype="bfloat16", vendor_dtype="BFloat16", data=stored)
    ).tensors[number]
    assert (found.dtype, found.vendor_dtype, found.array.tolist()) == ("bfloat16", "BFloat16", stored.tolist())


def test_huffman_constants_stay_as_they_are_stored():
    numbers = np.array([[1, 0, 0, -1]], np.int8)
    raw = np.frombuffer(b"0 1 -1 128#1 00 010 011#" + bytes([0b00110100, 0b11000000]), np.uint8)
    weights = build.quantized(np.zeros((1, 4), np.int8), 0.5)
    data = ir.PackedData(raw, lambda: numbers)
    model = build.mslite().input("x", (1, 4), "int8", scale=0.5).layer("AddFusion", "sum", weights).output("y").model()
    (number,) = [tensor.index for tensor in model.network.tensors.values() if tensor.data is not None]
    found = reopened(with_tensor(model.network, number, data=data, compression="huffman", nbytes=raw.size))
    assert found.tensors[number].compression == "huffman"
    assert found.tensors[number].array.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (relu(), {"op": "Warp"}, "layer 1 'relu': armnn_superset has no Warp"),
        (
            build.mslite().input("x", (1, 4)).layer("Activation", "relu", activation_type="RELU").output("y").model(),
            {"op": "Warp"},
            "layer 0 'relu': msl2_newest has no Warp",
        ),
    ],
)
def test_operators_that_the_layout_does_not_have(model, changes, message):
    number = next(layer.index for layer in model.network.layers.values() if layer.name == "relu")
    with pytest.raises(UnsupportedError, match=message):
        save.to_bytes(with_layer(model.network, number, **changes))


@pytest.mark.parametrize("model_format", ["armnn", "mslite"])
def test_types_that_the_format_does_not_have(model_format):
    model = mi.open(mi.samples.path("digits_cnn.armnn" if model_format == "armnn" else "digits_cnn.ms"))
    number = int(model.inputs.tensor[0])
    with pytest.raises(UnsupportedError, match="has no type Float8"):
        save.to_bytes(with_tensor(model.network, number, vendor_dtype="Float8"))


def test_an_input_that_no_layer_gives():
    network = with_layer(relu().network, 1, inputs=(1,), outputs=())
    with pytest.raises(UnsupportedError, match="layer 1 'relu': no layer produces its input 'relu'"):
        save.to_bytes(network)


def test_tables_of_several_files_cannot_be_carried_together():
    schema = parse_schema("table T { x: int; } root_type T;")
    raws = []
    for _ in range(2):
        decoder = Decoder(np.frombuffer(encode(schema, {"x": 1}), np.uint8), schema)
        raws.append(raw_table(decoder, decoder.root(), {}))
    assert Carrier(raws[:1]).bytes is not None
    with pytest.raises(UnsupportedError, match="come from several files"):
        Carrier(raws)


def test_same_parameters():
    one, other = ir.Quantization(np.array([0.5]), np.array([3])), ir.Quantization(np.array([0.5]), np.array([4]))
    assert same_parameters(one, replace(one)) and same_parameters(None, None)
    assert not same_parameters(one, other) and not same_parameters(one, None)
