"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import numpy as np

from mlinspect.kernels.reduce import reduce, sum_sequential


def _shifted(x: np.ndarray, axis: int, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """``(x - max) * beta``, and its exponential."""
    shifted = x - reduce(x, "max", axis, keepdims=True)
    shifted *= np.float32(beta)
    # C's expf is right to the last bit nearly always, numpy's float32 exp is not: go through float64
    return shifted, np.exp(shifted, dtype=np.float64).astype(np.float32)


def softmax(x: np.ndarray, axis: int = -1, beta: float = 1.0) -> np.ndarray:
    """``exp(z) / sum(exp(z))`` with ``z = (x - max) * beta``.

    Parameters
    ----------
    x : ndarray of float32
    axis : int
    beta : float

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
    _, powers = _shifted(x, axis, beta)
    powers /= sum_sequential(powers, axis, keepdims=True)
    return powers


def log_softmax(x: np.ndarray, axis: int = -1, beta: float = 1.0) -> np.ndarray:
    """``z - log(sum(exp(z)))`` with ``z = (x - max) * beta``.

    Parameters
    ----------
    x : ndarray of float32
    axis : int
    beta : float

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
    shifted, powers = _shifted(x, axis, beta)
    total = sum_sequential(powers, axis, keepdims=True)
    shifted -= np.log(total, dtype=np.float64).astype(np.float32)
    return shifted
