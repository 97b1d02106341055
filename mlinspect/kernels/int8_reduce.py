"""MindSpore Lite's int8 pooling, reductions, softmax, normalisation and resizing (``nnacl/int8``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.fixedpoint import (
    exp_on_negative_values,
    high_multiply,
    multiply,
    quantize_multiplier,
    reciprocal,
    rounding_shift,
    wrap32,
)
from mlinspect.kernels.int8 import VALUES, Affine, clamped
from mlinspect.kernels.libm import fmaf
from mlinspect.kernels.pool import fold_taps
from mlinspect.kernels.quantize import cast, lookup, round_half_away

_F = np.float32
_EPSILON = np.finfo(_F).eps


# ---- pooling ---------------------------------------------------------------------------------------------------------


def _rescaled(values: np.ndarray, q: Affine, out: Affine) -> np.ndarray:
    """Stored output of pooled values in input units; what does not fit int8 wraps, as the runtime's cast does."""
    factor = np.float64(_F(q.scale) / _F(out.scale))
    return cast(round_half_away((values - q.zero_point) * factor) + out.zero_point, np.int32).astype(np.int8)


def _fold(
    x: np.ndarray,
    window: Sequence[int],
    stride: Sequence[int],
    begin: Sequence[int],
    size: Sequence[int],
    combine: np.ufunc,
    initial: int,
) -> np.ndarray:
    """Rows, then columns: sums modulo 2**16 and maxima do not mind."""
    for i in (0, 1):
        x = fold_taps(x, (1 + i,), (window[i],), (stride[i],), (begin[i],), (size[i],), combine, initial)
    return x


def max_pool_int8(
    x: np.ndarray,
    window: Sequence[int],
    stride: Sequence[int],
    begin: Sequence[int],
    size: Sequence[int],
    q: Affine,
    out: Affine,
) -> np.ndarray:
    """MaxPoolFusion of int8 (``MaxPoolingOptInt8``, ``MaxPoolingWithQuantInt8``); activations are ignored.

    Parameters
    ----------
    x : ndarray of int8, shape (N, H, W, C)
    window, stride, begin, size : (int, int)
        Window, stride, padding before, number of windows, by axis (y, x).
    q, out : Affine

    Returns
    -------
    ndarray of int8, shape (N, *size, C)

    Examples
    --------
    >>> x = np.array([1, -5, 7, 2], np.int8).reshape(1, 2, 2, 1)
    >>> max_pool_int8(x, (1, 2), (1, 2), (0, 0), (2, 1), Affine(1, 0), Affine(1, 0)).ravel()
    array([1, 7], dtype=int8)
    """
    pooled = _fold(x, window, stride, begin, size, np.maximum, -128)
    if abs(_F(q.scale) - _F(out.scale)) < _EPSILON and q.zero_point == out.zero_point:
        return pooled
    return lookup(pooled, _rescaled(VALUES.astype(np.float64), q, out))


def avg_pool_int8(
    x: np.ndarray,
    window: Sequence[int],
    stride: Sequence[int],
    begin: Sequence[int],
    size: Sequence[int],
    q: Affine,
    out: Affine,
) -> np.ndarray:
    """AvgPoolFusion of int8 (``AvgPoolingOptInt8``): the mean of the cells that are no padding, rounded, rescaled.

    Sums are int16 and wrap in windows of more than 256 cells; the channels after the last full eight are divided as
    float32.

    Parameters
    ----------
    x, window, stride, begin, size, q, out
        As for :func:`max_pool_int8`.

    Returns
    -------
    ndarray of int8, shape (N, *size, C)

    Raises
    ------
    UnsupportedError
        A window holds padding alone: the runtime fails.

    Examples
    --------
    >>> x = np.array([1, -4, 7, 2], np.int8).reshape(1, 2, 2, 1)
    >>> avg_pool_int8(x, (1, 2), (1, 2), (0, 0), (2, 1), Affine(1, 0), Affine(0.5, 0)).ravel()
    array([-2, 10], dtype=int8)
    """
    ones = np.ones((1, *x.shape[1:3], 1), np.int32)
    count = _fold(ones, window, stride, begin, size, np.add, 0)
    if not count.all():
        raise UnsupportedError("MindSpore Lite's int8 average pooling fails where a window holds padding alone")
    sums = _fold(x.astype(np.int16), window, stride, begin, size, np.add, 0)
    eights = x.shape[-1] // 8 * 8
    mean = np.empty(sums.shape, np.int16)
    total = (sums[..., :eights] + (128 * count).astype(np.int16)).astype(np.int32) + count // 2
    mean[..., :eights] = np.trunc(total / count) - 128
    rest = sums[..., eights:].astype(_F) / count.astype(_F) + _F(128)
    mean[..., eights:] = round_half_away(rest) - 128
    return _rescaled(np.arange(-384.0, 384.0), q, out).take(mean + 384)


