"""What readers make of records that no vendor-made file holds."""

import re

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build, ir, save
from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import encode, parse_schema
from mlinspect.formats import armnn, mslite, write_armnn
from mlinspect.formats.armnn_tensors import TensorType, tensor_type
from mlinspect.formats.kinds import cast_kind
from mlinspect.formats.records import layout_schema, schema_folder, shaped

SCHEMA = layout_schema("mslite", "msl2_newest")


def read_mslite(root, schema=SCHEMA):
    buffer = np.frombuffer(encode(schema, root), np.uint8)
    return mslite.read(mslite.find_reading(buffer, schema))


def test_a_tensor_without_information_is_of_unknown_type():
    assert tensor_type(None) == TensorType("unknown", "none", None)


def test_a_broken_layer_of_an_unknown_type_names_its_place():
    model = build.armnn().input("x", (1, 4)).layer("Activation", "relu", activationFunction="ReLu").output("y").model()
    schema, root, _ = write_armnn.write(model.network)
    relu = root["layers"][1]
    relu["layer_type"] = "Unknown(99)"
    relu["layer"] = ("ActivationLayer", relu["layer"])
    data = bytearray(encode(schema, root))
    buffer = np.frombuffer(data, np.uint8)
    reading = armnn.find_reading(buffer)
    assert armnn.read(reading).layers[1].op == "Unknown(99)"
    position = reading.root["layers"][1]["layer"].offset
    vtable = position - int.from_bytes(data[position : position + 4], "little", signed=True)
    base = position + int.from_bytes(data[vtable + 4 : vtable + 6], "little")
    data[base : base + 4] = b"\xff\xff\xff\x7f"  # the offset to its LayerBase
    with pytest.raises(ModelFormatError, match=r"leads outside the .* in layers\[1\]\.layer\.base"):
        armnn.read(armnn.find_reading(np.frombuffer(data, np.uint8), schema))


def test_attributes_of_a_fork_whose_table_only_wraps_data():
    text = (schema_folder() / "mslite" / "msl2_newest.fbs").read_text("utf-8")
    fork = parse_schema(re.sub(r"table Abs \{\s*\}", "table Abs { data: [int]; }", text))
    primitive = {"value_type": "Abs", "value": {"data": [1, 2]}}
    root = {"nodes": [{"name": "n", "primitive": primitive}], "allTensors": []}
    assert read_mslite(root, fork).layers[0].attrs == {"data": (1, 2)}


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [("float32", "int8", "quantize"), ("uint8", "float32", "dequantize"), ("uint8", "int8", "requantize")],
)
def test_casts(source, target, kind):
    assert cast_kind(source, target) == kind


def test_low_bit_numbers_that_are_stored_plainly_are_not_unpacked():
    q = {"scale": 0.5, "numBits": 4}
    tensor = {"name": "w", "dataType": 32, "dims": [4], "data": [1, 2, 3, 4], "quantParams": [q]}
    found = read_mslite({"nodes": [], "allTensors": [tensor]}).tensors[0]
    assert (found.compression, found.array.tolist()) == ("none", [1, 2, 3, 4])


def test_a_type_that_cannot_be_packed_is_refused():
    tensor = {"name": "w", "dataType": 34, "dims": [4], "data": [1] * 4, "weightQuantCompressType": "SPARSE"}
    found = read_mslite({"nodes": [], "allTensors": [tensor]}).tensors[0]
    assert found.compression == "sparse"
    with pytest.raises(ModelFormatError, match=r"int32 numbers cannot be packed as sparse .*in constant w"):
        _ = found.array


def test_a_shape_that_no_array_can_have():
    assert shaped(np.zeros(0), (0, 1 << 40, 1 << 40)) is None
    assert shaped(np.zeros(0), (0, 3)).shape == (0, 3)
    assert shaped(np.zeros(2), (3,)) is None


def test_shared_parameters():
    one, none = np.array([0.5]), np.zeros(0)
    assert ir.Quantization(one, np.array([3])).shared == (0.5, 3)
    assert ir.Quantization(one, np.array([3]), axis=0).shared is None
    assert ir.Quantization(none, none).shared is None


def test_models_that_begin_like_one_and_break_are_called_damaged():
    model = build.armnn().input("x", (1, 4)).output("y").model()
    data = save.to_bytes(model.network)
    root = int.from_bytes(data[:4], "little")
    with pytest.raises(ModelFormatError, match="cut off or damaged"):
        mi.open(data[: max(root, 32) + 2])
