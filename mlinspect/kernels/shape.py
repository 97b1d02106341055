"""Padding, joining and rearranging. Values are moved, never computed, so any type may be passed, stored numbers too.

What numpy does in one call (concatenate, stack, transpose, tile, expand_dims, squeeze, broadcast_to, where, full, flip)
the callers call themselves. A result that is a view of an operand says so; nobody may write to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.typing import ArrayLike, DTypeLike

from mlinspect.kernels.slice import box


def along(vector: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A vector as an array of `ndim` dimensions that broadcasts along `axis`: a view.

    Parameters
    ----------
    vector : ndarray, shape (n,)
    axis : int
        Negative axes count from the end.
    ndim : int

    Returns
    -------
    ndarray, shape (1, ..., n, ..., 1)

    Examples
    --------
    >>> along(np.array([1, 2, 3]), -2, 3).shape
    (1, 3, 1)
    """
    return vector.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])


def pad(
    x: np.ndarray, pads: Sequence[Sequence[int]], mode: str = "constant", value: float | np.generic = 0
) -> np.ndarray:
    """Add elements around a tensor.

    Parameters
    ----------
    x : ndarray
    pads : sequence of (before, after), one a dimension
    mode : {"constant", "reflect", "symmetric"}
        ``reflect`` mirrors without repeating the border element, ``symmetric`` repeats it.
    value : number
        Stands in the new places in constant mode. For a quantised output Arm NN takes it as the stored number itself
        (rounded and clamped, without scale and offset): pad the encoded body with ``quantize(value, 1, 0, dtype)``.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> pad(np.array([1, 2, 3]), [(1, 2)]), pad(np.array([1, 2, 3]), [(1, 2)], "reflect")
    (array([0, 1, 2, 3, 0, 0]), array([2, 1, 2, 3, 2, 1]))
    """
    if mode != "constant":
        return np.pad(x, pads, mode)  # type: ignore[call-overload]
    out = np.full([before + n + after for n, (before, after) in zip(x.shape, pads, strict=True)], value, x.dtype)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pads, strict=True))] = x
    return out


def concat_views(arrays: Sequence[np.ndarray], origins: Sequence[Sequence[int]], shape: Sequence[int]) -> np.ndarray:
    """Place arrays at their origins in one tensor; where they overlap the first wins (Arm NN's Concat).

    Parameters
    ----------
    arrays : sequence of ndarray of one type
    origins : sequence of index tuples, one an array
    shape : shape of the result
        Places that no array covers are 0.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> concat_views([np.array([1, 2]), np.array([8, 9])], [(1,), (2,)], (5,))
    array([0, 1, 2, 9, 0])
    """
    out = np.zeros(shape, arrays[0].dtype)
    for array, origin in zip(reversed(arrays), reversed(origins), strict=True):
        out[tuple(slice(o, o + n) for o, n in zip(origin, array.shape, strict=True))] = array
    return out


