"""Moments of counted numbers, against the definitions in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlinspect.analysis.counts import numbers_of
from mlinspect.analysis.moments import COUNT, HIGH, LOW, M2, M3, M4, MEAN, ZEROS, of_counts, of_small, on_line

INT8, UINT8 = numbers_of(np.dtype(np.int8)), numbers_of(np.dtype(np.uint8))


def exact(counted):
    """Mean and central sums of {number: how often}."""
    n = sum(counted.values())
    mean = Fraction(sum(x * c for x, c in counted.items()), n)
    return [float(mean), *(float(sum(c * (x - mean) ** power for x, c in counted.items())) for power in (2, 3, 4))]


def counts_of(numbers, *counted):
    rows = np.zeros((len(counted), 256), np.int64)
    for row, of in zip(rows, counted, strict=True):
        for number, times in of.items():
            row[number - int(numbers[0])] = times
    return rows


def check(numbers, *counted):
    found = of_small(counts_of(numbers, *counted), numbers)
    for column, of in zip(found.T, counted, strict=True):
        assert column[[MEAN, M2, M3, M4]].tolist() == pytest.approx(exact(of), rel=1e-12, abs=1e-12)
        assert column[[COUNT, LOW, HIGH, ZEROS]].tolist() == [sum(of.values()), min(of), max(of), of.get(0, 0)]


@given(st.lists(st.dictionaries(st.integers(-128, 127), st.integers(1, 99), min_size=1), min_size=1, max_size=4))
def test_few_numbers(counted):
    check(INT8, *counted)


@pytest.mark.parametrize("n", [2, 1000, 2_000_000, 3_000_000])
def test_one_number_apart_from_many_far_from_0(n):
    check(UINT8, {255: n - 1, 254: 1}, {128: n - 1, 135: 1}, {0: n - 1, 255: 1}, {255: n})
    check(INT8, {-128: n - 1, -127: 1}, {127: n})


def test_no_numbers():
    found = of_small(np.zeros((1, 256), np.int64), INT8)
    assert np.array_equal(found, of_counts(np.zeros((1, 256), np.int64), INT8))


@given(st.floats(0.001, 9), st.floats(-9, 9), st.booleans())
def test_on_a_line(slope, start, falling):
    slope = -slope if falling else slope
    counted = counts_of(INT8, {-100: 3, 5: 7, 90: 1})
    moved = on_line(of_small(counted, INT8), slope, start)
    want = of_counts(counted, slope * INT8.astype(float) + start)
    rows = [COUNT, MEAN, M2, M3, M4]
    np.testing.assert_allclose(moved[rows], want[rows], rtol=1e-9, atol=1e-12)
