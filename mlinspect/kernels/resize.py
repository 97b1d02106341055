"""Resizing images: nearest neighbour, linear, cubic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.kernels.libm import fmaf
from mlinspect.kernels.quantize import round_half_away
from mlinspect.kernels.shape import along


def source_coordinates(n_in: int, n_out: int, transform: str, *, by_division: bool = False) -> np.ndarray:
    """Where the output cells lie on the input axis.

    Parameters
    ----------
    n_in, n_out : int
        Lengths of the axis.
    transform : {"asymmetric", "align_corners", "half_pixel", "tf_half_pixel_for_nn"}
        ONNX's names: ``i * scale``; the same with both ends matched; ``(i + 0.5) * scale - 0.5``;
        ``(i + 0.5) * scale``, with ``scale = n_in / n_out``.
    by_division : bool
        False (Arm NN): ``i * (n_in / n_out)``. True (MindSpore Lite): ``i / (n_out / n_in)``, which rounds differently,
        no coordinate lies below 0, and the only cell of an output with aligned corners is at NaN (0 / 0).

    Returns
    -------
    ndarray of float32, shape (n_out,)

    Examples
    --------
    >>> source_coordinates(2, 4, "half_pixel").tolist()
    [-0.25, 0.25, 0.75, 1.25]
    >>> source_coordinates(2, 4, "half_pixel", by_division=True).tolist()
    [0.0, 0.25, 0.75, 1.25]
    """
    half = np.float32(0.5)
    cells = np.arange(n_out, dtype=np.float32)
    if transform in ("half_pixel", "tf_half_pixel_for_nn"):
        cells += half
    elif transform == "align_corners" and (n_out > 1 or by_division):
        n_in, n_out = n_in - 1, n_out - 1
    source, target = np.float32(n_in), np.float32(n_out)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = cells / (target / source) if by_division else cells * (source / target)
    if transform == "half_pixel":
        places -= half
        if by_division:
            np.maximum(places, 0, out=places)
    return places


def _cubic_weight(distance: np.ndarray, coefficient: float) -> np.ndarray:
    """Keys' convolution kernel, with the fused multiply-adds of MindSpore Lite's binary."""
    d = np.abs(distance)
    a = np.full_like(d, coefficient)
    near = fmaf(fmaf(a + 2, d, -(a + 3)) * d, d, np.float32(1))
    far = fmaf(8 * a, d, fmaf(a * d * d, d, -(5 * a * d * d))) - 4 * a
    return np.where(d <= 1, near, np.where(d <= 2, far, np.float32(0)))


def _taps(
    places: np.ndarray, n_in: int, method: str, transform: str, by_division: bool, cubic_coeff: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Input cells that every output cell is mixed from, and their weights; both (taps, n_out)."""
    floor = np.floor(places)
    whole = np.nan_to_num(floor).astype(np.int64)
    weights: np.ndarray | None = None
    if method == "nearest":
        cells = whole[None]
        if transform == "align_corners":
            cells = np.nan_to_num(round_half_away(places)).astype(np.int64)[None]
    elif method == "linear":
        upper = np.ceil(places).astype(np.int64) if transform == "half_pixel" and not by_division else whole + 1
        cells = np.stack([whole, upper])
        fraction = places - floor
        weights = np.stack([1 - fraction, fraction])
    elif method == "cubic":
        offsets = np.arange(-1, 3)[:, None]
        cells = whole + offsets
        weights = _cubic_weight(offsets.astype(np.float32) - (places - floor), cubic_coeff)
    else:
        raise UnsupportedError(f"no way to resize is called {method!r}")
    return np.clip(cells, 0, n_in - 1), weights


