import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.quantize import cast, dequantize, dequantize_weights, lookup, quantize, round_half_away, table_of

few = settings(derandomize=True, deadline=None, max_examples=80)
F = np.float32
float32s = st.floats(width=32)
TIES = F([0.5, 1.5, 2.5, 0.49999997, 0.50000006, 1.4999999, 8388607.5, 8388609, 4194303.75, 1e30, np.inf])


def slow_quantize(value, scale, zero_point, dtype):
    """``armnn::Quantize``, in exact arithmetic where it is exact."""
    limits = np.iinfo(dtype)
    if math.isnan(value):
        return 0
    with np.errstate(all="ignore"):
        quotient = float(F(value) / F(scale))
    if math.isinf(quotient):
        return limits.max if quotient > 0 else limits.min
    whole = math.copysign(math.floor(abs(quotient) + 0.5), quotient)  # exact: a float32 and a half fit a double
    return int(min(max(F(whole) + F(zero_point), limits.min), limits.max))


@given(
    values=st.lists(float32s, min_size=1, max_size=20),
    scale=st.floats(2.0**-20, 1024, width=32),
    zero_point=st.integers(-300, 300),
    dtype=st.sampled_from([np.int8, np.uint8, np.int16]),
)
@few
def test_quantize_rounds_as_armnn(values, scale, zero_point, dtype):
    got = quantize(F(values), scale, zero_point, dtype)
    assert got.dtype == dtype
    assert got.tolist() == [slow_quantize(v, scale, zero_point, dtype) for v in F(values).tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("zero_point", [0, 10, 128, -128, 20000, 2**30])
def test_quantize_breaks_ties_away_from_zero(dtype, zero_point):
    grid = np.arange(-700, 700).astype(F) / 2
    values = np.concatenate([grid, np.nextafter(grid, F(0)), np.nextafter(grid, F(1e9)), TIES, -TIES])
    assert quantize(values, 1, zero_point, dtype).tolist() == [
        slow_quantize(v, 1, zero_point, dtype) for v in values.tolist()
    ]


def test_quantize_spans_blocks_and_keeps_the_shape():
    values = np.random.default_rng(0).normal(size=(3, 400, 250)).astype(F).transpose(2, 0, 1)
    got = quantize(values, 0.01, 3, np.int8)
    naive = np.clip(np.trunc(values / F(0.01) + np.copysign(F(0.5), values)) + 3, -128, 127)
    assert got.shape == values.shape
    assert (got != naive).sum() == 0
    back = dequantize(got, 0.01, 3)
    assert np.array_equal(back, (got.astype(F) - F(3)) * F(0.01))


@given(axis=st.integers(-3, 2), seed=st.integers(0, 99), dtype=st.sampled_from([np.int8, np.uint8, np.int16]))
@few
def test_channels_are_independent(axis, seed, dtype):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(2, 3, 4)).astype(F)
    channels = values.shape[axis]
    scale, zero_point = rng.uniform(0.01, 0.1, channels), rng.integers(-20, 20, channels)
    got = quantize(values, scale, zero_point, dtype, axis)
    real = dequantize(got, scale, zero_point, axis)
    for c in range(channels):
        here = np.take(values, c, axis)
        assert np.array_equal(np.take(got, c, axis), quantize(here, scale[c], zero_point[c], dtype))
        assert np.array_equal(
            np.take(real, c, axis), dequantize(quantize(here, scale[c], zero_point[c], dtype), scale[c], zero_point[c])
        )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero_point", [-128, 0, 7, 255])
def test_every_stored_number_comes_back(dtype, zero_point):
    stored = np.arange(256, dtype=np.uint8).view(dtype)
    real = dequantize(stored, 0.0371, zero_point)
    assert real.tolist() == [float(F(int(q) - zero_point) * F(0.0371)) for q in stored]
    assert np.array_equal(quantize(real, 0.0371, zero_point, dtype), stored)


def test_signed32_is_rounded_once_to_float32():
    q = np.int32([2**24 + 1, -(2**31), 7])
    assert dequantize(q, 0).tolist() == [2.0**24, -(2.0**31), 7]  # scale 0: not quantised
    assert dequantize(q, 0.5).tolist() == [2.0**23, -(2.0**30), 3.5]
    assert dequantize(q, 1, 2**24).tolist() == [1, -(2.0**31) - 2**24, 7 - 2**24]


