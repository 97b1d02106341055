"""Depthwise convolution that adds products while it makes them: quicker, in another order than Arm NN's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from mlinspect.kernels.windows import NO_PADDING, Pads, output_size, pad_zero

_BLOCK = 1 << 16  # output numbers that stay in the cache from column to column


def spread_taps(weights: np.ndarray, width: int) -> np.ndarray:
    """Filters repeated along a row of the output, as :func:`depthwise_conv2d_fused` takes them.

    Parameters
    ----------
    weights : ndarray of float32, shape (KH, KW, C)
    width : int
        Of the output.

    Returns
    -------
    ndarray of float32, shape (KW, KH, width * C)

    Examples
    --------
    >>> spread_taps(np.float32([[[1, 2]]]), 2)
    array([[[1., 2., 1., 2.]]], dtype=float32)
    """
    return np.tile(weights.swapaxes(0, 1), (1, 1, width))


def depthwise_conv2d_fused(
    x: np.ndarray,
    taps: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
) -> np.ndarray:
    """Convolution of every channel by itself, with a stride along y only.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
    taps : ndarray of float32
        Of :func:`spread_taps`.
    bias : ndarray of float32, shape (OW * C,), optional
        Repeated as the taps are.
    stride : (int, 1)
        Along y and x.
    padding : ((top, bottom), (left, right))
    dilation : (int, int)

    Returns
    -------
    ndarray of float32, shape (N, OH, OW, C)
        As :func:`mlinspect.kernels.depthwise.depthwise_conv2d` up to rounding; products of whole numbers are as exact.

    Raises
    ------
    ValueError
        A stride along x.

    Notes
    -----
    MindSpore Lite ``Conv2DFusion``, whose x86 kernels fuse, too. einsum adds products to its output without storing
    them, which halves the passes over memory; one call does all taps.

    Examples
    --------
    >>> x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    >>> taps = spread_taps(np.ones((2, 2, 2), np.float32), 1)
    >>> depthwise_conv2d_fused(x, taps).ravel()
    array([12., 16.], dtype=float32)
    """
    if stride[1] != 1:
        raise ValueError(f"depthwise_conv2d_fused knows no stride along x, not {stride[1]}: use depthwise_conv2d")
    columns, rows, run = taps.shape
    batch, below, _, channels = x.shape
    height, width = output_size(x.shape[1:3], (rows, columns), stride, padding, dilation)
    above, beside = padding
    top = above[0]
    bands = _bands(height, below, rows, stride[0], top, dilation[0], max(1, _BLOCK // run))
    if 2 * sum(count * (last - first) for _, count, first, last in bands) > height * rows:
        # few taps miss the image: rows of zeros cost less than calls for a row or two
        top, below = 0, below + sum(above)
        bands = _bands(height, below, rows, stride[0], top, dilation[0], max(1, _BLOCK // run))
        x = pad_zero(x, padding)
    else:
        x = pad_zero(x, ((0, 0), beside))
    image = np.ascontiguousarray(x)
    pitch, size = image.strides[1], image.itemsize
    out = np.empty((batch, height, width, channels), np.float32)
    for n in range(batch):
        for start, count, first, last in bands:
            target = out[n, start : start + count].reshape(count, run)
            if first >= last:
                target[...] = 0
            else:
                begin = n * image.strides[0] + (start * stride[0] - top + first * dilation[0]) * pitch
                strides = (dilation[1] * channels * size, pitch * dilation[0], pitch * stride[0], size)
                seen: np.ndarray = np.ndarray((columns, last - first, count, run), np.float32, image, begin, strides)
                np.einsum("ckrn,ckn->rn", seen, taps[:, first:last], out=target)
            if bias is not None:
                target += bias
    return out


@cache
def _bands(
    height: int, below: int, rows: int, stride: int, top: int, dilation: int, most: int
) -> tuple[tuple[int, int, int, int], ...]:
    """Runs of output rows that the same taps meet the image in: (first row, how many, first tap, end of taps)."""
    found: list[tuple[int, int, int, int]] = []
    for row in range(height):
        y = row * stride - top
        first, last = max(0, -(y // dilation)), min(rows, (below - 1 - y) // dilation + 1)
        if found and found[-1][2:] == (first, last) and found[-1][1] < most:
            found[-1] = (found[-1][0], found[-1][1] + 1, first, last)
        else:
            found.append((row, 1, first, last))
    return tuple(found)
