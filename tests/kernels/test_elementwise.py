import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels import nnacl
from mlinspect.kernels.elementwise import BINARY, UNARY, erf, exp_fusion, power

few = settings(derandomize=True, deadline=None, max_examples=60)
F = np.float32
int32s = st.integers(-(2**31), 2**31 - 1)
pairs32 = st.lists(st.tuples(int32s, int32s), min_size=1, max_size=12)
float_pairs = st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=12)


def wrap(n):
    return (n + 2**31) % 2**32 - 2**31


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


@given(pairs32)
@few
def test_int32_arithmetic_is_that_of_c(pairs):
    a, b = np.int32(pairs).T
    for name, f in {
        "add": lambda a, b: wrap(a + b),
        "sub": lambda a, b: wrap(a - b),
        "mul": lambda a, b: wrap(a * b),
        "div": lambda a, b: wrap(truncated(a, b)),
        "floor_div": lambda a, b: wrap(truncated(a, b)),
        "mod": lambda a, b: a - truncated(a, b) * b if b else 0,
        "floor_mod": lambda a, b: a % b if b else 0,
        "maximum": max,
        "minimum": min,
    }.items():
        got = BINARY[name](a, b)
        assert got.dtype == np.int32
        assert got.tolist() == [f(x, y) for x, y in pairs], name


@given(float_pairs)
@few
def test_maximum_and_minimum_treat_nan_as_the_c_library(pairs):
    a, b = F(pairs).T
    assert np.array_equal(
        BINARY["maximum"](a, b), [y if x < y else x for x, y in zip(a, b, strict=True)], equal_nan=True
    )
    assert np.array_equal(
        BINARY["minimum"](a, b), [y if y < x else x for x, y in zip(a, b, strict=True)], equal_nan=True
    )


@given(float_pairs)
@few
def test_float_remainders(pairs):
    a, b = F(pairs).T
    with np.errstate(all="ignore"):
        floored = np.floor(a / b)
        assert np.array_equal(BINARY["floor_div"](a, b), floored, equal_nan=True)
        fused = (a.astype(float) - floored.astype(float) * b.astype(float)).astype(F)
        assert np.array_equal(BINARY["floor_mod"](a, b), fused, equal_nan=True)
    for x, y, got in zip(a.tolist(), b.tolist(), BINARY["mod"](a, b).tolist(), strict=True):
        if math.isfinite(x) and math.isfinite(y) and y:
            assert got == math.fmod(x, y)


def test_comparisons_on_broadcast_operands_and_nan():
    a, b = F([[1], [np.nan]]), F([1, 2])
    assert BINARY["equal"](a, b).tolist() == [[True, False], [False, False]]
    assert BINARY["not_equal"](a, b).tolist() == [[False, True], [True, True]]
    assert BINARY["less_equal"](a, b).tolist() == [[True, True], [False, False]]
    assert BINARY["greater"](b, a).tolist() == [[False, True], [False, False]]
    assert BINARY["logical_and"](a > 0, b > 1).tolist() == [[False, True], [False, False]]
    assert BINARY["squared_difference"](a, b).tolist()[0] == [0, 1]


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sin", "cos"])
def test_elementary_functions_are_rounded_once(name):
    values = np.abs(np.random.default_rng(0).normal(size=500) * 5).astype(F)
    exact = F([getattr(math, name)(v) for v in values.tolist()])
    assert np.array_equal(UNARY[name](values), exact)
    assert UNARY[name](values).dtype == F


def test_unary_functions_at_the_edges():
    with np.errstate(all="raise"):  # none of them may warn
        assert np.array_equal(UNARY["log"](F([0, -1])), F([-np.inf, np.nan]), equal_nan=True)
        assert np.array_equal(UNARY["rsqrt"](F([4, 0, -1])), F([0.5, np.inf, np.nan]), equal_nan=True)
        assert np.array_equal(UNARY["sqrt"](F([2, -1])), F([2**0.5, np.nan]), equal_nan=True)
        assert UNARY["exp"](F([1000])).tolist() == [np.inf]
        assert UNARY["reciprocal"](F([0, 4])).tolist() == [np.inf, 0.25]
        assert UNARY["square"](F([1e30])).tolist() == [np.inf]
    assert UNARY["round"](F([0.5, 1.5, -2.5])).tolist() == [0, 2, -2]
    assert UNARY["rsqrt"](F([3])).tolist() == [float(F(1) / np.sqrt(F(3)))]  # two roundings


def test_erf_is_correctly_rounded():
    values = np.concatenate([np.linspace(-6, 6, 5000), np.logspace(-30, 0, 100), [np.inf]]).astype(F)
    assert np.array_equal(erf(values), F([math.erf(v) for v in values.tolist()]))
    assert np.isnan(erf(F([np.nan]))).all()


def test_power():
    assert power(F([2, -2]), F([3]), 1, 0).tolist() == [8, -8]
    assert np.isnan(power(F([-2]), F([0.5]))).all()
    assert power(F([3]), F([0.5]), 4, 4).tolist() == [4]


def test_exp_fusion_follows_the_runtime_not_the_definition():
    x = F([0.5, 2])
    e = UNARY["exp"]
    assert np.array_equal(exp_fusion(x, e), e(x))
    assert np.array_equal(exp_fusion(x, e, base=10), e(x))  # scale 1: the base is ignored
    assert np.allclose(exp_fusion(x, e, base=10, scale=2), 10 ** (2 * x.astype(float)), rtol=1e-6)
    assert np.allclose(exp_fusion(x, e, base=2, scale=7, shift=3), np.exp(x.astype(float)) * 8, rtol=1e-6)


def test_nnacl_stays_near_the_functions_and_shows_their_known_errors():
    x = np.linspace(-20, 20, 4001).astype(F)
    exact = x.astype(float)
    assert np.abs(nnacl.exp(x) / np.exp(exact) - 1).max() < 2e-5
    assert nnacl.exp(F([88, 1e9, np.inf])).tolist() == nnacl.exp(F([88] * 3)).tolist()
    # the runtime's min and max let a NaN become the bound
    assert nnacl.exp(F([np.nan])).tolist() == nnacl.exp(F([88])).tolist()
    assert 5e-5 < np.abs(nnacl.tanh(x) - np.tanh(exact)).max() < 1e-4
    assert nnacl.tanh(F([6, -30, np.inf])).tolist() == [1, -1, 1]
    assert 1e-3 < np.abs(nnacl.cos(x) - np.cos(exact)).max() < 2e-3
    positive = np.logspace(-30, 30, 999).astype(F)
    exact = np.log(positive.astype(float))
    assert (np.abs(nnacl.log(positive) - exact) < 1e-6 * np.maximum(1, np.abs(exact))).all()
    assert nnacl.log(F([0, 1, 1, 1])).round(2).tolist()[0] == F(-88.03)
    assert nnacl.log(F([1, 0])).tolist() == [0, -np.inf]  # the scalar tail


def test_operands_without_dimensions():
    x = np.array(F(0.75))
    for f in [*UNARY.values(), nnacl.exp, nnacl.tanh, nnacl.cos, nnacl.log]:
        assert np.shape(f(x)) == ()
        assert f(x) == f(x.reshape(1))[0]
    for name, f in BINARY.items():
        operands = (x > 0, x > 1) if "logical" in name else (x, np.array(F(2)))
        assert f(*operands) == f(*(v.reshape(1) for v in operands))[0], name
