import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.libm import expf, fmaf, logf, sinf, tanhf

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
    (logf, "0x1.9782f8p-1", "-0x1.d3777cp-3"),
    (logf, "0x1.05a30cp+0", "0x1.64d8e6p-6"),
    (sinf, "0x1.6c58b6p-3", "0x1.6a6d7cp-3"),
    (sinf, "0x1.70675ap+1", "0x1.0aa6d8p-2"),
    (sinf, "-0x1.f1554ap+5", "0x1.3c04a2p-1"),
    (sinf, "0x1.6deffap-1", "0x1.4f9186p-1"),
    (sinf, "0x1.a88a8cp+19", "-0x1.007422p-1"),
    (sinf, "0x1.557656p+19", "0x1.481ca2p-1"),
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


@few
@given(st.lists(st.floats(2.0**-149, 2.0**127, width=32), min_size=1, max_size=50))
def test_logf_is_within_one_place_of_exact(values):
    x = np.array(values, np.float32)
    exact = np.log(x.astype(float))
    assert (np.abs(logf(x) - exact) <= np.spacing(np.abs(exact).astype(np.float32))).all()


@few
@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=1, max_size=50))
def test_sinf_is_within_one_place_of_exact(values):
    x = np.array(values, np.float32)
    exact = np.sin(x.astype(float))
    assert (np.abs(sinf(x) - exact) <= np.spacing(np.abs(exact).astype(np.float32))).all()
    np.testing.assert_array_equal(sinf(-x), -sinf(x))


def test_fmaf_keeps_what_the_product_would_lose():
    a = np.float32([1 + 2.0**-23, 3])  # squared: 1 + 2**-22 + 2**-46, whose last part float32 cannot hold
    np.testing.assert_array_equal(fmaf(a, a, -np.float32([1 + 2.0**-22, 9])), np.float32([2.0**-46, 0]))
    assert fmaf(a, np.float32(2), np.float32(1)).dtype == np.float32


def test_ends():
    ends = np.float32([-np.inf, np.inf, np.nan, -0.0])
    np.testing.assert_array_equal(expf(ends), np.float32([0, np.inf, np.nan, 1]))
    np.testing.assert_array_equal(tanhf(ends), np.float32([-1, 1, np.nan, 0]))
    assert np.signbit(tanhf(ends)[3])
    np.testing.assert_array_equal(logf(ends), np.float32([np.nan, np.inf, np.nan, -np.inf]))
    np.testing.assert_array_equal(sinf(ends), np.float32([np.nan, np.nan, np.nan, 0]))
    assert np.signbit(sinf(ends)[3])
    assert expf(np.float32([88.8]))[0] == np.inf
    assert expf(np.float32([-104]))[0] == 0
