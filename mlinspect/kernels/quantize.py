"""Between stored numbers and real values, rounded as the vendors' runtimes round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mlinspect.kernels.shape import along

_F = np.float32
_BLOCK = 1 << 17  # elements whose scratch still fits the second-level cache


def dequantize(q: np.ndarray, scale: ArrayLike, zero_point: ArrayLike = 0, axis: int | None = None) -> np.ndarray:
    """Real values of stored integers: ``float32(q - zero_point) * scale``, as Arm NN's decoders.

    Parameters
    ----------
    q : ndarray of integers, any shape
    scale, zero_point : scalar, or array of shape (channels,) when `axis` is given
        Scale 0 stands for "not quantised" and counts as 1 (Arm NN's Signed32 tensors).
    axis : int, optional
        Dimension of `q` that the channels lie along.

    Returns
    -------
    ndarray of float32, shape of `q`
        Always new memory.

    Examples
    --------
    >>> dequantize(np.uint8([0, 120, 255]), 0.05, 120)
    array([-6.  ,  0.  ,  6.75], dtype=float32)
    """
    scale, zero = _parameter(scale, _F, q.ndim, axis), _parameter(zero_point, np.int64, q.ndim, axis)
    scale = np.where(scale == 0, _F(1), scale)
    if q.itemsize > 2 and zero.any():
        return (q.astype(np.int64) - zero).astype(_F) * scale  # their difference is what float32 must round
    if axis is not None:
        return (q.astype(_F) - zero.astype(_F)) * scale
    out = np.empty(q.shape, _F)
    stored, real = q.reshape(-1), out.reshape(-1)
    for start in range(0, q.size, _BLOCK):
        part = real[start : start + _BLOCK]
        np.copyto(part, stored[start : start + _BLOCK])
        if zero:
            part -= _F(zero)
        part *= scale
    return out


def quantize(
    v: np.ndarray, scale: ArrayLike, zero_point: ArrayLike, dtype: DTypeLike, axis: int | None = None
) -> np.ndarray:
    """Stored integers of real values, as Arm NN's encoders (``armnn::Quantize``).

    ``round_half_away(float32(v / scale)) + zero_point`` with a true float32 division, clamped to the full range of
    `dtype`. A NaN becomes the stored number 0 (not the zero point): what a C conversion gives on x86 and Arm.

    Parameters
    ----------
    v : ndarray of float32, any shape
    scale, zero_point : scalar, or array of shape (channels,) when `axis` is given
    dtype : an integer type of 8 or 16 bits
    axis : int, optional
        Dimension of `v` that the channels lie along.

    Returns
    -------
    ndarray of `dtype`, shape of `v`

    Examples
    --------
    >>> quantize(np.float32([-1, 0, 0.025, 0.0249, 99]), 0.05, 10, np.int8)
    array([-10,  10,  11,  10, 127], dtype=int8)
    """
    v, limits = np.asarray(v, _F), np.iinfo(dtype)
    scale, zero = _parameter(scale, _F, v.ndim, axis), _parameter(zero_point, np.int64, v.ndim, axis)
    low, high = 2 * (limits.min - zero), 2 * (limits.max - zero)
    reach = max(np.abs(low).max(), np.abs(high).max())
    if reach >= 1 << 24:  # a zero point so absurd that float32 cannot hold the bounds: the formula word by word
        with np.errstate(all="ignore"):
            whole = np.clip(zero.astype(_F) + round_half_away(v / scale), limits.min, limits.max)
        return np.where(np.isnan(whole), 0, whole).astype(dtype)
    work = np.int16 if reach < 1 << 14 else np.int32
    parameters = scale / _F(2), low.astype(_F), high.astype(_F), (2 * zero + 1).astype(work)
    out = np.empty(v.shape, dtype)
    if axis is not None:
        _round_into(out, v, *parameters)
        return out
    real, stored = v.reshape(-1), out.reshape(-1)
    for start in range(0, v.size, _BLOCK):
        _round_into(stored[start : start + _BLOCK], real[start : start + _BLOCK], *parameters)
    return out


def _round_into(
    out: np.ndarray, v: np.ndarray, half_scale: np.ndarray, low: np.ndarray, high: np.ndarray, odd: np.ndarray
) -> None:
    """Round by halves: ``n = trunc(2 v / scale)`` is exact, and ``(n + 1) >> 1`` (``n >> 1`` below 0) rounds half away.

    Integers as narrow as the clamped range allows make the many steps cheap; `odd` is ``2 * zero_point + 1``.
    """
    with np.errstate(all="ignore"):
        twice = np.divide(v, half_scale)
        np.clip(twice, low, high, out=twice)
        n = twice.astype(odd.dtype)
    n += n >> (8 * n.itemsize - 1)
    n += odd
    n >>= 1
    np.copyto(out, n, casting="unsafe")
    flat = twice.reshape(-1)
    if np.isnan(np.dot(flat, flat)):  # the quickest search for a NaN: what is left is finite
        out[np.isnan(twice)] = 0


def round_half_away(x: np.ndarray) -> np.ndarray:
    """Nearest whole number, halves away from zero (C's ``round`` and ``roundf``).

    Adds the largest number below one half and truncates: exact for every number, unlike adding one half.

    Parameters
    ----------
    x : ndarray of float32 or float64

    Returns
    -------
    ndarray of the type of `x`

    Examples
    --------
    >>> round_half_away(np.float32([0.5, -2.5, 0.49999997]))
    array([ 1., -3.,  0.], dtype=float32)
    """
    number = x.dtype.type
    y = np.copysign(np.nextafter(number(0.5), number(0)), x)
    y += x
    return np.trunc(y)


def cast(v: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Values in another type without quantisation, as a C conversion does it.

    To float16: nearest even, too large becomes infinite (Arm NN 22.11's and MindSpore Lite's). From float to integers:
    toward zero; a NaN or a number that int32 (int64 for a 64-bit target) cannot hold becomes its smallest number, as on
    x86 (Arm processors saturate, and give 0 for NaN); narrower targets keep the low bits. To bool: ``v != 0``.

    Parameters
    ----------
    v : ndarray or numpy scalar
    dtype : the wanted type

    Returns
    -------
    ndarray of `dtype`, shape of `v`
        `v` itself when it has that type already.

    Examples
    --------
    >>> cast(np.float32([3.7, -3.7, np.nan, 3e9]), np.int32)
    array([          3,          -3, -2147483648, -2147483648], dtype=int32)
    """
    v, dtype = np.asarray(v), np.dtype(dtype)
    with np.errstate(all="ignore"):
        if v.dtype.kind != "f" or dtype.kind not in "iu":
            return v.astype(dtype, copy=False)
        wide = np.iinfo(np.int64 if dtype.itemsize == 8 else np.int32)
        whole = v.astype(wide.dtype)
        limit = v.dtype.type(-float(wide.min))
        outside = ~((v < limit) & (v >= -limit))
        if outside.any():
            whole[outside] = wide.min
        return whole.astype(dtype, copy=False)


def table_of(f: Callable[[np.ndarray], np.ndarray], dtype: DTypeLike) -> np.ndarray:
    """``f`` of all 256 numbers of an 8-bit type, for :func:`lookup`.

    Parameters
    ----------
    f : callable
        Maps each stored number by itself.
    dtype : int8 or uint8

    Returns
    -------
    ndarray of ``f``'s type, shape (256,)
        By the number's byte: 0, 1, ..., and for int8 then 128 = -128, ..., 255 = -1.

    Examples
    --------
    >>> table_of(np.negative, np.int8)[[0, 1, 255]]
    array([ 0, -1,  1], dtype=int8)
    """
    return f(np.arange(256, dtype=np.uint8).view(dtype))


def lookup(q: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``table`` at the byte of every element: the value of a function of one 8-bit number.

    Parameters
    ----------
    q : ndarray of int8 or uint8, any shape
    table : ndarray, shape (256,)
        See :func:`table_of`.

    Returns
    -------
    ndarray of the table's type, shape of `q`

    Examples
    --------
    >>> lookup(np.int8([[-3, 5]]), table_of(np.abs, np.int8))
    array([[3, 5]], dtype=int8)
    """
    if table.itemsize > 1:
        return np.asarray(np.take(table, q.view(np.uint8)))  # of no axes take makes a number
    mapped = bytearray(q.tobytes()).translate(table.tobytes())  # twice as fast as take
    return np.frombuffer(mapped, table.dtype).reshape(q.shape)


def dequantize_weights(
    q: np.ndarray,
    scale: ArrayLike,
    zero_point: ArrayLike,
    axis: int | None = None,
    var_corr: ArrayLike | None = None,
    mean_corr: ArrayLike | None = None,
) -> np.ndarray:
    """Constants of a weight-quantised MindSpore Lite model as its loader makes them float (``WeightDecoder``).

    One parameter: ``float32(q - zero_point) * scale`` in single precision, corrections ignored. Several, one a channel:
    ``(q - zero_point) * scale * var_corr + mean_corr`` in double, then float32.

    Parameters
    ----------
    q : ndarray of integers, any shape
    scale, zero_point : array-like, shape (channels,) or (1,)
    axis : int, optional
        Dimension of `q` that the channels lie along; None with one parameter.
    var_corr, mean_corr : array-like, shape (channels,), optional
        A `var_corr` outside 0..10 counts as 1.

    Returns
    -------
    ndarray of float32, shape of `q`

    Examples
    --------
    >>> dequantize_weights(np.int8([[2, 4], [6, 8]]), [0.5, 0.25], [0, 2], 0, var_corr=[1, 2])
    array([[1., 2.],
           [2., 3.]], dtype=float32)
    """
    if axis is None:
        return dequantize(q, np.ravel(scale)[0], np.ravel(zero_point)[0])
    real = (q - _parameter(zero_point, float, q.ndim, axis)) * _parameter(scale, float, q.ndim, axis)
    if var_corr is not None:
        spread = np.asarray(var_corr, float)
        real *= _parameter(np.where((spread < 0) | (spread > 10), 1.0, spread), float, q.ndim, axis)
    if mean_corr is not None:
        real += _parameter(mean_corr, float, q.ndim, axis)
    return real.astype(_F)


def _parameter(p: ArrayLike, dtype: DTypeLike, ndim: int, axis: int | None) -> np.ndarray:
    """Parameter `p` shaped to broadcast along `axis` of an array of `ndim` dimensions; a scalar without an axis."""
    p = np.asarray(p, dtype)
    return p.reshape(()) if p.ndim == 0 or axis is None else along(p, axis, ndim)
