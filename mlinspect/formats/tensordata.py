"""A MindSpore Lite tensor's constant data: plain views, packed weights, external files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Record
from mlinspect.formats.compression import kind_of, unpack
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
    raw = record.get("data")
    count = prod(shape) if all(size >= 0 for size in shape) else -1
    if raw is None or (len(raw) == 0 and count != 0):
        return _external(record, name, dtype, shape, folder) or Contents()
    offset = int(raw.__array_interface__["data"][0] - decoder.buffer.__array_interface__["data"][0])
    contents = Contents(None, "none", offset, len(raw))
    bits = quantization.bits if quantization is not None else None
    compress_type = record.get("weightQuantCompressType", record.get("weightQunatCompressType", "NONE"))
    compression = kind_of(compress_type, bits, record.get("enableHuffmanCode", False))
    if compression == "bitpacking" and (
        dtype not in ("int8", "int16") or len(raw) == count * np.dtype(dtype).itemsize
    ):
        compression = "none"  # low-bit numbers that are stored one a byte after all
    if compression == "none":
        contents.data, note = _plain(raw, name, dtype, shape, count)
        contents.notes += note
        return contents
    contents.compression = compression
    contents.data = PackedData(raw, partial(_unpack, raw, name, compression, bits or 8, count, dtype, shape, quantization))
    return contents


def _plain(raw: np.ndarray, name: str, dtype: str, shape: tuple[int, ...], count: int) -> tuple[np.ndarray, list[str]]:
    if dtype == "string" or dtype.startswith("unknown"):
        return raw, []
    try:
        values = raw.view("uint16" if dtype == "bfloat16" else dtype)
    except (TypeError, ValueError):
        return raw, [f"constant {name}: {len(raw)} bytes do not make whole {dtype} numbers"]
    if values.size == count:
        return values.reshape(shape), []
    return values, [f"constant {name} has {values.size} numbers for shape {shape}"]


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
        flat = unpack(raw, compression, bits=bits, count=count, dtype=dtype, zero_point=zero_point)
    except ModelFormatError as error:
        raise error.within(f"constant {name}") from None
    return flat.reshape(shape)


def _external(record: Record, name: str, dtype: str, shape: tuple[int, ...], folder: Path | None) -> Contents | None:
    """Data in a file beside the model; nothing outside the model's own folder is ever read."""
    entries = record.get("externalData")
    if not entries:
        return None
    entry = entries[0]
    location, offset, length = entry.get("location") or "", int(entry["offset"]), int(entry["length"])
    count = prod(shape) if all(size >= 0 for size in shape) else -1

    def load() -> np.ndarray:
        if folder is None:
            raise ModelFormatError(f"constant {name} lies in {location!r}: open the model by its path to read it")
        path = (folder / location).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise ModelFormatError(f"constant {name} lies in {location!r}, which is not beside the model")
        size = path.stat().st_size
        wanted = size - offset if length < 0 else length
        if offset < 0 or wanted < 0 or offset + wanted > size:
            raise ModelFormatError(f"constant {name}: {location!r} has {size} bytes, not {length} at {offset}", offset)
        if wanted == 0:
            return np.zeros(shape if count == 0 else 0, "uint8" if dtype == "string" else dtype)
        raw = np.memmap(path, np.uint8, "r", offset, wanted)
        return _plain(np.asarray(raw), name, dtype, shape, count)[0]

    raw = np.zeros(0, np.uint8)
    return Contents(PackedData(raw, load), "external", None, max(length, 0))
