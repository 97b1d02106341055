"""Convolution of images and volumes as matrix products over their windows (im2col).

One code for float32 and integers: see :func:`mlinspect.kernels.matmul.exactness`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mlinspect.kernels.matmul import exactness, multiply
from mlinspect.kernels.memory import blocks, copy_runs
from mlinspect.kernels.summation import Approximate, approximate
from mlinspect.kernels.windows import NO_PADDING, Pads, output_size, pad_zero, windows

_F = np.float32
_PATCHES = 1 << 18  # numbers of gathered windows that stay in the second-level cache


def conv2d(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Convolution (cross-correlation) of images.

    Parameters
    ----------
    x : ndarray of float32 or integers, shape (N, H, W, C)
    weights : ndarray of the same kind, shape (O, KH, KW, C / groups)
    bias : ndarray, shape (O,), optional
    stride, dilation : (int, int)
        Along y and x.
    padding : ((top, bottom), (left, right))
        Zeros around the image.
    groups : int
        Output channels ``g * O / groups ...`` see input channels ``g * C / groups ...`` only.

    Returns
    -------
    ndarray, shape (N, OH, OW, O)
        float32; for integers (zero points already subtracted) the exact int32 accumulators, bias included.

    Raises
    ------
    ValueError
        Shapes or types do not fit together.

    Notes
    -----
    Arm NN ``Convolution2d``, MindSpore Lite ``Conv2DFusion``.

    Examples
    --------
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> conv2d(x, np.ones((1, 2, 2, 1), np.float32))[0, :, :, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    >>> conv2d(x.astype(np.int8), np.full((1, 3, 3, 1), 2, np.int8), np.int32([1])).ravel()
    array([73], dtype=int32)
    """
    return _convolve(x, weights, bias, stride, padding, dilation, groups)


def conv2d_approximate(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Approximate:
    """:func:`conv2d` of float32, with what :func:`~mlinspect.kernels.summation.settle` needs to know.

    Parameters
    ----------
    x, weights, bias, stride, padding, dilation, groups
        As for :func:`conv2d`, of float32.

    Returns
    -------
    Approximate

    Notes
    -----
    Arm NN ``Convolution2d`` sums over input channel, filter row, filter column; the bias comes last.

    Examples
    --------
    >>> x = np.float32([1e8, 1, -1e8, 1]).reshape(1, 2, 2, 1)
    >>> conv2d_approximate(x, np.ones((1, 2, 2, 1), np.float32)).at(np.array([0]))
    array([1.], dtype=float32)
    """
    return _approximate(x, weights, bias, stride, padding, dilation, groups, order=(3, 1, 2))


def conv3d(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1, 1),
    padding: Pads = (*NO_PADDING, (0, 0)),
    dilation: Sequence[int] = (1, 1, 1),
) -> np.ndarray:
    """Convolution (cross-correlation) of volumes.

    Parameters
    ----------
    x : ndarray of float32 or integers, shape (N, D, H, W, C)
    weights : ndarray of the same kind, shape (KD, KH, KW, C, O)
    bias : ndarray, shape (O,), optional
    stride, dilation : (int, int, int)
        Along z, y and x.
    padding : ((front, back), (top, bottom), (left, right))

    Returns
    -------
    ndarray, shape (N, OD, OH, OW, O)
        float32; for integers the exact int32 accumulators, bias included.

    Raises
    ------
    ValueError
        Shapes or types do not fit together.

    Notes
    -----
    Arm NN ``Convolution3d``.

    Examples
    --------
    >>> x = np.ones((1, 2, 2, 2, 1), np.float32)
    >>> conv3d(x, np.ones((2, 2, 2, 1, 1), np.float32)).ravel()
    array([8.], dtype=float32)
    """
    return _convolve(x, np.moveaxis(weights, -1, 0), bias, stride, padding, dilation, 1)


def conv3d_approximate(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1, 1),
    padding: Pads = (*NO_PADDING, (0, 0)),
    dilation: Sequence[int] = (1, 1, 1),
) -> Approximate:
    """:func:`conv3d` of float32, with what :func:`~mlinspect.kernels.summation.settle` needs to know.

    Parameters
    ----------
    x, weights, bias, stride, padding, dilation
        As for :func:`conv3d`, of float32.

    Returns
    -------
    Approximate

    Notes
    -----
    Arm NN ``Convolution3d`` sums over z, y, x of the filter, then the input channel; the bias comes last.

    Examples
    --------
    >>> x = np.float32([1e8, 1, -1e8, 1]).reshape(1, 1, 2, 2, 1)
    >>> conv3d_approximate(x, np.ones((1, 2, 2, 1, 1), np.float32)).at(np.array([0]))
    array([1.], dtype=float32)
    """
    return _approximate(x, np.moveaxis(weights, -1, 0), bias, stride, padding, dilation, 1, order=(1, 2, 3, 4))


def _windows(
    x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], padding: Pads, dilation: Sequence[int]
) -> np.ndarray:
    """All windows ``[N, *out, *kernel, C]`` of an image."""
    if max(kernel) == max(stride) == 1 and not any(map(any, padding)):
        return x.reshape(*x.shape[:-1], *kernel, x.shape[-1])
    out = output_size(x.shape[1:-1], kernel, stride, padding, dilation)
    return windows(pad_zero(x, padding), kernel, stride, dilation, out)


