"""Fixed-point arithmetic as nnacl (MindSpore Lite's CPU kernels) does it: ``nnacl/int8/fixed_point``, ``quantize``.

A real factor is a 31-bit multiplier and a power of two; products are rounded twice, once for each. All is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlinspect.kernels.memory import aligned, scratch

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_BLOCK = 1 << 16  # elements that stay in the cache from pass to pass
_MANY = 1 << 11  # elements for which passes cost more than calls


def quantize_multiplier(factor: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split ``factor`` into a 31-bit multiplier and a power of two (nnacl ``QuantizeMultiplier``).

    Parameters
    ----------
    factor : float or ndarray of float64

    Returns
    -------
    multiplier : ndarray of int64
        ``2**30 .. 2**31 - 1``, 0 for 0; infinity gives the largest int32, NaN gives 0.
    exponent : ndarray of int64
        ``factor ~ multiplier * 2.0 ** (exponent - 31)``.

    Examples
    --------
    >>> quantize_multiplier(0.25)
    (array(1073741824), array(-1))
    """
    factor = np.asarray(factor, np.float64)
    finite = np.isfinite(factor)
    mantissa, exponent = np.frexp(np.where(finite, factor, 0.0))
    multiplier = np.floor(np.abs(mantissa) * 2.0**31 + 0.5).astype(np.int64)
    carry = multiplier == 1 << 31
    multiplier = np.where(carry, 1 << 30, multiplier) * np.where(mantissa < 0, -1, 1)
    infinite = np.isinf(factor)
    return (
        np.where(infinite, np.where(factor < 0, _INT32_MIN, _INT32_MAX), multiplier),
        np.where(finite, exponent.astype(np.int64) + carry, 0),
    )


def wrap32(x: np.ndarray) -> np.ndarray:
    """Integers modulo 2**32 as the machine's int32, kept as int64.

    Parameters
    ----------
    x : ndarray of int64

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> wrap32(np.array([1 << 31, -1]))
    array([-2147483648,          -1])
    """
    return x.astype(np.int32).astype(np.int64)


