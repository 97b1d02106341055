"""Transposed convolution against the loops of a scatter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.conv_transpose import conv2d_transpose, conv2d_transpose_approximate
from mlinspect.kernels.quantize import quantize
from mlinspect.kernels.summation import settle

few = settings(derandomize=True, deadline=None, max_examples=40)


def slow(x, weights, bias, stride, padding, dilation, output_padding, groups, number):
    """Cell by cell in the order of Arm NN's loops: input row, input column, filter, tap, input channel."""
    filters, rows, columns, channels = weights.shape
    height, width = (
        (n - 1) * s + (k - 1) * d + 1 - sum(p) + more
        for n, s, k, d, p, more in zip(
            x.shape[1:3], stride, (rows, columns), dilation, padding, output_padding, strict=True
        )
    )
    out = np.full((len(x), height, width, filters), number(0), object)
    for n, y, x_, o, ky, kx in np.ndindex(*x.shape[:3], filters, rows, columns):
        row = y * stride[0] - padding[0][0] + ky * dilation[0]
        column = x_ * stride[1] - padding[1][0] + kx * dilation[1]
        if 0 <= row < height and 0 <= column < width:
            for i in range(channels):
                value = number(x[n, y, x_, o // (filters // groups) * channels + i])
                product = number(value * number(weights[o, ky, kx, i]))
                out[n, row, column, o] = number(out[n, row, column, o] + product)
    if bias is not None:
        for o in range(filters):
            for place in np.ndindex(*out.shape[:3]):
                out[(*place, o)] = number(out[(*place, o)] + number(bias[o]))
    return out


@st.composite
def cases(draw):
    groups = draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    stride = [draw(st.integers(1, 3)) for _ in range(2)]
    dilation = [draw(st.integers(1, 2)) for _ in range(2)]
    spatial = [draw(st.integers(1, 4)) for _ in range(2)]
    more = [draw(st.integers(0, 2)) for _ in range(2)]
    padding = []
    for n, s, k, d in zip(spatial, stride, kernel, dilation, strict=True):
        full = (n - 1) * s + (k - 1) * d + 1
        before = draw(st.integers(0, min(3, full - 1)))
        padding.append((before, draw(st.integers(0, min(3, full - 1 - before)))))
    channels = draw(st.integers(1, 3))
    x = (draw(st.integers(1, 2)), *spatial, channels * groups)
    weights = (draw(st.integers(1, 2)) * groups, *kernel, channels)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": more, "groups": groups}
    return x, weights, how, draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


@few
@given(cases())
def test_it_is_its_definition_and_at_is_the_vendors_sum(case):
    x_shape, w_shape, how, biased, seed = case
    rng = np.random.default_rng(seed)
    x, weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in (x_shape, w_shape, w_shape[:1]))
    bias = bias if biased else None
    want = slow(x, weights, bias, **how, number=np.float32).astype(np.float32)
    sums = conv2d_transpose_approximate(x, weights, bias, **how)
    np.testing.assert_allclose(sums.value, want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))
    every = np.arange(want.size)
    assert np.array_equal(sums.at(every), want.ravel())
    assert np.all(np.abs(sums.value - want).ravel() <= np.abs(want).ravel() * sums.relative + sums.absolute(every))
    assert np.all(sums.absolute(every) <= sums.absolute(None) * 1.0001)


@few
@given(cases())
def test_integers_are_exact(case):
    x_shape, w_shape, how, biased, seed = case
    rng = np.random.default_rng(seed)
    x, weights = rng.integers(-32768, 32768, x_shape).astype(np.int16), rng.integers(-128, 128, w_shape).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, w_shape[0]).astype(np.int32) if biased else None
    got = conv2d_transpose(x, weights, bias, **how)
    assert got.dtype == np.int32
    assert np.array_equal(got, slow(x, weights, bias, **how, number=int).astype(np.int64))


def test_settled_values_are_the_vendors():
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (2, 10, 12, 48)).astype(np.float32) * np.float32(0.0371)
    weights = rng.integers(-127, 128, (32, 3, 3, 48)).astype(np.float32) * np.float32(0.0043)
    sums = conv2d_transpose_approximate(x, weights, stride=(2, 2), padding=((1, 1), (0, 1)))
    exact = sums.at(np.arange(sums.value.size)).reshape(sums.value.shape)
    want, plain = (quantize(v, 0.0013, -7, np.int16) for v in (exact, sums.value))
    assert np.array_equal(settle(sums, dtype=np.int16, scale=0.0013, zero_point=-7), want)
    assert not np.array_equal(plain, want)


def test_padding_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="leaves nothing"):
        conv2d_transpose(np.ones((1, 1, 1, 1), np.float32), np.ones((1, 2, 2, 1), np.float32), padding=((1, 1), (0, 0)))


def test_channels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="fit"):
        conv2d_transpose(np.ones((1, 2, 2, 3), np.float32), np.ones((1, 2, 2, 1), np.float32))
