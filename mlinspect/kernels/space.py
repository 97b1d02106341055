"""Moving between batch, space and depth: images NHWC, any element type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlinspect.kernels.shape import pad


def space_to_batch(
    x: np.ndarray, block: Sequence[int], pads: Sequence[Sequence[int]], value: float | np.generic = 0
) -> np.ndarray:
    """Move the pixels of each block to separate batch entries (SpaceToBatchNd of both runtimes).

    Parameters
    ----------
    x : ndarray, shape (N, H, W, C)
    block : (y, x)
    pads : ((top, bottom), (left, right))
    value : number
        What padding holds: real 0, so the zero point of stored numbers.

    Returns
    -------
    ndarray, shape (N * y * x, H', W', C)
        Entry ``(by * block_x + bx) * N + n``.

    Raises
    ------
    ValueError
        The blocks do not fit.

    Examples
    --------
    >>> space_to_batch(np.arange(4).reshape(1, 2, 2, 1), (2, 2), ((0, 0), (0, 0))).ravel()
    array([0, 1, 2, 3])
    """
    if np.any(pads):
        x = pad(x, [(0, 0), *pads, (0, 0)], value=value)
    (n, h, w, c), (by, bx) = x.shape, block
    if min(block) < 1 or h % by or w % bx:
        raise ValueError(f"a padded image of {h} x {w} pixels cannot be cut into blocks of {by} x {bx}")
    parts = x.reshape(n, h // by, by, w // bx, bx, c).transpose(2, 4, 0, 1, 3, 5)
    return parts.reshape(by * bx * n, h // by, w // bx, c)


def batch_to_space(x: np.ndarray, block: Sequence[int], crops: Sequence[Sequence[int]]) -> np.ndarray:
    """The way back from `space_to_batch`, cropping instead of padding (BatchToSpaceNd of both runtimes).

    Parameters
    ----------
    x : ndarray, shape (N * y * x, H, W, C)
    block : (y, x)
    crops : ((top, bottom), (left, right))

    Returns
    -------
    ndarray, shape (N, H * y - crops, W * x - crops, C)

    Raises
    ------
    ValueError
        The blocks do not fit.

    Examples
    --------
    >>> batch_to_space(np.arange(4).reshape(4, 1, 1, 1), (2, 2), ((0, 0), (0, 1)))[0, :, :, 0]
    array([[0],
           [2]])
    """
    (n, h, w, c), (by, bx) = x.shape, block
    if min(block) < 1 or n % (by * bx):
        raise ValueError(f"{n} batch entries do not make up blocks of {by} x {bx}")
    n //= by * bx
    image = x.reshape(by, bx, n, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n, h * by, w * bx, c)
    (top, bottom), (left, right) = crops
    return image[:, top : h * by - bottom, left : w * bx - right]


def space_to_depth(x: np.ndarray, block: int) -> np.ndarray:
    """Move the pixels of each block to channels ``(by * block + bx) * C + c`` (SpaceToDepth of both runtimes).

    Parameters
    ----------
    x : ndarray, shape (N, H, W, C)
    block : int

    Returns
    -------
    ndarray, shape (N, H / block, W / block, C * block * block)

    Raises
    ------
    ValueError
        The block does not fit.

    Examples
    --------
    >>> space_to_depth(np.arange(8).reshape(1, 2, 4, 1), 2)[0, 0]
    array([[0, 1, 4, 5],
           [2, 3, 6, 7]])
    """
    n, h, w, c = x.shape
    if block < 1 or h % block or w % block:
        raise ValueError(f"an image of {h} x {w} pixels cannot be cut into blocks of {block} x {block}")
    parts = x.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, h // block, w // block, block * block * c)


def depth_to_space(x: np.ndarray, block: int, mode: str = "DCR") -> np.ndarray:
    """Spread channels over the pixels of a block (DepthToSpace of both runtimes).

    Parameters
    ----------
    x : ndarray, shape (N, H, W, C)
    block : int
    mode : {"DCR", "CRD"}
        Channel of pixel (by, bx): ``(by * block + bx) * c' + c``, or ``(c * block + by) * block + bx``. Arm NN knows
        DCR only.

    Returns
    -------
    ndarray, shape (N, H * block, W * block, C / block / block)

    Raises
    ------
    ValueError
        The block does not fit.

    Examples
    --------
    >>> depth_to_space(np.arange(4).reshape(1, 1, 1, 4), 2)[0, :, :, 0]
    array([[0, 1],
           [2, 3]])
    """
    n, h, w, c = x.shape
    if block < 1 or c % (block * block):
        raise ValueError(f"{c} channels cannot be spread over blocks of {block} x {block} pixels")
    inner = c // (block * block)
    if mode == "DCR":
        parts = x.reshape(n, h, w, block, block, inner).transpose(0, 1, 3, 2, 4, 5)
    else:
        parts = x.reshape(n, h, w, inner, block, block).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, h * block, w * block, inner)
