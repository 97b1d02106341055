"""How often numbers occur, against collections.Counter."""

from collections import Counter
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlinspect.analysis import counts
from mlinspect.analysis.counts import count_all, count_channels, levels_of_channels, levels_of_counts, numbers_of, parts

RNG = np.random.default_rng(9)
DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.float16]
VIEWS = [(1, 1, 0), (1, 3, 1), (1, 1, 500), (1, 40, 9), (70, 5, 1), (4, 3, 7), (300, 130, 1), (1, 2, 70_000)]


def anything(shape, dtype):
    """Numbers of every bit pattern, but half of them the same."""
    numbers = RNG.integers(0, 256, (*shape, np.dtype(dtype).itemsize)).astype(np.uint8).view(dtype)[..., 0]
    return np.where(RNG.integers(0, 2, shape) == 0, numbers.dtype.type(3), numbers)


def bits(numbers):
    return numbers.view(f"u{numbers.itemsize}").ravel().tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
def test_numbers_are_all_there_are(dtype):
    numbers = numbers_of(np.dtype(dtype))
    assert sorted(bits(numbers)) == list(range(1 << 8 * numbers.itemsize))
    if numbers.dtype.kind != "f":
        assert (np.diff(numbers.astype(int)) == 1).all()


@pytest.mark.parametrize("run", [counts.by_threads, map])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("size", [0, 5, 70_000, 600_000])
def test_count_all(size, dtype, run, monkeypatch):
    monkeypatch.setattr(counts, "_PIECE", 250_000)
    flat, read = anything((size,), dtype), []
    found = count_all(flat, read.append, run)
    want = Counter(bits(flat))
    assert {b: n for b, n in zip(bits(numbers_of(flat.dtype)), found.tolist(), strict=True) if n} == want
    assert sum(read) == flat.nbytes


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", VIEWS, ids=str)
def test_count_channels(shape, dtype):
    view = anything(shape, dtype)
    numbers = numbers_of(view.dtype).tolist()
    cut = [count_channels(view[:, part]) for part in parts(view)]
    for channel, found in enumerate(np.concatenate(cut)):
        want = Counter(view[:, channel].ravel().tolist())
        assert found.tolist() == [want[number] for number in numbers]


def brute_levels(values, grid):
    n = Counter(bits(values))
    entropy = -sum(c / values.size * log2(c / values.size) for c in n.values())
    return len(n), entropy, (values <= grid[0]).sum(), (values >= grid[1]).sum()


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.float16])
@pytest.mark.parametrize("shape", VIEWS[1:], ids=str)
def test_levels_of_channels(shape, dtype, monkeypatch):
    monkeypatch.setattr(counts, "_SHORT", 60_000)  # channels of more are counted, others sorted
    view = anything(shape, dtype)
    grid = (-20, 20000)
    found = levels_of_channels(view, grid)
    for channel in range(shape[1]):
        want = brute_levels(view[:, channel], grid)
        assert [figure[channel] for figure in found] == pytest.approx(want, rel=1e-9)


@given(hnp.arrays(np.int8, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.integers(-8, 7)))
def test_levels_of_counts(rows):
    found = levels_of_counts(count_channels(rows[None]), numbers_of(rows.dtype), (-8, 7))
    for row, figures in zip(rows, zip(*found, strict=True), strict=True):
        assert figures == pytest.approx(brute_levels(row, (-8, 7)))


def test_entropy_of_equal_numbers_is_0_and_of_all_numbers_8():
    same, every = np.full((1, 2, 300), 7, np.int8), np.arange(-128, 128, dtype=np.int8)[None, None]
    assert levels_of_counts(count_channels(same), numbers_of(same.dtype), None).entropy.tolist() == [0, 0]
    assert levels_of_counts(count_channels(every), numbers_of(every.dtype), None).entropy.tolist() == [8]
