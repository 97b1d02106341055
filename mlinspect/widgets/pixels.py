"""Arrays -> small pictures: blocks of values averaged, coloured, and written as PNG with nothing but zlib.

However large an array is, its picture has at most ``LIMIT`` by ``LIMIT`` pixels.
"""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape

import numpy as np

LIMIT = 160
LOW, HIGH, INF, NAN = 1, 2, 3, 4  # marks of values; the higher one wins in a block
_STEPS = 250  # colours of plain values; behind them the marks, the last is transparent
CLEAR = 255

# safe for any colour vision: values run from blue through light to orange, marks have other colours
_SIGNED = ((5, 48, 97), (67, 147, 195), (240, 240, 236), (224, 146, 62), (120, 55, 5))
_UNSIGNED = ((240, 240, 236), (160, 196, 216), (67, 130, 185), (24, 77, 135), (8, 29, 60))
MARKS = {LOW: (200, 0, 150), HIGH: (255, 70, 200), INF: (0, 170, 90), NAN: (0, 0, 0)}


def palette(signed: bool) -> np.ndarray:
    """Colours by code, shape (256, 3) of uint8.

    Examples
    --------
    >>> palette(True)[0].tolist(), palette(False).shape
    ([5, 48, 97], (256, 3))
    """
    stops = np.array(_SIGNED if signed else _UNSIGNED, float)
    at = np.linspace(0, len(stops) - 1, _STEPS)
    ramp = np.stack([np.interp(at, range(len(stops)), stops[:, i]) for i in range(3)], 1)
    colours = np.zeros((256, 3), np.uint8)
    colours[:_STEPS] = ramp.round()
    for mark, colour in MARKS.items():
        colours[_STEPS + mark] = colour
    return colours


def colour_codes(values: np.ndarray, marks: np.ndarray | None, low: float, high: float) -> np.ndarray:
    """Values -> codes into a palette: ``low`` is its first colour, ``high`` its last; marks have colours of their own.

    Examples
    --------
    >>> colour_codes(np.array([[0.0, 1.0, np.nan]]), None, 0, 1).tolist()
    [[0, 249, 254]]
    """
    finite = np.isfinite(values)
    span = high - low if high > low else 1.0
    with np.errstate(all="ignore"):
        codes = np.where(finite, np.clip((values - low) / span, 0, 1) * (_STEPS - 1), 0).round().astype(np.uint8)
    if not finite.all():
        codes = np.where(finite, codes, np.where(np.isnan(values), _STEPS + NAN, _STEPS + INF)).astype(np.uint8)
    return codes if marks is None else np.where(marks > 0, _STEPS + marks, codes).astype(np.uint8)


def shrink(values: np.ndarray, marks: np.ndarray | None, limit: int = LIMIT) -> tuple[np.ndarray, np.ndarray | None]:
    """Blocks of the last two axes become one pixel each: the mean of their finite values, their strongest mark.

    Parameters
    ----------
    values : ndarray of float, shape (..., rows, columns)
    marks : ndarray of uint8 of that shape, or None
    limit : int
        Rows and columns that are left at most.

    Examples
    --------
    >>> shrink(np.array([[1.0, 3.0], [5.0, np.nan]]), None, 1)[0].tolist()
    [[3.0]]
    """
    for axis in (values.ndim - 2, values.ndim - 1):
        size = values.shape[axis]
        if size <= limit:
            continue
        starts = np.linspace(0, size, limit, endpoint=False).astype(np.intp)
        finite = np.isfinite(values)
        counts = np.add.reduceat(finite, starts, axis, dtype=np.int64)
        sums = np.add.reduceat(np.where(finite, values, 0), starts, axis, dtype=np.float64)
        with np.errstate(all="ignore"):
            values = sums / counts  # NaN where nothing is finite
        if marks is not None:
            marks = np.maximum.reduceat(marks, starts, axis)
    return values, marks


def png(codes: np.ndarray, colours: np.ndarray) -> bytes:
    """An image of palette codes; the code ``CLEAR`` is transparent.

    Parameters
    ----------
    codes : ndarray of uint8, shape (rows, columns)
    colours : ndarray of uint8, shape (256, 3)

    Examples
    --------
    >>> png(np.zeros((1, 1), np.uint8), palette(True))[1:4]
    b'PNG'
    """
    rows, columns = codes.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # every line starts with its filter: none
    lines[:, 1:] = codes

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", colours.tobytes())
        + chunk(b"tRNS", bytes([255] * CLEAR + [0]))
        + chunk(b"IDAT", zlib.compress(lines.tobytes(), 6))
        + chunk(b"IEND", b"")
    )


def image(codes: np.ndarray, colours: np.ndarray, alt: str, width: int, height: int) -> str:
    """An ``<img>`` that carries its picture, to be shown ``width`` by ``height`` pixels large.

    The picture itself has that size where it can: pages that strip styles would blur a small one.

    Examples
    --------
    >>> image(np.zeros((1, 1), np.uint8), palette(True), "a<b", 8, 8).startswith(
    ...     "<img alt='a&lt;b' src='data:image/png"
    ... )
    True
    """
    codes = codes.repeat(max(1, height // codes.shape[0]), 0).repeat(max(1, width // codes.shape[1]), 1)
    data = base64.b64encode(png(codes, colours)).decode()
    style = f"width:{width}px;height:{height}px;image-rendering:pixelated;max-width:none"
    return (
        f"<img alt='{escape(alt, quote=True)}' src='data:image/png;base64,{data}' "
        f"width={width} height={height} style='{style}'>"
    )


def tile(maps: np.ndarray, columns: int) -> np.ndarray:
    """Pictures of one size side by side, a transparent line between them.

    Parameters
    ----------
    maps : ndarray of uint8, shape (count, rows, columns)
    columns : int
        How many stand in a line.

    Examples
    --------
    >>> tile(np.zeros((3, 2, 2), np.uint8), 2).shape
    (5, 5)
    """
    count, height, width = maps.shape
    lines = -(-count // columns)
    sheet = np.full((lines * columns, height + 1, width + 1), CLEAR, np.uint8)
    sheet[:count, :height, :width] = maps
    sheet = sheet.reshape(lines, columns, height + 1, width + 1).transpose(0, 2, 1, 3)
    return sheet.reshape(lines * (height + 1), columns * (width + 1))[:-1, :-1]
