"""Gradients of windowed layers: convolution and pooling, by filter tap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.kernels.conv_transpose import conv2d_transpose
from mlinspect.kernels.windows import NO_PADDING, Pads, pad_zero, taps

_F = np.float32


def conv2d_input(
    dy: np.ndarray,
    weights: np.ndarray,
    size: Sequence[int],
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
) -> np.ndarray:
    """The gradient of a convolution by its input.

    Parameters
    ----------
    dy : ndarray of float32, shape (N, OH, OW, O)
        Gradient by the output.
    weights : ndarray of float32, shape (O, KH, KW, C / groups)
    size : (int, int)
        Height and width of the input.
    stride, padding, dilation
        Of the convolution.

    Returns
    -------
    ndarray of float32, shape (N, *size, C)

    Notes
    -----
    MindSpore Lite ``Conv2DBackpropInputFusion``, for one group of channels.

    Examples
    --------
    >>> conv2d_input(np.ones((1, 2, 2, 1), np.float32), np.ones((1, 2, 2, 1), np.float32), (3, 3))[0, :, :, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float32)
    """
    full = [
        (n - 1) * s + (k - 1) * d + 1
        for n, k, s, d in zip(dy.shape[1:3], weights.shape[1:3], stride, dilation, strict=True)
    ]
    more = [want + sum(pads) - have for want, pads, have in zip(size, padding, full, strict=True)]
    swapped = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))
    return conv2d_transpose(dy, swapped, stride=stride, padding=padding, dilation=dilation, output_padding=more)


def conv2d_filter(
    dy: np.ndarray,
    x: np.ndarray,
    kernel: Sequence[int],
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """The gradient of a convolution by its filters.

    Parameters
    ----------
    dy : ndarray of float32, shape (N, OH, OW, O)
    x : ndarray of float32, shape (N, H, W, C)
    kernel : (int, int)
    stride, padding, dilation
        Of the convolution.
    groups : int

    Returns
    -------
    ndarray of float32, shape (O, *kernel, C / groups)

    Notes
    -----
    MindSpore Lite ``Conv2DBackpropFilterFusion``.

    Examples
    --------
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    >>> conv2d_filter(np.ones((1, 1, 2, 1), np.float32), x, (2, 1))[0, :, :, 0]
    array([[1.],
           [5.]], dtype=float32)
    """
    filters, channels = dy.shape[3] // groups, x.shape[3] // groups
    left = dy.reshape(-1, groups, filters).transpose(1, 2, 0)
    image = pad_zero(x, padding)
    out = np.empty((groups, filters, *kernel, channels), _F)
    for (ky, kx), cells in taps(image, kernel, stride, dilation, dy.shape[1:3]):
        right = cells.reshape(-1, groups, channels).swapaxes(0, 1)
        out[:, :, ky, kx] = left @ right
    return out.reshape(groups * filters, *kernel, channels)


def max_pool(
    x: np.ndarray, dy: np.ndarray, window: Sequence[int], stride: Sequence[int], padding: Pads = NO_PADDING
) -> np.ndarray:
    """The gradient of maximum pooling: all goes to the first largest cell of every window.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
    dy : ndarray of float32, shape (N, OH, OW, C)
    window, stride : (int, int)
    padding : ((top, bottom), (left, right))

    Returns
    -------
    ndarray of float32, shape of `x`

    Notes
    -----
    MindSpore Lite ``MaxPoolGrad``.

    Examples
    --------
    >>> x = np.float32([3, 1, 3, 5]).reshape(1, 1, 4, 1)
    >>> max_pool(x, np.ones((1, 1, 2, 1), np.float32), (1, 2), (1, 2)).ravel()
    array([1., 0., 0., 1.], dtype=float32)
    """
    lowest = np.finfo(_F).min
    image = np.full((len(x), *_padded(x, dy, window, stride, padding), x.shape[3]), lowest, _F)
    (top, _), (left, _) = padding
    inside = (slice(None), slice(top, top + x.shape[1]), slice(left, left + x.shape[2]))
    image[inside] = x
    best = np.full(dy.shape, lowest, _F)
    winner = np.zeros(dy.shape, np.int32)
    for i, (_, cells) in enumerate(taps(image, window, stride, (1, 1), dy.shape[1:3])):
        larger = cells > best
        best[larger], winner[larger] = cells[larger], i
    dx = np.zeros_like(image)
    for i, (_, cells) in enumerate(taps(dx, window, stride, (1, 1), dy.shape[1:3])):
        cells += np.where(winner == i, dy, _F(0))
    return np.ascontiguousarray(dx[inside])


def average_pool(
    size: Sequence[int], dy: np.ndarray, window: Sequence[int], stride: Sequence[int], padding: Pads = NO_PADDING
) -> np.ndarray:
    """The gradient of average pooling: every cell of a window gets an equal share, padding included.

    Parameters
    ----------
    size : (int, int)
        Height and width of the input.
    dy : ndarray of float32, shape (N, OH, OW, C)
    window, stride : (int, int)
    padding : ((top, bottom), (left, right))

    Returns
    -------
    ndarray of float32, shape (N, *size, C)

    Notes
    -----
    MindSpore Lite ``AvgPoolGrad``, which divides by the window's whole area.

    Examples
    --------
    >>> average_pool((1, 3), np.float32([2, 4]).reshape(1, 1, 2, 1), (1, 2), (1, 1)).ravel()
    array([1., 3., 2.], dtype=float32)
    """
    like = np.empty((1, *size, 1))
    dx = np.zeros((len(dy), *_padded(like, dy, window, stride, padding), dy.shape[3]), _F)
    share = dy * _F(1 / (window[0] * window[1]))
    for _, cells in taps(dx, window, stride, (1, 1), dy.shape[1:3]):
        cells += share
    (top, _), (left, _) = padding
    return np.ascontiguousarray(dx[:, top : top + size[0], left : left + size[1]])


def _padded(
    x: np.ndarray, dy: np.ndarray, window: Sequence[int], stride: Sequence[int], padding: Pads
) -> tuple[int, ...]:
    """Height and width that hold the padded input and every window."""
    return tuple(
        max(n + sum(pads), (m - 1) * s + w)
        for n, m, w, s, pads in zip(x.shape[1:3], dy.shape[1:3], window, stride, padding, strict=True)
    )
