"""How often each stored number of 8 or 16 bits occurs, and what that says about the grid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mlinspect.analysis.moments import Advance, blocks

LONG = 1 << 16  # bytes in a row that Pillow counts faster than numpy
_PIECE = 1 << 22  # bytes that a thread counts at a time
_SHORT = 1 << 18  # numbers at a time where numpy counts: it makes 8 bytes of each


class Levels(NamedTuple):
    """Of each row of the table: distinct numbers, their entropy in bits, and how many lie at the ends of the grid."""

    distinct: np.ndarray
    entropy: np.ndarray
    at_qmin: np.ndarray
    at_qmax: np.ndarray


def by_threads(call: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
    """``map`` on up to four cores, as each takes memory; without threads where there is one item only."""
    if len(items) < 2:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        yield from pool.map(call, items)


@cache
def numbers_of(dtype: np.dtype[Any]) -> np.ndarray:
    """Every number of a type of 8 or 16 bits: whole ones in order, others in the order of their bits."""
    bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    numbers = _in_order(bits, dtype).view(dtype)
    numbers.flags.writeable = False
    return numbers


def count_all(numbers: np.ndarray, advance: Advance, run: Callable[..., Iterable[Any]] = by_threads) -> np.ndarray:
    """How often each of :func:`numbers_of` occurs among 8 or 16-bit numbers; ``run=map`` takes one core only.

    Examples
    --------
    >>> count_all(np.int8([-128, 3, 3]), lambda nbytes: None)[[0, 127, 131]].tolist()
    [1, 0, 2]
    """
    flat, size = numbers.reshape(-1), _PIECE if numbers.itemsize == 1 else _SHORT
    pieces = [flat[i : i + size] for i in range(0, max(flat.size, 1), size)]
    counts: Any = 0
    for piece, found in zip(pieces, run(_count, pieces), strict=True):
        counts = counts + found
        advance(piece.nbytes)
    return counts


def _count(numbers: np.ndarray) -> np.ndarray:
    bins, bits = 1 << 8 * numbers.itemsize, numbers.view(f"u{numbers.itemsize}")
    long = numbers.itemsize == 1 and len(numbers) >= LONG
    return _in_order(_pillow(bits) if long else np.bincount(bits, minlength=bins), numbers.dtype)


def _pillow(row: np.ndarray) -> np.ndarray:
    image = Image.frombuffer("L", (row.size, 1), np.ascontiguousarray(row), "raw", "L", 0, 1)
    return np.fromiter(image.histogram(), np.int64, 256)


def _in_order(counts: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Counts by bits -> counts by :func:`numbers_of`."""
    return np.roll(counts, counts.shape[-1] // 2, axis=-1) if dtype.kind == "i" else counts


def count_channels(view: np.ndarray) -> np.ndarray:
    """How often each of :func:`numbers_of` occurs in each channel of (outer, channels, inner) 8-bit numbers.

    Returns
    -------
    ndarray of int64, shape (channels, 256)
    """
    outer, channels, inner = view.shape
    counts = np.zeros((channels, 256), np.int64)
    if inner >= LONG:
        for rows in view.view(np.uint8):
            for channel, row in enumerate(rows):
                counts[channel] += sum(_pillow(row[i : i + _PIECE]) for i in range(0, inner, _PIECE))
        return _in_order(counts, view.dtype)
    first = np.arange(0, channels * 256, 256)[:, None] - int(np.iinfo(view.dtype).min)
    size = _SHORT if outer == 1 else max(_SHORT, 1024 * channels)  # several numbers a counter
    buffer = np.empty(min(size, view.size), np.intp)
    for some, block in blocks(view, size):
        places = buffer[: block.size].reshape(block.shape)
        places[...] = block
        places += first[: block.shape[1]]
        found = np.bincount(places.ravel(), minlength=block.shape[1] * 256)
        counts[some] += found.reshape(-1, 256)
    return counts


def parts(view: np.ndarray) -> list[slice]:
    """Channels that a thread takes at a time: some MB, in whole cache lines, and of many no more than memory bears."""
    outer, channels, inner = view.shape
    least = 64 if inner == 1 else 1
    some = min(max(_PIECE // max(outer * inner, 1), channels // 16, least), 1024)
    return [slice(start, start + some) for start in range(0, channels, some)]


def levels_of_counts(counts: np.ndarray, numbers: np.ndarray, grid: tuple[int, int] | None) -> Levels:
    """Figures of each row of (rows, n): ``numbers`` that occur ``counts`` times."""
    if len(counts) == 1:  # mostly few of 65,536
        numbers, counts = numbers[counts[0] > 0], counts[counts > 0][None]
    p = counts.astype(np.float64)
    p /= np.maximum(p.sum(axis=1, keepdims=True), 1)
    entropy = -np.vecdot(p, np.log2(np.where(p > 0, p, 1))) + 0.0
    low, high = (0, 0) if grid is None else grid
    ends = [counts[:, side].sum(axis=1) for side in (numbers <= low, numbers >= high)]
    return Levels(np.count_nonzero(counts, axis=1), entropy, *ends)


def levels_of_channels(view: np.ndarray, grid: tuple[int, int] | None) -> Levels:
    """Figures of each channel of (outer, channels, inner) 16-bit numbers."""
    numbers, n = numbers_of(view.dtype), view.shape[0] * view.shape[2]
    some, found = max(1, _SHORT // max(n, 1)), []
    for start in range(0, view.shape[1], some):
        part = view[:, start : start + some]
        rows = part.swapaxes(0, 1).reshape(part.shape[1], n)
        if n > _SHORT:
            found.append(levels_of_counts(count_all(rows, lambda _: None)[None], numbers, grid))
        else:
            found.append(_levels_of_rows(rows, grid))
    return Levels(*map(np.concatenate, zip(*found, strict=True)))


def _levels_of_rows(rows: np.ndarray, grid: tuple[int, int] | None) -> Levels:
    """Figures of each row of 16-bit numbers: equal ones lie side by side once they are sorted."""
    many, n = rows.shape
    bits = np.sort(rows.view(np.uint16), axis=1)
    new = np.ones(rows.shape, bool)
    new[:, 1:] = bits[:, 1:] != bits[:, :-1]
    starts = np.flatnonzero(new)
    p = np.diff(starts, append=rows.size) / max(n, 1)
    owner = starts // max(n, 1)
    low, high = (0, 0) if grid is None else grid
    return Levels(
        np.bincount(owner, minlength=many),
        -np.bincount(owner, p * np.log2(p), many) + 0.0,
        np.count_nonzero(rows <= low, axis=1),
        np.count_nonzero(rows >= high, axis=1),
    )
