"""int8 arithmetic of several operands: outputs of MindSpore Lite 2.0.0 (CPU, x86-64), and slow definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import UnsupportedError
from mlinspect.kernels import int8, quantize
from mlinspect.kernels.int8 import Affine

quick = settings(derandomize=True, deadline=None, max_examples=40)
A = np.array([-52, 25, 96, -8, -44, 16, 35, -4, -59, 0, 127, -128], np.int8)
B = np.array([-38, 93, 96, 48, 94, 113, -18, 106, 93, -34, -36, 127], np.int8)
X = np.array([[[[-106, 70, 39], [-16, -18, 91]]], [[[-106, 50, -77], [-104, 6, 121]]]], np.int8)
Y = np.array([[[[60, 66, 55]]], [[[73, 3, -96]]]], np.int8)
CHANNEL = np.array([7, -50, 100], np.int8)
QA, QB = Affine(0.1, 1), Affine(0.02, -35)


def test_vendor_elementwise():
    got = int8.add_int8(A, B, QA, QB, Affine(0.1, 5), "RELU6")
    assert got.tolist() == [5, 55, 65, 13, 5, 50, 42, 28, 5, 5, 65, 5]
    got = int8.sub_int8(A, B, QA, QB, Affine(0.1, 5))
    assert got.tolist() == [-47, 3, 74, -21, -66, -10, 36, -28, -81, 4, 127, -128]
    got = int8.mul_int8(A, B, QA, QB, Affine(0.1, 5))
    assert got.tolist() == [8, 66, 127, -10, -111, 49, 17, -9, -128, 5, 2, -128]
    got = int8.div_int8(A, B, QA, QB, Affine(0.3, 5))
    assert got.tolist() == [127, 8, 17, 3, -1, 7, 38, 4, -3, -12, -128, -8]


def test_vendor_division_with_long_shifts():
    """Shifts of more than 31 bits count as 31: quotients near 0 come out as -1 or 1."""
    out = Affine(0.12376667525769405, -29)
    got = int8.div_int8(A, B, Affine(0.0038374963760136344, 47), Affine(0.07327241293100145, -35), out)
    assert got.tolist() == [-15, -30, -28, -30, -30, -30, -30, -30, -30, -49, -63, -29]


def test_division_by_zero():
    with pytest.raises(UnsupportedError):
        int8.div_int8(A, np.array([-35], np.int8), QA, QB, QA)


def test_vendor_broadcasting():
    """Of ``[2, 1, 1, 3]`` both kernels read the first row alone."""
    q, p = Affine(0.07, 3), Affine(0.05, -4)
    got = int8.add_int8(X, Y, q, p, Affine(0.1, 2))
    assert got.ravel().tolist() == [-42, 84, 57, 21, 22, 93, -42, 70, -25, -41, 39, 114]
    assert np.array_equal(int8.add_int8(Y, X, p, q, Affine(0.1, 2)), got)
    got = int8.mul_int8(X, Y, q, p, Affine(0.2, 2))
    assert got.ravel().tolist() == [-120, 84, 39, -19, -24, 93, -120, 60, -81, -118, 6, 124]
    assert np.array_equal(int8.mul_int8(Y, X, p, q, Affine(0.2, 2)), got)


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1, 1, 3), (1, 1, 2, 3), (2, 1, 2, 3), ()])
def test_broadcasting_of_trailing_axes_is_the_usual_one(shape):
    b = np.resize(B, shape).astype(np.int8)
    full = np.ascontiguousarray(np.broadcast_to(b, X.shape))
    assert np.array_equal(int8.add_int8(X, b, QA, QB, QA), int8.add_int8(X, full, QA, QB, QA))
    assert np.array_equal(int8.mul_int8(X, b, QA, QB, QA), int8.mul_int8(X, full, QA, QB, QA))


def test_vendor_power():
    """A negative base gives NaN, which a cast to int32 makes the least value."""
    x = np.array([-128, -127, -90, -64, -33, -17, -3, -1, 0, 1, 5, 20, 41, 77, 101, 126], np.int8)
    got = int8.power_int8(x, np.array([28], np.int8), QA, Affine(0.1, 3), Affine(0.3, -5), 1.5, 0.5)
    assert got.tolist() == [-128] * 7 + [-5, -5, -4, -1, 63, 127, 127, 127, 127]
    each = int8.power_int8(x, np.full(16, 28, np.int8), QA, Affine(0.1, 3), Affine(0.3, -5), 1.5, 0.5)
    assert np.array_equal(each, got)


def test_vendor_batch_norm():
    x = X.reshape(4, 3)
    q, qv, out = Affine(0.05, 3), Affine(0.01, -128), Affine(0.07, -4)
    got = int8.batch_norm_int8(x, CHANNEL, CHANNEL[::-1], (q, Affine(0.02, 1), qv), out, 1e-3)
    assert got.ravel().tolist() == [-57, 67, -6, -14, -4, 26, -57, 50, -77, -56, 15, 44]
    got = int8.batch_norm_int8(
        x,
        CHANNEL,
        CHANNEL[::-1],
        (q, Affine(0.02, 1), qv),
        out,
        1e-3,
        (CHANNEL, Affine(0.012, -2)),
        (-CHANNEL, Affine(0.03, 1)),
    )
    assert got.ravel().tolist() == [-13, -24, -50, -9, 17, -11, -13, -14, -128, -13, 6, 12]


def test_vendor_scale():
    x, q, p = X.reshape(4, 3), Affine(0.05, 3), Affine(0.012, -2)
    got = int8.scale_int8(x, CHANNEL, -CHANNEL, q, p, Affine(0.03, 1), Affine(0.05, -4))
    assert got.ravel().tolist() == [-21, -14, -21, -11, 37, 43, -21, -2, -128, -21, 23, 79]
    got = int8.scale_int8(x, CHANNEL, None, q, p, None, Affine(0.9, -4), "RELU6")
    assert got.ravel().tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 4]


def c_multiply(x, factor):
    """``MultiplyByQuantizedMultiplier`` on Python's integers."""
    mantissa, exponent = math.frexp(factor)
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    product = ((x << max(exponent, 0)) * multiplier + (1 << 30)) >> 31
    bits = max(-exponent, 0)
    mask = (1 << bits) - 1
    return (product >> bits) + ((product & mask) > (mask >> 1) + (product < 0))


scales = st.floats(0.001, 0.3)
zeros = st.integers(-128, 127)
affine = st.builds(Affine, scales, zeros)
bytes8 = st.lists(st.integers(-128, 127), min_size=20, max_size=20)


@quick
@given(bytes8, bytes8, affine, affine, affine, st.sampled_from(["", "RELU", "RELU6"]))
def test_add_by_definition(a, b, qa, qb, out, activation):
    twice = 2 * max(qa.scale, qb.scale)
    low, high = int8.activation_range(activation, out)
    want = []
    for x, y in zip(a, b, strict=True):
        total = c_multiply((x - qa.zero_point) << 20, qa.scale / twice)
        total += c_multiply((y - qb.zero_point) << 20, qb.scale / twice)
        want.append(min(max(c_multiply(total, twice / ((1 << 20) * out.scale)) + out.zero_point, low), high))
    got = int8.add_int8(np.array(a, np.int8), np.array(b, np.int8), qa, qb, out, activation)
    assert got.tolist() == want


@quick
@given(bytes8, bytes8, affine, affine, affine)
def test_division_is_near_the_real_one(a, b, qa, qb, out):
    a, b = np.array(a, np.int8), np.array(b, np.int8)
    b = np.where(b == qb.zero_point, b ^ 1, b).astype(np.int8)
    real = qa.scale * (a - np.float64(qa.zero_point)) / (qb.scale * (b - np.float64(qb.zero_point)))
    want = np.clip(real / out.scale + out.zero_point, -128, 127)
    assert np.abs(int8.div_int8(a, b, qa, qb, out) - want).max() <= 1.01


def test_sums_requantised_by_channel():
    sums = np.array([[-4000, 90, 3000], [0, -1, 2**20]], np.int32)
    scale = np.array([0.01, 0.003, 0.02])
    out = Affine(0.06, -20)
    got = int8.requantizer_of_sums(0.05, scale, out)(sums)
    factors = np.float64(np.float32(0.05) * scale.astype(np.float32)) / np.float64(np.float32(0.06))
    want = [
        [min(max(c_multiply(int(v), f) - 20, -128), 127) for v, f in zip(row, factors, strict=True)] for row in sums
    ]
    assert got.tolist() == want


def test_activation_range():
    assert int8.activation_range("", Affine(0.1, 3)) == (-128, 127)
    assert int8.activation_range("TANH", Affine(0.1, 3)) == (-128, 127)
    assert int8.activation_range("RELU", Affine(0.1, 3)) == (3, 127)
    assert int8.activation_range("RELU6", Affine(0.1, 3)) == (3, 63)
    assert int8.activation_range("RELU6", Affine(0.02, 3)) == (3, 127)


def test_helpers():
    table = np.arange(256).astype(np.int8)[::-1].copy()
    x = np.arange(-128, 128).astype(np.int8).reshape(2, 128)
    got = quantize.lookup(x[:, ::2], table)
    assert got.tolist() == [[int(table[v & 255]) for v in row] for row in x[:, ::2].tolist()]
    got[0, 0] = 5  # a new array of one's own
    assert int8.rounded(np.array([np.inf, -2.5], np.float32), -9).tolist() == [-128, -12]
