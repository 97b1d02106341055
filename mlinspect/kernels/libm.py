"""``expf`` and ``tanhf`` as glibc computes them, so that a rounding to a quantised grid after them falls the same way.

numpy's own float32 versions differ in the last place or two, which moves a rounded result whenever it lies that close
to a tie. Arm NN's reference backend calls the C library.
"""

from __future__ import annotations

import numpy as np

_F = np.float32
_EXP_TABLE = np.exp2(np.arange(32) / 32)
_EXP_POLY = tuple(float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))
_LN2_HIGH, _LN2_LOW, _INV_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216)
_EXPM1_POLY = tuple(
    _F(q) for q in (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02, 1.0)
)


def expf(x: np.ndarray) -> np.ndarray:
    """e to the power ``x`` as glibc's ``expf`` (2.28 and later): a cubic in double around multiples of ln 2 / 32.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> expf(np.float32([0, 1, 1000]))
    array([1.       , 2.7182817,       inf], dtype=float32)
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = np.clip(np.asarray(x, np.float64), -150, 150) * (32 / np.log(2.0))
        whole = np.rint(z)
        r = (z - whole) / 32
        k = whole.astype(np.int64)
        power = np.ldexp(_EXP_TABLE[k & 31], k >> 5)
        c3, c2, c1 = _EXP_POLY
        return (((c3 * r + c2) * (r * r) + (c1 * r + 1)) * power).astype(np.float32)


def _expm1f(x: np.ndarray) -> np.ndarray:
    """``expm1f`` of fdlibm for -38 < x < 45, every operation in float32."""
    size = np.abs(x)
    k = np.trunc(_INV_LN2 * x + np.copysign(_F(0.5), x))
    k = np.where(size < _F(1.0397208), np.copysign(_F(1), x), k)
    k = np.where(size > _F(0.34657359), k, _F(0))  # a NaN too
    high, low = x - k * _LN2_HIGH, k * _LN2_LOW
    r = high - low
    error = (high - r) - low
    half = _F(0.5) * r
    square = r * half
    poly = np.full_like(square, _EXPM1_POLY[0])
    for q in _EXPM1_POLY[1:]:
        poly = q + square * poly
    t = _F(3) - poly * half
    e = square * ((poly - t) / (_F(6) - r * t))
    e_shifted = (r * (e - error) - error) - square
    scale = np.ldexp(_F(1), k.astype(np.int32))
    below = np.where(k < 23, (_F(1) - 1 / scale) - (e_shifted - r), r - (e_shifted + 1 / scale) + _F(1)) * scale
    result = np.where(k < -1, (_F(1) - (e_shifted - r)) * scale - _F(1), below)
    first = np.where(r < _F(-0.25), _F(-2) * (e_shifted - (r + _F(0.5))), 1 + 2 * (r - e_shifted))
    result = np.where(k == 1, first, result)
    result = np.where(k == -1, _F(0.5) * (r - e_shifted) - _F(0.5), result)
    result = np.where(k == 0, r - (r * e - square), result)
    return np.where(size < _F(2.0**-25), x, result)


def tanhf(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent as glibc's ``tanhf`` (before 2.41): fdlibm's formulas on ``expm1f``, in float32.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> tanhf(np.float32([0, 0.5, -30]))
    array([ 0.        ,  0.46211717, -1.        ], dtype=float32)
    """
    size = np.minimum(np.abs(np.asarray(x, np.float32)), _F(22))
    large = size >= 1
    t = _expm1f(np.where(large, _F(2) * size, _F(-2) * size))
    value = np.where(large, _F(1) - _F(2) / (t + _F(2)), -t / (t + _F(2)))
    return np.copysign(np.where(size >= 22, _F(1), value), x)
