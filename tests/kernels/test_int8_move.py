"""Rescaling and casts of int8: outputs of MindSpore Lite 2.0.0 (CPU, x86-64), and float definitions."""

import numpy as np
import pytest

from mlinspect.kernels import int8_move
from mlinspect.kernels.int8 import Affine

X = np.array([-128, -127, -90, -64, -33, -17, -3, -1, 0, 1, 5, 20, 41, 77, 101, 126], np.int8)
EVERY = np.arange(-128, 128).astype(np.int8)
# 0.3 / 0.2 leaves ties for which the formulas differ
MOVED = [-128, -128, -128, -128, -90, -66, -45, -42, -41, -39, -33, -10, 21, 75, 111, 127]
GATHERED = [-128, -128, -128, -128, -90, -66, -45, -42, -40, -39, -33, -11, 21, 75, 111, 127]


@pytest.mark.parametrize("operator", ["Reshape", "Squeeze", "Concat", "Split", "SliceFusion", "Gather"])
def test_vendor_rescaling(operator):
    got = int8_move.rescale_int8(X, Affine(0.3, 7), Affine(0.2, -30), operator)
    assert got.tolist() == (GATHERED if operator == "Gather" else MOVED)


@pytest.mark.parametrize("operator", sorted(int8_move._RULES))
def test_rescaling_keeps_values(operator):
    q, out = Affine(0.0371, -5), Affine(0.0523, 11)
    want = np.clip(q.scale * (EVERY + 5.0) / out.scale + 11, -128, 127)
    assert np.abs(int8_move.rescale_int8(EVERY, q, out, operator) - want).max() < 0.51
    assert int8_move.rescale_int8(EVERY, q, q, operator) is EVERY


def test_scales_that_count_as_equal():
    """Split compares scales by float32's epsilon, so it copies where tiny scales differ tenfold; Reshape does not."""
    q, out = Affine(1e-8, 0), Affine(1e-7, 0)
    assert int8_move.rescale_int8(X, q, out, "Split") is X
    assert int8_move.rescale_int8(X, q, out, "Reshape")[0] == -13


def test_concat():
    parts = [X.reshape(4, 4), X.reshape(4, 4)[:, :1]]
    got = int8_move.concat_int8(parts, [Affine(0.3, 7), Affine(0.2, -30)], Affine(0.2, -30), 1)
    assert got[:, :4].ravel().tolist() == MOVED
    assert np.array_equal(got[:, 4:], parts[1])


def test_vendor_quantize():
    x = [-6.4, -3.2000003, -0.1, -0.05, 0.049999997, 0.05, 0.15, 0.25, 0.35, 0.45, 7.75, 12.65]
    x = np.array([*x, 1e9, -1e9, 1e12, np.inf, -np.inf, np.nan], np.float32)
    got = int8_move.quantize_int8(x, Affine(0.1, 3))
    assert got.tolist() == [-61, -29, 2, 3, 4, 4, 5, 6, 7, 8, 81, 127, -128, -128, -128, 127, -128, -128]
    got = int8_move.quantize_uint8(x[:-1], Affine(0.1, 3))
    assert got.tolist() == [0, 0, 2, 3, 3, 4, 5, 5, 6, 7, 80, 129, 255, 0, 255, 255, 255]


def test_vendor_quantize_fused():
    """On ties the product's lost bits decide, which two roundings would drop."""
    x = ((np.arange(-20, 20) + 0.5) * np.float32(0.0371)).astype(np.float32)
    want = [-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, 0, 0, 1, 3, *range(4, 25)]
    assert int8_move.quantize_int8(x, Affine(0.0371, 4)).tolist() == want


def test_quantize_for_a_uint8_source():
    """Rounding happens 128 higher, where halves below zero go up."""
    x = np.array([-2.5, -1.5, 2.5, 300, -300], np.float32)
    assert int8_move.quantize_int8(x, Affine(1, 0), from_uint8=True).tolist() == [-2, -1, 3, 127, -128]
    assert int8_move.quantize_int8(x, Affine(1, 0)).tolist() == [-3, -2, 3, 127, -128]


def test_quantize_does_not_round_up_the_float_below_a_half():
    below = np.nextafter(np.float32([0.5, 1.5, 2.5, -0.5, 64.5]), np.float32(0))
    assert int8_move.quantize_int8(below, Affine(1, 0)).tolist() == [0, 1, 2, 0, 64]