def test_round_half_away_in_double_precision():
    below_half = np.nextafter(0.5, 0)
    values = np.array([0.5, below_half, 1.5, 2.5, 2.0**51 + 0.5, 2.0**52 + 1, 1e300, np.inf])
    want = [1, 0, 2, 3, 2.0**51 + 1, 2.0**52 + 1, 1e300, np.inf]
    assert round_half_away(values).tolist() == want
    assert round_half_away(-values).tolist() == [-v for v in want]


def test_round_half_away_on_every_kind_of_float32():
    bits = np.arange(0, 2**31, 65521, dtype=np.int64)  # all binades
    values = np.concatenate([bits.astype(np.uint32).view(F), TIES])
    values = values[np.isfinite(values)]
    assert np.array_equal(round_half_away(values), np.floor(values.astype(float) + 0.5))
    assert np.array_equal(round_half_away(-values), -np.floor(values.astype(float) + 0.5))
    assert round_half_away(np.array(F(-0.5))) == -1


def test_scalars_without_dimensions():
    value = np.array(F(0.25))
    assert quantize(value, 0.1, 3, np.int8).tolist() == 6
    assert quantize(value, 0.1, 2**30, np.int8).tolist() == 127
    assert dequantize(np.array(6, np.int8), 0.5, 3).tolist() == 1.5
    assert cast(value, np.int32).shape == ()
    assert cast(F(np.nan), np.int32) == -(2**31)
    assert lookup(np.array(5, np.int8), table_of(np.negative, np.int8)) == -5


def test_cast_is_a_c_conversion():
    values = F([2.9, -2.9, 0, np.nan, np.inf, -np.inf, 2147483648, -2147483648, 300, -1])
    low = -(2**31)
    assert cast(values, np.int32).tolist() == [2, -2, 0, low, low, low, low, low, 300, -1]
    assert cast(values, np.int64).tolist()[3:8] == [-(2**63)] * 3 + [2**31, low]
    assert cast(values, np.uint8).tolist()[-2:] == [44, 255]
    assert cast(values, bool).tolist() == [True, True, False] + [True] * 7
    assert cast(F([1 + 2**-11, 1 + 3 * 2**-11, 70000]), np.float16).tolist() == [1, 1 + 2**-9, np.inf]
    assert cast(np.int64([2**32 + 5]), np.int32).tolist() == [5]
    assert cast(np.float64([2147483647.5]), np.int32).tolist() == [2147483647]


@given(size=st.sampled_from([0, 5, 256, 257, 1000]), dtype=st.sampled_from([np.int8, np.uint8]))
@few
def test_lookup_is_the_function(size, dtype):
    q = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8).view(dtype)
    for f in (lambda s: quantize(np.exp(dequantize(s, 0.02, 3)), 0.1, -4, np.int8), lambda s: dequantize(s, 0.1, 1)):
        assert np.array_equal(lookup(q, table_of(f, dtype)), f(q))
        assert lookup(q, table_of(f, dtype)).dtype == f(q).dtype
    assert lookup(q.reshape(-1, 1), table_of(np.abs, dtype)).shape == (size, 1)


def test_dequantize_weights():
    q = np.int8([[-3, 100], [5, 7], [0, 1]])
    scale, zero, spread, mean = [0.1, 0.2, 0.3], [1, 0, -2], [1.05, 11, -0.5], [0.5, 0.25, 0]
    got = dequantize_weights(q, scale, zero, 0, spread, mean)
    used = [1.05, 1, 1]  # what lies outside 0..10 counts as 1
    want = [[F((int(q[c, i]) - zero[c]) * scale[c] * used[c] + mean[c]) for i in range(2)] for c in range(3)]
    assert np.array_equal(got, F(want))
    # one parameter: single precision, no correction
    assert np.array_equal(dequantize_weights(q, [0.1], [1], None, [2.0], [5.0]), (q.astype(F) - F(1)) * F(0.1))
    # a channel by itself is read as among others
    assert np.array_equal(dequantize_weights(q[:1], scale[:1], zero[:1], 0, spread[:1], mean[:1]), got[:1])
    # without corrections
    want = [[F((int(q[c, i]) - zero[c]) * scale[c]) for i in range(2)] for c in range(3)]
    assert np.array_equal(dequantize_weights(q, scale, zero, 0), F(want))
