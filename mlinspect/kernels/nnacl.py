"""Elementary functions as MindSpore Lite's CPU kernels (nnacl) approximate them: short polynomials in float32.

They differ from the exact functions by up to 2e-5 relative (exp), 1e-4 (tanh), 2e-3 (cos), 2e-6 (log). Followed here is
the vector code of the x86 build of 2.0.0; the last few elements of a tensor go through scalar code there, which for cos
and log is the C library.
"""

from __future__ import annotations

import numpy as np

_F = np.float32
_LN2, _PI = _F(0.693147), _F(3.1415926)  # as short as nnacl writes them


def exp(x: np.ndarray) -> np.ndarray:
    """e to the power `x`: Taylor's polynomial of degree 5 around multiples of ln 2 (``simd_exp``).

    Parameters
    ----------
    x : ndarray of float32
        Counts as +-88 beyond that, so that nothing overflows; NaN counts as 88.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> exp(np.float32([0, 1, -1000]))
    array([1.       , 2.7182798, 0.       ], dtype=float32)
    """
    d = np.fmin(x.reshape(-1), _F(88))
    np.maximum(d, _F(-88), out=d)
    whole = d / _LN2
    np.rint(whole, out=whole)
    with np.errstate(invalid="ignore"):
        power = whole.astype(np.int32)
    whole *= _LN2
    d -= whole
    y = d * _F(1 / 120)
    for c in (1 / 24, 1 / 6, 1 / 2, 1):
        y += _F(c)
        y *= d
    y += _F(1)
    power += 127
    power <<= 23
    y *= power.view(_F)
    return y.reshape(x.shape)


def tanh_quotient(x: np.ndarray) -> np.ndarray:
    """The quotient of polynomials that approximates tanh (nnacl ``TanhOpt``), not yet clamped to -1..1.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> tanh_quotient(np.float32([0, 0.5, 9]))
    array([0.        , 0.46211717, 1.0052787 ], dtype=float32)
    """
    square = np.square(x)
    y = _horner(square, (1, 378, 17325, 135135))
    y *= x
    y /= _horner(square, (28, 3150, 62370, 135135))
    return y


def tanh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent: a quotient of polynomials, clamped to -1..1 (``MS_TANHX8_F32``).

    Parameters
    ----------
    x : ndarray of float32
        From about 1.5e6 on both polynomials overflow; such numbers and NaN give -1, but for the last ``size % 4``
        elements.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> tanh(np.float32([0, 0.5, -30]))
    array([ 0.        ,  0.46211717, -1.        ], dtype=float32)
    """
    flat = x.reshape(-1)
    with np.errstate(all="ignore"):
        y = tanh_quotient(flat)
    np.fmax(y, _F(-1), out=y)
    np.fmin(y, _F(1), out=y)
    tail = slice(flat.size - flat.size % 4, None)
    y[tail] = np.where(np.abs(flat[tail]) <= 5, y[tail], np.sign(flat[tail]))
    return y.reshape(x.shape)


def cos(x: np.ndarray) -> np.ndarray:
    """Cosine: Taylor's polynomial of degree 10 on -pi..pi (``MS_COS128_F32``); the last ``size % 4`` elements exact.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> cos(np.float32([0, 1, 3.1415, 6, 3.1415])).round(5)
    array([ 1.     ,  0.5403 , -1.00183,  0.96017, -1.     ], dtype=float32)
    """
    size = np.abs(x.reshape(-1))
    turns = np.floor((size + _PI) * _F(1 / (2 * _PI)))
    turns *= -2 * _PI
    turns += size
    square = np.square(turns)
    y = square * _F(-1 / 90)
    y += _F(1)
    for factor, sign in ((1 / 56, -1), (1 / 30, 1), (1 / 12, -1), (1 / 2, 1)):
        y *= square
        y *= _F(factor)
        y += _F(sign)
    return _scalar_tail(y, x, np.cos)


def log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm: a series of artanh on the mantissa (``MS128_LOG_F32``); the last ``size % 4`` elements exact.

    Parameters
    ----------
    x : ndarray of float32
        The vector code looks at exponent and mantissa only: 0 gives -88.03, signs stay in the mantissa.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> log(np.float32([1, 2, 10, 0])).round(5)
    array([  0.     ,   0.69315,   2.30258, -88.02967], dtype=float32)
    """
    bits = np.ascontiguousarray(x, _F).reshape(-1).view(np.int32)
    exponent = ((bits >> 23) & 0xFF) - 127
    mantissa = (bits & np.int32(-0x7F800001) | 0x3F800000).view(_F)
    with np.errstate(all="ignore"):
        ratio = (mantissa - _F(1)) / (mantissa + _F(1))
        series = _horner(np.square(ratio), (1 / 11, 1 / 9, 1 / 7, 0.2, 1 / 3, 1))
        return _scalar_tail(_LN2 * exponent.astype(_F) + ratio * series * _F(2), x, np.log)


def _horner(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """The polynomial with these coefficients, highest power first."""
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += _F(c)
    return y


def _scalar_tail(y: np.ndarray, x: np.ndarray, exact: np.ufunc) -> np.ndarray:
    tail = slice(x.size - x.size % 4, None)
    y[tail] = exact(x.reshape(-1)[tail], dtype=float)
    return y.reshape(x.shape)