@pytest.mark.parametrize("from_uint8", [False, True])
@pytest.mark.parametrize("q", [Affine(0.037, -3), Affine(0.25, 100), Affine(3e-5, 127), Affine(0.01, 900)])
def test_quantize_near_halves(q, from_uint8):
    """What a product in float32 cannot decide is rounded as one fused multiplication and addition would."""
    inverse, shift = np.float32(1) / np.float32(q.scale), q.zero_point + 128 * from_uint8
    at = ((np.arange(-300, 300) + 0.5) / np.float64(inverse)).astype(np.float32)
    x = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])
    exact = (x.astype(np.float64) * inverse + shift).astype(np.float32).astype(np.float64)
    want = np.trunc(exact + np.copysign(0.5, exact)) - 128 * from_uint8
    assert np.array_equal(int8_move.quantize_int8(x, q, from_uint8), np.clip(want, -128, 127))


@pytest.mark.parametrize("from_uint8", [False, True])
def test_quantize_in_any_order_of_memory(from_uint8):
    x = (np.arange(24, dtype=np.float32) + 0.5).reshape(2, 3, 4)
    want = int8_move.quantize_int8(x, Affine(1.0, -3), from_uint8)
    assert want.ravel()[:3].tolist() == ([-2, -1, 0] if from_uint8 else [-3, -2, -1])
    for other in (np.asfortranarray(x), np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0), x[::-1][::-1]):
        np.testing.assert_array_equal(int8_move.quantize_int8(other, Affine(1.0, -3), from_uint8), want)
    assert int8_move.quantize_int8(np.float32(0.3), Affine(0.1, 0)).tolist() == 3


def test_dequantize():
    x = np.arange(-6, 6).reshape(2, 3, 2).astype(np.int8)
    assert int8_move.dequantize_int8(x, 0.5, -3).tolist() == ((x + 3.0) * 0.5).tolist()
    scale, zero = np.array([0.5, 2.0]), np.array([1, -1])
    assert int8_move.dequantize_int8(x, scale, zero).tolist() == [
        ((x[0] - 1) * 0.5).tolist(),
        ((x[1] + 1) * 2.0).tolist(),
    ]
    assert np.array_equal(int8_move.dequantize_int8(x, scale, zero, -1), (x - zero) * scale)
    assert int8_move.dequantize_int8(x.view(np.uint8), 1, 200)[0, 0, 0] == 50


def test_flip_sign():
    x = np.arange(256, dtype=np.uint8)
    assert int8_move.flip_sign(x).tolist() == list(range(-128, 128))
    assert np.array_equal(int8_move.flip_sign(int8_move.flip_sign(x)), x)


@pytest.mark.parametrize("symmetric", [True, False])
def test_dynamic_quantize(symmetric):
    x = np.random.default_rng(0).normal(0.3, 2, (7, 5)).astype(np.float32)
    stored, q = int8_move.dynamic_quantize(x, symmetric)
    assert stored.dtype == np.int8 and (stored.max() == 127 or stored.min() < -126)
    assert np.abs((stored - np.float64(q.zero_point)) * q.scale - x).max() <= 0.501 * q.scale
    if symmetric:
        assert q.zero_point == 0 and abs(q.scale / (2 * np.abs(x).max() / 254) - 1) < 1e-6


def test_dynamic_quantize_of_constants():
    stored, q = int8_move.dynamic_quantize(np.zeros(3, np.float32), False)
    assert stored.tolist() == [-128] * 3 and q.zero_point == -128 and abs(q.scale - 0.01 / 255) < 1e-9


def test_dynamic_matmul_output():
    sums = np.array([[3, -5], [1000, 7]], np.int32)
    got = int8_move.dynamic_matmul_output(sums, 0.1, np.array([0.01, 0.02]), np.array([1, -1], np.float32))
    assert np.allclose(got, sums * 0.1 * np.array([0.01, 0.02]) + [1, -1], rtol=1e-6)
    assert got.dtype == np.float32
    assert np.allclose(int8_move.dynamic_matmul_output(sums, 0.1, 0.5, None), sums * 0.05)


def test_pad_value():
    assert int8_move.pad_value_int8(-1.26, Affine(0.1, 3)) == -10
    assert int8_move.pad_value_int8(20.0, Affine(0.1, 3)) == 203 - 256