def high_multiply(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """``a * b / 2**31`` to the nearest integer, halves up (nnacl ``SaturatingRoundingDoublingHighMul``).

    Parameters
    ----------
    a, b : ndarray of int64, or int
        int32 values.

    Returns
    -------
    ndarray of int64
        Saturated where both are the smallest number.

    Examples
    --------
    >>> high_multiply(np.array([5, -5]), 1 << 30)
    array([ 3, -2])
    """
    return np.minimum((np.asarray(a, np.int64) * b + (1 << 30)) >> 31, _INT32_MAX)


def high_multiply16(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    """:func:`high_multiply` of int16 values: ``a * b / 2**15`` (nnacl and gemmlowp).

    Parameters
    ----------
    a, b : ndarray of int64, or int
        int16 values.

    Returns
    -------
    ndarray of int64
        Saturated where both are the smallest number.

    Examples
    --------
    >>> high_multiply16(np.array([-32768, 5]), -32768)
    array([32767,    -5])
    """
    return np.minimum((np.asarray(a, np.int64) * b + (1 << 14)) >> 15, 32767)


def rounding_shift(x: np.ndarray, bits: np.ndarray | int) -> np.ndarray:
    """``x / 2**bits`` to the nearest integer, halves away from zero (nnacl ``RoundingDivideByPOT``).

    Parameters
    ----------
    x : ndarray of int64
        int32 values.
    bits : ndarray of int64, or int
        0 to 31.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> rounding_shift(np.array([5, -5, 3]), 1)
    array([ 3, -3,  2])
    """
    half = (np.int64(1) << np.asarray(bits, np.int64)) >> 1
    return (x + half - ((x < 0) & (half > 0))) >> bits


def multiply(x: np.ndarray, multiplier: np.ndarray | int, exponent: np.ndarray | int) -> np.ndarray:
    """``x * multiplier * 2**(exponent - 31)``, rounded twice (nnacl ``MultiplyByQuantizedMultiplier``).

    Parameters
    ----------
    x : ndarray of int
        int32 values.
    multiplier, exponent : ndarray of int64, or int
        As :func:`quantize_multiplier` gives them; broadcast against ``x``.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> multiply(np.array([100, -100]), *quantize_multiplier(0.125))
    array([ 13, -13])
    """
    left = np.maximum(exponent, 0)
    product = high_multiply(wrap32(np.asarray(x, np.int64) << left), multiplier)
    return rounding_shift(product, np.minimum(left - exponent, 31))


def requantize(
    accumulator: np.ndarray, factor: float | np.ndarray, zero_point: int, low: int = -128, high: int = 127
) -> np.ndarray:
    """int32 sums -> int8: :func:`multiply` by ``factor``, add the zero point, clamp.

    The end of MindSpore Lite's int8 Conv2DFusion, Conv2dTransposeFusion, FullConnection and MatMulFusion.

    Parameters
    ----------
    accumulator : ndarray of int32, shape (..., C)
    factor : float or ndarray of float64, shape (C,)
        ``scale_in * scale_weights / scale_out``, one for all or one a channel; not negative.
    zero_point : int
    low, high : int
        Range of the result, which a fused activation narrows; within -128 .. 127.

    Returns
    -------
    ndarray of int8, same shape

    Notes
    -----
    With small factors, as networks have them, one multiplication in float32 is enough: rounding twice differs from
    rounding once only for products near a half, and only those few are rounded twice. With other factors both
    roundings are done in float64, which holds every product of sums below 2**22 exactly. Larger sums saturate whatever
    the last bit of their product is, or, where the factor is so small that they do not, go through int64.

    Examples
    --------
    >>> requantize(np.array([[100, -300, 20000]], np.int32), np.array([0.01, 0.01, 0.25]), -3)
    array([[ -2,  -6, 127]], dtype=int8)
    """
    return requantizer(factor, zero_point, low, high)(accumulator)


def requantizer(
    factor: float | np.ndarray, zero_point: int, low: int = -128, high: int = 127
) -> Callable[[np.ndarray], np.ndarray]:
    """:func:`requantize` with these parameters, prepared once for many accumulators.

    Parameters
    ----------
    factor, zero_point, low, high
        As for :func:`requantize`.

    Returns
    -------
    callable
        ``f(accumulator) -> ndarray of int8``.

    Examples
    --------
    >>> requantizer(0.25, 1)(np.array([10, 11], np.int32))
    array([4, 4], dtype=int8)
    """
    multiplier, exponent = quantize_multiplier(factor)
    exponent = np.maximum(exponent, -31)  # no int32 is shifted by more
    # sums from here on go through int64
    limit = 1 << min(31 if exponent.min() >= -12 else 22, max(0, 31 - int(exponent.max())))
    first, second = multiplier * 2.0 ** (np.maximum(exponent, 0) - 31), 2.0 ** np.minimum(exponent, 0)
    # the first rounding moves a product by half a unit of the second; what float32 adds up to 257, beyond which all
    # saturates, is less than the rest
    margin = 0.5 * second + 5e-5
    quick, per_channel = margin.mean() < 0.02 and abs(zero_point) <= 128, multiplier.size > 1
    # factors, and how far from a whole number a product is sure
    pair = np.array([first * second, 0.5 - margin], np.float32)
    tiles: dict[tuple[int, ...], np.ndarray] = {}  # the channels' pairs over a block of rows, by its shape

    def twice_rounded(sums: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        """Sums of whole rows, or of these columns."""
        if limit < 1 << 31 and sums.size and max(int(sums.max()), -int(sums.min())) >= limit:
            return multiply(sums, *(p if columns is None else p[columns] for p in (multiplier, exponent)))
        whole = np.multiply(sums, first if columns is None else first[columns], dtype=np.float64)
        whole += 0.5
        np.floor(whole, out=whole)
        whole *= second if columns is None else second[columns]
        return np.trunc(whole + np.copysign(0.5, whole))  # exact: what is added to has few digits

    def run(accumulator: np.ndarray) -> np.ndarray:
        channels = accumulator.shape[-1] if per_channel else 1
        rows = accumulator.reshape(-1, channels) if per_channel else accumulator.reshape(-1)
        step = max(1, _BLOCK // channels)
        tile = (min(step, len(rows)), channels)
        if per_channel and tile not in tiles:
            full = aligned((2, *tile), np.float32)
            full[...] = pair[:, None]
            tiles[tile] = full  # only now, as another thread may look
        out = np.empty(rows.shape, np.int8)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            if quick and part.size >= _MANY:
                products, whole = scratch(part.shape)
                factors, sure = tiles[tile][:, : len(part)] if per_channel else pair
                unsure = nearest(np.multiply(part, factors, out=products, dtype=np.float32), sure, whole)
                if unsure.size:
                    columns = unsure % channels if per_channel else None
                    whole.reshape(-1)[unsure] = twice_rounded(part.reshape(-1)[unsure], columns)
            else:
                whole = twice_rounded(part)
            whole += zero_point
            whole.clip(low, high, out=whole)
            np.copyto(out[start : start + step], whole, casting="unsafe")
        return out.reshape(accumulator.shape)

    return run


def nearest(x: np.ndarray, sure: float | np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Nearest whole numbers, and the places (in the flattened array) of those farther away than is sure.

    Parameters
    ----------
    x : ndarray of float32
        Is overwritten.
    sure : float or ndarray of float32, shape of `x`
        Below 0.5.
    whole : ndarray of float32, shape of `x`
        Gets the whole numbers.

    Returns
    -------
    places : ndarray of int, shape (n,)

    Examples
    --------
    >>> whole = np.empty(3, np.float32)
    >>> nearest(np.float32([1.2, 2.499, -0.7]), 0.49, whole), whole
    (array([1]), array([ 1.,  2., -1.], dtype=float32))
    """
    np.rint(x, out=whole)
    x -= whole
    np.abs(x, out=x)
    return (x > sure).reshape(-1).nonzero()[0]


# ---- functions on Q0.31 numbers, for softmax and division ------------------------------------------------------------


def exp_on_negative_values(x: np.ndarray) -> np.ndarray:
    """``exp(x)`` for ``x <= 0`` as Q5.26, result as Q0.31 (nnacl ``exp_on_negative_values`` with 5 integer bits).

    Parameters
    ----------
    x : ndarray of int64
        int32 values, not positive.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> exp_on_negative_values(np.array([0, -(1 << 26)])) / 2**31
    array([1.        , 0.36787955])
    """
    quarter = 1 << 24
    modulus = (x & quarter - 1) - quarter
    result = _exp_of_quarter(modulus << 5)
    rest = modulus - x
    for bit, factor in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        result = np.where(rest & quarter << bit, high_multiply(result, factor), result)
    return np.where(x == 0, _INT32_MAX, result)


def _exp_of_quarter(x: np.ndarray) -> np.ndarray:
    """``exp(x)`` for ``-1/4 <= x < 0``, Q0.31, by a polynomial around -1/8."""
    at = 1895147668  # exp(-1/8)
    x = x + (1 << 28)
    x2 = high_multiply(x, x)
    x3 = high_multiply(x2, x)
    x4 = rounding_shift(high_multiply(x2, x2), 2)
    tail = rounding_shift(high_multiply(x4 + x3, 715827883) + x2, 1)  # 1/3
    return at + high_multiply(x + tail, at)


def reciprocal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``1 / x`` for int32 ``x > 0`` as Q0.31 mantissa and leading zeros (nnacl ``ComputerReciprocal``).

    Parameters
    ----------
    x : ndarray of int64

    Returns
    -------
    mantissa : ndarray of int64
        ``2**62 / (x << zeros)`` nearly: three Newton steps.
    zeros : ndarray of int64
        Leading zero bits of ``x`` as uint32.

    Examples
    --------
    >>> mantissa, zeros = reciprocal(np.array([3]))
    >>> mantissa * 2.0 ** (zeros - 62)
    array([0.33333333])
    """
    zeros = 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)
    half_sum = (x << zeros) >> 1
    y = 1515870810 + high_multiply(half_sum, -1010580540)  # 48/17 - 32/17 * x
    for _ in range(3):
        rest = (1 << 29) - high_multiply(half_sum, y)
        y = y + np.clip(high_multiply(y, rest) << 2, _INT32_MIN, _INT32_MAX)
    return np.clip(y << 1, _INT32_MIN, _INT32_MAX), zeros
