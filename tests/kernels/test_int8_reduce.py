"""int8 pooling, reductions, softmax, resizing: outputs of MindSpore Lite 2.0.0 (CPU, x86-64), and definitions."""

import numpy as np
import pytest

from mlinspect.errors import UnsupportedError
from mlinspect.kernels import int8_reduce
from mlinspect.kernels.int8 import Affine

X = np.array(
    [[[[86, -13], [0, -34], [-82, 109]], [[72, 36], [-25, 82], [11, -15]], [[-13, -70], [-105, 13], [99, -112]]]]
)
X = X.astype(np.int8)
ROWS = np.array([[-106, 70, 39], [-16, -18, 91], [-106, 50, -77], [-104, 6, 121]], np.int8)
Q = Affine(0.1, -3)


def test_vendor_pooling():
    where = ((2, 3), (1, 2), (1, 1), (3, 2))
    got = int8_reduce.avg_pool_int8(X, *where, Q, Affine(0.08, 4))
    assert got.ravel().tolist() == [62, -21, -44, 55, 49, 30, -22, 53, -15, 27, 1, -2]
    got = int8_reduce.max_pool_int8(X, *where, Q, Affine(0.08, 4))
    assert got.ravel().tolist() == [115, -9, 8, -112, 115, 110, 22, -112, 98, 110, -124, 110]  # wraps, not clamped


def test_vendor_average_of_a_large_window():
    """400 cells overflow the runtime's int16; the ninth channel is divided as float32."""
    x = np.full((1, 20, 20, 9), -128, np.int8)
    x[0, :, :12] = 127
    x[..., 1] = 100
    x[..., 8] = -120
    x[0, 0, :3, 8] = 5
    got = int8_reduce.avg_pool_int8(x, (20, 20), (1, 1), (0, 0), (1, 1), Q, Affine(0.15, 4))
    assert got.ravel().tolist() == [-86, -37, -86, -86, -86, -86, -86, -86, 36]


@pytest.mark.parametrize("channels", [3, 8, 19])
def test_pooling_by_definition(channels):
    x = np.random.default_rng(channels).integers(-128, 128, (2, 6, 5, channels)).astype(np.int8)
    window, stride, begin, size = (3, 2), (2, 1), (1, 0), (3, 5)
    avg = int8_reduce.avg_pool_int8(x, window, stride, begin, size, Q, Q)
    most = int8_reduce.max_pool_int8(x, window, stride, begin, size, Q, Q)
    for i in range(3):
        for j in range(5):
            cells = x[:, max(0, 2 * i - 1) : 2 * i + 2, j : j + 2].reshape(2, -1, channels).astype(int)
            assert np.array_equal(most[:, i, j], cells.max(1))
            assert np.array_equal(avg[:, i, j], np.floor(cells.mean(1) + 0.5))


def test_window_of_padding_alone():
    with pytest.raises(UnsupportedError):
        int8_reduce.avg_pool_int8(X, (1, 1), (1, 1), (1, 0), (4, 3), Q, Q)


@pytest.mark.parametrize(
    ("mode", "scale", "axes", "want"),
    [
        ("ReduceMean", 0.1, [1], [58, -7, -35, 30, 19, 3]),
        ("ReduceMean", 0.1, [2, 3], [21, 37, -23]),
        ("ReduceMean", 0.1, [1, 2], [14, 8]),
        ("ReduceSum", 0.25, [1], [68, -9, -43, 34, 21, 2]),
        ("ReduceSum", 0.25, [2, 3], [40, 78, -62]),
        ("ReduceSum", 0.25, [1, 2], [34, 15]),
        ("ReduceMax", 0.12, [1], [80, 39, 9, 77, 91, 99]),
        ("ReduceMax", 0.12, [2, 3], [99, 77, 91]),
        ("ReduceMin", 0.12, [1], [-2, -50, -79, -20, -60, -85]),
        ("ReduceMin", 0.12, [1, 2], [-79, -85]),
        ("ReduceSumSquare", 2.5, [1], [61, 30, 50, 40, 73, 104]),
        ("ReduceSumSquare", 2.5, [1, 2], [127, 127]),
        ("ReduceProd", 30.0, [1], [4, 7, 6, 5, 2, 11]),
        ("ReduceProd", 30.0, [2, 3], [-18, 37, 127]),
        ("ReduceProd", 30.0, [1, 2], [127, -128]),
    ],
)
def test_vendor_reductions(mode, scale, axes, want):
    got = int8_reduce.reduce_int8(X, mode, axes, Q, Affine(scale, 6))
    assert got.shape == tuple(1 if i in axes else n for i, n in enumerate(X.shape))
    assert got.ravel().tolist() == want


def test_reductions_of_negative_and_of_all_axes():
    out = Affine(0.3, 6)
    got = int8_reduce.reduce_int8(X, "ReduceSum", [-1], Q, out)
    assert np.array_equal(got, int8_reduce.reduce_int8(X, "ReduceSum", [3], Q, out))
    assert int8_reduce.reduce_int8(X, "ReduceMax", [], Q, Q).tolist() == [[[[109]]]]


def test_vendor_softmax():
    got = int8_reduce.softmax_int8(ROWS, Affine(0.04, 3))
    assert got.ravel().tolist() == [-128, 70, -71, -125, -125, 121, -128, 126, -126, -128, -125, 125]
    got = int8_reduce.softmax_int8(ROWS, Affine(0.5, 3))
    assert got.ravel().tolist() == [-128, 127, -128, -128, -128, 127, -128, 127, -128, -128, -128, 127]


def test_softmax_is_the_real_one_along_any_axis():
    x = np.random.default_rng(0).integers(-128, 128, (3, 40, 2)).astype(np.int8)
    e = np.exp(0.03 * (x - x.max(1, keepdims=True).astype(float)))
    want = np.clip(256 * e / e.sum(1, keepdims=True) - 128, -128, 127)
    assert np.abs(int8_reduce.softmax_int8(x, Affine(0.03, 9), 1) - want).max() < 0.51


def test_vendor_l2_norm():
    """A lone -1 beside the zero point wraps, as the runtime's int32 does."""
    x = np.array([[1, 2, 4], [2, 3, 3], [-128, 127, 50], [4, 3, 3]], np.int8)
    got = int8_reduce.l2_normalize_int8(x, 3)
    assert got.ravel().tolist() == [-105, -52, 52, 127, 0, 0, -90, 85, 32, -128, 0, 0]


@pytest.mark.parametrize("length", [7, 110_000])  # the squares of so many add up to more than 2**29
def test_l2_norm_is_the_real_one(length):
    x = np.random.default_rng(0).integers(-128, 128, (5, length)).astype(np.int8)
    centred = x - 4.0
    want = 128 * centred / np.sqrt((centred**2).sum(1, keepdims=True))
    assert np.abs(int8_reduce.l2_normalize_int8(x, 4) - want).max() < 0.51


@pytest.mark.parametrize(
    ("zero_point", "align", "want"),
    [
        (0, False, [-99, -11, 76, 120, 120, -10, 7, 26, 35, 35, 33, 17, 1, -6, -6]),
        (0, True, [-99, -44, 10, 65, 120, -33, -10, 12, 34, 57, 33, 23, 13, 3, -6]),
        (9, False, [-100, -12, 76, 120, 120, -11, 7, 25, 35, 35, 33, 17, 0, -6, -7]),
        (9, True, [-100, -45, 10, 65, 120, -33, -11, 11, 34, 56, 33, 23, 13, 3, -7]),
    ],
)
def test_vendor_linear_resize(zero_point, align, want):
    x = np.array([[-100, 120], [33, -7]], np.int8).reshape(1, 2, 2, 1)
    assert int8_reduce.resize_linear_int8(x, (3, 5), zero_point, align).ravel().tolist() == want


def test_linear_resize_of_several_channels():
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5)).astype(np.int8)
    for zero_point in (0, 7):
        got = int8_reduce.resize_linear_int8(x, (7, 6), zero_point)
        for n in range(2):
            for c in range(5):
                one = int8_reduce.resize_linear_int8(x[n : n + 1, :, :, c : c + 1], (7, 6), zero_point)
                assert np.array_equal(got[n, :, :, c], one[0, :, :, 0])


def test_nearest_resize():
    x = np.arange(12, dtype=np.int8).reshape(1, 3, 4, 1)
    got = int8_reduce.resize_nearest_int8(x, (5, 2))
    assert got[0, :, :, 0].tolist() == [[0, 2], [0, 2], [4, 6], [4, 6], [8, 10]]
    got = int8_reduce.resize_nearest_int8(x, (5, 2), True)
    assert got[0, :, :, 0].tolist() == [[0, 3], [4, 7], [4, 7], [8, 11], [8, 11]]
    assert int8_reduce.resize_nearest_int8(x, (1, 1), True).tolist() == [[[[0]]]]
