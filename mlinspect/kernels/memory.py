"""How to move numbers through the cache: blocks, long runs, aligned scratch memory, numpy's own buffers."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import threading
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

_FEW = 1 << 13  # numbers that are copied sooner than a way to copy them is found


def blocks(shape: Sequence[int], limit: int) -> Iterator[tuple[int | slice, ...]]:
    """Cover an array in memory order by index tuples that select at most `limit` neighbouring elements each.

    Parameters
    ----------
    shape : sequence of int
    limit : int
        At least 1; a selection is one whole run along some axis.

    Yields
    ------
    tuple of int and slice
        Selects memory without gaps in a C-contiguous array of this shape.

    Examples
    --------
    >>> list(blocks((2, 3, 4), 8))
    [(0, slice(0, 2, None)), (0, slice(2, 3, None)), (1, slice(0, 2, None)), (1, slice(2, 3, None))]
    """
    axis, run = len(shape) - 1, 1
    while axis > 0 and run * shape[axis] <= limit:
        run *= shape[axis]
        axis -= 1
    step = max(1, limit // max(1, run))
    for outer in itertools.product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, min(start + step, shape[axis])))


def copy_runs(target: np.ndarray, source: np.ndarray) -> None:
    """``target[...] = source`` for many short contiguous runs along the last axes.

    Moving a run as one opaque item is about twice as fast as numpy's loop over its few numbers. Falls back to the plain
    copy where the numbers are few, the runs are not contiguous or the types differ.

    Parameters
    ----------
    target, source : ndarray of the same shape

    Examples
    --------
    >>> target = np.zeros((2, 3))
    >>> copy_runs(target, np.arange(4.0)[[[0, 1, 2], [1, 2, 3]]])
    >>> target
    array([[0., 1., 2.],
           [1., 2., 3.]])
    """
    if target.size < _FEW:
        np.copyto(target, source)
        return
    axes, run = target.ndim, target.itemsize
    while axes and target.strides[axes - 1] == source.strides[axes - 1] == run:
        axes -= 1
        run *= target.shape[axes]
    if axes == target.ndim or target.dtype != source.dtype or run > 256:
        np.copyto(target, source)
        return
    item, shape = _item(run), (*target.shape[:axes], run // target.itemsize)
    np.copyto(target.reshape(shape).view(item), source.reshape(shape).view(item))


@functools.cache
def _item(size: int) -> np.dtype:
    """So many bytes as one opaque item."""
    return np.dtype((np.void, size))


def aligned(shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    """Uninitialised scratch memory that begins with a cache line.

    A vector instruction across two lines takes twice as long, and numpy's own memory is only aligned to 16 bytes.

    Parameters
    ----------
    shape : sequence of int
    dtype : data type

    Returns
    -------
    ndarray

    Examples
    --------
    >>> aligned((3, 4), np.float32).ctypes.data % 64
    0
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


class _Scratch(threading.local):
    pair = np.empty((2, 0), np.float32)


_KEPT = _Scratch()


def scratch(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of aligned float32 memory, this thread's until it asks again.

    Parameters
    ----------
    shape : sequence of int
        Of each.

    Returns
    -------
    ndarray, ndarray
        Uninitialised.

    Examples
    --------
    >>> first, second = scratch((5, 2))
    >>> first.shape, np.shares_memory(first, scratch((3,))[0])
    ((5, 2), True)
    """
    count = math.prod(shape)
    if _KEPT.pair.shape[1] < count:
        _KEPT.pair = aligned((2, max(count + -count % 16, 1 << 12)), np.float32)
    first, second = _KEPT.pair
    return first[:count].reshape(shape), second[:count].reshape(shape)


@contextlib.contextmanager
def small_buffers() -> Iterator[None]:
    """Within it, this thread's numpy works in place on runs from 512 numbers on.

    Where the operands of an operation are not one run (strided rows, a broadcast row), numpy copies them through
    buffers of 8192 numbers unless the runs have more than half of that, which doubles the time of cheap operations.

    Examples
    --------
    >>> with small_buffers():
    ...     np.getbufsize()
    1024
    >>> np.getbufsize()
    8192
    """
    before = np.setbufsize(1024)
    try:
        yield
    finally:
        np.setbufsize(before)
