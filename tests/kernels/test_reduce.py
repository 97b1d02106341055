import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.reduce import arg_extreme, cumsum, normalize_axes, reduce, reduce_by_axis, sum_sequential, top_k

few = settings(derandomize=True, deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def arrays_and_axes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    x = np.random.default_rng(draw(seeds)).normal(size=shape).astype(np.float32)
    return x, axes


def folded(x, axes, start, step):
    """One element after the other, in memory order."""
    out = {}
    for index in itertools.product(*map(range, x.shape)):
        key = tuple(0 if axis in axes else i for axis, i in enumerate(index))
        out[key] = step(out.get(key, np.float32(start)), x[index])
    shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
    return np.array([out[key] for key in itertools.product(*map(range, shape))], np.float32).reshape(shape)


STEPS = {
    "sum": (0, lambda total, v: total + v),
    "prod": (1, lambda total, v: total * v),
    "max": (-np.finfo(np.float32).max, lambda best, v: v if v > best else best),
    "min": (np.finfo(np.float32).max, lambda best, v: v if v < best else best),
    "sum_square": (0, lambda total, v: total + v * v),
    "asum": (0, lambda total, v: total + abs(v)),
}


@pytest.mark.parametrize("mode", STEPS)
@given(case=arrays_and_axes())
@few
def test_reductions_follow_the_sequential_definition_to_the_bit(mode, case):
    x, axes = case
    assert np.array_equal(reduce(x, mode, axes, keepdims=True), folded(x, axes, *STEPS[mode]))


@given(case=arrays_and_axes())
@few
def test_mean_divides_once_and_l2_is_a_root(case):
    x, axes = case
    count = np.float32(np.prod([x.shape[axis] for axis in axes]))
    assert np.array_equal(reduce(x, "mean", axes, keepdims=True), folded(x, axes, *STEPS["sum"]) / count)
    assert np.array_equal(reduce(x, "l2", axes, keepdims=True), np.sqrt(folded(x, axes, *STEPS["sum_square"])))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 4099), 1),
        ((9, 1003), 1),
        ((300, 257), 1),
        ((257, 300), 0),
        ((3, 50, 2), 1),
        ((2, 31, 29, 3), (1, 2)),
        ((40, 3, 40), (0, 2)),
    ],
)
def test_long_sums_are_sequential(shape, axes):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    moved = np.moveaxis(x, axes, range(np.size(axes)))
    rows = moved.reshape(int(np.prod(moved.shape[: np.size(axes)])), -1)
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += row
    assert np.array_equal(sum_sequential(x, axes).ravel(), total)


def test_axes_and_shapes():
    x = np.ones((2, 3, 4), np.float32)
    assert reduce(x, "sum").shape == ()
    assert reduce(x, "sum", ()) == 24
    assert reduce(x, "max", (-1, 0)).shape == (3,)
    assert reduce(x, "mean", (-1, 0), keepdims=True).shape == (1, 3, 1)
    assert sum_sequential(np.ones((0, 3), np.float32), 0).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="3 axes"):
        normalize_axes(3, 3)


def test_extremes_pass_over_nan_and_start_at_the_largest_finite_number():
    x = np.float32([[np.nan, 1, 2], [np.nan, np.nan, np.nan], [-np.inf, -np.inf, -np.inf]])
    limit = np.finfo(np.float32).max
    assert reduce(x, "max", 1).tolist() == [2, -limit, -limit]
    assert reduce(-x, "min", 1).tolist() == [-2, limit, limit]


def test_integers_wrap_and_their_mean_truncates():
    x = np.int32([[2**30, 2**30, 7], [-3, -4, -7]])
    assert reduce(x, "sum", 1).tolist() == [-(2**31) + 7, -14]
    assert reduce(x[1:], "mean", 1).tolist() == [-4]
    assert reduce(np.int32([[-3, -4, -7], [1, 1, 1]]), "mean") == -1  # -11 / 6
    assert reduce(x, "max", 0).dtype == np.int32
    assert reduce(np.int32([-5, -7]), "max") == -5
    assert reduce(np.int32([2**20, 2**12]), "prod") == 0


def test_integer_means_axis_by_axis_truncate_after_each():
    x = np.int32([[1, 1, 1], [-1, -1, 0]])
    assert reduce_by_axis(x, "mean", (1, 0)) == 0  # 1 and 0, then 1 / 2
    assert reduce_by_axis(np.int32([[3, 4], [8, 8]]), "mean", (1, 0)) == 5  # 3 and 8, then 11 / 2
    assert reduce(np.int32([[3, 4], [8, 9]]), "mean") == 6
    assert reduce_by_axis(np.int32([[3, 4], [8, 9]]), "mean", (1, 0)) == 5


