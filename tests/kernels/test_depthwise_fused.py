"""The fused depthwise convolution against the other one, exactly on whole numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.depthwise import depthwise_conv2d
from mlinspect.kernels.depthwise_fused import depthwise_conv2d_fused, spread_taps


@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_same_as_tap_by_tap(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    rng = np.random.default_rng(draw(0, 2**32))
    batch, height, width, channels = draw(1, 2), draw(5, 12), draw(5, 12), draw(1, 20)
    kernel = [draw(1, 3), draw(1, 3)]
    options = {
        "stride": (draw(1, 3), 1),
        "padding": ((draw(0, 2), draw(0, 2)), (draw(0, 2), draw(0, 2))),
        "dilation": (draw(1, 2), draw(1, 2)),
    }
    x = rng.integers(-9, 10, (batch, height, width, channels)).astype(np.float32)
    weights = rng.integers(-9, 10, (*kernel, channels)).astype(np.float32)
    bias = rng.integers(-9, 10, channels).astype(np.float32) if draw(0, 1) else None
    want = depthwise_conv2d(x, weights, bias, **options)
    width = want.shape[2]
    got = depthwise_conv2d_fused(
        x, spread_taps(weights, width), None if bias is None else np.tile(bias, width), **options
    )
    np.testing.assert_array_equal(got, want)


def test_blocks_of_rows():
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (1, 60, 64, 40)).astype(np.float32)
    weights = rng.integers(-9, 10, (3, 3, 40)).astype(np.float32)
    padding = ((1, 1), (1, 1))
    got = depthwise_conv2d_fused(x, spread_taps(weights, 64), padding=padding)
    np.testing.assert_array_equal(got, depthwise_conv2d(x, weights, padding=padding))


def test_a_stride_along_x_is_an_error():
    with pytest.raises(ValueError, match="stride"):
        depthwise_conv2d_fused(
            np.ones((1, 4, 4, 1), np.float32), np.ones((1, 1, 2), np.float32), stride=(1, 2), padding=((0, 0), (0, 0))
        )