# ---- reductions ------------------------------------------------------------------------------------------------------


def reduce_int8(x: np.ndarray, mode: str, axes: Sequence[int], q: Affine, out: Affine) -> np.ndarray:
    """ReduceFusion of int8 (``reduce_int8``), dimensions kept; one axis after the other in the order given.

    Parameters
    ----------
    x : ndarray of int8
    mode : str
        ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum or ReduceSumSquare.
    axes : sequence of int
        All of them when empty.
    q, out : Affine
        Scales stay float64.

    Returns
    -------
    ndarray of int8, shape of ``x`` with 1 along ``axes``

    Notes
    -----
    Every axis rounds: the mean by fixed point, the sum of squares by the input's scale; the last one rescales to the
    output. The mean over both spatial axes of a 4-D tensor has a kernel of its own, which truncates its zero point and
    reads the wrong cells of every image but the first unless the channels are a multiple of 4; here all are read right.

    Examples
    --------
    >>> x = np.array([[10, 20, 33]], np.int8)
    >>> reduce_int8(x, "ReduceMean", [1], Affine(0.1, 0), Affine(0.1, 0))
    array([[21]], dtype=int8)
    >>> reduce_int8(x, "ReduceSum", [1], Affine(0.1, 0), Affine(0.2, 3))
    array([[35]], dtype=int8)
    """
    order = [axis % x.ndim for axis in axes] or list(range(x.ndim))
    if mode == "ReduceMean" and x.ndim == 4 and list(axes) in ([1, 2], [2, 1]):
        return _mean_of_images(x, q, out)
    step = _REDUCTIONS[mode]
    ratio = q.scale / out.scale
    values = x.astype(np.int64)
    for axis in order[:-1]:
        values = step(values, axis, q, q.scale) + (0 if mode in ("ReduceMax", "ReduceMin") else q.zero_point)
    if mode == "ReduceSumSquare":
        return clamped(step(values, order[-1], q, q.scale * q.scale / out.scale) + out.zero_point)
    values = step(values, order[-1], q, q.scale)
    if mode in ("ReduceMax", "ReduceMin"):
        values = values - q.zero_point
    multiplier, exponent = quantize_multiplier(ratio)
    if mode == "ReduceMin":  # with 20 more bits
        left, right = 20 + max(int(exponent), 0), 20 + max(-int(exponent), 0)
        return clamped(rounding_shift(high_multiply(wrap32(values << left), multiplier), right) + out.zero_point)
    return clamped(multiply(values, multiplier, exponent) + out.zero_point)


def _mean_of_images(x: np.ndarray, q: Affine, out: Affine) -> np.ndarray:
    cells = x.shape[1] * x.shape[2]
    bias = int(out.zero_point - q.zero_point * q.scale / out.scale)
    sums = x.sum((1, 2), np.int64, keepdims=True)
    return clamped(multiply(sums, *quantize_multiplier(q.scale / (out.scale * cells))) + bias)


def _sum(x: np.ndarray, axis: int, q: Affine, _factor: float) -> np.ndarray:
    return (x - q.zero_point).sum(axis, keepdims=True)


def _mean(x: np.ndarray, axis: int, q: Affine, factor: float) -> np.ndarray:
    return multiply(_sum(x, axis, q, factor), *quantize_multiplier(1.0 / x.shape[axis]))


