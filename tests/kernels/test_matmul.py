"""Matrix products against sums of products one by one, and adjugates against cofactors."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.kernels.matmul import adjugate, exactness, matmul, matmul_approximate
from mlinspect.kernels.quantize import quantize
from mlinspect.kernels.summation import settle

few = settings(derandomize=True, deadline=None, max_examples=50)


def slow(a, b, bias, number):
    """Sequential over k."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), object)
    for *outer, i, j in np.ndindex(*out.shape):
        total = number(0)
        for k in range(a.shape[-1]):
            total = number(total + number(number(a[(*outer, i, k)]) * number(b[(*outer, k, j)])))
        out[(*outer, i, j)] = total if bias is None else number(total + number(bias[j]))
    return out


@st.composite
def cases(draw):
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    a_batch, b_batch = (
        [draw(st.sampled_from([1, n])) for n in batch][draw(st.integers(0, len(batch))) :] for _ in range(2)
    )
    m, k, n = draw(st.integers(1, 4)), draw(st.integers(1, 30)), draw(st.integers(1, 4))
    return (*a_batch, m, k), (*b_batch, k, n), draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


@few
@given(cases())
def test_it_is_its_definition_and_at_is_the_vendors_sum(case):
    a_shape, b_shape, biased, transposed, seed = case
    rng = np.random.default_rng(seed)
    a, b, bias = (rng.normal(size=shape).astype(np.float32) for shape in (a_shape, b_shape, b_shape[-1:]))
    bias = bias if biased else None
    if transposed:
        b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    want = slow(a, b, bias, np.float32).astype(np.float32)
    got = matmul(a, b, bias)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))
    sums, every = matmul_approximate(a, b, bias), np.arange(want.size)
    assert np.array_equal(sums.value, got)
    assert np.array_equal(sums.at(every), want.ravel())
    assert np.all(np.abs(got - want).ravel() <= np.abs(want).ravel() * sums.relative + sums.absolute(every))
    assert np.all(sums.absolute(every) <= sums.absolute(None) * 1.0001)


@few
@given(cases(), st.sampled_from(["int8", "int16", "int32"]))
def test_integers_are_exact(case, dtype):
    a_shape, b_shape, biased, _, seed = case
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    a = rng.integers(info.min, info.max + 1, a_shape).astype(dtype)
    b = rng.integers(-256, 256, b_shape).astype(np.int16)
    bias = rng.integers(-(2**20), 2**20, b_shape[-1]).astype(np.int32) if biased else None
    want = (slow(a, b, bias, int).astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    got = matmul(a, b, bias)
    assert got.dtype == np.int32
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("k", "a", "b", "dtype"),
    [
        (132, 127, 1000, np.float32),  # 2^24 in one go
        (133, 127, 1000, np.float32),  # one product more: in pieces
        (8192, 255, 127, np.float32),
        (20, 2047, 255, np.float64),  # pieces would be short
        (5, 32767, 32767, np.float64),
        (2, 2**31 - 1, 2**20, np.float64),
    ],
)
def test_the_exact_way_is_chosen_by_magnitude(k, a, b, dtype):
    left, right = np.full((3, k), a, np.int64).astype(np.int32), np.full((k, 2), b, np.int32)
    left[0, -1], left[1] = a - 1, -left[1]
    chosen = exactness(left, right)
    assert chosen.dtype == dtype
    assert chosen.depth * a * b < 2 ** (24 if dtype == np.float32 else 53)
    want = left.astype(object) @ right.astype(object)
    wrapped = (want.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    assert np.array_equal(matmul(left, right), wrapped)


def test_products_beyond_double_precision_are_refused():
    big = np.full((1, 1), -(2**31), np.int32)
    with pytest.raises(ValueError, match="2\\^53"):
        matmul(big, big)


def test_empty_and_zero_operands():
    assert matmul(np.zeros((2, 3), np.int8), np.zeros((3, 1), np.int8)).tolist() == [[0], [0]]
    assert matmul(np.zeros((0, 3), np.int8), np.zeros((3, 1), np.int8)).shape == (0, 1)


def test_settled_products_are_the_vendors():
    rng = np.random.default_rng(2)
    a = rng.integers(-128, 128, (3, 40, 700)).astype(np.float32) * np.float32(0.037)
    b = rng.integers(-127, 128, (1, 700, 50)).astype(np.float32) * np.float32(0.0041)
    sums = matmul_approximate(a, b)
    exact = sums.at(np.arange(sums.value.size)).reshape(sums.value.shape)
    want, plain = (quantize(v, 0.002, 0, np.int16) for v in (exact, sums.value))
    assert np.array_equal(settle(sums, dtype=np.int16, scale=0.002), want)
    assert not np.array_equal(plain, want)
    half = settle(sums, dtype=np.float16)
    assert np.array_equal(half.view(np.uint16), exact.astype(np.float16).view(np.uint16))
    assert settle(sums, dtype=np.float32) is sums.value


# --- adjugate ----------------------------------------------------------------------------------------------------


def leibniz(m):
    """Determinant by its definition, in double precision."""
    n = len(m)
    total = 0.0
    for order in itertools.permutations(range(n)):
        swaps = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** swaps * np.prod([m[i, j] for i, j in enumerate(order)])
    return total


@few
@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_adjugate_is_the_transposed_cofactors(n, seed, sparse):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(2, n, n)).astype(np.float32)
    if sparse:  # zero pivots, swaps and singular minors
        a[rng.random(a.shape) < 0.4] = 0
    want = np.empty(a.shape)
    for b, i, j in np.ndindex(*a.shape):
        minor = np.delete(np.delete(a[b].astype(np.float64), i, 0), j, 1)
        want[b, j, i] = (-1) ** (i + j) * leibniz(minor)
    got = adjugate(a)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(1, np.abs(want).max()))


def elimination(m):
    """Arm NN's float32 steps for one minor of three rows or more."""
    m, n, total, sign = m.copy(), len(m), np.float32(1), np.float32(1)
    for k in range(n):
        if m[k, k] == 0:
            below = [r for r in range(k + 1, n) if m[r, k] != 0]
            if not below:
                return np.float32(0)
            m[[k, below[0]]] = m[[below[0], k]]
            sign = -sign
        total = total * m[k, k]
        for r in range(k + 1, n):
            if m[r, k] != 0:
                factor = m[r, k] / m[k, k]
                for c in range(k, n):
                    m[r, c] = m[r, c] - factor * m[k, c]
    return total * sign


@few
@given(st.integers(4, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_adjugate_rounds_as_the_vendors_elimination(n, seed, sparse):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n)).astype(np.float32)
    if sparse:
        a[rng.random(a.shape) < 0.3] = 0
    got = adjugate(a)
    for i, j in np.ndindex(n, n):
        minor = np.delete(np.delete(a, i, 0), j, 1)
        assert got[j, i] == (-1) ** (i + j) * elimination(minor)


def test_adjugate_of_one_element_is_it_and_of_no_square_an_error():
    assert adjugate(np.float32([[[5]], [[7]]])).ravel().tolist() == [5, 7]
    with pytest.raises(ValueError, match="square"):
        adjugate(np.zeros((2, 3), np.float32))
