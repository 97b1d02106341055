import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.windows import output_size, pad_zero, taps, windows

few = settings(derandomize=True, deadline=None, max_examples=60)


@few
@given(st.data())
def test_windows_see_the_padded_image(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kernel, stride, dilation = ([data.draw(st.integers(1, 3)) for _ in range(2)] for _ in range(3))
    padding = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(2)]
    size = [
        data.draw(st.integers(max(1, (k - 1) * d + 1 - sum(p)), 7))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    x = rng.normal(size=(2, *size, 3))
    padded = np.pad(x, ((0, 0), *padding, (0, 0)))
    assert np.array_equal(pad_zero(x, padding), padded)
    out = output_size(size, kernel, stride, padding, dilation)
    view = windows(padded, kernel, stride, dilation, out)
    assert view.shape == (2, *out, *kernel, 3)
    for y, x_, ky, kx in np.ndindex(*out, *kernel):
        cell = padded[:, y * stride[0] + ky * dilation[0], x_ * stride[1] + kx * dilation[1]]
        assert np.array_equal(view[:, y, x_, ky, kx], cell)
    for (ky, kx), cells in taps(padded, kernel, stride, dilation, out):
        assert np.array_equal(cells, view[:, :, :, ky, kx])
        assert np.shares_memory(cells, padded)


def test_windows_never_reach_outside():
    with pytest.raises(ValueError, match="do not fit"):
        windows(np.zeros((1, 4, 1)), (3,), (1,), (1,), (3,))
