"""MindSpore Lite's int8 movement operators and casts: values keep their meaning, stored numbers change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlinspect.kernels.fixedpoint import (
    high_multiply,
    nearest,
    quantize_multiplier,
    rounding_shift,
    wrap32,
)
from mlinspect.kernels.int8 import VALUES, Affine, clamped, rounded, stored_value
from mlinspect.kernels.libm import fmaf
from mlinspect.kernels.memory import scratch
from mlinspect.kernels.quantize import lookup, round_half_away

_F = np.float32
_EPSILON = float(np.finfo(_F).eps)

# operator -> how it rescales, and how close float32 scales must lie to be taken as equal (then it copies)
_RULES: dict[str, tuple[str, float]] = {
    "Reshape": ("inverse", 0.0),
    "Concat": ("inverse", 0.0),
    "Squeeze": ("inverse", 0.0),
    "DepthToSpace": ("inverse", _EPSILON),
    "BatchToSpace": ("inverse", _EPSILON),
    "Split": ("divide", _EPSILON),
    "Crop": ("divide", _EPSILON),
    "SliceFusion": ("fixed", _EPSILON),
    "Gather": ("double", 0.0),
}


def rescale_int8(x: np.ndarray, q: Affine, out: Affine, operator: str) -> np.ndarray:
    """What a movement operator does to stored values when its output's parameters differ from its input's.

    Parameters
    ----------
    x : ndarray of int8
    q, out : Affine
    operator : str
        BatchToSpace, Concat, Crop, DepthToSpace, Gather, Reshape, SliceFusion, Split, Squeeze. The others copy
        stored values (ExpandDims, SpaceToBatch, StridedSlice, Transpose, Unsqueeze) or refuse (PadFusion).

    Returns
    -------
    ndarray of int8
        ``x`` itself when nothing changes.

    Notes
    -----
    Four formulas: float32 ``x * r - zero * r`` with ``r = s * (1 / s_out)`` or ``r = s / s_out``; float64
    ``s / s_out * (x - zero)`` (Gather); fixed point with 20 more bits (SliceFusion).

    Examples
    --------
    >>> rescale_int8(np.array([-10, 100], np.int8), Affine(0.1, -10), Affine(0.2, 0), "Reshape")
    array([ 0, 55], dtype=int8)
    """
    rule, near = _RULES[operator]
    s, so = _F(q.scale), _F(out.scale)
    if q.zero_point == out.zero_point and (q.scale == out.scale if rule == "double" else abs(s - so) <= near):
        return x
    if rule == "double":
        table = rounded(q.scale / out.scale * (VALUES.astype(np.float64) - q.zero_point), out.zero_point)
    elif rule == "fixed":
        multiplier, exponent = quantize_multiplier(np.float64(s / so))
        shifted = wrap32((VALUES.astype(np.int64) - q.zero_point) << 20 + max(int(exponent), 0))
        scaled = rounding_shift(high_multiply(shifted, multiplier), 20 + max(-int(exponent), 0))
        table = clamped(scaled + out.zero_point)
    else:
        r = s / so if rule == "divide" else s * (_F(1) / so)
        table = rounded(fmaf(VALUES, r, _F(-q.zero_point) * r), out.zero_point)
    return lookup(x, table)


def concat_int8(arrays: Sequence[np.ndarray], params: Sequence[Affine], out: Affine, axis: int) -> np.ndarray:
    """Concat of int8, each operand rescaled to the output (``Int8Concat``).

    Parameters
    ----------
    arrays : sequence of ndarray of int8
    params : sequence of Affine, one an array
    out : Affine
    axis : int

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> one = np.array([10], np.int8)
    >>> concat_int8([one, one], [Affine(0.1, 0), Affine(0.2, 0)], Affine(0.1, 0), 0)
    array([10, 20], dtype=int8)
    """
    return np.concatenate([rescale_int8(x, q, out, "Concat") for x, q in zip(arrays, params, strict=True)], axis)


# ---- casts -----------------------------------------------------------------------------------------------------------


def quantize_int8(x: np.ndarray, q: Affine, from_uint8: bool = False) -> np.ndarray:
    """QuantDTypeCast of float32 to int8 (``DoQuantizeFp32ToInt8``): ``x * (1 / scale) + zero_point`` by fused
    multiplication and addition.

    Parameters
    ----------
    x : ndarray of float32
    q : Affine
    from_uint8 : bool
        The parameter's ``dstDtype`` is uint8: rounds with 128 added, then takes it off.

    Returns
    -------
    ndarray of int8
        NaN, and finite values beyond int32, give -128, as a C cast does.

    Examples
    --------
    >>> quantize_int8(np.array([-9.0, 0.25, np.nan], np.float32), Affine(0.1, -3))
    array([ -93,   -1, -128], dtype=int8)
    """
    return quantizer_int8(q, from_uint8)(np.asarray(x, _F))


def quantizer_int8(q: Affine, from_uint8: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """:func:`quantize_int8` with these parameters, prepared once for many arrays of float32.

    Parameters
    ----------
    q, from_uint8
        As for :func:`quantize_int8`.

    Returns
    -------
    callable
        ``f(x) -> ndarray of int8``.

    Examples
    --------
    >>> quantizer_int8(Affine(0.1, -3))(np.array([0.25], np.float32))
    array([-1], dtype=int8)
    """
    bias = 128 if from_uint8 else 0
    inverse, shift = _F(1) / _F(q.scale), _F(q.zero_point + bias)
    farthest = 1e9 if abs(q.zero_point) <= 128 else -np.inf

    def run(x: np.ndarray) -> np.ndarray:
        shape, x = x.shape, x.reshape(-1)  # in one order, whatever the memory's
        with np.errstate(all="ignore"):
            w, whole = scratch(x.shape)
            np.multiply(x, inverse, out=w)
            w += shift
            unsure = nearest(w, 0.5 - 6e-5, whole)  # three roundings of float32 sums up to 512, as others saturate
            most = whole.max(initial=0)
            if not most < farthest:  # far out, or NaN
                return _quantize_fused(x, inverse, shift, bias).reshape(shape)
            if unsure.size:
                whole[unsure] = round_half_away(fmaf(x[unsure], inverse, shift))
        if most > bias + 126 or whole.min(initial=0) < bias - 128:  # halves may have gone up since
            whole.clip(bias - 128, bias + 127, out=whole)
        if bias:
            whole -= bias
        return whole.astype(np.int8).reshape(shape)

    return run


def _quantize_fused(x: np.ndarray, inverse: np.float32, shift: np.float32, bias: int) -> np.ndarray:
    """The formula of :func:`quantize_int8` word by word."""
    with np.errstate(all="ignore"):
        w = fmaf(x, inverse, shift)
        w[(w >= 2.0**31) & (x < np.inf)] = -np.inf
    w = round_half_away(w) - bias
    return np.minimum(np.fmax(w, -128), 127).astype(np.int8)


def quantize_uint8(x: np.ndarray, q: Affine) -> np.ndarray:
    """QuantDTypeCast of float32 to uint8 (``DoQuantizeFp32ToUInt8``), in float64; infinities give 255, NaN gives 0.

    Parameters
    ----------
    x : ndarray of float32
    q : Affine

    Returns
    -------
    ndarray of uint8

    Examples
    --------
    >>> quantize_uint8(np.array([-1, 0.25, -np.inf], np.float32), Affine(0.1, 3))
    array([  0,   5, 255], dtype=uint8)
    """
    w = np.asarray(x, np.float64) / np.float64(_F(q.scale)) + q.zero_point
    w = np.where(np.isinf(x), 255.0, round_half_away(w))
    return np.minimum(np.fmax(w, 0), 255).astype(np.uint8)


def dequantize_int8(
    x: np.ndarray, scale: float | np.ndarray, zero_point: int | np.ndarray, axis: int = 0
) -> np.ndarray:
    """QuantDTypeCast of int8 or uint8 to float32: ``(x - zero_point) * scale`` in float32.

    Parameters
    ----------
    x : ndarray of int8 or uint8
    scale, zero_point : number, or ndarray of shape (channels,)
    axis : int
        Of the channels: the runtime knows the first (``preferred_dim`` 0) and the last.

    Returns
    -------
    ndarray of float32, shape of ``x``

    Examples
    --------
    >>> dequantize_int8(np.array([[0], [10]], np.int8), np.array([0.5, 0.1]), np.array([2, 0]))
    array([[-1.],
           [ 1.]], dtype=float32)
    """
    return dequantizer_int8(scale, zero_point, axis, x.ndim)(x)


def dequantizer_int8(
    scale: float | np.ndarray, zero_point: int | np.ndarray, axis: int = 0, ndim: int = 1
) -> Callable[[np.ndarray], np.ndarray]:
    """:func:`dequantize_int8` with these parameters, prepared once for many arrays of ``ndim`` axes.

    Parameters
    ----------
    scale, zero_point, axis
        As for :func:`dequantize_int8`.
    ndim : int

    Returns
    -------
    callable
        ``f(x) -> ndarray of float32``.

    Examples
    --------
    >>> dequantizer_int8(0.5, 2)(np.array([10], np.int8))
    array([4.], dtype=float32)
    """
    shape = [1] * ndim
    if np.ndim(scale):
        shape[axis] = -1
    zero, factor = (np.asarray(v, _F).reshape(shape if np.ndim(scale) else ()) for v in (zero_point, scale))

    def run(x: np.ndarray) -> np.ndarray:
        w = x.astype(_F)
        w -= zero
        w *= factor
        return w

    return run


def flip_sign(x: np.ndarray) -> np.ndarray:
    """QuantDTypeCast between int8 and uint8: 128 more or less, whatever the parameters.

    Parameters
    ----------
    x : ndarray of int8 or uint8

    Returns
    -------
    ndarray of the other type

    Examples
    --------
    >>> flip_sign(np.array([-128, 5], np.int8)), flip_sign(np.array([133], np.uint8))
    (array([  0, 133], dtype=uint8), array([5], dtype=int8))
    """
    return (x.view(np.uint8) ^ 128).view(np.int8 if x.dtype == np.uint8 else np.uint8)


def dynamic_quantize(x: np.ndarray, symmetric: bool) -> tuple[np.ndarray, Affine]:
    """DynamicQuant: int8 with parameters from the data (``dynamic_quant.cc``), one pair for the whole tensor.

    Parameters
    ----------
    x : ndarray of float32
    symmetric : bool
        Zero point 0 and 254 steps around it, else 255 steps from the least to the largest value.

    Returns
    -------
    stored : ndarray of int8
    q : Affine

    Notes
    -----
    2.0.0 ignores ``activation_channel`` and ``prefer_axes``. It is compiled to multiply by ``1 / 255`` and ``1 / 254``.

    Examples
    --------
    >>> dynamic_quantize(np.array([-1.0, 0.0, 1.55], np.float32), False)
    (array([-128,  -28,  127], dtype=int8), Affine(scale=0.010000000707805157, zero_point=-28))
    """
    least, most = x.min(), x.max()
    if symmetric:
        q = Affine(float(_F(2) * max(abs(most), abs(least)) * (_F(1) / _F(254))), 0)
    else:
        span = most - least if most > least else _F(0.01)
        scale = float(span * (_F(1) / _F(255)))
        q = Affine(scale, int(round_half_away(np.asarray(-128 - float(least) / scale))))
    return quantize_int8(x, q), q


def dynamic_matmul_output(
    sums: np.ndarray, x_scale: float | np.ndarray, weight_scale: float | np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """End of MatMulFusion on dynamically quantised data (``DynamicMatmul4x16x4AIWI``): int32 sums -> float32.

    Parameters
    ----------
    sums : ndarray of int32, shape (..., rows, columns)
        ``sum((x - zero_x) * (w - zero_w))``.
    x_scale, weight_scale : number, or ndarray that broadcasts against ``sums``
        By row, by column.
    bias : ndarray of float32, shape (columns,), or None

    Returns
    -------
    ndarray of float32, shape of ``sums``

    Examples
    --------
    >>> dynamic_matmul_output(np.array([[100, -4]], np.int32), 0.5, np.array([0.25, 0.5]), np.array([1, 0], np.float32))
    array([[13.5, -1. ]], dtype=float32)
    """
    out = np.asarray(x_scale, _F) * np.asarray(weight_scale, _F) * sums.astype(_F)
    return out if bias is None else out + bias


def pad_value_int8(value: float, q: Affine) -> np.int8:
    """Stored number that PadFusion of int8 fills with: ``round(value / scale + zero_point)``, wrapped, not clamped.

    Parameters
    ----------
    value : float
    q : Affine
        Of the operand.

    Returns
    -------
    int8

    Examples
    --------
    >>> pad_value_int8(1.0, Affine(0.1, -3))
    np.int8(7)
    """
    return np.int32(stored_value(value, q)).astype(np.int8)
