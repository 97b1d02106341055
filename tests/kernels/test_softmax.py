import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.softmax import log_softmax, softmax

few = settings(derandomize=True, deadline=None, max_examples=40)


def slow(values, beta, logarithm):
    """The reference backend's loop over one line, with C's expf and logf taken as exactly rounded."""
    shifted = (values - values.max()) * np.float32(beta)
    powers = np.float32([math.exp(z) for z in shifted])
    total = np.float32(0)
    for power in powers:
        total += power
    return shifted - np.float32(math.log(total)) if logarithm else powers / total


@pytest.mark.parametrize("function", [softmax, log_softmax])
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    data=st.data(),
    beta=st.sampled_from([1.0, 0.3, 2.5]),
)
@few
def test_lines_along_any_axis(function, seed, shape, data, beta):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = (np.random.default_rng(seed).normal(size=shape) * 5).astype(np.float32)
    want = np.apply_along_axis(slow, axis, x, beta, function is log_softmax)
    np.testing.assert_allclose(function(x, axis, beta), want, rtol=2e-7, atol=1e-7)


def test_input_stays_as_it_is():
    x = np.float32([[1, 2]])
    softmax(x)
    log_softmax(x)
    assert x.tolist() == [[1, 2]]


def test_large_values_do_not_overflow():
    assert softmax(np.float32([1e30, 1e30])).tolist() == [0.5, 0.5]
    assert log_softmax(np.float32([0, -200])).tolist() == [0, -200]


def test_one_nan_spoils_its_line_only():
    got = softmax(np.float32([[np.nan, 1], [1, 1]]))
    assert np.isnan(got[0]).all()
    assert got[1].tolist() == [0.5, 0.5]
