import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.libm import expf, tanhf

few = settings(derandomize=True, deadline=None, max_examples=60)

# from glibc 2.36, where they are not the exact value's nearest float32
GLIBC = [
    (expf, "-0x1.f9a5d8p+1", "0x1.3b59e8p-6"),
    (expf, "-0x1.1f5184p+2", "0x1.6feac2p-7"),
    (expf, "0x1.53dc02p+1", "0x1.c744c2p+3"),
    (tanhf, "0x1.39de14p-3", "0x1.376edcp-3"),
    (tanhf, "-0x1.e4cb8ep-1", "-0x1.7a0a68p-1"),
    (tanhf, "-0x1.30e0a2p-5", "-0x1.30bca0p-5"),
    (tanhf, "0x1.c8345ep-2", "0x1.ac3d72p-2"),
]


@pytest.mark.parametrize(("function", "x", "expected"), GLIBC)
def test_bits_of_glibc(function, x, expected):
    assert float(function(np.float32([float.fromhex(x)]))[0]) == float.fromhex(expected)


@few
@given(st.lists(st.floats(-100, 88, width=32), min_size=1, max_size=50))
def test_expf_is_within_one_place_of_exact(values):
    x = np.array(values, np.float32)
    exact = np.exp(x.astype(float))
    assert (np.abs(expf(x) - exact) <= 0.51 * np.spacing(exact.astype(np.float32)) + 1e-45).all()


@few
@given(st.lists(st.floats(-25, 25, width=32), min_size=1, max_size=50))
def test_tanhf_is_within_two_places_of_exact(values):
    x = np.array(values, np.float32)
    exact = np.tanh(x.astype(float))
    assert (np.abs(tanhf(x) - exact) <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()
    np.testing.assert_array_equal(tanhf(-x), -tanhf(x))


def test_ends():
    ends = np.float32([-np.inf, np.inf, np.nan, -0.0])
    np.testing.assert_array_equal(expf(ends), np.float32([0, np.inf, np.nan, 1]))
    np.testing.assert_array_equal(tanhf(ends), np.float32([-1, 1, np.nan, 0]))
    assert np.signbit(tanhf(ends)[3])
    assert expf(np.float32([88.8]))[0] == np.inf
    assert expf(np.float32([-104]))[0] == 0
