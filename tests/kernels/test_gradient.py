"""Gradients of windowed layers against their definition, cell by cell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import conv, gradient, pool

F = np.float32


@st.composite
def convolutions(draw, grouped):
    """Whole numbers, so that every sum is exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = [draw(st.integers(5, 8)) for _ in "yx"]
    kernel = [draw(st.integers(1, 3)) for _ in "yx"]
    groups = draw(st.sampled_from([1, 2])) if grouped else 1
    options = {
        "stride": [draw(st.integers(1, 3)) for _ in "yx"],
        "padding": [(draw(st.integers(0, 1)), draw(st.integers(0, 2))) for _ in "yx"],
        "dilation": [1, draw(st.integers(1, 2))],
    }
    x = rng.integers(-4, 5, (2, *size, 2 * groups)).astype(F)
    weights = rng.integers(-4, 5, (3 * groups, *kernel, 2)).astype(F)
    y = conv.conv2d(x, weights, groups=groups, **options)
    return x, weights, rng.integers(-4, 5, y.shape).astype(F), groups, options


@given(convolutions(grouped=True))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_filter_gradient_is_what_a_filter_number_does(case):
    """The convolution is linear in its filters: the gradient by one number is ``dy`` against that number alone."""
    x, weights, dy, groups, options = case
    got = gradient.conv2d_filter(dy, x, weights.shape[1:3], groups=groups, **options)
    assert got.shape == weights.shape
    for index in list(np.ndindex(*weights.shape))[:: max(1, weights.size // 9)]:
        one = np.zeros_like(weights)
        one[index] = 1
        assert got[index] == (conv.conv2d(x, one, groups=groups, **options) * dy).sum()


@given(convolutions(grouped=False))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_input_gradient_is_what_a_cell_does(case):
    x, weights, dy, _, options = case
    got = gradient.conv2d_input(dy, weights, x.shape[1:3], **options)
    assert got.shape == x.shape
    for index in list(np.ndindex(*x.shape))[:: max(1, x.size // 9)]:
        one = np.zeros_like(x)
        one[index] = 1
        assert got[index] == (conv.conv2d(one, weights, **options) * dy).sum()


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 0), (0, 1))])
@pytest.mark.parametrize(("window", "stride"), [((2, 2), (2, 2)), ((3, 2), (1, 2)), ((2, 3), (3, 1))])
def test_pools_window_by_window(window, stride, padding):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (2, 7, 6, 3)).astype(F)  # many equal numbers
    size = pool.pool(x, "max", window, stride, padding).shape[1:3]
    dy = rng.integers(-5, 6, (2, *size, 3)).astype(F)
    largest, average = np.zeros_like(x), np.zeros(x.shape)
    (top, _), (left, _) = padding
    for n, i, j, c in np.ndindex(*dy.shape):
        cells = [
            (n, i * stride[0] - top + a, j * stride[1] - left + b, c)
            for a, b in np.ndindex(*window)
            if 0 <= i * stride[0] - top + a < 7 and 0 <= j * stride[1] - left + b < 6
        ]
        largest[max(cells, key=lambda cell: x[cell])] += dy[n, i, j, c]  # the first of equals
        for cell in cells:
            average[cell] += dy[n, i, j, c] / (window[0] * window[1])
    np.testing.assert_array_equal(gradient.max_pool(x, dy, window, stride, padding), largest)
    got = gradient.average_pool(x.shape[1:3], dy, window, stride, padding)
    np.testing.assert_allclose(got, average, rtol=1e-5, atol=1e-6)
