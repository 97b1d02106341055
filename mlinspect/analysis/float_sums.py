"""Moments of constants by sums of powers: of large ones in float32, at about the speed that memory has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mlinspect.analysis import moments
from mlinspect.analysis.moments import (
    COUNT,
    HIGH,
    LOW,
    M2,
    M3,
    M4,
    MEAN,
    ZEROS,
    Advance,
    Total,
    about,
    blocks,
    extent,
    of_rows,
)

LARGE = 1 << 22  # tensors of more elements than this are summed in float32, piece by piece
_PIECE = 1 << 13  # elements whose sums are made in float32; so short that BLAS starts no threads


def of_view(view: np.ndarray, each: bool, advance: Advance) -> tuple[np.ndarray, np.ndarray]:
    """Moments of (outer, channels, inner), of each channel or of all numbers together, and the reach of each channel.

    Parameters
    ----------
    view : ndarray of float32, float64 or integers, shape (outer, channels, inner)
    each : bool
        Whether the record has a column a channel instead of one.
    advance : callable
        Told how many bytes were read, now and then.

    Returns
    -------
    record : ndarray, shape (10, channels or 1)
        Rows as ``moments`` names them; of integers, zeros may be missing.
    reach : ndarray, shape (channels,)
        Largest finite magnitude; NaN where there is none.

    Examples
    --------
    >>> record, reach = of_view(np.float32([[[1, 3], [-5, 1]]]), True, lambda nbytes: None)
    >>> record[MEAN].tolist(), reach.tolist()
    ([2.0, -2.0], [3.0, 5.0])
    """
    single = view.dtype == np.float32 or (view.dtype.kind in "iu" and view.itemsize <= 2)
    if single and view.size > LARGE and view.flags.c_contiguous:
        found = _in_float32(view, each, advance)
        if found is not None:
            return found
        advance = _counted_before
    return _in_float64(view, each, advance)


def _counted_before(nbytes: int) -> None:
    """Of bytes that are read again, the bar is not told."""


def _in_float64(view: np.ndarray, each: bool, advance: Advance) -> tuple[np.ndarray, np.ndarray]:
    total, reach = Total(view.shape[1] if each else 1), np.full(view.shape[1], np.nan)
    for part, block in blocks(view):
        rows = block.swapaxes(0, 1).reshape(block.shape[1], -1) if each else block.reshape(1, -1)
        total.add(part if each else slice(0, 1), of_rows(rows.astype(np.float64)))
        if not each:
            low, high = channel_extremes(block)
            finite = np.isfinite(low).all() and np.isfinite(high).all()
            reach[part] = np.fmax(reach[part], np.maximum(-low, high) if finite else _finite_reach(block))
        advance(block.nbytes)
    record = total.record()
    return record, extent(record) if each else reach


def _in_float32(view: np.ndarray, each: bool, advance: Advance) -> tuple[np.ndarray, np.ndarray] | None:
    """Sums of powers about 0 of short pieces, added up in float64; None where float32 cannot hold them.

    Another thread seeks the extremes meanwhile: it has so few and long calls that the two do not wait for each other.
    """
    n = view.shape[0] * view.shape[2] if each else view.size
    with np.errstate(all="ignore"), ThreadPoolExecutor(1) as other:
        extremes = other.submit(channel_extremes, view)
        if each and view.shape[2] == 1:
            s1, s2, s3, s4, zeros = _sums_of_columns(view[:, :, 0], advance)
        else:
            s1, s2, s3, s4, zeros = _sums_of_rows(view if each else view.reshape(1, 1, -1), advance)
        low, high = (ends.astype(np.float64) for ends in extremes.result())
        dead = (low == 0) & (high == 0)
        # too far from 0, digits are lost; fourth powers may be too large, too small, or none (NaN)
        held = (2 * s1**2 < n * s2) & (1e-33 * n < s4) & np.isfinite(s4) | (dead if each else dead.all())
        if not held.all():
            return None
    record, mean, reach = np.zeros((10, len(s1))), s1 / n, np.maximum(-low, high)
    record[COUNT], record[MEAN], record[ZEROS] = n, mean, zeros
    record[LOW], record[HIGH] = (low, high) if each else (low.min(), high.max())
    record[M2], record[M3], record[M4] = about(mean, n, s1, s2, s3, s4)[1:]
    return record, reach


def _sums_of_rows(view: np.ndarray, advance: Advance) -> np.ndarray:
    """Sums of the first four powers, and zeros, of each channel: each step is a pass over a block in the cache."""
    channels = view.shape[1]
    numbers, ones, buffer = np.arange(channels), np.ones(_PIECE, np.float32), np.empty(moments.BLOCK, np.float32)
    total, waiting, most = np.zeros((5, channels)), 0, max(moments.BLOCK, channels)
    whose: list[np.ndarray] = []
    sums: list[tuple[np.ndarray, ...]] = []

    def add_up() -> None:
        owner = np.concatenate(whose, axis=None)
        for row, parts in zip(total, zip(*sums, strict=True), strict=False):
            row += np.bincount(owner, np.concatenate(parts, axis=None), channels)
        whose.clear()
        sums.clear()

    for part, block in blocks(view):
        rows, whom = block.swapaxes(0, 1).reshape(block.shape[1], -1).astype(np.float32, copy=False), numbers[part]
        for x in _pieces(rows):
            sum1, sum2 = x @ ones[: x.shape[2]], np.vecdot(x, x)
            squares = np.square(x, out=buffer[: x.size].reshape(x.shape))
            if view.dtype.kind == "f" and np.minimum.reduce(squares, axis=None) == 0:
                total[4, whom] += np.count_nonzero(x == 0, axis=(1, 2))
            whose.append(whom.repeat(x.shape[1]))
            sums.append((sum1, sum2, np.vecdot(squares, x), np.vecdot(squares, squares)))
            waiting += sum1.size
        if waiting > most:
            add_up()
            waiting = 0
        advance(block.nbytes)
    if sums:
        add_up()
    return total


def _sums_of_columns(columns: np.ndarray, advance: Advance) -> np.ndarray:
    """:func:`_sums_of_rows` of the columns of a matrix, of which several rows are taken as one where it is narrow."""
    channels = columns.shape[1]
    wide = max(1, 1024 // channels)
    whole = len(columns) // wide * wide
    total = np.zeros((5, channels))
    for matrix in (columns[:whole].reshape(-1, wide * channels), columns[whole:]):
        width = matrix.shape[1]
        size = min(max(moments.BLOCK, 16 * width), 16 * moments.BLOCK)  # of few rows, adding up would take longest
        sums, buffer = np.zeros((5, width)), np.empty(size, np.float32)
        for part, block in blocks(matrix[:, :, None], size):
            x = block[:, :, 0].astype(np.float32, copy=False)
            squares = np.square(x, out=buffer[: x.size].reshape(x.shape))
            if columns.dtype.kind == "f" and np.minimum.reduce(squares, axis=None) == 0:
                sums[4, part] += np.count_nonzero(x == 0, axis=0)
            sums[0, part] += np.add.reduce(x)
            sums[1, part] += np.add.reduce(squares)
            sums[2, part] += np.einsum("ij,ij->j", squares, x)
            sums[3, part] += np.einsum("ij,ij->j", squares, squares)
            advance(block.nbytes)
        total += sums.reshape(5, -1, channels).sum(axis=1)
    return total


def _pieces(rows: np.ndarray) -> list[np.ndarray]:
    """Rows cut into pieces, (rows, pieces, elements): those of full length, and the ends."""
    whole = rows.shape[1] // _PIECE * _PIECE
    full, ends = rows[:, :whole].reshape(len(rows), -1, _PIECE), rows[:, None, whole:]
    return [full] if whole == rows.shape[1] else [full, ends] if whole else [ends]


def channel_extremes(view: np.ndarray) -> list[np.ndarray]:
    """Least and largest number of each channel, in few and long calls."""
    found = []
    for extreme in (np.minimum, np.maximum):
        rows = view.reshape(len(view), -1)
        if len(rows) > 1:  # along the outer axis numpy is slow, unless rows are long
            deep = -(-_PIECE // rows.shape[1])
            whole = len(rows) // deep * deep
            if whole:
                most = extreme.reduce(rows[:whole].reshape(-1, deep, rows.shape[1]), axis=0)
                rows = np.concatenate([most, rows[whole:]])
            rows = extreme.reduce(rows, axis=0)
        found.append(extreme.reduce(rows.reshape(view.shape[1:]), axis=1))
    return found


def _finite_reach(block: np.ndarray) -> np.ndarray:
    """Largest finite magnitude of each channel; NaN where there is none."""
    finite = np.where(np.isfinite(block), np.abs(block), np.nan)
    reach: np.ndarray = np.fmax.reduce(np.fmax.reduce(finite, axis=2), axis=0)
    return reach
