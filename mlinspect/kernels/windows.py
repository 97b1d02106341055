"""Sliding windows of images and volumes, as views."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

Pads = Sequence[tuple[int, int]]
NO_PADDING: Pads = ((0, 0), (0, 0))


def output_size(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Pads, dilation: Sequence[int]
) -> tuple[int, ...]:
    """How often a (dilated) kernel fits along each axis of a padded image.

    Parameters
    ----------
    size, kernel, stride, dilation : sequence of int
        By spatial axis.
    padding : sequence of (int, int)
        Cells before and after, by spatial axis.

    Returns
    -------
    tuple of int

    Raises
    ------
    ValueError
        The kernel is larger than the padded image, or a stride, dilation or padding makes no sense.

    Examples
    --------
    >>> output_size((224, 224), (3, 3), (2, 2), ((0, 1), (0, 1)), (1, 1))
    (112, 112)
    """
    axes = zip(size, kernel, stride, padding, dilation, strict=True)
    return tuple([_positions(n, k, s, before, after, d) for n, k, s, (before, after), d in axes])


@functools.cache
def _positions(n: int, k: int, s: int, before: int, after: int, d: int) -> int:
    """:func:`output_size` along one axis."""
    if min(k, s, d) < 1 or min(before, after) < 0:
        raise ValueError(f"kernel {k}, stride {s}, dilation {d}, padding {before}, {after}: too small")
    room = n + before + after - (k - 1) * d - 1
    if room < 0:
        raise ValueError(f"a kernel of {k}, dilated by {d}, does not fit into {n} cells padded by {before}, {after}")
    return room // s + 1


def pad_zero(x: np.ndarray, padding: Pads) -> np.ndarray:
    """Zeros around the spatial axes of ``[N, *spatial, C]``; `x` itself when there is nothing to add.

    Parameters
    ----------
    x : ndarray
    padding : sequence of (int, int)
        Cells before and after, by spatial axis.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> pad_zero(np.ones((1, 1, 2, 1)), ((0, 0), (1, 0))).ravel()
    array([0., 1., 1.])
    """
    if not any(map(any, padding)):
        return x
    shape, inside = _frame(x.shape, tuple(map(tuple, padding)))
    padded = np.zeros(shape, x.dtype)
    padded[inside] = x
    return padded


@functools.lru_cache(4096)
def _frame(shape: tuple[int, ...], padding: Pads) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The shape of a padded image, and where in it the image lies."""
    axes = list(zip(shape[1:-1], padding, strict=True))
    padded = (shape[0], *(n + before + after for n, (before, after) in axes), shape[-1])
    return padded, (slice(None), *(slice(before, before + n) for n, (before, _) in axes))


def windows(
    x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> np.ndarray:
    """Every window of an image as a view of its memory, not to be written to (of a copy, if `x` is not contiguous).

    Parameters
    ----------
    x : ndarray, shape (N, *spatial, C)
        Already padded.
    kernel, stride, dilation, out : sequence of int
        By spatial axis; `out` is :func:`output_size` of them.

    Returns
    -------
    ndarray, shape (N, *out, *kernel, C)

    Examples
    --------
    >>> windows(np.arange(5).reshape(1, 5, 1), (2,), (1,), (2,), (3,))[0, ..., 0]
    array([[0, 2],
           [1, 3],
           [2, 4]])
    """
    x = np.ascontiguousarray(x)
    if max(kernel) == 1 and tuple(out) == x.shape[1:-1]:
        return x.reshape(x.shape[0], *out, *kernel, x.shape[-1])
    shape, strides = _overlap(x.shape, x.strides, tuple(kernel), tuple(stride), tuple(dilation), tuple(out))
    # what as_strided does, in a tenth of its time; it checks that the view stays inside
    return np.ndarray(shape, x.dtype, x, 0, strides)


@functools.lru_cache(4096)
def _overlap(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    out: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of :func:`windows`."""
    needed = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, stride, kernel, dilation, strict=True)]
    if any(n > there for n, there in zip(needed, shape[1:-1], strict=True)):
        raise ValueError(f"{out} windows of {kernel} do not fit into {shape}")
    batch, *steps, channel = strides
    moves = [step * s for step, s in zip(steps, stride, strict=True)]
    reaches = [step * d for step, d in zip(steps, dilation, strict=True)]
    return (shape[0], *out, *kernel, shape[-1]), (batch, *moves, *reaches, channel)


def taps(
    image: np.ndarray, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The cells that each tap of a kernel meets in all windows, tap after tap.

    Parameters
    ----------
    image : ndarray, shape (N, H, W, C)
        Already padded.
    kernel, stride, dilation, out : (int, int)
        As for :func:`windows`.

    Yields
    ------
    tap : (int, int)
    cells : ndarray, shape (N, *out, C)
        A view: what is written to it is written to `image`.

    Examples
    --------
    >>> [cells.ravel().tolist() for _, cells in taps(np.arange(4).reshape(1, 1, 4, 1), (1, 2), (1, 2), (1, 1), (1, 2))]
    [[0, 2], [1, 3]]
    """
    (stride_y, stride_x), (step_y, step_x), (height, width) = stride, dilation, out
    for ky, kx in itertools.product(*map(range, kernel)):
        rows = slice(ky * step_y, ky * step_y + (height - 1) * stride_y + 1, stride_y)
        columns = slice(kx * step_x, kx * step_x + (width - 1) * stride_x + 1, stride_x)
        yield (ky, kx), image[:, rows, columns]
