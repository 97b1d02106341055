"""A MindSpore Lite tensor's constant data: plain views, packed weights, external files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Record
from mlinspect.formats.compression import kind_of, unpack, unpack_bits
from mlinspect.formats.records import shaped
from mlinspect.ir import PackedData, Quantization


@dataclass
class Contents:
    """What a tensor record holds of data."""

    data: np.ndarray | PackedData | None = None
    compression: str = "none"
    file_offset: int | None = None
    nbytes: int = 0
    notes: list[str] = field(default_factory=list)


def tensor_data(
    decoder: Decoder,
    record: Record,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    quantization: Quantization | None,
    folder: Path | None,
) -> Contents:
    """The constant data of one tensor; nothing is unpacked or read from elsewhere before it is asked for."""
    raw = record["data"]
    count = prod(shape) if min(shape, default=0) >= 0 else -1
    if raw is None or (raw.size == 0 and count != 0):
        return _external(record, name, dtype, shape, folder)
    offset = decoder.position(raw)
    bits = quantization.bits if quantization is not None else None
    compress_type = record.get("weightQuantCompressType") or record.get("weightQunatCompressType") or "NONE"
    compression = kind_of(compress_type, bits, record.get("enableHuffmanCode", False))
    if compression == "bitpacking" and (dtype not in ("int8", "int16") or raw.size == count * np.dtype(dtype).itemsize):
        compression = "none"  # low-bit numbers that are stored one per byte after all
    if compression == "none":
        data, odd = _plain(raw, name, dtype, shape)
        return Contents(data, "none", offset, raw.size, odd)
    load = partial(_unpack, raw, name, compression, bits or 8, count, dtype, shape, quantization)
    part = partial(_unpack_part, raw, name, bits or 8, count, dtype) if compression == "bitpacking" else None
    return Contents(PackedData(raw, load, part), compression, offset, raw.size)


def _plain(raw: np.ndarray, name: str, dtype: str, shape: tuple[int, ...]) -> tuple[np.ndarray, list[str]]:
    """The bytes as numbers, in their shape where they fill it, and what is odd about them."""
    if dtype == "string" or dtype.startswith("unknown"):
        return raw, []
    try:
        values = raw.view("uint16" if dtype == "bfloat16" else dtype)
    except (TypeError, ValueError):
        return raw, [f"constant {name}: {raw.size} bytes do not make whole {dtype} numbers"]
    array = shaped(values, shape)
    if array is None:
        return values, [f"constant {name} has {values.size} numbers for shape {shape}"]
    return array, []


def _unpack(
    raw: np.ndarray,
    name: str,
    compression: str,
    bits: int,
    count: int,
    dtype: str,
    shape: tuple[int, ...],
    quantization: Quantization | None,
) -> np.ndarray:
    zero_point = quantization.zero_point if quantization is not None else np.zeros(1, np.int64)
    try:
        if dtype not in ("int8", "int16", "float32"):
            raise ModelFormatError(f"{dtype} numbers cannot be packed as {compression}")
        flat = unpack(raw, compression, bits=bits, count=count, dtype=dtype, zero_point=zero_point)
    except ModelFormatError as error:
        raise error.within(f"constant {name}") from None
    array = shaped(flat, shape)
    return flat if array is None else array


def _unpack_part(raw: np.ndarray, name: str, bits: int, count: int, dtype: str, start: int, stop: int) -> np.ndarray:
    try:
        return unpack_bits(raw, start, stop, count=count, dtype=dtype, bits=bits)
    except ModelFormatError as error:
        raise error.within(f"constant {name}") from None


def _external(record: Record, name: str, dtype: str, shape: tuple[int, ...], folder: Path | None) -> Contents:
    """Data in a file beside the model; nothing outside the model's own folder is ever read."""
    entries = record.get("externalData")
    if not entries:
        return Contents()
    location, offset, length = entries[0]["location"] or "", entries[0]["offset"], entries[0]["length"]

    def load() -> np.ndarray:
        raw = _bytes_beside(folder, location, offset, length, f"constant {name}")
        return _plain(raw, name, dtype, shape)[0]

    return Contents(PackedData(np.zeros(0, np.uint8), load), "external", None, max(length, 0))


def _bytes_beside(folder: Path | None, location: str, offset: int, length: int, what: str) -> np.ndarray:
    """Bytes of a file in the model's folder, mapped; -1 as length: all that follow."""
    if folder is None:
        raise ModelFormatError(f"{what} lies in {location!r}: open the model by its path to read it")
    try:
        path = (folder / location).resolve()
        beside = path.is_relative_to(folder.resolve()) and path.is_file()
        size = path.stat().st_size if beside else 0
    except (OSError, RuntimeError, ValueError):  # a name too long, links in a circle, a zero byte in the name
        beside = False
    if not beside:
        raise ModelFormatError(f"{what} lies in {location!r}, which is not beside the model")
    wanted = size - offset if length < 0 else length
    if offset < 0 or wanted < 0 or offset + wanted > size:
        raise ModelFormatError(f"{what}: {location!r} has {size} bytes, not {length} at {offset}", offset)
    if wanted == 0:
        return np.zeros(0, np.uint8)
    try:
        return np.asarray(np.memmap(path, np.uint8, "r", offset, wanted))
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{what}: {location!r} cannot be read: {error}") from None