def _sum_square(x: np.ndarray, axis: int, q: Affine, factor: float) -> np.ndarray:
    return multiply(((x - q.zero_point) ** 2).sum(axis, keepdims=True), *quantize_multiplier(factor))


def _prod(x: np.ndarray, axis: int, q: Affine, _factor: float) -> np.ndarray:
    product = wrap32((x - q.zero_point).prod(axis, keepdims=True))  # modulo 2**64, so modulo 2**32
    return multiply(product, *quantize_multiplier(q.scale ** (x.shape[axis] - 1)))


_REDUCTIONS = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceSumSquare": _sum_square,
    "ReduceProd": _prod,
    "ReduceMax": lambda x, axis, _q, _factor: x.max(axis, keepdims=True),
    "ReduceMin": lambda x, axis, _q, _factor: x.min(axis, keepdims=True),
}


# ---- softmax, normalisation ------------------------------------------------------------------------------------------


def softmax_int8(x: np.ndarray, q: Affine, axis: int = -1) -> np.ndarray:
    """Softmax of int8 (``SoftmaxInt8``): the output has scale 1/256 and zero point -128, whatever its parameters say.

    Parameters
    ----------
    x : ndarray of int8
    q : Affine
        Of the input.
    axis : int

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> softmax_int8(np.array([0, 0, 10], np.int8), Affine(0.1, 3))
    array([-74, -74,  19], dtype=int8)
    """
    multiplier, exponent = quantize_multiplier(min(float(_F(q.scale) * _F(1 << 26)), 2.0**31 - 1))
    below = np.arange(-255, 1, dtype=np.int64)
    exps = exp_on_negative_values(high_multiply(wrap32(below << max(int(exponent), 0)), multiplier))
    distance = x.max(axis, keepdims=True).astype(np.int16) - x
    exp = exps[::-1].take(distance)
    total = wrap32(rounding_shift(exps, 12)[::-1].take(distance).sum(axis, keepdims=True))
    scale, zeros = reciprocal(total)
    return clamped(rounding_shift(high_multiply(exp, scale), 12 - zeros + 31 - 8) - 128)


def l2_normalize_int8(x: np.ndarray, zero_point: int) -> np.ndarray:
    """L2NormalizeFusion of int8 along the last axis (``L2NormalizationInt8``).

    Parameters
    ----------
    x : ndarray of int8
    zero_point : int
        Of the input; no other parameter counts, nor do ``epsilon`` and the activation.

    Returns
    -------
    ndarray of int8
        Of scale 1/128 and zero point 0, whatever the output's parameters say.

    Examples
    --------
    >>> l2_normalize_int8(np.array([[3, 4]], np.int8), 0)
    array([[ 77, 102]], dtype=int8)
    """
    centred = x.astype(np.int64) - zero_point
    multiplier, shift = _inverse_root((centred**2).sum(-1, keepdims=True))
    return clamped(rounding_shift(high_multiply(centred << 7, multiplier), shift))


