"""Depthwise convolution, bit for bit against loops in the order of Arm NN's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import depthwise as kernels
from mlinspect.kernels.depthwise import depthwise_conv2d

few = settings(derandomize=True, deadline=None, max_examples=60)


def slow(x, weights, bias, stride, padding, dilation, number):
    rows, columns, filters = weights.shape
    multiplier = filters // x.shape[-1]
    height, width = (
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[1:3], (rows, columns), stride, padding, dilation, strict=True)
    )
    out = np.empty((len(x), height, width, filters), object)
    for n, y, x_, o in np.ndindex(*out.shape):
        total = number(0)
        for ky, kx in np.ndindex(rows, columns):
            row = y * stride[0] + ky * dilation[0] - padding[0][0]
            column = x_ * stride[1] + kx * dilation[1] - padding[1][0]
            inside = 0 <= row < x.shape[1] and 0 <= column < x.shape[2]
            value = number(x[n, row, column, o // multiplier] if inside else 0)
            total = number(total + number(value * number(weights[ky, kx, o])))
        out[n, y, x_, o] = total if bias is None else number(total + number(bias[o]))
    return out


@st.composite
def cases(draw):
    kernel = [draw(st.integers(1, 5)) for _ in range(2)]
    stride = [draw(st.integers(1, 4)) for _ in range(2)]
    dilation = [draw(st.integers(1, 3)) for _ in range(2)]
    padding = [(draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(2)]
    spatial = [
        draw(st.integers(max(1, (k - 1) * d + 1 - sum(p)), 13))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    channels, multiplier = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    x, weights = (draw(st.integers(1, 2)), *spatial, channels), (*kernel, channels * multiplier)
    # small limits cut blocks and runs anywhere
    limits = {"_BLOCK": draw(st.integers(1, 60)), "_LONG": draw(st.integers(1, 20))}
    return x, weights, how, limits, draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


def limited(limits, *args, **kwargs):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(kernels, name, value)
        return depthwise_conv2d(*args, **kwargs)


@few
@given(cases())
def test_float_is_the_vendors_sum_bit_for_bit(case):
    x_shape, w_shape, how, limits, biased, seed = case
    rng = np.random.default_rng(seed)
    x, weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in (x_shape, w_shape, w_shape[-1:]))
    bias = bias if biased else None
    want = slow(x, weights, bias, **how, number=np.float32)
    for got in (depthwise_conv2d(x, weights, bias, **how), limited(limits, x, weights, bias, **how)):
        assert got.dtype == np.float32
        assert np.array_equal(got, want.astype(np.float32))


@few
@given(cases(), st.sampled_from(["int8", "uint8", "int16"]))
def test_integers_are_exact(case, dtype):
    x_shape, w_shape, how, limits, biased, seed = case
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, x_shape).astype(dtype)
    weights = rng.integers(-128, 128, w_shape).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, w_shape[-1]).astype(np.int32) if biased else None
    got = limited(limits, x, weights, bias, **how)
    assert got.dtype == np.int32
    assert np.array_equal(got, slow(x, weights, bias, **how, number=int).astype(np.int64))


def test_numpys_buffer_size_is_put_back():
    before = np.getbufsize()
    depthwise_conv2d(np.zeros((1, 3, 3, 2), np.float32), np.zeros((3, 3, 2), np.float32))
    assert np.getbufsize() == before


def test_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(size=(2, 30, 20 + i, 48)).astype(np.float32), rng.normal(size=(3, 3, 48)).astype(np.float32))
        for i in range(8)
    ]
    want = [depthwise_conv2d(x, weights) for x, weights in layers]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda layer: depthwise_conv2d(*layer), layers * 5))
    assert all(np.array_equal(a, b) for a, b in zip(got, want * 5, strict=True))


def test_views_of_other_layouts_are_taken():
    rng = np.random.default_rng(1)
    x, weights = rng.normal(size=(2, 6, 7, 8)).astype(np.float32), rng.normal(size=(3, 3, 6)).astype(np.float32)
    nhwc = np.moveaxis(x, 1, -1)
    assert np.array_equal(depthwise_conv2d(nhwc, weights), depthwise_conv2d(nhwc.copy(), weights))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="shared out"):
        depthwise_conv2d(np.zeros((1, 3, 3, 2), np.float32), np.zeros((3, 3, 3), np.float32))
    with pytest.raises(ValueError, match="does not fit"):
        depthwise_conv2d(np.zeros((1, 2, 2, 2), np.float32), np.zeros((3, 3, 2), np.float32))
    with pytest.raises(ValueError, match="float32 or integers"):
        depthwise_conv2d(np.zeros((1, 3, 3, 2), np.int8), np.zeros((3, 3, 2), np.float32))
