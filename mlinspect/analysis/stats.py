"""What a model's constants look like in numbers, as stored and as the real values they stand for, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from tqdm.auto import tqdm

from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS, frame
from mlinspect.analysis.operands import Use, by_channel, grid, network_of, parameters_fit, real_rows, uses
from mlinspect.errors import InputError

_BLOCK = 1 << 17  # elements at a time: half a megabyte of float32 stays in the second cache
_MOST_BINS = 1 << 18  # counters at a time
_LONG, _LONGEST = 1 << 13, 1 << 22  # bytes that Pillow counts faster than numpy; and at a time
_SINGLE = 1 << 22  # tensors of more elements than this are summed in float32, piece by piece
_PIECE = 1 << 13  # elements whose sums are made in float32; so short that BLAS starts no threads
# rows of a record of moments, one column a channel; M2 to M4 are sums of powers about the mean
COUNT, MEAN, M2, M3, M4, LOW, HIGH, ZEROS, NAN, INF = range(10)
Advance = Callable[[int], Any]


def stats(model: Any, by: str = "tensor") -> pd.DataFrame:
    """Statistics of every constant.

    Parameters
    ----------
    model : Model or Network
    by : {"tensor", "channel"}
        One row a constant, or one a constant and output channel.

    Returns
    -------
    DataFrame
        Columns as ``mlinspect.describe("stats")`` and ``describe("channel_stats")`` say. Strings, and numbers of an
        unknown type, have a row without figures.

    Notes
    -----
    Constants are read in chunks, so memory stays small however large they are; packed and external ones are unpacked
    one at a time. Sums over more than 4 million float32 numbers are made in float32 by pieces of 8192, and added up in
    float64. After two seconds a progress bar appears.

    Examples
    --------
    >>> w = ir.Tensor(0, "w", 0, "constant", "float32", "Float32", (4,), data=np.float32([-1, 0, 0, 3]))
    >>> stats(ir.Network("armnn", "armnn_superset", "", (), {0: w})).loc[0, ["min", "max", "mean", "std"]].tolist()
    [-1.0, 3.0, 0.5, 1.5]
    """
    if by not in ("tensor", "channel"):
        raise InputError(f"by={by!r} is unknown: use 'tensor' or 'channel'")
    network = network_of(model)
    readers = uses(network)
    found = [tensor for _, tensor in sorted(network.tensors.items()) if tensor.data is not None]
    table = "stats" if by == "tensor" else "channel_stats"
    rows: dict[str, list[Any]] = {name: [] for name, _, _, _ in COLUMNS[table]}
    with tqdm(total=sum(t.nbytes for t in found), unit="B", unit_scale=True, delay=2, leave=False) as bar:
        for tensor in found:
            use = readers.get(tensor.index)
            figures = _measure(tensor, use, network.format, by == "channel", bar.update)
            figures |= _subject(tensor, use)
            length = len(figures["elements"])
            for name, values in rows.items():
                value = figures.get(name)
                values.extend(value.tolist() if isinstance(value, np.ndarray) else [value] * length)
    return frame(table, rows)


def _subject(tensor: ir.Tensor, use: Use | None) -> dict[str, Any]:
    """What is the same in every row of a tensor."""
    q = tensor.quantization if tensor.quantized else None
    return {
        "tensor": tensor.index,
        "name": tensor.name,
        "layer": None if use is None else use.layer.index,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "scheme": "none" if q is None else "per_channel" if q.per_channel else "per_tensor",
        "bits": None if q is None else q.bits,
        "nbytes": tensor.nbytes,
    }


def _measure(tensor: ir.Tensor, use: Use | None, model_format: str, each: bool, advance: Advance) -> dict[str, Any]:
    """The figures of a tensor as arrays: one number, or one a channel where ``each`` is true."""
    array = tensor.data.load() if isinstance(tensor.data, ir.PackedData) else tensor.data
    assert array is not None
    if tensor.dtype.startswith(("string", "unknown")) or array.dtype.kind not in "iufb":
        advance(tensor.nbytes)
        return {"elements": np.array([array.size]), "channel": np.array([0])}
    view = by_channel(array.view(np.uint8) if array.dtype == bool else array, tensor, use)
    step = advance if array.nbytes == tensor.nbytes else lambda _: None
    measure = _by_counting if view.itemsize == 1 else _by_rows
    stored, real, reach, levels = measure(view, tensor, model_format, each, step)
    if array.nbytes != tensor.nbytes:  # packed: the bar counts the file's bytes
        advance(tensor.nbytes)
    limits = grid(tensor)
    figures = {"elements": np.array([array.size])}
    if each:
        figures["elements"] = np.full(view.shape[1], view.shape[0] * view.shape[2])
        figures["channel"] = np.arange(view.shape[1])
        figures["range_share"] = reach / (np.nanmax(reach, initial=0) or np.nan)
        figures["range_used"] = _range_used(stored, limits)
    else:
        alive = reach[reach > 0]
        ratio = alive.max() / alive.min() if len(alive) > 1 and array.size > view.shape[1] else np.nan
        figures["channel_range_ratio"] = np.array([ratio])
        used = _range_used(stored, limits)
        stored, real = _merge(stored[:, None]), _merge(real[:, None])
        per_channel = tensor.quantization is not None and tensor.quantization.per_channel
        figures["range_used"] = used.mean(keepdims=True) if per_channel else _range_used(stored, limits)
    figures |= _named(real, "") | _levels(levels, figures["elements"], tensor, limits)
    return figures | (_named(stored, "stored_") if view.dtype.kind in "iu" and tensor.dtype != "bfloat16" else {})


def _range_used(stored: np.ndarray, limits: tuple[int, int] | None) -> np.ndarray:
    """Share of the grid between the smallest and the largest stored number."""
    if limits is None or limits[1] > 1 << 16:
        return np.full(stored.shape[1], np.nan)
    return np.where(stored[COUNT] > 0, (stored[HIGH] - stored[LOW]) / (limits[1] - limits[0]), np.nan)


def _named(record: np.ndarray, prefix: str) -> dict[str, np.ndarray]:
    """A record of moments as columns."""
    with np.errstate(all="ignore"):
        known = np.where(record[COUNT] > 0, 1.0, np.nan)
        variance = record[M2] / record[COUNT]
        columns = {
            "min": record[LOW] * known,
            "max": record[HIGH] * known,
            "absmax": np.maximum(np.abs(record[LOW]), np.abs(record[HIGH])) * known,
            "mean": record[MEAN] * known,
            "std": np.sqrt(variance),
            "kurtosis": np.where(variance > 0, record[M4] / record[COUNT] / variance**2 - 3, np.nan),
            "zeros": record[ZEROS],
            "nan": record[NAN],
            "inf": record[INF],
        }
    return {prefix + name: values for name, values in columns.items()}


# ---- which numbers occur ---------------------------------------------------------------------------------------------

Levels = list[tuple[np.ndarray, np.ndarray]]  # one a row of the table: the stored numbers that occur, and how often


def _levels(
    levels: Levels, elements: np.ndarray, tensor: ir.Tensor, limits: tuple[int, int] | None
) -> dict[str, np.ndarray]:
    if not levels:
        return {}
    entropy = np.array([_entropy(counts) for _, counts in levels])
    found = {
        "levels": np.array([len(values) for values, _ in levels]),
        "entropy": entropy,
        "compressed_bytes": np.ceil(elements * entropy / 8),
    }
    if limits is None:
        return found
    low = np.array([counts[values <= limits[0]].sum() for values, counts in levels])
    high = np.array([counts[values >= limits[1]].sum() for values, counts in levels])
    q = tensor.quantization
    assert q is not None
    extremes = (1 if q.symmetric else 2) * (1 if len(levels) > 1 else len(q.scale))  # at the ends without being clipped
    with np.errstate(invalid="ignore"):
        clipped = np.maximum(low + high - extremes, 0) / elements
    share = found["levels"] / (limits[1] - limits[0] + 1)
    return found | {"levels_share": share, "at_qmin": low, "at_qmax": high, "clipped": clipped}


def _entropy(counts: np.ndarray) -> float:
    """Bits a number, of numbers that occur so often."""
    p = counts / max(counts.sum(), 1)
    return float(-(p * np.log2(p)).sum()) + 0.0


# ---- moments ---------------------------------------------------------------------------------------------------------


def _by_counting(
    view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Levels]:
    """8-bit numbers: how often each of the 256 occurs in each channel says all there is to know."""
    channels = view.shape[1]
    numbers = np.arange(256, dtype=np.uint8).view(view.dtype)
    known = parameters_fit(tensor, channels)
    records, total, levels = [], np.zeros(256, np.int64), []
    for start in range(0, channels, _MOST_BINS // 256):
        part = slice(start, start + _MOST_BINS // 256)
        counts = _histogram(view[:, part].view(np.uint8), 256, advance)
        real = _of_counts(np.zeros_like(counts), 0)
        if known:
            values = real_rows(np.broadcast_to(numbers, counts.shape), tensor, part, model_format)
            real = _of_counts(counts, values)
        records.append((_of_counts(counts, numbers), real))
        total += counts.sum(axis=0)
        if each:
            levels += [(numbers[row > 0], row[row > 0]) for row in counts]
    stored, real = (np.concatenate(parts, axis=1) for parts in zip(*records, strict=True))
    return stored, real, _extent(real), levels if each else [(numbers[total > 0], total[total > 0])]


def _histogram(view: np.ndarray, bins: int, advance: Advance) -> np.ndarray:
    """How often each of ``bins`` numbers occurs in each channel, of unsigned numbers (outer, channels, inner)."""
    counts = np.zeros(view.shape[1] * bins, np.int64)
    if bins == 256 and view.shape[2] >= _LONG:
        return _long_histogram(view, counts.reshape(-1, bins), advance)
    for channels, block in _blocks(view):
        first = np.arange(view.shape[1])[channels, None] * bins
        places = block.astype(np.intp)
        places += first
        counts += np.bincount(places.ravel(), minlength=counts.size)
        advance(block.nbytes)
    return counts.reshape(view.shape[1], bins)


def _long_histogram(view: np.ndarray, counts: np.ndarray, advance: Advance) -> np.ndarray:
    """:func:`_histogram` of long rows of bytes: Pillow counts one row after the other, several times as fast."""
    for i, channel, start in np.ndindex(len(view), view.shape[1], -(-view.shape[2] // _LONGEST)):
        row = np.ascontiguousarray(view[i, channel, start * _LONGEST : (start + 1) * _LONGEST])
        counts[channel] += Image.frombuffer("L", (row.size, 1), row, "raw", "L", 0, 1).histogram()
        advance(row.size)
    return counts


def _by_rows(
    view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Levels]:
    """Wider numbers: sums of powers, channel by channel; 16-bit ones are counted too."""
    channels, plain = view.shape[1], view.dtype.kind == "f" and view.itemsize > 2
    stored, real, known = _Total(channels), _Total(channels), parameters_fit(tensor, channels)
    if plain and not each:
        return (stored.record(), *_floats(view, advance), [])
    for part, block in _blocks(view):
        rows = block[0] if len(block) == 1 else block.swapaxes(0, 1).reshape(block.shape[1], -1)
        if plain or known:
            values = rows if plain else real_rows(rows, tensor, part, model_format)
            real.add(part, _of_rows(values.astype(np.float64)))
        if view.dtype.kind in "iu":
            stored.add(part, _of_rows(rows.astype(np.float64)))
        advance(block.nbytes)
    return stored.record(), real.record(), _extent(real.record()), _count_16_bit(view, each)


def _floats(view: np.ndarray, advance: Advance) -> tuple[np.ndarray, np.ndarray]:
    """Moments of all numbers together, and the reach of each channel."""
    sums = _SingleSums() if view.dtype == np.float32 and view.size > _SINGLE else None
    total, reach = _Total(1), np.full(view.shape[1], np.nan)
    least: Any
    most: Any
    for part, block in _blocks(view):
        flat = block.reshape(-1)
        if block.shape[1] == 1:  # plain numbers are quicker than arrays of one
            low = least = float(flat.min())
            high = most = float(flat.max())
        else:
            least, most = _extremes(block)
            low, high = float(least.min()), float(most.max())
        if sums is None or not sums.add(flat, low, high):
            total.add(slice(0, 1), _of_rows(flat.reshape(1, -1).astype(np.float64)))
        if -np.inf < low <= high < np.inf:
            reach[part] = np.fmax(reach[part], np.maximum(-least, most))
        else:
            reach[part] = np.fmax(reach[part], _finite_reach(block))
        advance(block.nbytes)
    if sums is not None:
        total.add(slice(0, 1), sums.record())
    return total.record(), reach


class _SingleSums:
    """Sums of powers of many float32 numbers, at about the speed that memory has."""

    def __init__(self) -> None:
        self._counts: list[np.ndarray] = []
        self._sums: list[tuple[np.ndarray, ...]] = []  # of powers about 0, one a piece
        self._extremes: list[tuple[float, float]] = []
        self._zeros = 0
        self._ones, self._squares = np.ones(_PIECE, np.float32), np.empty(_BLOCK, np.float32)
        self._full = np.full(len(self._squares) // _PIECE, _PIECE)
        # ends of blocks, filled up with zeros
        self._ends, self._lengths = np.zeros((_BLOCK // _PIECE, _PIECE), np.float32), list[int]()

    def add(self, x: np.ndarray, low: float, high: float) -> bool:
        """Take a block of numbers from ``low`` to ``high``, unless float32 is too small or too coarse for its sums."""
        if not (-1e8 < low <= high < 1e8 and high - low > 1e-8):  # fourth powers would leave float32's range, or NaN
            return False
        whole = x.size // _PIECE * _PIECE
        pieces, end = x[:whole].reshape(-1, _PIECE), x[whole:]
        s1, s2 = pieces @ self._ones, np.vecdot(pieces, pieces)
        if 17 * (s1 @ s1) >= _PIECE * np.add.reduce(s2):  # far from 0 digits would be lost
            return False
        squares = self._take(self._full[: len(pieces)], pieces, s1, s2)
        if squares.min() == 0:
            self._zeros += int(np.count_nonzero(pieces == 0))
        if end.size:
            row = self._ends[len(self._lengths)]
            row[: end.size], row[end.size :] = end, 0
            self._lengths.append(end.size)
            self._zeros += int(np.count_nonzero(end == 0))
            if len(self._lengths) == len(self._ends):
                self._take_ends()
        self._extremes.append((low, high))
        return True

    def _take(self, counts: np.ndarray, pieces: np.ndarray, s1: np.ndarray, s2: np.ndarray) -> np.ndarray:
        squares = np.square(pieces, out=self._squares[: pieces.size].reshape(pieces.shape))
        self._sums.append((s1, s2, np.vecdot(squares, pieces), np.vecdot(squares, squares)))
        self._counts.append(counts)
        return squares

    def _take_ends(self) -> None:
        pieces = self._ends[: len(self._lengths)]
        self._take(np.array(self._lengths), pieces, pieces @ self._ones, np.vecdot(pieces, pieces))
        self._lengths.clear()

    def record(self) -> np.ndarray:
        """Moments of all together."""
        if not self._sums:
            return _Total(1).record()
        self._take_ends()
        s1, s2, s3, s4 = (np.concatenate(sums).astype(np.float64) for sums in zip(*self._sums, strict=True))
        n = np.concatenate(self._counts)
        mean = s1 / n
        record = np.zeros((10, len(s1)))
        record[COUNT], record[MEAN] = n, mean
        record[M2] = s2 - mean * s1
        record[M3] = s3 - 3 * mean * s2 + 2 * mean**2 * s1
        record[M4] = s4 - 4 * mean * s3 + 6 * mean**2 * s2 - 3 * mean**3 * s1
        merged = _merge(record[:, None])
        merged[ZEROS] = self._zeros
        merged[LOW], merged[HIGH] = np.min(self._extremes), np.max(self._extremes)
        return merged


class _Total:
    """The moments of all blocks together; many small merges would cost more than the sums."""

    def __init__(self, channels: int) -> None:
        self._record = np.zeros((10, channels))
        self._record[LOW], self._record[HIGH] = np.inf, -np.inf
        self._parts: dict[int, list[np.ndarray]] = {}

    def add(self, channels: slice, record: np.ndarray) -> None:
        parts = self._parts.setdefault(channels.start, [])
        parts.append(record)
        if len(parts) == 64:
            self._merge(channels.start, parts)

    def _merge(self, start: int, parts: list[np.ndarray]) -> None:
        channels = slice(start, start + parts[0].shape[1])
        self._record[:, channels] = _merge(np.stack([self._record[:, channels], *parts], axis=2))
        parts.clear()

    def record(self) -> np.ndarray:
        for start, parts in self._parts.items():
            if parts:
                self._merge(start, parts)
        return self._record


def _extremes(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest number of each channel of (outer, channels, inner)."""
    if block.shape[0] == 1 or block.shape[2] == 1:  # numpy is slow along two axes at once
        flat, axis = (block[0], 1) if block.shape[0] == 1 else (block[:, :, 0], 0)
        return flat.min(axis=axis), flat.max(axis=axis)
    return block.min(axis=(0, 2)), block.max(axis=(0, 2))


