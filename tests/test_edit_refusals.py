"""Edits and builds that are refused say why, and what to do instead."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import build
from mlinspect.errors import InputError


def sample(name):
    return mi.open(mi.samples.path(name))


def test_quantisation_needs_integers_and_a_scale():
    model = sample("digits_cnn.ms")
    with pytest.raises(InputError, match=r"'res\.weight' is of type Float32, which holds no quantised values"):
        model.with_quant("res.weight", scale=0.1)
    shape = build.mslite().input("x", (2, 4)).layer("Reshape", "flat", "x", np.array([8], np.int32)).output("y").model()
    with pytest.raises(InputError, match="'flat/input_1' has no quantisation yet: give a scale"):
        shape.with_quant("flat/input_1", zero_point=1)
    assert shape.with_quant("flat/input_1", scale=0.5).quant.scale.tolist() == [0.5]


def test_packed_numbers_keep_their_width():
    packed = sample("digits_cnn_wq4.ms")
    with pytest.raises(InputError, match=r"'res\.weight': its numbers are packed into 4 bits each"):
        packed.with_quant("res.weight", bits=5)


def test_channels_of_old_depthwise_weights_go_by_output_channel(tmp_path):
    model = sample("digits_cnn_u8.armnn")
    model.save(tmp_path / "old.armnn", release="20.08")
    old = mi.open(tmp_path / "old.armnn")
    (name,) = old.tensors.query("layout == 'MIHW'").name
    outputs = int(np.prod(old.tensors.set_index("name").loc[name, "shape"][:2]))
    with pytest.raises(InputError, match=f"{outputs} channels along axis 0, not 3"):
        old.with_quant(name, scale=[0.1] * 3, zero_point=0, axis=0)


def test_shapes_of_several_inputs_need_names():
    model = build.armnn().input("x", (1, 4)).input("y", (1, 4)).layer("Addition", "sum", "x", "y").output("z").model()
    with pytest.raises(InputError, match="the model has 2 inputs: give their shapes by name"):
        model.with_input_shape((2, 4))
    larger = model.with_input_shape({"x": (2, 4), "y": (2, 4)})
    assert larger.outputs["shape"].tolist() == [(2, 4)]


def test_a_builder_without_a_tensor_has_no_output():
    with pytest.raises(InputError, match="no tensor yet"):
        build.armnn().output("y")


def test_a_builder_refuses_a_type_that_the_operator_does_not_return():
    builder = build.mslite().input("x", (1, 4))
    with pytest.raises(InputError, match="layer 'sum': AddFusion returns float32, not int8"):
        builder.layer("AddFusion", "sum", "x", "x", scale=0.5, dtype="int8")


INT8 = "digits_cnn_int8.ms"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.rename("a"), r"layers is a dict of new names by old ones, .* not 'a'"),
        (lambda m: m.rename(tensors="a"), "tensors is a dict of new names"),
        (lambda m: m.rename({"/res/Conv": 1}), r"a name is a str, not 1 \(int\)"),
        (lambda m: m.with_quant("res.weight", scale="a"), "scale wants numbers, not 'a'"),
        (lambda m: m.with_quant("res.weight", scale=[[1], [1, 2]]), "scale is no array"),
        (lambda m: m.with_quant("res.weight", zero_point="a"), "zero_point wants numbers, not 'a'"),
        (lambda m: m.with_quant("res.weight", zero_point=0.5), "zero points are integers, not float64"),
        (lambda m: m.with_quant("res.weight", axis="a"), "axis is an integer, not 'a'"),
        (lambda m: m.with_constant("res.weight", [[1], [1, 2]]), r"'res\.weight' is no array"),
        (lambda m: m.with_constant(m.layers, 0), "a tensor goes by id or name, not by DataFrame"),
        (lambda m: m.without(np.array([1, 2])), "a layer goes by index or name, not by ndarray"),
        (lambda m: m.with_constant("res.weight", "a", quantize=True), r"'res\.weight' wants numbers, not 'a'"),
    ],
)
def test_arguments_of_another_kind(edit, message):
    with pytest.raises(InputError, match=message):
        edit(sample(INT8))


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            INT8,
            lambda m: m.with_attrs("/res/Conv", stride=(2, 2)),
            r"layer 9 '/Add' \(AddFusion\) would not fit its operands float32\[1, 4, 4, 32\], "
            r"float32\[1, 2, 2, 32\]: .* \(it fails with: operands could not be broadcast",
        ),
        (INT8, lambda m: m.without("/MaxPool"), r"'/head/Gemm' .* operands int8\[1, 128\], int8\[10, 32\].*gufunc"),
        ("digits_cnn.ms", lambda m: m.with_input_shape((1, 16, 16, 1)), r"operands float32\[1, 128\].*gufunc"),
        ("digits_cnn.armnn", lambda m: m.with_input_shape({np.int64(0): (1, 16, 16, 1)}), r"'flatten' .* operands"),
    ],
)
def test_the_layer_that_no_longer_fits_is_named_before_numpys_words(name, edit, message):
    with pytest.raises(InputError, match=message):
        edit(sample(name))
