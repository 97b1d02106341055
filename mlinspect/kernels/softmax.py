"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import numpy as np

from mlinspect.kernels.elementwise import UNARY, Unary
from mlinspect.kernels.reduce import reduce, sum_sequential


def _shifted(x: np.ndarray, axis: int, beta: float) -> np.ndarray:
    """``(x - max) * beta``."""
    shifted = x - reduce(x, "max", axis, keepdims=True)
    shifted *= np.float32(beta)
    return shifted


def softmax(x: np.ndarray, axis: int = -1, beta: float = 1.0, exp: Unary = UNARY["exp"]) -> np.ndarray:
    """``exp(z) / sum(exp(z))`` with ``z = (x - max) * beta``.

    Parameters
    ----------
    x : ndarray of float32
    axis : int
    beta : float
    exp : callable
        Which exponential: `mlinspect.kernels.libm.expf` for a result that is rounded afterwards.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``Softmax`` (reference backend: the sum is sequential float32); MindSpore Lite ``Softmax`` (whose SIMD
    exponential is off by up to 2e-5).

    Examples
    --------
    >>> softmax(np.float32([0, 0, -1000])).tolist()
    [0.5, 0.5, 0.0]
    """
    powers = exp(_shifted(x, axis, beta))
    powers /= sum_sequential(powers, axis, keepdims=True)
    return powers


def log_softmax(
    x: np.ndarray, axis: int = -1, beta: float = 1.0, exp: Unary = UNARY["exp"], log: Unary = UNARY["log"]
) -> np.ndarray:
    """``z - log(sum(exp(z)))`` with ``z = (x - max) * beta``.

    Parameters
    ----------
    x : ndarray of float32
    axis : int
    beta : float
    exp, log : callable
        Which: those of `mlinspect.kernels.libm` for a result that is rounded afterwards.

    Returns
    -------
    ndarray of float32
        Shape of ``x``.

    Notes
    -----
    Arm NN ``LogSoftmax`` (reference backend: the sum is sequential float32); MindSpore Lite ``LogSoftmax``.

    Examples
    --------
    >>> log_softmax(np.float32([3, 3])).tolist()
    [-0.6931471824645996, -0.6931471824645996]
    """
    shifted = _shifted(x, axis, beta)
    shifted -= log(sum_sequential(exp(shifted), axis, keepdims=True))
    return shifted
