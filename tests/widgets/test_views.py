"""What is shown of a tensor: the right plane, the right marks, and never much of it."""

import numpy as np
import pytest

from mlinspect import ir
from mlinspect.widgets import views
from mlinspect.widgets.pixels import HIGH, INF, LOW, NAN
from mlinspect.widgets.views import Shown, picture, planes


def tensor(shape, dtype="float32", scale=None, zero=0, layout=None, name="x", **more):
    q = None if scale is None else ir.Quantization(np.array([scale]), np.array([zero]))
    return ir.Tensor(
        0, name, 0, "activation", dtype, dtype, shape, layout, quantization=q, quantized=q is not None, **more
    )


@pytest.mark.parametrize(
    ("shape", "layout", "wanted"),
    [
        ((), None, (1, 1, 1, 1)),
        ((5,), None, (1, 1, 1, 5)),
        ((2, 5), None, (1, 1, 2, 5)),
        ((2, 3, 4), None, (2, 1, 3, 4)),
        ((2, 3, 4, 5), "NHWC", (2, 5, 3, 4)),
        ((2, 3, 4, 5), None, (2, 5, 3, 4)),
        ((2, 3, 4, 5), "NCHW", (2, 3, 4, 5)),
        ((6, 2, 3, 4, 5), None, (12, 5, 3, 4)),
    ],
)
def test_planes(shape, layout, wanted):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    found = planes(array, layout)
    assert found.shape == wanted
    assert sorted(found.ravel()) == sorted(array.ravel())
    assert np.shares_memory(found, array)


def test_ends_of_a_quantised_type_are_marked_unless_they_are_zero():
    array = np.array([[0, 255, 7]], np.uint8)
    assert Shown(tensor((1, 3), "uint8", 0.1, zero=0), array).counts == {HIGH: 1}
    assert Shown(tensor((1, 3), "uint8", 0.1, zero=3), array).counts == {LOW: 1, HIGH: 1}
    assert Shown(tensor((1, 3), "uint8"), array).counts == {}
    assert Shown(tensor((1, 2), "int32", 0.1), np.array([[2**31 - 1, 0]], np.int32)).counts == {}


def test_packed_weights_end_where_their_bits_do():
    q = ir.Quantization(np.array([0.1]), np.array([0]), bits=4)
    array = np.array([-8, 7, 0], np.int8)
    weights = ir.Tensor(0, "w", 0, "constant", "int8", "Int8", (3,), data=array, quantization=q, quantized=True)
    assert Shown(weights, array).counts == {LOW: 1, HIGH: 1}


def test_nan_and_inf_are_marked():
    shown = Shown(tensor((4,)), np.array([1, np.nan, np.inf, -np.inf], np.float32))
    assert shown.counts == {INF: 2, NAN: 1}
    for view in views.VIEWS:
        html = picture(shown, view)
        assert "NaN 1" in html and "Inf 2" in html


def test_real_and_stored():
    t = tensor((1, 2), "uint8", 0.5, zero=10)
    array = np.array([[10, 14]], np.uint8)
    assert "max 2," in picture(Shown(t, array, "real"), "numbers")
    assert "max 14," in picture(Shown(t, array, "stored"), "numbers")


def test_numbers_come_from_the_plane_that_was_asked_for():
    array = np.arange(2 * 30 * 20 * 3, dtype=np.float32).reshape(2, 30, 20, 3)
    html = picture(Shown(tensor(array.shape), array), "numbers", batch=1, channel=2, row=5, column=7)
    assert f"<td class='mli-n'>{array[1, 5, 7, 2]:.4g}</td>" in html
    assert "rows 5 to 16 of 30, columns 7 to 14 of 20" in html
    beyond = picture(Shown(tensor(array.shape), array), "numbers", batch=9, channel=9, row=99, column=99)
    assert "batch 1, channel 2, rows 29 to 29" in beyond


def test_the_error_stands_beside_the_value():
    array = np.ones((1, 4, 4, 2), np.float32)
    shown = Shown(tensor(array.shape), array, reference=array + 0.5)
    assert "against the reference: SQNR 9.5 dB, largest error 0.5" in picture(shown, "map")
    assert picture(shown, "map").count("<img") == 4
    assert "<small>-0.5</small>" in picture(shown, "numbers")
    other = Shown(tensor(array.shape), array, reference=array[:, :2])
    assert "1 × 4 × 4 × 2, not 1 × 2 × 4 × 2" in picture(other, "map")


@pytest.mark.parametrize("view", list(views.VIEWS))
def test_large_tensors_are_summarised(view):
    rng = np.random.default_rng(0)
    array = rng.normal(size=(1, 300, 500, 70)).astype(np.float32)
    assert len(picture(Shown(tensor(array.shape), array), view)) < 80_000


@pytest.mark.parametrize("view", list(views.VIEWS))
@pytest.mark.parametrize(
    "array",
    [
        np.zeros((1, 0, 3, 3), np.float32),
        np.full((1, 2, 2, 1), np.nan, np.float32),
        np.zeros((), np.float32),
        np.array([True, False]),
        np.array([5], np.int64),
        np.array(["text"], object),
        np.array([1e38, -1e38], np.float32),
    ],
    ids=["empty", "nan", "scalar", "bool", "int64", "text", "huge"],
)
def test_odd_tensors_are_shown_without_an_error(view, array):
    html = picture(Shown(tensor(array.shape, str(array.dtype)), array), view)
    assert "mli-more" in html


def test_names_are_escaped():
    array = np.ones((2, 2), np.float32)
    for view in views.VIEWS:
        html = picture(Shown(tensor((2, 2), name="<img src=x onerror='alert(1)'>"), array), view)
        assert "<img src=x" not in html and "'alert" not in html


def test_a_histogram_counts_all_values():
    t = tensor((6,), "int8", 0.1, zero=0)
    html = picture(Shown(t, np.array([-128, -128, -128, 0, 1, 127], np.int8), "stored"), "histogram")
    assert "6 as stored, logarithmic counts, tallest 3 at -128" in html
