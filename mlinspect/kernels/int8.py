"""MindSpore Lite's int8 arithmetic on sums and on several operands (``nnacl/int8``, ``litert/kernel/cpu/int8``).

Stored values are int8; ``Affine`` says what they stand for. The runtime casts scales to float32 first except where a
docstring says otherwise. A function of one stored value is a table of 256 entries, computed once a call. Results are
the runtime's bit for bit; that includes C conversions out of range, which x86 turns into the smallest int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.fixedpoint import (
    high_multiply,
    multiply,
    quantize_multiplier,
    reciprocal,
    requantize,
    requantizer,
    rounding_shift,
)
from mlinspect.kernels.libm import fmaf
from mlinspect.kernels.quantize import cast, lookup, round_half_away

_F = np.float32
VALUES = np.arange(256, dtype=np.uint8).view(np.int8)  # every int8, in the order of its bytes


class Affine(NamedTuple):
    """``real = scale * (stored - zero_point)``."""

    scale: float
    zero_point: int


def clamped(x: np.ndarray, low: int = -128, high: int = 127) -> np.ndarray:
    """Integers clamped to ``low .. high``, as int8.

    Parameters
    ----------
    x : ndarray of int
    low, high : int

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> clamped(np.array([-200, 5, 200]))
    array([-128,    5,  127], dtype=int8)
    """
    return np.clip(x, low, high).astype(np.int8)


def rounded(x: np.ndarray, zero_point: int) -> np.ndarray:
    """``round(x) + zero_point``, cast to int32, clamped to int8.

    Parameters
    ----------
    x : ndarray of float32 or float64
    zero_point : int

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> rounded(np.array([-2.5, 0.4, 300.0]), 1)
    array([ -2,   1, 127], dtype=int8)
    """
    return clamped(cast(round_half_away(x.astype(np.float64)) + zero_point, np.int32))


def activation_range(activation: str, out: Affine) -> tuple[int, int]:
    """Clamping range of a fused activation (``CalculateActivationRangeQuantized``).

    Parameters
    ----------
    activation : str
        ``"RELU"``, ``"RELU6"``; any other name clamps to int8 alone, as the runtime does.
    out : Affine

    Returns
    -------
    low, high : int

    Examples
    --------
    >>> activation_range("RELU6", Affine(0.05, -10))
    (-10, 110)
    """
    if activation == "RELU":
        return max(-128, out.zero_point), 127
    if activation == "RELU6":
        return max(-128, out.zero_point), min(127, stored_value(6, out))
    return -128, 127


def stored_value(real: float, q: Affine) -> int:
    """The stored number of a real value, not clamped to int8 (``QuantizeToInt8``).

    Parameters
    ----------
    real : float
    q : Affine

    Returns
    -------
    int

    Examples
    --------
    >>> stored_value(6, Affine(0.02, -10))
    290
    """
    return int(cast(round_half_away(np.asarray(_F(real) / _F(q.scale) + _F(q.zero_point))), np.int32))


def requantizer_of_sums(
    x_scale: float, weight_scale: float | np.ndarray, out: Affine, activation: str = ""
) -> Callable[[np.ndarray], np.ndarray]:
    """End of Conv2DFusion, Conv2dTransposeFusion (depthwise), FullConnection, MatMulFusion: int32 sums -> int8.

    Parameters
    ----------
    x_scale : float
    weight_scale : float or ndarray, shape (C,)
    out : Affine
    activation : str
        See :func:`activation_range`.

    Returns
    -------
    callable
        ``f(sums) -> ndarray of int8`` for sums ``sum((x - zero_x) * (w - zero_w)) + bias`` of shape (..., C).

    Examples
    --------
    >>> finish = requantizer_of_sums(0.1, np.array([0.02, 0.04]), Affine(0.5, -3), "RELU")
    >>> finish(np.array([[-500, 700]], np.int32))
    array([[-3,  3]], dtype=int8)
    """
    product = _F(x_scale) * np.asarray(weight_scale, _F)
    factor = np.float64(product) / np.float64(_F(out.scale))
    low, high = activation_range(activation, out)
    return requantizer(factor, out.zero_point, low, high)


# ---- two operands ----------------------------------------------------------------------------------------------------


def _first_run(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What ``QuantizedAddCPUKernel::BroadcastRun`` reads of the operands; their common shape stays."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    full = [math.prod(shape) == x.size for x in (a, b)]
    if 1 in (a.size, b.size) or all(full) or not any(full):
        return a, b
    ranks = [(1,) * (len(shape) - x.ndim) + x.shape for x in (a, b)]
    run = shape[max(i for i in range(len(shape)) if ranks[0][i] != ranks[1][i]) + 1 :]
    shortened = [
        x if whole else x.ravel()[: math.prod(run)].reshape(run) for x, whole in zip((a, b), full, strict=True)
    ]
    return shortened[0], shortened[1]


def _aligned(x: np.ndarray, zero_point: int, factor: float) -> np.ndarray:
    """``(x - zero_point) * 2**20 * factor`` in int32."""
    table = multiply((VALUES.astype(np.int64) - zero_point) << 20, *quantize_multiplier(factor)).astype(np.int32)
    return table.take(x.view(np.uint8))


def add_int8(a: np.ndarray, b: np.ndarray, qa: Affine, qb: Affine, out: Affine, activation: str = "") -> np.ndarray:
    """AddFusion and BiasAdd of int8 (``AddInt8``). Scales stay float64.

    Parameters
    ----------
    a, b : ndarray of int8
        Of shapes that broadcast.
    qa, qb, out : Affine
    activation : str
        See :func:`activation_range`.

    Returns
    -------
    ndarray of int8

    Notes
    -----
    Broadcasting is the runtime's: it repeats one run of the smaller operand, the elements after the last axis in which
    the shapes differ, and never reaches the others: right for a scalar or a channel vector, wrong for ``[2, 1, 1, C]``.
    The scalar code and Arm's are reproduced. x86's vector code differs from them by one where a sum lies on a half
    within one part in 2**20.

    Examples
    --------
    >>> q = Affine(0.1, 0)
    >>> add_int8(np.array([10, 100], np.int8), np.array([5, 90], np.int8), q, q, Affine(0.2, 1))
    array([ 9, 96], dtype=int8)
    """
    twice = 2 * max(qa.scale, qb.scale)
    a, b = _first_run(a, b)
    sums = _aligned(a, qa.zero_point, qa.scale / twice) + _aligned(b, qb.zero_point, qb.scale / twice)
    low, high = activation_range(activation, out)
    return requantize(sums, twice / ((1 << 20) * out.scale), out.zero_point, low, high)


def sub_int8(a: np.ndarray, b: np.ndarray, qa: Affine, qb: Affine, out: Affine) -> np.ndarray:
    """SubFusion of int8 (``SubInt8``); the runtime applies no activation.

    Parameters
    ----------
    a, b : ndarray of int8
        Of shapes that broadcast.
    qa, qb, out : Affine

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> q = Affine(0.1, 0)
    >>> sub_int8(np.array([10, 100], np.int8), np.array([5, -90], np.int8), q, q, q)
    array([  5, 127], dtype=int8)
    """
    sa, sb, so = _F(qa.scale), _F(qb.scale), _F(out.scale)
    twice = np.float64(2 * max(sa, sb))
    difference = _aligned(a, qa.zero_point, sa / twice) - _aligned(b, qb.zero_point, sb / twice)
    return requantize(difference, twice / np.float64(_F(1 << 20) * so), out.zero_point)


def mul_int8(a: np.ndarray, b: np.ndarray, qa: Affine, qb: Affine, out: Affine) -> np.ndarray:
    """MulFusion of int8 (``Mul``, ``FastMul``); the runtime ignores the activation.

    Of an operand ``[N, 1, 1, C]`` beside ``[N, H, W, C]`` it reads the first image alone.

    Parameters
    ----------
    a, b : ndarray of int8
        Of shapes that broadcast.
    qa, qb, out : Affine

    Returns
    -------
    ndarray of int8

    Examples
    --------
    >>> mul_int8(np.array([10, -4], np.int8), np.array([3], np.int8), Affine(0.1, 0), Affine(0.1, 1), Affine(0.05, 0))
    array([ 4, -2], dtype=int8)
    """
    factor = np.float64(_F(qa.scale) * _F(qb.scale) / _F(out.scale))
    if a.ndim == b.ndim == 4 and a.size != b.size and a.shape[::3] == b.shape[::3]:
        if a.shape[1:3] == (1, 1):
            a = a[:1]
        elif b.shape[1:3] == (1, 1):
            b = b[:1]
    product = (a.astype(np.int32) - qa.zero_point) * (b.astype(np.int32) - qb.zero_point)
    return requantize(product, float(factor), out.zero_point)


def div_int8(a: np.ndarray, b: np.ndarray, qa: Affine, qb: Affine, out: Affine) -> np.ndarray:
    """DivFusion of int8 (``DivInt8``); the runtime ignores the activation.

    Parameters
    ----------
    a, b : ndarray of int8
        Of shapes that broadcast.
    qa, qb, out : Affine

    Returns
    -------
    ndarray of int8

    Raises
    ------
    UnsupportedError
        A divisor is 0: the runtime fails.

    Examples
    --------
    >>> q = Affine(0.1, 0)
    >>> div_int8(np.array([10, 100], np.int8), np.array([4, -8], np.int8), q, q, q)
    array([  25, -125], dtype=int8)
    """
    divisor = VALUES.astype(np.int64) - qb.zero_point
    zero = divisor == 0
    if zero.take(b.view(np.uint8)).any():
        raise UnsupportedError("MindSpore Lite's int8 division fails where the divisor is 0")
    inverse, zeros = reciprocal(np.where(zero, 1, np.abs(divisor)))
    inverse *= np.sign(divisor)
    dividend = VALUES.astype(np.int64) - qa.zero_point
    sign_bits = 31 - np.frexp(np.abs(dividend).astype(np.float64))[1]  # 31 for 0
    multiplier, exponent = quantize_multiplier(np.float64(_F(qa.scale) / (_F(qb.scale) * _F(out.scale))))
    ia, ib = a.view(np.uint8), b.view(np.uint8)
    quotient = high_multiply((dividend << sign_bits).take(ia), inverse.take(ib))
    scaled = high_multiply(quotient, multiplier)
    shift = (31 - zeros).take(ib) + sign_bits.take(ia) - exponent
    return clamped(rounding_shift(scaled, np.clip(shift, 0, 31)) + out.zero_point)


def power_int8(
    x: np.ndarray, exponent: np.ndarray, q: Affine, qe: Affine, out: Affine, scale: float = 1.0, shift: float = 0.0
) -> np.ndarray:
    """PowFusion of int8: ``(scale * x + shift) ** exponent`` in float64, rounded to float32 first (``PowerInt8``).

    Parameters
    ----------
    x : ndarray of int8
    exponent : ndarray of int8
        Of the shape of ``x``; of any other shape only its first element counts.
    q, qe, out : Affine
        Of ``x``, ``exponent`` and the result.
    scale, shift : float

    Returns
    -------
    ndarray of int8, shape of ``x``

    Examples
    --------
    >>> power_int8(np.array([3], np.int8), np.array([2], np.int8), Affine(1, 0), Affine(1, 0), Affine(0.5, 0))
    array([18], dtype=int8)
    """
    if exponent.shape != x.shape:
        exponent, values = exponent.ravel()[:1], VALUES
    else:
        values = x
    base = (np.float64(_F(q.scale)) * (values.astype(np.int32) - q.zero_point)).astype(_F)
    raised = (np.float64(_F(qe.scale)) * (exponent.astype(np.int32) - qe.zero_point)).astype(_F)
    with np.errstate(all="ignore"):
        real = (fmaf(base, _F(scale), _F(shift)).astype(np.float64) ** raised).astype(_F)
        result = rounded(real / np.float64(_F(out.scale)), out.zero_point)
    return lookup(x, result) if values is VALUES else result


def scale_int8(
    x: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray | None,
    q: Affine,
    q_scale: Affine,
    q_offset: Affine | None,
    out: Affine,
    activation: str = "",
) -> np.ndarray:
    """ScaleFusion of int8, ``x * scale + offset``, already broadcast (``DoScaleInt8``). Scales stay float64.

    RELU clamps the stored value to 0 .. 127 and RELU6 to 0 .. 6, whatever the zero point, as the runtime does. Without
    an offset it adds the zero points of ``x`` and ``scale`` instead of subtracting them.

    Parameters
    ----------
    x : ndarray of int8
    scale, offset : ndarray of int8
        Of shapes that broadcast against ``x``; the offset may be None.
    q, q_scale, q_offset, out : Affine
    activation : str

    Returns
    -------
    ndarray of int8, shape of ``x``

    Examples
    --------
    >>> q = Affine(0.1, 0)
    >>> scale_int8(np.array([10, -30], np.int8), np.array([20], np.int8), np.array([7], np.int8), q, q, q, q)
    array([ 27, -53], dtype=int8)
    """
    sign = 1 if offset is None else -1
    product = (x.astype(np.int64) + sign * q.zero_point) * (scale.astype(np.int64) + sign * q_scale.zero_point)
    sums = multiply(product, *quantize_multiplier(q.scale * q_scale.scale / out.scale)) + out.zero_point
    if offset is not None and q_offset is not None:
        added = offset.astype(np.int64) - q_offset.zero_point
        sums = sums + multiply(added, *quantize_multiplier(q_offset.scale / out.scale))
    low, high = {"RELU": (0, 127), "RELU6": (0, 6)}.get(activation, (-128, 127))
    return clamped(sums, low, high)


def batch_norm_int8(
    x: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    params: tuple[Affine, Affine, Affine],
    out: Affine,
    epsilon: float,
    scale: tuple[np.ndarray, Affine] | None = None,
    offset: tuple[np.ndarray, Affine] | None = None,
) -> np.ndarray:
    """BatchNorm, and with ``scale`` and ``offset`` FusedBatchNorm, of int8 along the last axis (``BatchNormInt8``).

    Parameters
    ----------
    x : ndarray of int8, shape (..., C)
    mean, variance : ndarray of int8, shape (C,)
    params : (Affine, Affine, Affine)
        Of ``x``, ``mean`` and ``variance``. Scales stay float64.
    out : Affine
    epsilon : float
    scale, offset : (ndarray of int8 of shape (C,), Affine), optional

    Returns
    -------
    ndarray of int8, shape of ``x``

    Examples
    --------
    >>> half = np.array([50], np.int8)
    >>> batch_norm_int8(
    ...     np.array([[100]], np.int8),
    ...     half,
    ...     half,
    ...     (Affine(0.02, 0), Affine(0.01, 0), Affine(0.005, 0)),
    ...     Affine(0.05, 0),
    ...     0.0,
    ... )
    array([[60]], dtype=int8)
    """
    q, qm, qv = params
    centre = mean.astype(np.int64) - qm.zero_point
    spread = (
        out.scale * np.sqrt(np.float64(_F(epsilon)) + qv.scale * (variance.astype(np.int64) - qv.zero_point))
    ).astype(_F)
    if scale is None or offset is None:
        alpha = (q.scale / spread.astype(np.float64)).astype(_F)
        start = fmaf(-alpha, _F(q.zero_point), _F(out.zero_point))
        beta = (start - qm.scale * centre / spread.astype(np.float64)).astype(_F)
    else:
        gain = (scale[0].astype(np.int64) - scale[1].zero_point).astype(_F)
        shift = (offset[0].astype(np.int64) - offset[1].zero_point).astype(_F)
        alpha = _F(q.scale * scale[1].scale) * gain / spread
        start = fmaf(shift, _F(offset[1].scale / out.scale), _F(out.zero_point))
        start = fmaf(-alpha, _F(q.zero_point), start)
        beta = start - _F(scale[1].scale * qm.scale) * gain * centre.astype(_F) / spread
    return rounded(fmaf(x, alpha, beta), 0)
