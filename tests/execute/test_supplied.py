"""A user's functions in layers' places: what they are given, and that their results are what the layers declare."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute import registry
from mlinspect.execute.registry import Call
from mlinspect.execute.supplied import compute_by

IMAGES = mi.samples.digits().images[:2, ..., None]
REAL = IMAGES[:1].astype(np.float32) / 16
BATCH = IMAGES.astype(np.float32) / 16


@pytest.fixture(autouse=True)
def no_functions_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LAYER_OPS", {})


def outputs(model: mi.Model, layer: str, function, how: str, **options) -> dict[str, np.ndarray]:
    """The outputs of a run in which a function computes a layer."""
    if how == "register_op":
        op = model.layers.set_index("name").op[layer]
        mi.register_op(model.format, op, layer=layer, **options)(function)
        return model.run(REAL, quantize=True)
    session = model.session(REAL, quantize=True)
    session.replace(layer, function, **options)
    return session.finish()


@pytest.mark.parametrize("how", ["register_op", "replace"])
@pytest.mark.parametrize(
    ("name", "layer"),
    [("digits_cnn.armnn", "stem/relu"), ("digits_cnn_u8.armnn", "stem/relu"), ("digits_cnn.ms", "/Add")],
)
def test_results_are_held_to_what_the_layer_declares(how: str, name: str, layer: str) -> None:
    model = mi.open(mi.samples.path(name))
    shape = list(model.network.tensors[model.layers.set_index("name").outputs[layer][0]].shape)
    wrong = {
        rf"gives float32\[1, 1\] .* declares shape {re.escape(str(shape))}": lambda call, *arrays: np.zeros(
            (1, 1), "f4"
        ),
        "gives 2 arrays, the layer 1": lambda call, *arrays: (arrays[0], arrays[0]),
        "gives NoneType .*, no array": lambda call, *arrays: None,
        "gives <U1": lambda call, *arrays: np.full(shape, "x"),
    }
    for message, function in wrong.items():
        with pytest.raises(mi.ExecutionError, match=rf"'{layer}'.*{message}"):
            outputs(model, layer, function, how)


@pytest.mark.parametrize("how", ["register_op", "replace"])
def test_stored_results_are_held_to_the_stored_type(how: str) -> None:
    model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
    for dtype in (np.float32, np.int64):
        with pytest.raises(mi.ExecutionError, match=rf"'stem/relu'.*gives {np.dtype(dtype)}.*declares uint8"):
            outputs(model, "stem/relu", lambda call, x, dtype=dtype: x.astype(dtype), how, stored=True)


@pytest.mark.parametrize("how", ["register_op", "replace"])
def test_double_precision_is_rounded(how: str) -> None:
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    got = outputs(model, "/Add", lambda call, a, b: np.maximum(a + b, 0).astype(np.float64), how)
    np.testing.assert_array_equal(got["probability"], model.run(REAL)["probability"])


@pytest.mark.parametrize("mode", ["vendor", "float"])
def test_a_function_counts_for_int8_operands_too(mode: str) -> None:
    model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    seen = []

    @mi.register_op("mslite", "AddFusion", layer="/Add")
    def add(call, a, b):
        seen.append((a.dtype.name, b.dtype.name))
        return np.maximum(a + b, 0)

    mi.register_op("mslite", "Conv2DFusion", layer="/res/Conv")(lambda call, x, weights, bias: x * 0)
    trace = model.trace(REAL, mode=mode)
    assert seen == [("float32", "float32")]
    tensor = model.layers.set_index("name").outputs["/res/Conv"][0]
    zero = 0 if mode == "float" else model.network.tensors[tensor].quantization.zero_point[0]
    assert (trace[tensor] == zero).all()


def test_unknown_sizes_may_be_any() -> None:
    tensor = mi.open(mi.samples.path("digits_cnn.ms")).network.tensors[0]
    for declared, fits in (((-1, 2), True), (None, True), ((3, 2), True), ((4, 2), False), ((3,), False)):
        target = dataclasses.replace(tensor, shape=declared, dtype="float32", quantization=None, quantized=False)
        layer = ir.Layer(0, "one", "Custom", "custom", 0, {}, (), (target.index,))
        compute = compute_by(lambda call: np.zeros((3, 2)), Call(layer, (), (target,)), False, "armnn")
        if fits:
            assert compute()[0].dtype == np.float32
        else:
            with pytest.raises(mi.ExecutionError, match="declares shape"):
                compute()


def test_inputs_of_another_shape_go_through_a_function() -> None:
    mi.register_op("mslite", "AddFusion", layer="/Add")(lambda call, a, b: np.maximum(a + b, 0))
    model = mi.open(mi.samples.path("digits_cnn.ms"))
    want = model.run(REAL)["probability"]
    np.testing.assert_allclose(model.with_input_shape(BATCH.shape).run(BATCH)["probability"][:1], want, rtol=1e-5)


def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(mi.InputError, match="a function must take the place of layer '/Add', not int"):
        mi.open(mi.samples.path("digits_cnn.ms")).session(REAL).replace("/Add", 3)
    with pytest.raises(mi.InputError, match=r"arithmetic of StandIn is a function\(call, \*arrays\), not int"):
        mi.register_op("armnn", "StandIn")(5)


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="did you mean 'mslite'"):
        mi.register_op("mslte", "AddFusion")


def test_stored_results_are_real_in_float_mode() -> None:
    model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
    layer = next(one for one in model.network.layers.values() if one.name == "stem/relu")
    target = model.network.tensors[layer.outputs[0]]
    q = target.quantization
    stored = np.full(target.shape, q.zero_point[0] + 3, np.uint8)
    compute = compute_by(lambda call: stored, Call(layer, (), (target,), "float"), True, "armnn")
    np.testing.assert_allclose(compute()[0], np.float32(3 * q.scale[0]), rtol=1e-6)


def test_half_floats_are_float32_where_the_runtime_has_no_fp16() -> None:
    tensor = ir.Tensor(0, "t", 0, "activation", "float16", "Float16", (2,))
    layer = ir.Layer(0, "one", "Custom", "custom", 0, {}, (), (0,))
    for model_format, dtype in (("mslite", np.float32), ("armnn", np.float16)):
        compute = compute_by(lambda call: np.float32([1, 2]), Call(layer, (), (tensor,)), False, model_format)
        assert compute()[0].dtype == dtype


def test_a_function_is_told_which_layer_it_computes() -> None:
    layer = ir.Layer(0, "one", "Custom", "custom", 0, {"alpha": 2}, (), ())
    call = Call(layer, (), ())
    assert (call.name, call.attrs["alpha"], call.mode) == ("one", 2, "vendor")


def test_integers_that_stand_for_themselves_are_converted() -> None:
    tensor = ir.Tensor(0, "t", 0, "activation", "int32", "Signed32", (2,))
    layer = ir.Layer(0, "one", "Custom", "custom", 0, {}, (), (0,))
    compute = compute_by(lambda call: np.int64([1, -2]), Call(layer, (), (tensor,)), False, "armnn")
    (got,) = compute()
    assert (got.dtype, got.tolist()) == (np.int32, [1, -2])
