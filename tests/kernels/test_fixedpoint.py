"""nnacl's fixed-point arithmetic against its C text on Python's integers, one value at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import fixedpoint as fp

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
quick = settings(derandomize=True, deadline=None, max_examples=200)


def int32(x):
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


def toward_zero(a, b):
    return abs(a) // b * (1 if a >= 0 else -1)


def c_high_multiply(a, b):
    if a == b == -(1 << 31):
        return (1 << 31) - 1
    product = a * b
    return toward_zero(product + (1 << 30 if product >= 0 else 1 - (1 << 30)), 1 << 31)


def c_rounding_shift(x, bits):
    mask = (1 << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def c_quantize(factor):
    if factor == 0:
        return 0, 0
    mantissa, exponent = math.frexp(factor)
    rounded = (int(mantissa * 2**53) >> 21) + 1 >> 1
    return (rounded >> 1, exponent + 1) if rounded == 1 << 31 else (rounded, exponent)


def c_multiply(x, factor):
    multiplier, exponent = c_quantize(factor)
    product = c_high_multiply(int32(x << max(exponent, 0)), multiplier)
    return c_rounding_shift(product, min(max(-exponent, 0), 31))


@quick
@given(INT32, INT32, st.integers(0, 31))
def test_pieces(a, b, bits):
    assert int(fp.high_multiply(np.array(a), b)) == c_high_multiply(a, b)
    assert int(fp.rounding_shift(np.array(a), bits)) == c_rounding_shift(a, bits)
    a, b = a >> 16, b >> 16
    assert int(fp.high_multiply16(np.array(a), b)) == min((a * b + (1 << 14)) >> 15, (1 << 15) - 1)


def test_corners():
    least = np.array([-(1 << 31)])
    assert fp.high_multiply(least, -(1 << 31)).tolist() == [(1 << 31) - 1]
    ties = np.array([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6])
    assert fp.rounding_shift(ties, 2).tolist() == [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2]
    assert fp.rounding_shift(ties, 0).tolist() == ties.tolist()
    assert fp.high_multiply(np.array([1, -1]), 1 << 30).tolist() == [1, 0]  # halves up


@quick
@given(st.floats(1e-12, 1e6) | st.sampled_from([0.0, 1.0, 0.5, 1 - 2.0**-40, 5e-324]))
def test_quantize_multiplier(factor):
    multiplier, exponent = fp.quantize_multiplier(factor)
    assert (int(multiplier), int(exponent)) == c_quantize(factor)


def test_quantize_multiplier_of_odd_numbers():
    multiplier, exponent = fp.quantize_multiplier(np.array([np.inf, -np.inf, np.nan, -0.25]))
    assert multiplier.tolist() == [(1 << 31) - 1, -(1 << 31), 0, -(1 << 30)]
    assert exponent.tolist() == [0, 0, 0, -1]


@quick
@given(INT32, st.floats(1e-11, 300))
def test_multiply(x, factor):
    assert int(fp.multiply(np.array(x), *fp.quantize_multiplier(factor))) == c_multiply(x, factor)


def sums_near_ties(factor):
    at = (np.arange(-300, 300) + 0.5) / factor
    at = np.clip(np.round(at), -(2.0**31) + 2, 2.0**31 - 3).astype(np.int64)
    return np.concatenate([at - 1, at, at + 1])


@pytest.mark.parametrize("factors", [(0.0037,), (0.0037, 0.25, 1.5), (2.0**-9, 0.03), (1e-5, 0.004), (3.0,), (0.0,)])
@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-11, 127), (-11, 60)])
@pytest.mark.parametrize("many", [1, 1 << 20])
def test_requantize(factors, low, high, many, monkeypatch):
    """Ties and their neighbours; each way through the function is met: float32, float64, int64."""
    monkeypatch.setattr(fp, "_MANY", many)
    near = [sums_near_ties(f) if f else np.arange(1800) for f in factors]
    large = np.random.default_rng(1).integers(-(1 << 28), 1 << 28, (50, len(factors)))
    for sums in (np.stack(near, -1), np.concatenate([np.stack(near, -1), large])):
        sums = np.clip(sums, -(1 << 31), (1 << 31) - 1).astype(np.int32)
        got = fp.requantize(sums, np.array(factors), -11, low, high)
        want = [
            [min(max(c_multiply(int(v), f) - 11, low), high) for v, f in zip(row, factors, strict=True)] for row in sums
        ]
        assert got.dtype == np.int8
        assert np.array_equal(got, want)


def test_requantize_by_one_factor_and_in_blocks(monkeypatch):
    monkeypatch.setattr(fp, "_BLOCK", 64)
    monkeypatch.setattr(fp, "_MANY", 50)
    sums = np.random.default_rng(2).integers(-90000, 90000, (3, 7, 11), np.int32)
    want = [min(max(c_multiply(int(v), 0.0011) + 5, -128), 127) for v in sums.ravel()]
    assert np.array_equal(fp.requantize(sums, 0.0011, 5).ravel(), want)
    assert np.array_equal(fp.requantize(sums, np.full(11, 0.0011), 5).ravel(), want)
    assert fp.requantize(sums[:0], 0.1, 0).shape == (0, 7, 11)


def test_exp_on_negative_values():
    x = np.random.default_rng(0).integers(-(1 << 31), 0, 2000)
    exact = np.exp(x / 2.0**26)
    assert np.abs(fp.exp_on_negative_values(x) / 2.0**31 - exact).max() < 3e-7
    assert fp.exp_on_negative_values(np.array([0])).tolist() == [(1 << 31) - 1]


def test_reciprocal():
    x = np.concatenate([np.arange(1, 2000), 1 << np.arange(31), np.array([(1 << 31) - 1])]).astype(np.int64)
    mantissa, zeros = fp.reciprocal(x)
    assert (mantissa <= (1 << 31) - 1).all()
    assert np.abs(mantissa * 2.0 ** (zeros - 62.0) * x - 1).max() < 5e-9
    assert zeros.tolist() == [32 - int(v).bit_length() for v in x]


def test_threads_that_share_a_requantizer_never_see_unfinished_factors(monkeypatch):
    class Watched(np.ndarray):
        """Another thread runs just before this one fills its factors."""

        def __setitem__(self, key, value):
            if not seen:
                seen.append(None)
                seen[0] = run(sums)
            super().__setitem__(key, value)

    rng, seen = np.random.default_rng(2), []
    factor, sums = rng.uniform(1e-3, 4e-3, 256), rng.integers(-20000, 20000, (64, 256)).astype(np.float32)
    want = fp.requantizer(factor, 0)(sums)
    monkeypatch.setattr(fp, "aligned", lambda shape, dtype: np.full(shape, 7, dtype).view(Watched))
    run = fp.requantizer(factor, 0)
    np.testing.assert_array_equal(run(sums), want)
    np.testing.assert_array_equal(seen[0], want)
