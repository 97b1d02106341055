"""Inputs of comparisons: refused where a run would refuse them, turned where the two models differ, clipping named."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import build

IMAGES = mi.samples.digits().images[:4, ..., None]
REAL = IMAGES.astype(np.float32) / 16


def sample(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


U8, FLOAT = sample("digits_cnn_u8.armnn"), sample("digits_cnn.armnn")


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
def test_an_input_far_outside_the_range_is_named_once(call) -> None:
    with pytest.warns(UserWarning, match=r"of input 'image' are clipped: its scale can hold 0 to 1\b") as found:
        call(U8, FLOAT, REAL * 255)
    assert len(found) == 1
    share = np.mean((REAL * 255) > 1.002)  # the range ends at 1, its last step reaches half a step further
    assert f"{share:.1%} of the values" in str(found[0].message)
    assert found[0].filename == __file__


def test_no_warning_where_little_or_nothing_is_clipped() -> None:
    one_of_256 = REAL.copy()
    one_of_256[0, 0, 0] = 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mi.compare(U8, FLOAT, REAL)
        mi.compare(U8, FLOAT, one_of_256)
        mi.compare(FLOAT, FLOAT, REAL * 255)  # nothing to clip it
        mi.compare(U8, FLOAT, REAL * 255, modes=("float", "vendor"))


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
@pytest.mark.parametrize("factor", [16, 255])
def test_an_input_that_a_first_cast_quantises_is_named(call, factor: int) -> None:
    """MindSpore Lite's models take float: a QuantDTypeCast does what an Arm NN input does itself."""
    with pytest.warns(UserWarning, match=r"of input '\w+' are clipped: its scale can hold 0 to 1\b") as found:
        call(sample("digits_cnn_int8.ms"), sample("digits_cnn.ms"), REAL * factor)
    assert len(found) == 1
    share = np.mean((REAL * factor) > 1.002)
    assert f"{share:.1%} of the values" in str(found[0].message)


def test_a_range_behind_moves_counts_and_one_behind_a_computing_layer_does_not() -> None:
    def net(*between: tuple[str, dict]) -> mi.Model:
        built = build.armnn().input("x", (1, 4))
        for i, (op, attrs) in enumerate(between):
            built = built.layer(op, f"l{i}", **attrs)
        return built.layer("Quantize", "q", dtype="uint8", scale=1 / 255).layer("Dequantize", "d").output("y").model()

    x = np.float32([[0, 1, 2, 3]])
    reshape = ("Reshape", {"targetShape": (4, 1)})
    with pytest.warns(UserWarning, match=r"50.0% of the values of input 'x' are clipped"):
        mi.compare(net(reshape), net(reshape), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bounded = ("Activation", {"activationFunction": "BoundedReLu", "a": 1.0, "b": 0.0})
        mi.compare(net(bounded), net(bounded), x)


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
@pytest.mark.parametrize("model", [U8, FLOAT])
def test_inputs_that_are_no_numbers_are_named(call, model: mi.Model) -> None:
    images = REAL.copy()
    images[0, 0, :2], images[1, 3, 3] = np.nan, np.inf
    with pytest.warns(UserWarning, match=r"^input 'image' holds 2 NaN and 1 infinite of 256 values$") as found:
        call(model, FLOAT, images)
    assert len(found) == 1
    images[1, 3, 3] = 0
    with pytest.warns(UserWarning, match="^input 'image' holds 2 NaN of 256 values$"):
        call(model, FLOAT, images)


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (1, 64), (64,), (8, 8), (1, 8, 8, 1, 1), (2, 1, 8, 8), (1, 4, 16, 1)])
def test_another_shape_of_as_many_numbers_is_refused(call, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    with pytest.raises(mi.InputError, match=r"'image' wants shape \[1, 8, 8, 1\], not \["):
        call(U8, FLOAT, array)


def convolution(layout: str) -> mi.Model:
    order = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
    kernel = np.random.default_rng(0).normal(size=(5, 3, 3, 2)).astype(np.float32).transpose(order)
    attrs = {"dataLayout": layout, "strideX": 1, "strideY": 1}
    net = build.armnn().input("x", tuple((1, 6, 7, 2)[i] for i in order))
    return net.layer("Convolution2d", "conv", weights=np.ascontiguousarray(kernel), **attrs).output("y").model()


def test_models_of_two_layouts_take_the_layout_of_either() -> None:
    a, b = convolution("NHWC"), convolution("NCHW")
    image = np.random.default_rng(1).normal(size=(1, 6, 7, 2)).astype(np.float32)
    turned = image.transpose(0, 3, 1, 2)
    want = mi.compare(a, b, image)
    assert (want.sqnr_db > 100).all()
    pd.testing.assert_frame_equal(mi.compare(a, b, turned), want)
    with pytest.raises(mi.InputError, match=r"'x' wants shape \[1, 6, 7, 2\], not \[1, 7, 6, 2\]"):
        mi.compare(a, b, image.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
@pytest.mark.parametrize("models", [(U8, FLOAT), (FLOAT, FLOAT)])
def test_float64_is_rounded_as_a_run_rounds_it(call, models) -> None:
    fine = REAL.astype(np.float64) * (1 + 1e-9)
    pd.testing.assert_frame_equal(call(*models, fine), call(*models, fine.astype(np.float32)))


@pytest.mark.parametrize("call", [mi.compare, mi.blame])
@pytest.mark.parametrize("inputs", [IMAGES, 3.5, None, "image", REAL.tolist(), {"imag": REAL}, [REAL, "image"], []])
def test_what_is_no_input_is_refused(call, inputs) -> None:
    with pytest.raises(mi.InputError):
        call(FLOAT, FLOAT, inputs)


def test_stored_numbers_are_those_of_the_model_that_takes_them() -> None:
    stored = np.rint(REAL * 255).astype(np.uint8)
    table = mi.compare(FLOAT, U8, stored)  # uint8 is what the second model takes
    real = mi.compare(FLOAT, U8, (stored / 255).astype(np.float32))
    assert (table.sqnr_db > 29).all()
    np.testing.assert_allclose(table.mse, real.mse, rtol=1e-4, atol=1e-12)
