"""Boxes of a tensor, with and without steps. Every result is a view: nobody may write to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def box(x: np.ndarray, begin: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """``size[i]`` elements from ``begin[i]`` along each axis (Slice of both runtimes).

    Parameters
    ----------
    x : ndarray
    begin, size : sequence of int, one a dimension
        A size of -1 reaches to the end (MindSpore Lite).

    Returns
    -------
    ndarray, a view

    Examples
    --------
    >>> box(np.arange(12).reshape(3, 4), (1, 1), (1, -1))
    array([[5, 6, 7]])
    """
    return x[tuple(slice(b, None if n < 0 else b + n) for b, n in zip(begin, size, strict=True))]


def crop(x: np.ndarray, shape: Sequence[int], offsets: Sequence[int], axis: int) -> np.ndarray:
    """The box of `shape` that starts at ``offsets[i]`` along ``axis + i`` (MindSpore Lite's Crop).

    Parameters
    ----------
    x : ndarray
    shape : sequence of int, one a dimension
    offsets : sequence of int
        Axes before `axis`, and those that `offsets` does not reach, start at 0.
    axis : int

    Returns
    -------
    ndarray, a view

    Examples
    --------
    >>> crop(np.arange(12).reshape(3, 4), (2, 2), [1], 0)
    array([[4, 5],
           [8, 9]])
    """
    axis %= x.ndim
    begin = [0] * axis + list(offsets)
    begin += [0] * (x.ndim - len(begin))
    return box(x, begin[: x.ndim], shape)


def strided_slice(
    x: np.ndarray,
    begin: Sequence[int],
    end: Sequence[int],
    stride: Sequence[int],
    begin_mask: int = 0,
    end_mask: int = 0,
    shrink_axis_mask: int = 0,
    new_axis_mask: int = 0,
    ellipsis_mask: int = 0,
    axes: Sequence[int] | None = None,
    clamp_begin: bool = False,
) -> np.ndarray:
    """From `begin` to before `end` in steps of `stride`, TensorFlow's StridedSlice (both runtimes).

    Bit i of a mask belongs to entry i of the three lists. Negative places count from the end; places beyond the ends
    are brought back to them. Axes without an entry are kept whole.

    Parameters
    ----------
    x : ndarray
    begin, end, stride : sequence of int
    begin_mask, end_mask : int
        Ignore this begin or end: go to the extreme that the stride's sign asks for.
    shrink_axis_mask : int
        Take the one element at `begin` and drop the axis.
    new_axis_mask : int
        Insert an axis of length 1 here (MindSpore Lite; Arm NN ignores the mask: do not pass it).
    ellipsis_mask : int
        Keep the axis whole. MindSpore Lite lets an ellipsis stand for exactly one axis; Arm NN ignores it.
    axes : sequence of int, optional
        Which axis each entry belongs to, in place of the first ones (MindSpore Lite's form with five inputs).
    clamp_begin : bool
        A begin beyond the first or last element counts as that element, whatever the stride's sign (Arm NN).

    Returns
    -------
    ndarray, a view
        Without dimensions when every axis was dropped (Arm NN then says shape [1]).

    Examples
    --------
    >>> x = np.arange(12).reshape(3, 4)
    >>> strided_slice(x, (2, 1), (0, 3), (-1, 1))
    array([[ 9, 10],
           [ 5,  6]])
    >>> strided_slice(x, (1, 0), (2, 0), (1, 2), end_mask=2, shrink_axis_mask=1)
    array([4, 6])
    """
    if axes is not None:
        given = {axis % x.ndim: entry for axis, *entry in zip(axes, begin, end, stride, strict=True)}
        begin, end, stride = zip(*(given.get(d, (0, n, 1)) for d, n in enumerate(x.shape)), strict=True)
    entries = range(len(begin))
    x = np.expand_dims(x, [i for i in entries if new_axis_mask >> i & 1])
    index: list[slice | int] = []
    for i in entries:
        n = x.shape[i]
        if (new_axis_mask | ellipsis_mask) >> i & 1:
            index.append(slice(None))
            continue
        down = stride[i] < 0
        first = (n - 1 if down else 0) if begin_mask >> i & 1 else begin[i]
        if shrink_axis_mask >> i & 1:
            index.append(min(max(first + n if first < 0 else first, 0), n - 1))
            continue
        last = (-n - 1 if down else n) if end_mask >> i & 1 else end[i]
        index.append(_range(n, first, last, stride[i], clamp_begin))
    return x[tuple(index)]


def _range(n: int, begin: int, end: int, stride: int, clamp_begin: bool) -> slice:
    """Python's slice of an axis of length `n`; ``end = -1 - n`` with a negative stride goes through index 0."""
    if clamp_begin:
        begin = max(min(begin, n - 1), -n)
    if stride < 0 and end < -n:
        return slice(begin, None, stride)
    return slice(begin, end, stride)
