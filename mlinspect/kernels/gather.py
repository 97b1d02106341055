"""Reading and writing elements by index. Values of any type are moved as they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from mlinspect.errors import UnsupportedError


def gather(x: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    """Slices of `x` along `axis`, in the order of `indices` (Arm NN's and MindSpore Lite's Gather).

    Parameters
    ----------
    x : ndarray
    indices : ndarray of int
        Negative ones count from the end. One outside gives zeros, as in MindSpore Lite; in Arm NN it is undefined.
    axis : int

    Returns
    -------
    ndarray, shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``

    Examples
    --------
    >>> gather(np.array([[1, 2], [3, 4]]), np.array([1, -2, 7]))
    array([[3, 4],
           [1, 2],
           [0, 0]])
    """
    axis = normalize_axis_index(axis, x.ndim)
    length = x.shape[axis]
    outside = (indices < -length) | (indices >= length)
    if not outside.any():
        return np.asarray(np.take(x, indices, axis))
    if not length:
        return np.zeros(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype)
    out = np.asarray(np.take(x, np.where(outside, 0, indices), axis))
    out[(slice(None),) * axis + (outside,)] = 0
    return out


def gather_nd(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Slices of `x` by index tuples (GatherNd of both runtimes).

    Parameters
    ----------
    x : ndarray
    indices : ndarray of int, shape (..., depth)
        The last axis holds an index into the first `depth` dimensions.

    Returns
    -------
    ndarray, shape ``indices.shape[:-1] + x.shape[depth:]``

    Raises
    ------
    IndexError
        An index outside `x`, where the runtimes read foreign memory.

    Examples
    --------
    >>> gather_nd(np.array([[1, 2], [3, 4]]), np.array([[1, 0], [0, 1]]))
    array([3, 2])
    """
    return np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])


def gather_elements(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """``out[i, j] = x[indices[i, j], j]`` for axis 0 (MindSpore Lite's GatherD).

    Parameters
    ----------
    x : ndarray
    indices : ndarray of int, of the rank of `x`, no longer than `x` along the other axes
        Negative ones count from the end.
    axis : int

    Returns
    -------
    ndarray, shape of `indices`

    Raises
    ------
    IndexError
        An index outside `x`.

    Examples
    --------
    >>> gather_elements(np.array([[1, 2], [3, 4]]), np.array([[1, 0]]), 0)
    array([[3, 2]])
    """
    place = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    place[axis] = indices
    return x[tuple(place)]


_COMBINE: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str = "update") -> np.ndarray:
    """A copy of `x` with `updates` written at index tuples (ScatterNd, ScatterNdUpdate, ... of MindSpore Lite).

    Parameters
    ----------
    x : ndarray
        Zeros of the wanted shape for ScatterNd.
    indices : ndarray of int, shape (..., depth)
    updates : ndarray, shape ``indices.shape[:-1] + x.shape[depth:]``
    mode : {"update", "add", "sub", "mul", "max", "min"}
        How a value meets what is there; of several updates of one place the last wins in ``update``.

    Returns
    -------
    ndarray, shape of `x`

    Raises
    ------
    IndexError
        An index outside `x`.
    UnsupportedError
        No such mode.

    Examples
    --------
    >>> scatter_nd(np.zeros(4, int), np.array([[1], [3], [1]]), np.array([5, 6, 7]))
    array([0, 7, 0, 6])
    >>> scatter_nd(np.zeros(4, int), np.array([[1], [3], [1]]), np.array([5, 6, 7]), "add")
    array([ 0, 12,  0,  6])
    """
    out, place = x.copy(), tuple(np.moveaxis(indices, -1, 0))
    if mode == "update":
        out[place] = updates
    elif mode in _COMBINE:
        _COMBINE[mode](out, place, updates)
    else:
        raise UnsupportedError(f"scattering knows no mode {mode!r}")
    return out