def _inverse_root(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``1 / sqrt(x)`` as multiplier and right shift, by five Newton steps in Q3.28 (``GetSqrtQuantMultiplierExp``)."""
    shift = np.full(x.shape, 11, np.int64)
    while (large := x >= 1 << 29).any():
        x, shift = np.where(large, x // 4, x), shift + large
    pairs = (31 - np.frexp(x.astype(np.float64))[1]) // 2 - 1
    shift = shift - pairs
    x = x << 2 * pairs >> 1
    half, three_halves = rounding_shift(x, 1), (1 << 28) + (1 << 27)
    root = np.full(x.shape, 1 << 28, np.int64)
    for _ in range(5):
        cube = wrap32(high_multiply(root, high_multiply(root, root)) << 6)
        root = wrap32((high_multiply(three_halves, root) - high_multiply(half, cube)) << 3)
    multiplier = high_multiply(root, 1518500250)  # sqrt(2) / 2
    return wrap32(multiplier << np.maximum(-shift, 0)), np.maximum(shift, 0)


# ---- resizing --------------------------------------------------------------------------------------------------------


def _ratio(n_in: int, n_out: int, align: bool) -> int:
    if align and n_out > 1:
        n_in, n_out = n_in - 1, n_out - 1
    return ((n_in << 10) + n_out // 2) // n_out


def resize_linear_int8(
    x: np.ndarray, size: tuple[int, int], zero_point: int, align_corners: bool = False
) -> np.ndarray:
    """Resize, linear, of int8 (``ResizeBilinearInt8``): by 10-bit weights for zero point 0, else by float32 ones.

    Half pixels count as asymmetric, results are truncated toward 0 and the output's parameters are not looked at.

    Parameters
    ----------
    x : ndarray of int8, shape (N, H, W, C)
    size : (int, int)
        New height and width.
    zero_point : int
        Of the input.
    align_corners : bool

    Returns
    -------
    ndarray of int8, shape (N, *size, C)

    Examples
    --------
    >>> x = np.array([0, 10], np.int8).reshape(1, 1, 2, 1)
    >>> resize_linear_int8(x, (1, 4), 0).ravel(), resize_linear_int8(x, (1, 4), 1).ravel()
    (array([ 0,  5, 10, 10], dtype=int8), array([ 0,  5, 10, 10], dtype=int8))
    """
    lower, upper, weight = [], [], []
    for n_in, n_out in zip(x.shape[1:3], size, strict=True):
        if zero_point == 0:
            at = np.arange(n_out, dtype=np.int64) * _ratio(n_in, n_out, align_corners)
            low = at >> 10
            weight.append(at - (low << 10))
        else:
            ends = int(align_corners and n_out > 1)
            ratio = _F(n_in - ends) / _F(n_out - ends)
            where = np.arange(n_out, dtype=_F) * ratio
            low = np.floor(where).astype(np.int64)
            weight.append(where - low.astype(_F))
        lower.append(low)
        upper.append(np.minimum(low + 1, n_in - 1))
    one = 1 << 10 if zero_point == 0 else _F(1)
    wy, wx = weight[0][:, None, None], weight[1][:, None]
    top, bottom = x[:, lower[0]], x[:, upper[0]]
    lb, lt, rb, rt = top[:, :, lower[1]], bottom[:, :, lower[1]], top[:, :, upper[1]], bottom[:, :, upper[1]]
    c_lb, c_lt, c_rb, c_rt = (one - wx) * (one - wy), wy * (one - wx), wx * (one - wy), wx * wy
    if zero_point == 0:
        return np.trunc((c_lb * lb + c_lt * lt + c_rb * rb + c_rt * rt + (1 << 19)) / (1 << 20)).astype(np.int8)
    return fmaf(rt, c_rt, fmaf(rb, c_rb, fmaf(lb, c_lb, c_lt * lt.astype(_F)))).astype(np.int8)


def resize_nearest_int8(x: np.ndarray, size: tuple[int, int], align_corners: bool = False) -> np.ndarray:
    """Resize, nearest, of int8 (``ResizeNearestNeighborInt8Simple``); half pixels count as asymmetric.

    The runtime refuses an output with other parameters than the input's.

    Parameters
    ----------
    x : ndarray of int8, shape (N, H, W, C)
    size : (int, int)
        New height and width.
    align_corners : bool

    Returns
    -------
    ndarray of int8, shape (N, *size, C)

    Examples
    --------
    >>> x = np.array([0, 10], np.int8).reshape(1, 1, 2, 1)
    >>> resize_nearest_int8(x, (1, 3)).ravel(), resize_nearest_int8(x, (1, 3), True).ravel()
    (array([ 0,  0, 10], dtype=int8), array([ 0, 10, 10], dtype=int8))
    """
    for axis, n_out in zip((1, 2), size, strict=True):
        at, n_in = np.arange(n_out), x.shape[axis]
        ends = int(align_corners and n_out > 1)
        at = ((n_in - ends) * at + ends * ((n_out - 1) // 2)) // (n_out - ends)
        x = x.take(np.minimum(at, n_in - 1), axis)
    return x