def _convolve(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Gather windows, block by block, and multiply by the filters ``[O, *kernel, C / groups]``."""
    check_filters(x, weights, groups)
    filters, *kernel, channels = weights.shape
    depth = math.prod(kernel) * channels
    matrix = weights.reshape(groups, filters // groups, depth).swapaxes(1, 2)
    dtype, exact_depth, out_dtype = exactness(x, matrix)
    matrix = matrix.astype(dtype, copy=False)
    view = _windows(x, kernel, stride, padding, dilation)
    positions = view.shape[: x.ndim - 1]
    out = np.empty((*positions, filters), out_dtype)
    limit = max(1, _PATCHES // (groups * depth))
    as_is = groups == 1 and x.dtype == dtype and view.flags.c_contiguous  # 1 x 1
    gathered = np.empty(0 if as_is else min(limit, math.prod(positions)) * groups * depth, dtype)
    for block in blocks(positions, limit):
        patches, target = view[block], out[block].reshape(-1, groups, filters // groups)
        count = len(target)
        if as_is:
            left = patches.reshape(1, count, depth)
        else:
            left = gathered[: count * groups * depth].reshape(groups, count, depth)
            split = by_group(patches, groups, 0) if groups > 1 else patches[None]
            copy_runs(left.reshape(groups, *patches.shape[:-1], channels), split)
        multiply(left, matrix, target.swapaxes(0, 1), exact_depth)
        if bias is not None:
            target += bias.reshape(groups, -1)
    return out


def check_filters(x: np.ndarray, weights: np.ndarray, groups: int) -> None:
    """Check that an input fits filters.

    Parameters
    ----------
    x : ndarray, shape (N, *spatial, C)
    weights : ndarray, shape (O, *kernel, C / groups)
    groups : int

    Raises
    ------
    ValueError
        Dimensions or channels do not fit, or the filters cannot be shared out to the groups.
    """
    if x.ndim != weights.ndim or x.shape[-1] != weights.shape[-1] * groups or weights.shape[0] % groups:
        raise ValueError(
            f"input {x.shape} does not fit {weights.shape[0]} filters of {weights.shape[1:]} in {groups} groups"
        )


def by_group(x: np.ndarray, groups: int, axis: int) -> np.ndarray:
    """Split the channels into groups.

    Parameters
    ----------
    x : ndarray, shape (..., C)
    groups : int
    axis : int
        Where the axis of groups goes, among the leading axes.

    Returns
    -------
    ndarray, a view
        ``x.ndim + 1`` axes, of which the last has ``C / groups`` channels.

    Examples
    --------
    >>> by_group(np.arange(4).reshape(1, 4), 2, 0).tolist()
    [[[0, 1]], [[2, 3]]]
    """
    split = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    order = list(range(x.ndim - 1))
    order.insert(axis, x.ndim - 1)
    return split.transpose(*order, x.ndim)


def _approximate(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
    groups: int,
    order: Sequence[int],
) -> Approximate:
    """As :func:`_convolve`; `order` gives the axes of ``[n, *kernel, C]`` from the outermost loop to the innermost."""
    value = _convolve(x, weights, bias, stride, padding, dilation, groups)
    filters, *kernel, channels = weights.shape
    depth = math.prod(kernel) * channels

    def squares() -> tuple[np.ndarray, np.ndarray]:
        cells = _windows(sum_squares(x, groups), kernel, stride, padding, dilation)
        total = np.zeros((*value.shape[:-1], groups), _F)
        for tap in np.ndindex(*kernel):
            total += cells[(..., *tap, slice(None))]
        return total.reshape(-1, groups), sum_squares(weights.reshape(1, filters, -1), 1).reshape(1, filters)

    @functools.cache
    def by_position() -> np.ndarray:
        return by_group(_windows(x, kernel, stride, padding, dilation), groups, x.ndim - 1)

    def terms(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        *position, o = np.unravel_index(index, value.shape)
        return by_position()[*position, o // (filters // groups)], weights[o]

    return approximate(value, bias, depth, (x, weights), squares, terms, order)


def sum_squares(x: np.ndarray, groups: int) -> np.ndarray:
    """Sums of squares over the channels of each group.

    Parameters
    ----------
    x : ndarray of float32, shape (N, *spatial, C)
    groups : int

    Returns
    -------
    ndarray of float32, shape (N, *spatial, groups)

    Examples
    --------
    >>> sum_squares(np.float32([[1, 2, 3, 4]]), 2)
    array([[ 5., 25.]], dtype=float32)
    """
    rows = x.reshape(-1, x.shape[-1] // groups)
    if rows.shape[1] >= 32:
        out = np.vecdot(rows, rows)
    else:  # too short for a call each
        out, ones = np.empty(len(rows), _F), np.ones(rows.shape[1], _F)
        for (block,) in blocks((len(rows),), 1 << 15):
            np.matmul(np.square(rows[block]), ones, out=out[block])
    return out.reshape(*x.shape[:-1], groups)