def _mix(x: np.ndarray, axis: int, cells: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Weighted sum of gathered slices, tap after tap."""
    out = x.take(cells[0], axis)
    if weights is None:
        return out
    out *= along(weights[0], axis, x.ndim)
    for cell, weight in zip(cells[1:], weights[1:], strict=True):
        term = x.take(cell, axis)
        term *= along(weight, axis, x.ndim)
        out += term
    return out


def resize(
    x: np.ndarray,
    size: Sequence[int],
    method: str = "linear",
    transform: str = "asymmetric",
    *,
    by_division: bool = False,
    cubic_coeff: float = -0.75,
) -> np.ndarray:
    """Resize images: first along x, then along y.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
        Nearest neighbour takes any dtype.
    size : (int, int)
        New height and width.
    method : {"nearest", "linear", "cubic"}
    transform : {"asymmetric", "align_corners", "half_pixel", "tf_half_pixel_for_nn"}
        See `source_coordinates`. Nearest neighbour takes the cell below, with aligned corners the nearest one (half
        away from zero).
    by_division : bool
        How coordinates are rounded, and where they start: see `source_coordinates`.
    cubic_coeff : float
        The kernel's ``a``.

    Returns
    -------
    ndarray, shape (N, *size, C)

    Raises
    ------
    UnsupportedError
        No such method.

    Notes
    -----
    Arm NN ``Resize`` and ``ResizeBilinear``: ``alignCorners`` is align_corners; ``halfPixelCenters`` is half_pixel for
    Bilinear, tf_half_pixel_for_nn for NearestNeighbor. MindSpore Lite ``Resize``: ``by_division``.

    Examples
    --------
    >>> x = np.float32([0, 3]).reshape(1, 1, 2, 1)
    >>> resize(x, (1, 4)).ravel().tolist()
    [0.0, 1.5, 3.0, 3.0]
    >>> resize(x, (1, 4), "nearest").ravel().tolist()
    [0.0, 0.0, 3.0, 3.0]
    """
    height, width = x.shape[1:3]
    (y_cells, y_weights), (x_cells, x_weights) = (
        _taps(
            source_coordinates(n_in, n_out, transform, by_division=by_division),
            n_in,
            method,
            transform,
            by_division,
            cubic_coeff,
        )
        for n_in, n_out in zip((height, width), size, strict=True)
    )
    rows = np.unique(y_cells)
    if len(rows) < height:  # interpolate along x only the rows that are used
        x = x.take(rows, 1)
        y_cells = np.searchsorted(rows, y_cells)
    return _mix(_mix(x, 2, x_cells, x_weights), 1, y_cells, y_weights)


def crop_and_resize(
    x: np.ndarray, boxes: np.ndarray, box_indices: np.ndarray, size: Sequence[int], extrapolation_value: float = 0.0
) -> np.ndarray:
    """Cut boxes out of images and resize each linearly.

    Parameters
    ----------
    x : ndarray of float32, shape (N, H, W, C)
    boxes : ndarray of float32, shape (B, 4)
        y1, x1, y2, x2 as shares of the image, whose outer cells lie at 0 and 1; a box may be reversed.
    box_indices : ndarray of int, shape (B,)
        Each box's image.
    size : (int, int)
        Height and width of the crops.
    extrapolation_value : float
        What lies outside the image.

    Returns
    -------
    ndarray of float32, shape (B, *size, C)

    Notes
    -----
    MindSpore Lite ``CropAndResize``, whose runtime interpolates linearly whatever the ``method``.

    Examples
    --------
    >>> x = np.float32([1, 2, 3]).reshape(1, 1, 3, 1)
    >>> crop_and_resize(x, np.float32([[0, 1, 0, -1]]), np.int32([0]), (1, 3), 9).ravel().tolist()
    [3.0, 1.0, 9.0]
    """
    height, width = x.shape[1:3]
    crops = np.empty((len(boxes), *size, x.shape[3]), np.float32)
    for crop, box, image in zip(crops, np.asarray(boxes, np.float32), box_indices, strict=True):
        y_places = _box_places(box[0], box[2], height, size[0])
        x_places = _box_places(box[1], box[3], width, size[1])
        y_cells, y_weights = _taps(np.maximum(y_places, 0), height, "linear", "asymmetric", True, 0)
        x_cells, x_weights = _taps(np.maximum(x_places, 0), width, "linear", "asymmetric", True, 0)
        crop[:] = _mix(_mix(x[image], 1, x_cells, x_weights), 0, y_cells, y_weights)
        crop[(y_places < 0) | (y_places > height - 1)] = extrapolation_value
        crop[:, (x_places < 0) | (x_places > width - 1)] = extrapolation_value
    return crops


def _box_places(start: np.float32, end: np.float32, n_in: int, n_out: int) -> np.ndarray:
    last = np.float32(n_in - 1)
    if n_out == 1:
        return np.array([np.float64(0.5) * np.float64(start + end) * last], np.float32)
    return start * last + np.arange(n_out, dtype=np.float32) * (end - start) * last / np.float32(n_out - 1)