def _finite_reach(block: np.ndarray) -> np.ndarray:
    """Largest finite magnitude of each channel; NaN where there is none."""
    finite = np.where(np.isfinite(block), np.abs(block), np.nan)
    reach: np.ndarray = np.fmax.reduce(np.fmax.reduce(finite, axis=2), axis=0)
    return reach


def _extent(record: np.ndarray) -> np.ndarray:
    return np.where(record[COUNT] > 0, np.maximum(np.abs(record[LOW]), np.abs(record[HIGH])), np.nan)


def _count_16_bit(view: np.ndarray, each: bool) -> Levels:
    if view.itemsize != 2:
        return []
    if each:
        return [np.unique_counts(view[:, channel]) for channel in range(view.shape[1])]
    counts = _histogram(view.view(np.uint16).reshape(1, 1, -1), 1 << 16, lambda _: None)[0]
    numbers = np.arange(1 << 16, dtype=np.uint16).view(view.dtype)
    return [(numbers[counts > 0], counts[counts > 0])]


def _blocks(view: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Pieces of (outer, channels, inner) that are small enough, each with the channels that it belongs to."""
    outer, channels, inner = view.shape
    wide = max(1, min(inner, _BLOCK))
    some = max(1, min(channels, _BLOCK // wide))
    deep = max(1, min(outer, _BLOCK // (wide * some)))
    for i in range(0, outer, deep):
        for j in range(0, channels, some):
            for k in range(0, inner, wide):
                yield slice(j, j + some), view[i : i + deep, j : j + some, k : k + wide]


def _of_rows(x: np.ndarray) -> np.ndarray:
    """Moments of each row of (channels, n) numbers of float64."""
    record = np.zeros((10, len(x)))
    record[LOW], record[HIGH] = x.min(axis=1), x.max(axis=1)
    if not np.isfinite(record).all():
        return _of_counts(np.ones(x.shape, np.int8), x)
    record[COUNT], record[MEAN] = x.shape[1], x.mean(axis=1)
    record[ZEROS] = np.count_nonzero(x == 0, axis=1)
    d = x - record[MEAN][:, None]
    squares = d * d
    record[M2], record[M3], record[M4] = np.vecdot(d, d), np.vecdot(squares, d), np.vecdot(squares, squares)
    return record


def _of_counts(counts: np.ndarray, values: Any) -> np.ndarray:
    """Moments of each row of (channels, n): ``values`` that occur ``counts`` times."""
    values = np.broadcast_to(np.asarray(values, np.float64), counts.shape)
    finite = np.isfinite(values)
    n = np.where(finite, counts, 0)
    x = np.where(finite, values, 0)
    record = np.zeros((10, len(counts)))
    record[COUNT] = n.sum(axis=1)
    record[MEAN] = (n * x).sum(axis=1) / np.maximum(record[COUNT], 1)
    d = x - record[MEAN][:, None]
    squares = d * d
    record[M2], record[M3], record[M4] = (
        (n * power).sum(axis=1) for power in (squares, squares * d, squares * squares)
    )
    record[LOW] = np.where(n > 0, x, np.inf).min(axis=1, initial=np.inf)
    record[HIGH] = np.where(n > 0, x, -np.inf).max(axis=1, initial=-np.inf)
    record[ZEROS] = (n * (x == 0)).sum(axis=1)
    record[NAN] = (counts * np.isnan(values)).sum(axis=1)
    record[INF] = (counts * np.isinf(values)).sum(axis=1)
    return record


def _merge(records: np.ndarray) -> np.ndarray:
    """Moments of several parts together: (10, channels, parts) -> (10, channels).

    Source: Pebay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
    moments", 2008.
    """
    merged = records.sum(axis=2)
    n = records[COUNT]
    mean = (n * records[MEAN]).sum(axis=1) / np.maximum(merged[COUNT], 1)
    d = records[MEAN] - mean[:, None]
    m2, m3 = records[M2], records[M3]
    merged[MEAN] = mean
    merged[M2] += (n * d**2).sum(axis=1)
    merged[M3] += (3 * d * m2 + n * d**3).sum(axis=1)
    merged[M4] += (4 * d * m3 + 6 * d**2 * m2 + n * d**4).sum(axis=1)
    merged[LOW], merged[HIGH] = records[LOW].min(axis=1), records[HIGH].max(axis=1)
    return merged
