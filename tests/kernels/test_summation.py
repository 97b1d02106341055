"""Sums in order, the error bound that decides which of them are made, and what is stored in the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.matmul import matmul_approximate
from mlinspect.kernels.quantize import quantize
from mlinspect.kernels.summation import Approximate, settle, sum_in_order

few = settings(derandomize=True, deadline=None, max_examples=60)


@few
@given(st.integers(1, 40), st.sampled_from([1, 2, 3, 7, 8, 9, 16, 100, 257, 1000]), st.integers(0, 2**32 - 1))
def test_sums_go_one_after_the_other(n, depth, seed):
    rng = np.random.default_rng(seed)
    # magnitudes over many powers of two make almost any other order show
    left, right = (
        (rng.normal(size=(n, depth)) * 2.0 ** rng.integers(-12, 12, (n, depth))).astype(np.float32) for _ in range(2)
    )
    total = np.zeros(n, np.float32)
    for k in range(depth):
        total = total + left[:, k] * right[:, k]
    got = sum_in_order(np.arange(n), depth, lambda i: (left[i], right[i]), (1,))
    assert np.array_equal(got, total)


def test_the_order_of_the_axes_is_the_order_of_summing():
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(50, 5, 6, 7)).astype(np.float32) for _ in range(2))
    for axes in ((1, 2, 3), (3, 1, 2), (2, 3, 1)):
        products = (left * right).transpose(*axes, 0).reshape(-1, 50)
        total = np.zeros(50, np.float32)
        for row in products:
            total = total + row
        assert np.array_equal(sum_in_order(np.arange(50), 210, lambda i: (left[i], right[i]), axes), total)


def test_many_sums_are_made_in_pieces():
    x = np.random.default_rng(0).normal(size=(7, 3000)).astype(np.float32)
    largest = 0

    def terms(index):
        nonlocal largest
        largest = max(largest, len(index))
        return x[index % 7], x[index % 7]

    got = sum_in_order(np.arange(1000), 3000, terms, (1,))
    assert largest < 100
    assert np.array_equal(got, np.add.accumulate(x * x, axis=1)[np.arange(1000) % 7, -1])


def layer(kind, depth, rng):
    """Operands whose partial sums behave in very different ways."""
    a, b = rng.normal(size=(40, depth)), rng.normal(size=(depth, 50))
    if kind == "relu":
        a = np.maximum(a, 0)
    elif kind == "coherent":
        a, b = np.abs(a), np.abs(b)
    elif kind == "drift":  # the first half adds up, the second takes it away again
        a = np.abs(a)
        b = np.abs(b) * np.where(np.arange(depth) < depth // 2, 1, -1)[:, None]
    elif kind == "outliers":  # two large products that cancel, with all others between them
        b[[0, -1]] = 100 * np.abs(b[:1]) * np.float64([[1], [-1]])
        a[:, [0, -1]] = 1
    elif kind == "smooth":
        a = np.cumsum(a, axis=1) / depth**0.5
    elif kind == "sparse":
        a[rng.random(a.shape) < 0.95] = 0
    elif kind == "int8":
        a, b = np.rint(a * 40) * 0.037, np.rint(b * 40) * 0.0029
    return a.astype(np.float32), b.astype(np.float32)


KINDS = ("plain", "relu", "coherent", "drift", "outliers", "smooth", "sparse", "int8")
LAYERS = [(kind, depth) for kind in KINDS for depth in (1, 2, 9, 64, 500, 3000)]
LAYERS.remove(("drift", 3000))  # the one known exception


@pytest.mark.parametrize(("kind", "depth"), LAYERS)
def test_the_bound_holds_and_is_not_idle(kind, depth):
    a, b = layer(kind, depth, np.random.default_rng(depth))
    bias = np.random.default_rng(1).normal(size=50).astype(np.float32)
    sums = matmul_approximate(a, b, bias)
    every = np.arange(sums.value.size)
    exact = sums.at(every)
    distance = np.abs(sums.value.ravel().astype(np.float64) - exact)
    bound = sums.relative * np.abs(exact) + sums.absolute(every)
    assert np.all(distance <= bound)
    assert np.median(bound) < 2e-4 * np.abs(exact).max()  # two such bounds a step of 1/128: under 5 % to sum again


@few
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.int8, np.uint8, np.int16, np.float16]),
    st.integers(0, 12),
    st.floats(1e-6, 0.2),
)
def test_settled_values_are_those_of_the_exact_sums(seed, dtype, zero_point, error):
    """Values near ties, at them, beyond the range, tiny and exactly zero."""
    rng = np.random.default_rng(seed)
    scale = np.float32(rng.uniform(0.01, 2))
    levels = rng.integers(-300, 300, 500) / 2 + rng.normal(size=500) * rng.choice([0, 1e-7, 1e-3, 0.3], 500)
    exact = (levels * scale).astype(np.float32)
    exact[rng.random(500) < 0.1] *= np.float32(1e-6)
    bound = (np.abs(rng.normal(size=500)) * error * scale).astype(np.float32)
    value = (exact + rng.uniform(-1, 1, 500) * bound * 0.99).astype(np.float32)
    sums = Approximate(
        value.reshape(20, 25), 1e-6, lambda i: bound.max() if i is None else bound[i], lambda i: exact[i]
    )
    if dtype == np.float16:
        got, want = settle(sums, dtype=dtype).view(np.uint16), exact.astype(np.float16).view(np.uint16)
    else:
        got = settle(sums, dtype=dtype, scale=scale, zero_point=zero_point)
        want = quantize(exact, scale, zero_point, dtype)
    assert got.shape == (20, 25)
    assert np.array_equal(got.ravel(), want)


def test_only_doubtful_elements_are_asked_for():
    value = np.float32([0.2, 0.5001, 0.49999, 1.4, 7.50001, 300.50001, -300.49999])
    asked = []

    def at(index):
        asked.extend(index.tolist())
        return value[index]

    sums = Approximate(value, 0.0, lambda i: np.float32(1e-4), at)
    assert settle(sums, dtype=np.int8, scale=1).tolist() == [0, 1, 0, 1, 8, 127, -128]
    assert asked == [1, 2, 4]
    asked.clear()
    sums = Approximate(np.float32([0.2, 0.0]), 0.0, lambda i: np.float32(1e-7), at)
    settle(sums, dtype=np.float16)
    assert asked == [1]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_other_types_are_left_to_the_caller(dtype):
    value = np.float32([0.5])
    assert settle(Approximate(value, 0.0, None, None), dtype=dtype, scale=1.0) is value
    assert settle(Approximate(value, 0.0, None, None), dtype=np.int8) is value


def test_infinite_and_missing_numbers_are_stored_as_the_quantiser_stores_them():
    value = np.float32([np.nan, np.inf, -np.inf, 1])
    sums = Approximate(value, 1e-6, lambda i: np.float32(1e-6), lambda i: value[i])
    assert settle(sums, dtype=np.uint8, scale=0.5, zero_point=9).tolist() == quantize(value, 0.5, 9, np.uint8).tolist()
    assert np.array_equal(settle(sums, dtype=np.float16), value.astype(np.float16), equal_nan=True)
