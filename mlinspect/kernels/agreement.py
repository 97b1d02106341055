"""How well one array agrees with another: sums that add up over arrays, and the figures made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_PIECE = 8192  # numbers that are multiplied at once: of longer vectors OpenBLAS starts threads, slow on a busy machine


@dataclass(frozen=True, slots=True)
class Agreement:
    """Sums over pairs of values, reference and other; two of them add up to that of both arrays together.

    Attributes
    ----------
    elements, equal : int
        How many values there are, and how many are the same (NaN is the same as NaN).
    signal, power, product, noise : float
        Sums of reference**2, other**2, reference * other, (other - reference)**2 over finite values. A value that only
        one of the two holds as a finite number makes the noise infinite.
    bias : float
        Sum of other - reference.
    max_abs : float
        Largest difference.

    Examples
    --------
    >>> both = agreement(np.array([3.0, 4.0]), np.array([3.0, 4.5])) + agreement(np.array([5.0]), np.array([5.0]))
    >>> both.elements, both.equal, both.max_abs, round(both.sqnr_db, 2)
    (3, 2, 0.5, 23.01)
    """

    elements: int = 0
    equal: int = 0
    signal: float = 0.0
    power: float = 0.0
    product: float = 0.0
    noise: float = 0.0
    bias: float = 0.0
    max_abs: float = 0.0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.elements + other.elements,
            self.equal + other.equal,
            self.signal + other.signal,
            self.power + other.power,
            self.product + other.product,
            self.noise + other.noise,
            self.bias + other.bias,
            max(self.max_abs, other.max_abs),
        )

    @property
    def sqnr_db(self) -> float:
        """Signal to noise ratio in dB: inf where there is no noise, -inf where there is nothing but noise."""
        return decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two; 1 where both are zero, 0 where one is."""
        length = math.sqrt(self.signal) * math.sqrt(self.power)
        return self.product / length if length else float(self.signal == self.power)

    @property
    def mse(self) -> float:
        """Mean squared difference."""
        return self.noise / self.elements if self.elements else 0.0

    @property
    def mean_error(self) -> float:
        """Mean of other - reference."""
        return self.bias / self.elements if self.elements else 0.0

    @property
    def equal_share(self) -> float:
        """Share of the values that are the same."""
        return self.equal / self.elements if self.elements else 1.0


def agreement(reference: np.ndarray, other: np.ndarray) -> Agreement:
    """Compare two arrays of real values.

    Parameters
    ----------
    reference, other : ndarray
        Of one shape.

    Returns
    -------
    Agreement

    Raises
    ------
    ValueError
        The shapes differ.

    Examples
    --------
    >>> agreement(np.array([1.0, np.nan]), np.array([1.0, np.nan])).sqnr_db
    inf
    >>> agreement(np.array([1.0, 2.0]), np.array([1.0, np.nan])).sqnr_db
    -inf
    """
    if reference.shape != other.shape:
        raise ValueError(f"shapes {reference.shape} and {other.shape} differ")
    a, b = np.asarray(reference, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    equal = int(np.count_nonzero(a == b))
    elements, unmatched = a.size, False
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():
        rest_a, rest_b = a[~finite], b[~finite]
        nan = np.isnan(rest_a) & np.isnan(rest_b)
        equal += int(np.count_nonzero(nan))
        unmatched = bool((~nan & (rest_a != rest_b)).any())
        a, b = a[finite], b[finite]
    difference = b - a
    return Agreement(
        elements,
        equal,
        dot(a, a),
        dot(b, b),
        dot(a, b),
        math.inf if unmatched else dot(difference, difference),
        float(difference.sum()),
        math.inf if unmatched else float(np.abs(difference).max(initial=0.0)),
    )


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Sum of the products of two vectors of one length, without threads.

    Parameters
    ----------
    a, b : ndarray of float64, shape (n,)

    Examples
    --------
    >>> dot(np.ones(10_000), np.full(10_000, 2.0))
    20000.0
    """
    whole = a.size - a.size % _PIECE
    pieces = np.vecdot(a[:whole].reshape(-1, _PIECE), b[:whole].reshape(-1, _PIECE))
    return float(pieces.sum() + np.vecdot(a[whole:], b[whole:]))


def sqnr_db(reference: np.ndarray, other: np.ndarray) -> float:
    """Signal to quantisation noise ratio in dB: 10 log10(sum reference**2 / sum (other - reference)**2).

    Parameters
    ----------
    reference, other : ndarray
        Of one shape.

    Returns
    -------
    float
        inf where they are the same, -inf where the reference is 0 or a value is finite in one of them only.

    Examples
    --------
    >>> round(sqnr_db(np.array([1.0, -1.0]), np.array([1.1, -0.9])), 6)
    20.0
    """
    return agreement(reference, other).sqnr_db


def decibels(signal: float, noise: float) -> float:
    """Ratio of two powers in dB; NaN where one of them is not known.

    Parameters
    ----------
    signal, noise : float
        Not negative.

    Returns
    -------
    float

    Examples
    --------
    >>> decibels(100.0, 1.0), decibels(0.0, 0.0), decibels(0.0, 1.0)
    (20.0, inf, -inf)
    """
    if math.isnan(signal) or math.isnan(noise):
        return math.nan
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf
