import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.pool import fold_taps, max_pool_inside, pool, pool_output_size, roi_pool

few = settings(derandomize=True, deadline=None, max_examples=60)
LIMIT = np.finfo(np.float32).max


def slow_pool(x, algorithm, window, stride, padding, size, exclude_padding):
    """Arm NN's reference loops, window by window and cell by cell."""
    spatial = x.shape[1:-1]
    out = np.empty((x.shape[0], *size, x.shape[-1]), np.float32)
    for position in itertools.product(*map(range, size)):
        begin = [p * s - pad[0] for p, s, pad in zip(position, stride, padding, strict=True)]
        end = [min(b + w, n + pad[1]) for b, w, n, pad in zip(begin, window, spatial, padding, strict=True)]
        real = [range(max(b, 0), min(e, n)) for b, e, n in zip(begin, end, spatial, strict=True)]
        area = np.prod([e - b for b, e in zip(begin, end, strict=True)])
        count = np.prod([len(r) for r in real])
        total = np.full((x.shape[0], x.shape[-1]), -LIMIT if algorithm == "max" else 0, np.float32)
        for cell in itertools.product(*real):
            value = x[(slice(None), *cell)]
            if algorithm == "max":
                total = np.where(value > total, value, total)
            else:
                total = total + (value * value if algorithm == "l2" else value)
        if count == 0:
            total[:] = 0
        elif algorithm != "max":
            total = total / np.float32(count if exclude_padding else area)
            total = np.sqrt(total) if algorithm == "l2" else total
        out[(slice(None), *position)] = total
    return out


@st.composite
def pools(draw, dims):
    spatial = [draw(st.integers(1, 6)) for _ in range(dims)]
    window = [draw(st.integers(1, n + 2)) for n in spatial]
    stride = [draw(st.integers(1, 3)) for _ in range(dims)]
    padding = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(dims)]
    padding = [(b, max(e, w - n - b)) for (b, e), w, n in zip(padding, window, spatial, strict=True)]
    size = [
        pool_output_size(n, w, s, p, ceil=draw(st.booleans()))
        for n, w, s, p in zip(spatial, window, stride, padding, strict=True)
    ]
    shape = (draw(st.integers(1, 2)), *spatial, draw(st.integers(1, 3)))
    x = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=shape).astype(np.float32)
    return x, window, stride, padding, size


@pytest.mark.parametrize("algorithm", ["max", "average", "l2"])
@given(case=st.integers(1, 3).flatmap(pools), exclude=st.booleans())
@few
def test_pool_follows_the_loops_to_the_bit(algorithm, case, exclude):
    x, window, stride, padding, size = case
    got = pool(x, algorithm, window, stride, padding, output_size=size, exclude_padding=exclude)
    assert np.array_equal(got, slow_pool(x, algorithm, window, stride, padding, size, exclude))


@pytest.mark.parametrize("algorithm", ["max", "average", "l2"])
def test_large_windows_are_sequential(algorithm):
    x = np.random.default_rng(3).normal(size=(2, 23, 19, 3)).astype(np.float32)
    args = (x, algorithm, (23, 19), (1, 1), ((0, 0), (0, 0)))
    assert np.array_equal(pool(*args), slow_pool(*args, (1, 1), False))


def test_stride_zero_is_global():
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 4, 1)
    assert pool(x, "average", (2, 4), (0, 0), ((0, 0), (0, 0))).ravel().tolist() == [3.5]


def test_divisors_where_the_last_window_passes_the_end():
    x = np.ones((1, 1, 5, 1), np.float32)
    args = (x, "average", (1, 3), (1, 2), ((0, 0), (1, 1)))
    # windows -1..1, 1..3, 3..5, 5..7: the last is cut at 6, where the padding ends, and holds no real cell
    assert pool(*args, output_size=(1, 4)).ravel().tolist() == [np.float32(2 / 3), 1, np.float32(2 / 3), 0]
    assert pool(*args, output_size=(1, 4), exclude_padding=True).ravel().tolist() == [1, 1, 1, 0]


