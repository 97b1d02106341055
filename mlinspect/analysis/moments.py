"""Moments of many numbers: records of each part, and how records of parts become one of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BLOCK = 1 << 16  # elements at a time: what is made of them stays in the second cache
# rows of a record, one column a channel; M2 to M4 are sums of powers about the mean
COUNT, MEAN, M2, M3, M4, LOW, HIGH, ZEROS, NAN, INF = range(10)
Advance = Callable[[int], Any]  # told how many bytes were read


def blocks(view: np.ndarray, size: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Pieces of (outer, channels, inner) that are small enough, each with the channels that it belongs to."""
    outer, channels, inner = view.shape
    size = size or BLOCK
    wide = max(1, min(inner, size))
    some = max(1, min(channels, size // wide))
    deep = max(1, min(outer, size // (wide * some)))
    for i in range(0, outer, deep):
        for j in range(0, channels, some):
            for k in range(0, inner, wide):
                yield slice(j, j + some), view[i : i + deep, j : j + some, k : k + wide]


class Total:
    """The moments of all blocks together; many small merges would cost more than the sums."""

    def __init__(self, channels: int) -> None:
        self._record = np.zeros((10, channels))
        self._record[LOW], self._record[HIGH] = np.inf, -np.inf
        self._parts: dict[int, list[np.ndarray]] = {}

    def add(self, channels: slice, record: np.ndarray) -> None:
        """Take the record of a block of these channels."""
        parts = self._parts.setdefault(channels.start, [])
        parts.append(record)
        if len(parts) == 64:
            self._merge(channels.start, parts)

    def _merge(self, start: int, parts: list[np.ndarray]) -> None:
        channels = slice(start, start + parts[0].shape[1])
        self._record[:, channels] = merge(np.stack([self._record[:, channels], *parts], axis=2))
        parts.clear()

    def record(self) -> np.ndarray:
        """The moments of all that was added."""
        for start, parts in self._parts.items():
            if parts:
                self._merge(start, parts)
        return self._record


def of_rows(x: np.ndarray) -> np.ndarray:
    """Moments of each row of (channels, n) numbers of float64."""
    record = np.zeros((10, len(x)))
    record[LOW], record[HIGH] = x.min(axis=1), x.max(axis=1)
    if not np.isfinite(record).all():
        return of_counts(np.ones(x.shape, np.int8), x)
    record[COUNT], record[MEAN] = x.shape[1], x.mean(axis=1)
    record[ZEROS] = np.count_nonzero(x == 0, axis=1)
    d = x - record[MEAN][:, None]
    squares = d * d
    record[M2], record[M3], record[M4] = np.vecdot(d, d), np.vecdot(squares, d), np.vecdot(squares, squares)
    return record


def of_counts(counts: np.ndarray, values: Any) -> np.ndarray:
    """Moments of each row of (channels, n): ``values`` that occur ``counts`` times."""
    n, x = counts.astype(np.float64), np.broadcast_to(np.asarray(values, np.float64), counts.shape)
    record = np.zeros((10, len(counts)))
    finite = np.isfinite(x)
    if not finite.all():
        record[NAN], record[INF] = np.vecdot(n, np.isnan(x)), np.vecdot(n, np.isinf(x))
        n, x = np.where(finite, n, 0), np.where(finite, x, 0)
    record[COUNT] = n.sum(axis=1)
    record[MEAN] = np.vecdot(n, x) / np.maximum(record[COUNT], 1)
    d = x - record[MEAN][:, None]
    squares = d * d
    weighted = n * squares
    record[M2], record[M3], record[M4] = weighted.sum(axis=1), np.vecdot(weighted, d), np.vecdot(weighted, squares)
    occurs = n > 0
    record[LOW] = x.min(axis=1, initial=np.inf, where=occurs)
    record[HIGH] = x.max(axis=1, initial=-np.inf, where=occurs)
    record[ZEROS] = np.vecdot(n, x == 0)
    return record


def of_small(counts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """:func:`of_counts` of ascending 8-bit numbers, many times as fast: their sums of powers are whole numbers."""
    if counts.sum(axis=1).max(initial=0) > 1 << 21:  # beyond it, float64 could not hold them
        return of_counts(counts, numbers)
    x, weights = numbers.astype(np.float64), counts.astype(np.float64)
    n, s1, s2, s3, s4 = (np.vecdot(weights, x**power).astype(np.int64) for power in range(5))
    some = np.maximum(n, 1)
    centre = np.rint(s1 / some).astype(np.int64)  # whole, so that no digit is lost on the way to it
    sums = about(centre, n, s1, s2, s3, s4)
    record = np.zeros((10, len(counts)))
    record[COUNT], record[MEAN] = n, centre + sums[0] / some
    record[M2], record[M3], record[M4] = about(sums[0] / some, n, *sums)[1:]
    occurs = counts > 0
    record[LOW] = np.where(n > 0, x[occurs.argmax(axis=1)], np.inf)
    record[HIGH] = np.where(n > 0, x[::-1][occurs[:, ::-1].argmax(axis=1)], -np.inf)
    record[ZEROS] = counts[:, numbers == 0][:, 0]
    return record


def about(centre: Any, n: Any, s1: Any, s2: Any, s3: Any, s4: Any) -> tuple[Any, Any, Any, Any]:
    """Sums of the first four powers about ``centre``, of those about 0."""
    return (
        s1 - n * centre,
        s2 - 2 * centre * s1 + n * centre**2,
        s3 - 3 * centre * s2 + 3 * centre**2 * s1 - n * centre**3,
        s4 - 4 * centre * s3 + 6 * centre**2 * s2 - 4 * centre**3 * s1 + n * centre**4,
    )


def on_line(record: np.ndarray, slope: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Moments of ``slope * x + start`` of those of ``x``, column by column; extremes and zeros stay."""
    moved = record.copy()
    moved[MEAN] = record[MEAN] * slope + start
    for row, power in ((M2, 2), (M3, 3), (M4, 4)):
        moved[row] *= slope**power
    return moved


def merge(records: np.ndarray) -> np.ndarray:
    """Moments of several parts together: (10, channels, parts) -> (10, channels).

    Source: Pebay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
    moments", 2008.
    """
    if records.shape[2] == 1:
        return records[:, :, 0]
    merged = records.sum(axis=2)
    n = records[COUNT]
    mean = (n * records[MEAN]).sum(axis=1) / np.maximum(merged[COUNT], 1)
    d = records[MEAN] - mean[:, None]
    m2, m3 = records[M2], records[M3]
    merged[MEAN] = mean
    merged[M2] += (n * d**2).sum(axis=1)
    merged[M3] += (3 * d * m2 + n * d**3).sum(axis=1)
    merged[M4] += (4 * d * m3 + 6 * d**2 * m2 + n * d**4).sum(axis=1)
    merged[LOW], merged[HIGH] = records[LOW].min(axis=1), records[HIGH].max(axis=1)
    return merged


def extent(record: np.ndarray) -> np.ndarray:
    """Largest magnitude in each column of a record; NaN where there are no numbers."""
    return np.where(record[COUNT] > 0, np.maximum(np.abs(record[LOW]), np.abs(record[HIGH])), np.nan)
