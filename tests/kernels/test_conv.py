"""Convolutions against loops that add product after product."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import conv as kernels
from mlinspect.kernels.conv import conv2d, conv2d_approximate, conv3d, conv3d_approximate
from mlinspect.kernels.quantize import quantize
from mlinspect.kernels.summation import settle

few = settings(derandomize=True, deadline=None, max_examples=40)
CHANNEL, Z, Y, X = "czyx"


def slow(x, weights, bias, stride, padding, dilation, groups, order, number):
    """`order` names the loops from the outermost; `number` is the type of the sums."""
    filters, *kernel, channels = weights.shape
    axes = "zyx"[-len(kernel) :]
    out_sizes = [
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[1:-1], kernel, stride, padding, dilation, strict=True)
    ]
    lengths = dict(zip(axes, kernel, strict=True), c=channels)
    out = np.empty((len(x), *out_sizes, filters), object)
    for n, *position, o in np.ndindex(*out.shape):
        total = number(0)
        for loops in itertools.product(*(range(lengths[name]) for name in order)):
            at = dict(zip(order, loops, strict=True))
            tap = [at[name] for name in axes]
            cell = [
                p * s + t * d - before
                for p, s, t, d, (before, _) in zip(position, stride, tap, dilation, padding, strict=True)
            ]
            inside = all(0 <= i < size for i, size in zip(cell, x.shape[1:-1], strict=True))
            c = o // (filters // groups) * channels + at["c"]
            value = x[(n, *cell, c)] if inside else 0
            total = number(total + number(number(value) * number(weights[(o, *tap, at["c"])])))
        out[(n, *position, o)] = total if bias is None else number(total + number(bias[o]))
    return out


@st.composite
def shapes(draw, dims, most_groups=1):
    group_count = draw(st.integers(1, most_groups))
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    dilation = [draw(st.integers(1, 2)) for _ in range(dims)]
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(dims)]
    spatial = [
        draw(st.integers(max(1, (k - 1) * d + 1 - sum(p)), 5))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    stride = [draw(st.integers(1, 3)) for _ in range(dims)]
    channels = draw(st.integers(1, 3))
    x = (draw(st.integers(1, 2)), *spatial, channels * group_count)
    weights = (draw(st.integers(1, 2)) * group_count, *kernel, channels)
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    return x, weights, how, group_count, draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


def random(rng, *all_shapes):
    return [rng.normal(size=shape).astype(np.float32) for shape in all_shapes]


def close(got, want):
    want = want.astype(np.float32)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))


@few
@given(shapes(2, 3))
def test_conv2d_is_its_definition_and_at_is_the_vendors_sum(case):
    x_shape, w_shape, how, groups, biased, seed = case
    x, weights, bias = random(np.random.default_rng(seed), x_shape, w_shape, w_shape[:1])
    bias = bias if biased else None
    want = slow(x, weights, bias, **how, groups=groups, order=(CHANNEL, Y, X), number=np.float32)
    close(conv2d(x, weights, bias, **how, groups=groups), want)
    sums = conv2d_approximate(x, weights, bias, **how, groups=groups)
    close(sums.value, want)
    assert np.array_equal(sums.at(np.arange(want.size)), want.ravel())
    some = np.random.default_rng(seed).integers(0, want.size, 3)
    assert np.array_equal(sums.at(some), want.ravel()[some])


@settings(few, max_examples=20)
@given(shapes(3))
def test_conv3d_is_its_definition_and_at_is_the_vendors_sum(case):
    x_shape, w_shape, how, _, biased, seed = case
    x, weights, bias = random(np.random.default_rng(seed), x_shape, w_shape, w_shape[:1])
    bias = bias if biased else None
    want = slow(x, weights, bias, **how, groups=1, order=(Z, Y, X, CHANNEL), number=np.float32)
    weights = np.ascontiguousarray(np.moveaxis(weights, 0, -1))
    close(conv3d(x, weights, bias, **how), want)
    sums = conv3d_approximate(x, weights, bias, **how)
    assert np.array_equal(sums.at(np.arange(want.size)), want.ravel())


@few
@given(
    shapes(2, 2),
    st.sampled_from([("int8", "int8"), ("int16", "int8"), ("uint8", "int8"), ("int16", "int16"), ("int32", "int16")]),
)
def test_integers_are_exact(case, types):
    x_shape, w_shape, how, groups, biased, seed = case
    rng = np.random.default_rng(seed)
    limits = [np.iinfo(t) for t in types]
    x, weights = (
        rng.integers(limit.min, limit.max + 1, shape).astype(t)
        for limit, shape, t in zip(limits, (x_shape, w_shape), types, strict=True)
    )
    bias = rng.integers(-(2**20), 2**20, w_shape[0]).astype(np.int32) if biased else None
    want = slow(x, weights, bias, **how, groups=groups, order=(CHANNEL, Y, X), number=int)
    wrapped = (want.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    got = conv2d(x, weights, bias, **how, groups=groups)
    assert got.dtype == np.int32
    assert np.array_equal(got, wrapped)


@pytest.mark.parametrize(("depth", "x", "w"), [(518, 255, 127), (519, 255, 127), (4608, 255, -128), (3, 32767, 32767)])
def test_long_sums_of_the_largest_integers_are_exact(depth, x, w):
    x = np.full((1, 2, 2, depth), x, np.int16)
    x[0, 0, 0, -1] -= 1  # makes odd sums, which float32 cannot hold above 2^24
    got = conv2d(x, np.full((1, 1, 1, depth), w, np.int16))
    want = (x.astype(np.int64) * w).sum(axis=-1)
    assert np.array_equal(got.ravel(), want.astype(np.int32).ravel())


@few
@given(shapes(2, 2))
def test_results_do_not_depend_on_how_windows_are_gathered(case):
    """Blocks of a few windows cut an image, a row or a batch anywhere; integers show any window out of place."""
    x_shape, w_shape, how, groups, _, seed = case
    rng = np.random.default_rng(seed)
    x, weights = rng.integers(-9, 9, x_shape).astype(np.int8), rng.integers(-9, 9, w_shape).astype(np.int8)
    want = conv2d(x, weights, **how, groups=groups)
    whole, kernels._PATCHES = kernels._PATCHES, int(rng.integers(1, 200))
    try:
        assert np.array_equal(conv2d(x, weights, **how, groups=groups), want)
        assert np.array_equal(conv2d(x.astype(np.float32), weights.astype(np.float32), **how, groups=groups), want)
    finally:
        kernels._PATCHES = whole


def test_gathered_windows_stay_small():
    x, weights = np.zeros((4, 40, 40, 64), np.float32), np.zeros((8, 3, 3, 64), np.float32)  # 14 MB of windows
    tracemalloc.start()
    out = conv2d(x, weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - out.nbytes < 1.5e6


def test_views_of_other_layouts_are_taken():
    x, weights = random(np.random.default_rng(1), (2, 3, 6, 5), (4, 3, 3, 2))
    want = conv2d(np.moveaxis(x, 1, -1).copy(), np.moveaxis(weights, 1, -1).copy())
    np.testing.assert_allclose(conv2d(np.moveaxis(x, 1, -1), np.moveaxis(weights, 1, -1)), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "weights", "how"),
    [
        ((1, 4, 4, 3), (2, 3, 3, 2), {}),
        ((1, 4, 4, 4), (3, 3, 3, 2), {"groups": 2}),
        ((1, 4, 4, 3), (2, 5, 3, 3), {}),
        ((1, 4, 4, 3), (2, 3, 3, 3), {"dilation": (2, 2)}),
        ((1, 4, 4, 3), (2, 3, 3, 3), {"stride": (0, 1)}),
        ((1, 4, 4), (2, 3, 3, 4), {}),
    ],
)
def test_what_does_not_fit_is_refused(x, weights, how):
    with pytest.raises(ValueError, match=r"fit|small"):
        conv2d(np.zeros(x, np.float32), np.zeros(weights, np.float32), **how)


def test_mixed_types_are_refused():
    with pytest.raises(ValueError, match="float32 or integers"):
        conv2d(np.zeros((1, 2, 2, 1), np.float32), np.zeros((1, 1, 1, 1), np.int8))


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 3), (np.uint8, 128), (np.int16, 0), (np.float16, None)])
def test_settled_layers_are_the_vendors(dtype, zero):
    """A layer of decoded int8 numbers whose plain BLAS result, stored, is wrong in places."""
    rng = np.random.default_rng(3)
    x = (rng.integers(0, 256, (1, 24, 24, 40)).astype(np.float32) - 128) * np.float32(0.0473)
    weights = rng.integers(-127, 128, (64, 3, 3, 40)).astype(np.float32) * np.float32(0.0029)
    bias = rng.normal(size=64).astype(np.float32)
    sums = conv2d_approximate(x, weights, bias, padding=((1, 1), (1, 1)))
    exact = sums.at(np.arange(sums.value.size)).reshape(sums.value.shape)
    if dtype == np.float16:
        got, want, plain = settle(sums, dtype=dtype), exact.astype(dtype), sums.value.astype(dtype)
        assert np.array_equal(got.view(np.uint16), want.view(np.uint16))
        assert not np.array_equal(plain, want)
        return
    found = 0
    level = np.float32(20.5 if dtype != np.int16 else 9000.5)
    for j in np.argsort(-np.abs(sums.value - exact), axis=None)[:8]:  # scales that put a tie where the sums differ
        scale = np.abs(exact.flat[j]) / level
        want, plain = (quantize(v, scale, zero, dtype) for v in (exact, sums.value))
        found += not np.array_equal(plain, want)
        got = settle(sums, dtype=dtype, scale=scale, zero_point=zero)
        assert got.dtype == dtype
        assert np.array_equal(got, want)
    assert found
