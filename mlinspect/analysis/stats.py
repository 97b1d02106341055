"""What a model's constants look like in numbers, as stored and as the real values they stand for, chunk by chunk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from tqdm.auto import tqdm

from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS, frame
from mlinspect.analysis.float_sums import Advance, of_floats
from mlinspect.analysis.moments import (
    COUNT,
    HIGH,
    INF,
    LOW,
    M2,
    M4,
    MEAN,
    NAN,
    ZEROS,
    Total,
    blocks,
    extent,
    merge,
    of_counts,
    of_rows,
)
from mlinspect.analysis.operands import Use, by_channel, grid, network_of, parameters_fit, real_rows, uses
from mlinspect.errors import InputError

_MOST_BINS = 1 << 18  # counters at a time
_LONG, _LONGEST = 1 << 13, 1 << 22  # bytes that Pillow counts faster than numpy; and at a time


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
        stored, real = merge(stored[:, None]), merge(real[:, None])
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
        real = Total(len(counts)).record()
        if known:
            real = of_counts(counts, real_rows(np.broadcast_to(numbers, counts.shape), tensor, part, model_format))
        records.append((of_counts(counts, numbers), real))
        total += counts.sum(axis=0)
        if each:
            levels += [(numbers[row > 0], row[row > 0]) for row in counts]
    stored, real = (np.concatenate(parts, axis=1) for parts in zip(*records, strict=True))
    return stored, real, extent(real), levels if each else [(numbers[total > 0], total[total > 0])]


def _histogram(view: np.ndarray, bins: int, advance: Advance) -> np.ndarray:
    """How often each of ``bins`` numbers occurs in each channel, of unsigned numbers (outer, channels, inner)."""
    if bins == 256 and view.shape[2] >= _LONG:
        return _long_histogram(view, advance)
    counts = np.zeros((view.shape[1], bins), np.int64)
    for channels, block in blocks(view):
        places = block.astype(np.intp)
        places += np.arange(0, block.shape[1] * bins, bins)[:, None]
        counts[channels] += np.bincount(places.ravel(), minlength=block.shape[1] * bins).reshape(-1, bins)
        advance(block.nbytes)
    return counts


def _long_histogram(view: np.ndarray, advance: Advance) -> np.ndarray:
    """:func:`_histogram` of long rows of bytes: Pillow counts one row after the other, several times as fast."""
    counts = np.zeros((view.shape[1], 256), np.int64)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pieces = list(blocks(view, _LONGEST))
        for (channels, block), found in zip(pieces, pool.map(_count_rows, (block for _, block in pieces)), strict=True):
            counts[channels] += found
            advance(block.nbytes)
    return counts


def _count_rows(block: np.ndarray) -> np.ndarray:
    rows = np.ascontiguousarray(block.swapaxes(0, 1)).reshape(block.shape[1], -1)
    return np.array([Image.frombuffer("L", (row.size, 1), row, "raw", "L", 0, 1).histogram() for row in rows])


def _by_rows(
    view: np.ndarray, tensor: ir.Tensor, model_format: str, each: bool, advance: Advance
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Levels]:
    """Wider numbers: sums of powers, channel by channel; 16-bit ones are counted too."""
    channels, plain = view.shape[1], view.dtype.kind == "f" and view.itemsize > 2
    stored, real, known = Total(channels), Total(channels), parameters_fit(tensor, channels)
    if plain:
        return (stored.record(), *of_floats(view, each, advance), [])
    whole = view.dtype.kind in "iu" and not tensor.quantized and tensor.dtype != "bfloat16"  # float32 would round them
    for part, block in blocks(view):
        rows = block[0] if len(block) == 1 else block.swapaxes(0, 1).reshape(block.shape[1], -1)
        if known:
            values = rows if whole else real_rows(rows, tensor, part, model_format)
            real.add(part, of_rows(values.astype(np.float64)))
        if view.dtype.kind in "iu":
            stored.add(part, of_rows(rows.astype(np.float64)))
        advance(block.nbytes)
    return stored.record(), real.record(), extent(real.record()), _count_16_bit(view, each)


def _count_16_bit(view: np.ndarray, each: bool) -> Levels:
    if view.itemsize != 2:
        return []
    if each:
        return [np.unique_counts(view[:, channel]) for channel in range(view.shape[1])]
    counts = _histogram(view.view(np.uint16).reshape(1, 1, -1), 1 << 16, lambda _: None)[0]
    numbers = np.arange(1 << 16, dtype=np.uint16).view(view.dtype)
    return [(numbers[counts > 0], counts[counts > 0])]