def test_integer_squares_and_absolute_values_are_plain_sums_in_mindspore_lite():
    x = np.int32([[-3, 2], [1, 5]])
    assert reduce_by_axis(x, "sum_square", 1).tolist() == reduce_by_axis(x, "asum", 1).tolist() == [-1, 6]
    assert reduce(x, "asum", 1).tolist() == [5, 6]


@pytest.mark.parametrize("mode", ["sum", "mean", "prod", "min", "sum_square", "asum", "l2"])
@given(case=arrays_and_axes())
@few
def test_axis_by_axis_is_the_same_but_for_rounding(mode, case):
    x, axes = case
    np.testing.assert_allclose(reduce_by_axis(x, mode, axes), reduce(x, mode, axes), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes", "flawed"),  # as MindSpore Lite 2.0.0 answered
    [
        ((2, 3, 4, 16), (3,), False),
        ((2, 3, 4, 16), (1,), True),
        ((2, 3, 4, 16), (0, 1, 2, 3), True),
        ((2, 3, 4), (2, 1), False),
        ((2, 3, 4), (1, 2), True),
        ((2, 1, 3), (1,), False),
        ((2, 3, 1), (1,), False),
    ],
)
def test_maxima_below_zero_in_mindspore_lite(shape, axes, flawed):
    x = -1 - np.random.default_rng(0).random(shape, np.float32)
    right = reduce(x, "max", axes)
    wrong = np.full_like(right, np.finfo(np.float32).tiny)
    assert np.array_equal(reduce_by_axis(x, "max", axes), wrong if flawed else right)
    assert np.array_equal(reduce_by_axis(x + 3, "max", axes), reduce(x + 3, "max", axes))


def test_unknown_mode_is_refused():
    with pytest.raises(UnsupportedError, match="'median'"):
        reduce(np.zeros(2, np.float32), "median")


def test_all():
    assert reduce(np.array([[True, False], [True, True]]), "all", 1).tolist() == [False, True]


@given(seed=seeds, axis=st.integers(-3, 2), largest=st.booleans(), first_nan_wins=st.booleans())
@few
def test_arg_extreme_is_a_strict_search(seed, axis, largest, first_nan_wins):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (3, 4, 5)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan

    def search(values):
        best, position = (values[0], 0) if first_nan_wins else (np.float32(-np.inf if largest else np.inf), 0)
        for i, value in enumerate(values):
            if value > best if largest else value < best:
                best, position = value, i
        return position

    assert np.array_equal(arg_extreme(x, axis, largest, first_nan_wins), np.apply_along_axis(search, axis, x))


@given(seed=seeds, k=st.integers(1, 4), axis=st.integers(-2, 1), largest=st.booleans(), in_order=st.booleans())
@few
def test_top_k_is_a_stable_sort(seed, k, axis, largest, in_order):
    x = np.random.default_rng(seed).integers(-3, 4, (4, 5)).astype(np.float32)
    lines = np.moveaxis(x, axis, -1)
    values, indices = (np.moveaxis(part, axis, -1) for part in top_k(x, k, axis, largest, in_order))
    for line, value, index in zip(lines, values, indices, strict=True):
        chosen = sorted(range(len(line)), key=lambda i: (-line[i] if largest else line[i], i))[:k]
        assert index.tolist() == (chosen if in_order else sorted(chosen))
        assert value.tolist() == line[index].tolist()


def test_top_k_compares_integers_as_float32():
    values, indices = top_k(np.int32([2**24, 2**24 + 1, 5]), 2)
    assert (values.tolist(), indices.tolist()) == ([2**24, 2**24], [0, 1])
    assert values.dtype == np.int32


@given(seed=seeds, axis=st.integers(-3, 2), exclusive=st.booleans(), reverse=st.booleans())
@few
def test_cumsum(seed, axis, exclusive, reverse):
    x = np.random.default_rng(seed).normal(size=(3, 4, 5)).astype(np.float32)

    def running(values):
        order = range(len(values))[::-1] if reverse else range(len(values))
        total, out = np.float32(0), np.empty_like(values)
        for i in order:
            out[i] = total if exclusive else total + values[i]
            total = total + values[i]
        return out

    assert np.array_equal(cumsum(x, axis, exclusive, reverse), np.apply_along_axis(running, axis, x))


def test_cumsum_keeps_integers_in_their_type():
    assert cumsum(np.int32([2**31 - 1, 1]), 0).tolist() == [2**31 - 1, -(2**31)]