def test_maximum_passes_over_nan_and_padding():
    x = np.float32([np.nan, -3, np.nan, np.nan]).reshape(1, 1, 4, 1)
    assert pool(x, "max", (1, 2), (1, 2), ((0, 0), (0, 0))).ravel().tolist() == [-3, -LIMIT]
    assert pool(x, "max", (1, 3), (1, 3), ((0, 0), (1, 1))).ravel().tolist() == [-3, -LIMIT]


@given(
    seed=st.integers(0, 2**32 - 1),
    window=st.tuples(*[st.integers(1, 3)] * 2),
    stride=st.tuples(*[st.integers(1, 3)] * 2),
)
@few
def test_maxima_of_windows_inside_the_image_are_those_of_pool(seed, window, stride):
    x = np.random.default_rng(seed).normal(size=(2, 5, 6, 3)).astype(np.float32)
    want = pool(x, "max", window, stride, ((0, 0), (0, 0)))
    assert np.array_equal(max_pool_inside(x, window, stride, want.shape[1:3]), want)
    x[...] = np.nan
    assert (max_pool_inside(x, window, stride, want.shape[1:3]) == -LIMIT).all()


def test_average_keeps_nan():
    x = np.float32([np.nan, 1, 2, 3]).reshape(1, 1, 4, 1)
    got = pool(x, "average", (1, 2), (1, 2), ((0, 0), (0, 0))).ravel()
    assert np.isnan(got[0])
    assert got[1] == 2.5


def test_fold_taps_along_any_axis():
    x = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    got = fold_taps(x, [0], [2], [2], [1], [2], np.add, 0)
    assert np.array_equal(got, np.stack([x[0], x[1] + x[2]]))


@pytest.mark.parametrize(
    ("args", "size"), [((7, 3, 2, (0, 0)), 3), ((8, 3, 2, (0, 0)), 3), ((8, 3, 2, (1, 1)), 4), ((5, 5, 1, (0, 0)), 1)]
)
def test_output_size_counts_windows_that_fit(args, size):
    n, window, stride, padding = args
    starts = range(-padding[0], n + padding[1] - window + 1, stride)
    assert pool_output_size(*args) == len(starts) == size


@given(seed=st.integers(0, 2**32 - 1), size=st.tuples(st.integers(1, 4), st.integers(1, 4)))
@few
def test_roi_pool_takes_the_maximum_of_every_bin(seed, size):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 5, 6, 2)).astype(np.float32)
    rois = np.concatenate([rng.integers(0, 2, (4, 1)), rng.integers(-6, 16, (4, 4)) / 2], 1).astype(np.float32)
    got = roi_pool(x, rois, size, 0.5)
    for roi, region in zip(rois, got, strict=True):
        corner = [int(np.sign(c) * np.floor(abs(c) + 0.5)) for c in roi[1:] * 0.5]
        for i, j in np.ndindex(*size):
            rows, columns = (
                [
                    cell
                    for cell in range(n)
                    if low + np.floor(k * max(high - low + 1, 1) / bins)
                    <= cell
                    < low + np.ceil((k + 1) * max(high - low + 1, 1) / bins)
                ]
                for low, high, k, bins, n in (
                    (corner[0], corner[2], i, size[0], 5),
                    (corner[1], corner[3], j, size[1], 6),
                )
            )
            cells = x[int(roi[0])][np.ix_(rows, columns)].reshape(-1, 2)
            assert np.array_equal(region[i, j], cells.max(0) if len(cells) else [0, 0])


def test_unknown_algorithm_is_refused():
    with pytest.raises(UnsupportedError, match="'median'"):
        pool(np.zeros((1, 2, 2, 1), np.float32), "median", (1, 1), (1, 1), ((0, 0), (0, 0)))
