"""Depthwise convolution, tap after tap over blocks of rows that stay in the cache."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mlinspect.kernels.memory import aligned, copy_runs, small_buffers
from mlinspect.kernels.windows import NO_PADDING, Pads, output_size

_F = np.float32
_BLOCK = 1 << 16  # output numbers a block
_LONG = 1024  # numbers that make an inner loop long enough


def depthwise_conv2d(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = NO_PADDING,
    dilation: Sequence[int] = (1, 1),
) -> np.ndarray:
    """Convolution of every channel by itself.

    Parameters
    ----------
    x : ndarray of float32 or integers, shape (N, H, W, C)
    weights : ndarray of the same kind, shape (KH, KW, C * M)
        Output channel ``c * M + m`` is the m-th of input channel ``c``.
    bias : ndarray, shape (C * M,), optional
    stride, dilation : (int, int)
        Along y and x.
    padding : ((top, bottom), (left, right))
        Zeros around the image.

    Returns
    -------
    ndarray, shape (N, OH, OW, C * M)
        float32; for integers (zero points already subtracted) the exact int32 accumulators, bias included.

    Raises
    ------
    ValueError
        Shapes or types do not fit together.

    Notes
    -----
    Arm NN ``DepthwiseConvolution2d``, MindSpore Lite ``Conv2DFusion`` with as many groups as channels. Products are
    added one after the other in float32 over filter row and filter column, then the bias: the order of Arm NN's
    reference backend, so that the result is its result, bit for bit, and needs no
    :func:`~mlinspect.kernels.summation.settle`.

    A multiplication and an addition a tap, both in place, beat einsum and batched products of small matrices on every
    shape of MobileNets; what costs is memory traffic, so it is kept inside the cache and in long runs.

    Examples
    --------
    >>> x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    >>> depthwise_conv2d(x, np.ones((2, 2, 2), np.float32), np.float32([0, 0.5])).ravel()
    array([12. , 16.5], dtype=float32)
    """
    rows, columns, filters = weights.shape
    batch, height, width, channels = x.shape
    if filters % channels:
        raise ValueError(f"{filters} filters cannot be shared out to {channels} channels")
    if x.dtype.kind != weights.dtype.kind and {x.dtype.kind, weights.dtype.kind} != {"i", "u"}:
        raise ValueError(f"cannot multiply {x.dtype} and {weights.dtype}: give float32 or integers")
    out_height, out_width = output_size((height, width), (rows, columns), stride, padding, dilation)
    dtype = np.dtype(_F if x.dtype.kind == "f" else np.int32)
    out = np.empty((batch, out_height, out_width, filters), dtype)
    with small_buffers():
        _run(x, weights, bias, out, stride, (padding[0][0], padding[1][0]), dilation)
    return out


def _run(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
    out: np.ndarray,
    stride: Sequence[int],
    begin: Sequence[int],
    dilation: Sequence[int],
) -> None:
    rows, columns, filters = weights.shape
    batch, out_height, width, _ = out.shape
    (stride_y, stride_x), (step_y, step_x), (top, left) = stride, dilation, begin

    # Columns of equal remainder modulo the stride lie side by side in the scratch image, so that what one tap needs of
    # a row is one run. The filters are repeated, pixel by pixel, until their runs are long, too.
    repeat = next(r for r in range(1, width + 1) if width % r == 0 and (r * filters >= _LONG or r == width))
    taps = np.tile(weights.astype(out.dtype, copy=False)[:, :, None], (1, 1, repeat, 1)).reshape(rows * columns, -1)
    # a sum starts from +0, so that one of nothing but -0 is +0
    last = np.zeros((), out.dtype) if bias is None else np.tile(bias + bias.dtype.type(0), repeat)
    block = min(out_height, max(1, _BLOCK // (width * filters)))
    pitch = (width + (columns - 1) * step_x // stride_x) * filters
    image = aligned(((block - 1) * stride_y + (rows - 1) * step_y + 1, stride_x, -(-pitch // 16) * 16), out.dtype)
    image[...] = 0
    total, product = aligned((2, block, width // repeat, repeat * filters), out.dtype)
    phases = sorted({kx * step_x % stride_x for kx in range(columns)})

    cells = []  # what each tap sees
    for ky, kx in np.ndindex(rows, columns):
        y, (shift, phase) = ky * step_y, divmod(kx * step_x, stride_x)
        row = slice(y, y + (block - 1) * stride_y + 1, stride_y)
        cells.append(image[row, phase, shift * filters : (shift + width) * filters].reshape(total.shape))

    for n, start in itertools.product(range(batch), range(0, out_height, block)):
        count = min(block, out_height - start)
        _load(image[..., :pitch], x[n], start * stride_y - top, phases, stride_x, left, filters)
        seen = cells if count == block else [rows_seen[:count] for rows_seen in cells]
        sums, products = total[:count], product[:count]
        np.multiply(seen[0], taps[0], out=sums)
        for pixels, tap in zip(seen[1:], taps[1:], strict=True):
            np.multiply(pixels, tap, out=products)
            np.add(sums, products, out=sums)
        target = out[n, start : start + count].reshape(sums.shape)
        np.add(sums, last, out=target)


def _load(
    image: np.ndarray, x: np.ndarray, first: int, phases: Sequence[int], stride: int, left: int, filters: int
) -> None:
    """Fill ``image[row, phase, column]`` from row `first` of ``x[H, W, C]`` on, a channel as often as it has filters.

    Columns outside `x` are zero from the start; only the rows outside change from block to block.
    """
    height, _, channels = x.shape
    begin = min(len(image), max(0, -first))
    end = max(begin, min(len(image), height - first))
    image[:begin] = 0
    image[end:] = 0
    for phase in phases:
        before = max(0, -((phase - left) // stride))  # columns of this phase left of `x`
        cells = x[first + begin : first + end, before * stride + phase - left :: stride]
        target = image[begin:end, phase, before * filters :]
        cells = cells[:, : target.shape[1] // filters]
        target = target[:, : cells.shape[1] * filters]
        if channels == filters:
            copy_runs(target.reshape(cells.shape), cells)
        else:
            np.copyto(target.reshape(*cells.shape, filters // channels), cells[..., None])