def split_views(x: np.ndarray, origins: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Boxes of a tensor by origin and size (Arm NN's Splitter): views.

    Parameters
    ----------
    x : ndarray
    origins, sizes : sequence of index tuples, one a result

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> split_views(np.array([1, 2, 3]), [(0,), (1,)], [(1,), (2,)])
    [array([1]), array([2, 3])]
    """
    return [box(x, origin, size) for origin, size in zip(origins, sizes, strict=True)]


def split(x: np.ndarray, sizes: Sequence[int], axis: int, count: int = 0) -> list[np.ndarray]:
    """Cut a tensor along one axis (MindSpore Lite's Split): views.

    Parameters
    ----------
    x : ndarray
    sizes : sequence of int
        Length of each part; one may be -1, the rest. Empty: `count` equal parts.
    axis : int
    count : int

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> split(np.array([1, 2, 3, 4]), [1, -1], 0)
    [array([1]), array([2, 3, 4])]
    """
    if not len(sizes):
        return np.split(x, count, axis)
    rest = x.shape[axis] - sum(n for n in sizes if n > 0)
    return np.split(x, np.cumsum([rest if n < 0 else n for n in sizes])[:-1], axis)


def split_with_overlap(
    x: np.ndarray, ratio: Sequence[int], extend_top: Sequence[int], extend_bottom: Sequence[int], axis: int
) -> list[np.ndarray]:
    """Cut a tensor in proportion to `ratio`, each part a little longer at both ends (MindSpore Lite): views.

    Parameters
    ----------
    x : ndarray
    ratio, extend_top, extend_bottom : sequence of int, one a part
        Border i lies at ``ceil(length * sum(ratio[:i]) / sum(ratio))``.
    axis : int

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> split_with_overlap(np.arange(5), [1, 1], [0, 1], [1, 0], 0)
    [array([0, 1, 2, 3]), array([2, 3, 4])]
    """
    length, total = x.shape[axis], sum(ratio)
    borders = [-(-length * sum(ratio[:i]) // total) for i in range(len(ratio) + 1)]
    moved = np.moveaxis(x, axis, 0)
    return [
        np.moveaxis(moved[borders[i] - top : borders[i + 1] + bottom], 0, axis)
        for i, (top, bottom) in enumerate(zip(extend_top, extend_bottom, strict=True))
    ]


def permute(x: np.ndarray, mappings: Sequence[int]) -> np.ndarray:
    """Move axis ``i`` to place ``mappings[i]`` (Arm NN's Permute, the inverse of numpy's transpose): a view.

    Parameters
    ----------
    x : ndarray
    mappings : sequence of int

    Returns
    -------
    ndarray

    Examples
    --------
    >>> permute(np.zeros((2, 3, 4)), (0, 2, 1)).shape, permute(np.zeros((2, 3, 4)), (1, 2, 0)).shape
    ((2, 4, 3), (4, 2, 3))
    """
    return np.transpose(x, np.argsort(mappings))


def channel_shuffle(x: np.ndarray, groups: int, axis: int) -> np.ndarray:
    """Interleave the channels of `groups` equal runs (Arm NN's ChannelShuffle).

    Parameters
    ----------
    x : ndarray
    groups : int
        Divides the length of `axis`.
    axis : int

    Returns
    -------
    ndarray

    Examples
    --------
    >>> channel_shuffle(np.arange(6), 2, 0)
    array([0, 3, 1, 4, 2, 5])
    """
    length = x.shape[normalize_axis_index(axis, x.ndim)]
    return np.take(x, np.arange(length).reshape(groups, -1).T.ravel(), axis)


def reverse_sequence(x: np.ndarray, lengths: np.ndarray, seq_axis: int, batch_axis: int) -> np.ndarray:
    """Reverse the first ``lengths[n]`` steps of batch entry n, and keep the others (MindSpore Lite's ReverseSequence).

    Parameters
    ----------
    x : ndarray
    lengths : ndarray of int, shape (batch,)
    seq_axis, batch_axis : int

    Returns
    -------
    ndarray

    Examples
    --------
    >>> reverse_sequence(np.array([[1, 2, 3], [4, 5, 6]]), np.array([2, 3]), 1, 0)
    array([[2, 1, 3],
           [6, 5, 4]])
    """
    step = np.arange(x.shape[seq_axis])
    lengths = np.asarray(lengths)[:, None]
    source = np.where(step < lengths, lengths - 1 - step, step)
    # advanced indices at a distance land in front: (batch, step, others...)
    front = np.moveaxis(x, (batch_axis, seq_axis), (0, 1))
    return np.moveaxis(front[np.arange(len(lengths))[:, None], source], (0, 1), (batch_axis, seq_axis))


def one_hot(
    indices: np.ndarray,
    depth: int,
    on: ArrayLike,
    off: ArrayLike,
    axis: int = -1,
    wrap: bool = False,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """`on` where the place along a new axis equals the index, `off` elsewhere (MindSpore Lite's OneHot).

    Parameters
    ----------
    indices : ndarray of int
        One outside the range is `off` everywhere.
    depth : int
        Length of the new axis.
    axis : int
        Where the new axis goes.
    wrap : bool
        Negative indices count from the end: the runtime's form with three inputs.

    Returns
    -------
    ndarray of `dtype`

    Examples
    --------
    >>> one_hot(np.array([1, -1]), 3, 1, 0, dtype=int)
    array([[0, 1, 0],
           [0, 0, 0]])
    """
    indices = np.expand_dims(indices, axis)
    place = along(np.arange(depth), axis, indices.ndim)
    if wrap:
        indices = np.where(indices < 0, indices + depth, indices)
    return np.where(indices == place, np.asarray(on, dtype), np.asarray(off, dtype))


def arange(start: float, limit: float, delta: float, dtype: DTypeLike) -> np.ndarray:
    """``start, start + delta, ...`` below `limit`, adding up in `dtype` as MindSpore Lite's Range.

    Parameters
    ----------
    start, limit, delta : number
    dtype : int32 or float32

    Returns
    -------
    ndarray, shape (ceil((limit - start) / delta),)

    Examples
    --------
    >>> arange(1, 8, 3, np.int32)
    array([1, 4, 7], dtype=int32)
    """
    steps = np.full(max(math.ceil(np.float32(limit - start) / delta), 0), delta, dtype)
    steps[:1] = start
    return np.cumsum(steps, dtype=dtype)


def resolve_shape(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """A wanted shape with 0 (as in `shape`) and -1 (what remains) filled in (MindSpore Lite's Reshape).

    Parameters
    ----------
    shape, wanted : sequence of int

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> resolve_shape((2, 3, 4), (0, -1))
    (2, 12)
    """
    filled = [shape[i] if n == 0 and i < len(shape) else int(n) for i, n in enumerate(wanted)]
    known = math.prod(n for n in filled if n != -1)
    return tuple(math.prod(shape) // known if n == -1 and known else n for n in filled)
