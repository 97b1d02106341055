"""Elementary functions as glibc computes them, so that a rounding to a quantised grid after them falls the same way.

numpy's own float32 versions differ in the last place or two, and rounding its float64 ones still differs once in
hundreds of numbers; either moves a rounded result that lies that close to a tie. Arm NN's reference backend calls the C
library. Constants are those of glibc's tables; they fit single precision only, so each digit counts.
"""

from __future__ import annotations

import numpy as np

_F = np.float32
_EXP_TABLE = np.exp2(np.arange(32) / 32)
_EXP_POLY = tuple(float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))
_LOG_STEPS = tuple(  # 1 / c and ln c for 16 numbers c around 1
    (float.fromhex(inverse), float.fromhex(log))
    for inverse, log in (
        ("0x1.661ec79f8f3bep+0", "-0x1.57bf7808caadep-2"),
        ("0x1.571ed4aaf883dp+0", "-0x1.2bef0a7c06ddbp-2"),
        ("0x1.49539f0f010bp+0", "-0x1.01eae7f513a67p-2"),
        ("0x1.3c995b0b80385p+0", "-0x1.b31d8a68224e9p-3"),
        ("0x1.30d190c8864a5p+0", "-0x1.6574f0ac07758p-3"),
        ("0x1.25e227b0b8eap+0", "-0x1.1aa2bc79c81p-3"),
        ("0x1.1bb4a4a1a343fp+0", "-0x1.a4e76ce8c0e5ep-4"),
        ("0x1.12358f08ae5bap+0", "-0x1.1973c5a611cccp-4"),
        ("0x1.0953f419900a7p+0", "-0x1.252f438e10c1ep-5"),
        ("0x1p+0", "0x0p+0"),
        ("0x1.e608cfd9a47acp-1", "0x1.aa5aa5df25984p-5"),
        ("0x1.ca4b31f026aap-1", "0x1.c5e53aa362eb4p-4"),
        ("0x1.b2036576afce6p-1", "0x1.526e57720db08p-3"),
        ("0x1.9c2d163a1aa2dp-1", "0x1.bc2860d22477p-3"),
        ("0x1.886e6037841edp-1", "0x1.1058bc8a07ee1p-2"),
        ("0x1.767dcf5534862p-1", "0x1.4043057b6ee09p-2"),
    )
)
_LOG_POLY = tuple(map(float.fromhex, ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2")))
_SIN_POLY = tuple(map(float.fromhex, ("-0x1.994eb3774cf24p-13", "0x1.1107605230bc4p-7", "-0x1.555545995a603p-3")))
_COS_POLY = tuple(
    map(
        float.fromhex,
        ("0x1.99343027bf8c3p-16", "-0x1.6c087e89a359dp-10", "0x1.55553e1068f19p-5", "-0x1.ffffffd0c621cp-2", "0x1p0"),
    )
)
_BITS = bytes.fromhex("000000a2f9836e4e441529fc2757d1f534ddc0db6295993c439041")  # of 2 / pi
_TWO_BY_PI = np.array([int.from_bytes(_BITS[i : i + 4], "big") for i in range(24)], np.uint32)
_LN2_HIGH, _LN2_LOW, _INV_LN2 = _F(6.9313812256e-01), _F(9.0580006145e-06), _F(1.4426950216)
_EXPM1_POLY = tuple(
    _F(q) for q in (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02, 1.0)
)


def fmaf(a: np.ndarray | np.float32, b: np.ndarray | np.float32, c: np.ndarray | np.float32 | np.integer) -> np.ndarray:
    """``a * b + c`` in double, then rounded to float32: a fused multiply-add, which does not round the product.

    Parameters
    ----------
    a, b, c : ndarray or scalar
        float32, or integers that float32 holds; shapes that broadcast.

    Returns
    -------
    ndarray of float32

    Notes
    -----
    MindSpore Lite's x86 build fuses such expressions wherever a docstring here says so.

    Examples
    --------
    >>> third = np.float32(1) / np.float32(3)
    >>> fmaf(np.float32([3]), third, np.float32(-1)), np.float32([3]) * third - np.float32(1)
    (array([2.9802322e-08], dtype=float32), array([0.], dtype=float32))
    """
    return (np.multiply(a, b, dtype=np.float64) + c).astype(_F)


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


def logf(x: np.ndarray) -> np.ndarray:
    """Natural logarithm as glibc's ``logf`` (2.27 and later): a cubic in double around 16 steps of each octave.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> logf(np.float32([1, 10, 0, -1]))
    array([0.       , 2.3025851,      -inf,       nan], dtype=float32)
    """
    x = np.asarray(x, _F)
    with np.errstate(all="ignore"):
        usual = (x > 0) & (x < np.inf)
        mantissa, exponent = np.frexp(np.where(usual, x, _F(1)).astype(np.float64))
        bits = (mantissa.astype(_F) * 2).view(np.int32)  # of 1 <= z < 2
        place = bits - 0x3F330000
        step, octave = (place >> 19) & 15, (place >> 23) + exponent.astype(np.int32) - 1
        z = (bits - (place & -0x800000)).view(_F).astype(np.float64)
        inverse, log = np.array(_LOG_STEPS).T[:, step]
        r = z * inverse - 1
        square = r * r
        a0, a1, a2 = _LOG_POLY
        result = (a0 * square + (a1 * r + a2)) * square + ((log + octave * np.log(2.0)) + r)
        return np.where(usual, result.astype(_F), np.log(x))


def sinf(x: np.ndarray) -> np.ndarray:
    """Sine as glibc's ``sinf`` (2.28 and later): polynomials in double on a quarter turn.

    Parameters
    ----------
    x : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> sinf(np.float32([0, 1, 1e6]))
    array([ 0.        ,  0.84147096, -0.3499935 ], dtype=float32)
    """
    size = np.abs(np.asarray(x, _F))
    quarter, y = _quarter_turns(size)
    square = y * y
    s3, s2, s1 = _SIN_POLY
    cube = y * square
    sine = (y + cube * s1) + cube * square * (s2 + square * s3)
    c4, c3, c2, c1, c0 = _COS_POLY
    fourth = square * square
    cosine = ((c0 + square * c1) + fourth * c2) + fourth * square * (c3 + square * c4)
    result = np.where(quarter & 1, cosine, sine) * np.where(quarter & 2, -1, 1)
    result = np.where(size < np.inf, result, np.nan).astype(_F)
    result = np.where(size < _F(2.0**-12), size, result)
    return np.copysign(_F(1), x) * result


def _quarter_turns(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many quarter turns an angle holds, and the rest in double; exact to 64 bits from 120 on."""
    small = np.where(size < 120, size, _F(0)).astype(np.float64)
    turns = np.floor(small * (2 / np.pi) + 0.5)
    rest = small - turns * (np.pi / 2)
    if (size < 120).all():
        return turns.astype(np.int64), rest
    bits = size.view(np.uint32)
    fraction = ((bits & 0xFFFFFF) | 0x800000) << ((bits >> 23) & 7)
    first, second, third = (_TWO_BY_PI[((bits >> 26) & 15) + i] for i in (0, 4, 8))
    wide = fraction.astype(np.uint64)
    product = (fraction * first).astype(np.uint64) << 32  # what leaves the upper end are whole turns
    product |= wide * third >> 32
    product += wide * second
    whole = (product + (1 << 61)) >> 62
    left = (product - (whole << 62)).view(np.int64) * (np.pi * 2.0**-63)
    return np.where(size < 120, turns, whole).astype(np.int64), np.where(size < 120, rest, left)


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
