"""Transposed convolution of images: every cell scatters its multiple of the filters.

One code for float32 and integers: see :func:`mlinspect.kernels.matmul.exactness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mlinspect.kernels.conv import by_group, check_filters, sum_squares
from mlinspect.kernels.matmul import exactness, multiply
from mlinspect.kernels.summation import Approximate, approximate
from mlinspect.kernels.windows import NO_PADDING, Pads

_F = np.float32


def conv2d_transpose(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
    output_padding: Sequence[int] = (0, 0),
    groups: int = 1,
) -> np.ndarray:
    """Transposed convolution: every input cell adds its multiple of the filters to the output.

    Cell ``(y, x)`` adds to ``(y * stride - top + ky * dilation, x * stride - left + kx * dilation)`` where that lies
    inside.

    Parameters
    ----------
    x : ndarray of float32 or integers, shape (N, H, W, C)
    weights : ndarray of the same kind, shape (O, KH, KW, C / groups)
        The order of :func:`conv2d`: output channels first.
    bias : ndarray, shape (O,), optional
    stride, dilation : (int, int)
    padding : ((top, bottom), (left, right))
        Cut off the full output.
    output_padding : (int, int)
        Rows and columns added at the bottom and the right of the output.
    groups : int

    Returns
    -------
    ndarray, shape (N, OH, OW, O)
        ``OH = (H - 1) * stride + (KH - 1) * dilation + 1 - top - bottom + output_padding``. float32; for integers the
        exact int32 accumulators, bias included.

    Raises
    ------
    ValueError
        Shapes or types do not fit together.

    Notes
    -----
    Arm NN ``TransposeConvolution2d``, MindSpore Lite ``Conv2dTransposeFusion``.

    Examples
    --------
    >>> x = np.float32([[1, 10]]).reshape(1, 1, 2, 1)
    >>> conv2d_transpose(x, np.ones((1, 1, 3, 1), np.float32), stride=(1, 2)).ravel()
    array([ 1.,  1., 11., 10., 10.], dtype=float32)
    """
    filters, *kernel, channels = weights.shape
    check_filters(x, weights, groups)
    matrix = weights.reshape(groups, filters // groups, -1, channels).transpose(2, 0, 3, 1)  # [taps, g, C / g, O / g]
    dtype, exact_depth, out_dtype = exactness(x, matrix)
    matrix = matrix.astype(dtype, copy=False)
    size = tuple(
        (n - 1) * s + (k - 1) * d + 1 - before - after + more
        for n, k, s, d, (before, after), more in zip(
            x.shape[1:-1], kernel, stride, dilation, padding, output_padding, strict=True
        )
    )
    if min(size) < 1:
        raise ValueError(f"padding {tuple(padding)} leaves nothing of a transposed convolution of {x.shape}")
    left = by_group(x.reshape(-1, x.shape[-1]), groups, 0).astype(dtype, copy=False)
    part = np.empty((*x.shape[:-1], filters), out_dtype)
    target = part.reshape(-1, groups, filters // groups).swapaxes(0, 1)

    def parts() -> Iterator[np.ndarray]:
        for tap in matrix:
            multiply(left, tap, target, exact_depth)
            yield part

    out = np.zeros((len(x), *size, filters), out_dtype)
    _scatter(parts(), out, kernel, stride, padding, dilation)
    if bias is not None:
        out += bias
    return out


def _scatter(
    parts: Iterable[np.ndarray],
    out: np.ndarray,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    dilation: Sequence[int],
) -> None:
    """Add ``[N, H, W, ...]``, one a tap, to where the tap sends the cells."""
    for tap, part in zip(np.ndindex(*kernel), parts, strict=True):
        source, target = [slice(None)], [slice(None)]
        for axis, (k, s, d, (before, _)) in enumerate(zip(tap, stride, dilation, padding, strict=True), 1):
            shift = k * d - before
            first = max(0, -(shift // s))
            stop = max(first, min(part.shape[axis], (out.shape[axis] - 1 - shift) // s + 1))
            source.append(slice(first, stop))
            begin = first * s + shift
            target.append(slice(begin, begin + max(0, (stop - first - 1) * s + 1), s))
        out[tuple(target)] += part[tuple(source)]


def conv2d_transpose_approximate(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
    output_padding: Sequence[int] = (0, 0),
    groups: int = 1,
) -> Approximate:
    """:func:`conv2d_transpose` of float32, with what :func:`~mlinspect.kernels.summation.settle` needs to know.

    Parameters
    ----------
    x, weights, bias, stride, padding, dilation, output_padding, groups
        As for :func:`conv2d_transpose`, of float32.

    Returns
    -------
    Approximate

    Notes
    -----
    Arm NN ``TransposeConvolution2d`` scatters input cell after input cell, so that an output element sums over input
    row, input column, input channel; the bias comes last.

    Examples
    --------
    >>> x = np.float32([1e8, 1, -1e8, 1]).reshape(1, 1, 4, 1)
    >>> conv2d_transpose_approximate(x, np.ones((1, 1, 4, 1), np.float32)).at(np.array([3]))
    array([1.], dtype=float32)
    """
    value = conv2d_transpose(
        x,
        weights,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=output_padding,
        groups=groups,
    )
    filters, *kernel, channels = weights.shape
    # input cells that may reach one output cell, along y and x
    reach = [-(-((k - 1) * d + 1) // s) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    depth = reach[0] * reach[1] * channels

    def squares() -> tuple[np.ndarray, np.ndarray]:
        cells, total = sum_squares(x, groups), np.zeros((*value.shape[:-1], groups), _F)
        _scatter([cells] * (kernel[0] * kernel[1]), total, kernel, stride, padding, dilation)
        return total.reshape(-1, groups), sum_squares(weights.reshape(1, filters, -1), 1).reshape(1, filters)

    cells = by_group(x, groups, 3)

    def along(axis: int, place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Input cells that may reach output cells, ascending, by which tap, and whether they do: each [n, reach]."""
        s, d, k = stride[axis], dilation[axis], kernel[axis]
        full = place + padding[axis][0]
        cell = (full // s)[:, None] - np.arange(reach[axis])[::-1]
        tap, between = np.divmod(full[:, None] - cell * s, d)
        meets = (between == 0) & (tap < k) & (cell >= 0) & (cell < x.shape[axis + 1])
        return np.where(meets, cell, 0), np.where(meets, tap, 0), meets

    def terms(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, y, x_, o = np.unravel_index(index, value.shape)
        row, ky, meets_y = (a[:, :, None] for a in along(0, y))
        column, kx, meets_x = (a[:, None, :] for a in along(1, x_))
        n, o = n[:, None, None], o[:, None, None]
        meets = (meets_y & meets_x)[..., None]  # what does not meet adds 0, be it infinite or not
        left, right = cells[n, row, column, o // (filters // groups)], weights[o, ky, kx]
        return np.where(meets, left, _F(0)), np.where(meets, right, _F(0))

    return approximate(value, bias, depth, (x, weights), squares, terms, (1, 2, 3))
