"""Files that runtimes write of what a model computes: recognised by content or name, read into plain entries.

Sources of the formats: Arm NN ``src/backends/reference/workloads/Debug.cpp`` (printed tensors); MindSpore Lite
``tools/benchmark/benchmark_unified_api.cc`` (names of dumped files) and
``tools/converter/quantizer/debug_info_manager.cc`` (tables of the converter).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlinspect.errors import InputError

ARMNN_SUFFIXES = (".numpy", ".txt", ".log", ".json", ".out")
RAW = {".f32": "float32", ".f16": "float16", ".i8": "int8", ".u8": "uint8", ".i16": "int16", ".i32": "int32",
       ".bin": None, ".raw": None, ".input": None, ".output": None}  # fmt: skip
_DTYPES = {"Float16": "float16", "Float32": "float32", "Float64": "float64", "Bool": "bool", "Int8": "int8",
           "Int16": "int16", "Int32": "int32", "Int64": "int64", "UInt8": "uint8", "UInt16": "uint16",
           "UInt32": "uint32", "UInt64": "uint64"}  # fmt: skip
# what ExecuteNetwork prints of a tensor, all on one line; names are not escaped
_PRINTED = re.compile(
    r'\{ "layerGuid": (?P<guid>\d+), "layerName": "(?P<name>.*)", "outputSlot": (?P<slot>\d+), '
    r'"shape": \[(?P<shape>[\d, ]*)\], "min": \S+, "max": \S+, "data": (?P<data>.*) \}'
)
# conv1_output_0_shape_1_8_8_16_Float32_NHWC.bin; a slash in the name has become a dot
_BENCHMARK = re.compile(
    r"(?P<name>.+)_(?P<side>input|output)_(?P<slot>\d+)_shape_(?P<shape>(?:-?\d+_)*)"
    r"(?P<dtype>[A-Z][A-Za-z]*\d*)?(?:_(?P<layout>[A-Z][A-Z0-9]*))?(?:\.bin)+"
)
_TABLES = {("NodeName", "ZeroPoint"): "quant", ("NodeName", "CosineSimilarity"): "stats",
           ("Round", "CosineSimilarity"): "outputs"}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One tensor of a dump.

    Attributes
    ----------
    name : str
        Of the layer or tensor, as the dump has it.
    array : ndarray
        Of the dump's shape; flat where it says none, bytes (uint8) where it says no type.
    source : str
        The file's name.
    slot : int
        Which output (or input) of the layer.
    side : {"output", "input"}
    typed, shaped : bool
        The dump says of what type, of what shape it is.
    printed : bool
        Stored numbers that were printed as text, so of whatever type the model says.
    dotted : bool
        Slashes of the name have become dots.
    """

    name: str
    array: np.ndarray
    source: str
    slot: int = 0
    side: str = "output"
    typed: bool = True
    shaped: bool = True
    printed: bool = False
    dotted: bool = False


Shapes = tuple[int, ...] | Mapping[str, tuple[int, ...]] | None


def read_files(path: Path, shape: Shapes, dtype: str | None) -> tuple[list[Entry], dict[str, pd.DataFrame], list[str]]:
    """All that a file or folder holds: tensors, tables by kind, and what there is to say.

    Raises
    ------
    InputError
        Nothing in it is known.
    OSError
        It cannot be read.
    """
    files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
    entries: list[Entry] = []
    tables: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    for file in files:
        if file.suffix == ".csv":
            kind, table = _table(file)
            if kind:  # distributions come in one file a round
                tables[kind] = pd.concat([tables.get(kind, table[:0]), table.assign(File=file.name)])
            else:
                notes.append(f"{file.name}: no table of MindSpore Lite's converter")
            continue
        try:
            found = list(_tensors(file, shape, dtype))
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{file.name}: {error}") from error
        entries += found
        if not found:
            notes.append(f"{file.name}: no tensor in it")
    if not entries and not tables:
        known = ", ".join((*ARMNN_SUFFIXES, ".npy", ".npz", ".csv", *RAW))
        raise InputError(f"{path.name}: holds no dump that is known (files of {known})")
    return entries, tables, notes


def _tensors(file: Path, shape: Shapes, dtype: str | None) -> Iterator[Entry]:
    if file.suffix == ".npz":
        with np.load(file, allow_pickle=False) as stored:
            names = dict(line.split("\t", 1) for line in stored["names"]) if "names" in stored.files else {}
            for key in stored.files:
                if key != "names" or not names:
                    yield Entry(names.get(key, key), stored[key], file.name)
    elif file.suffix == ".npy":
        yield Entry(file.stem, np.load(file, allow_pickle=False), file.name)
    elif match := _BENCHMARK.fullmatch(file.name):
        yield _benchmark(file, match)
    elif file.suffix in ARMNN_SUFFIXES:
        yield from _printed(file)
    elif file.suffix in RAW:
        yield _raw(file, shape.get(file.stem) if isinstance(shape, Mapping) else shape, dtype)


def _printed(file: Path) -> Iterator[Entry]:
    for line in io.StringIO(file.read_text("utf-8", "replace")):
        if match := _PRINTED.search(line):
            shape = tuple(int(n) for n in match["shape"].split(",") if n.strip())
            numbers = match["data"].replace("[", "").replace("]", "").split(",")
            array = np.array([n.strip() for n in numbers if n.strip()], np.float64)
            if array.size != np.prod(shape, dtype=np.int64):
                raise InputError(f"{file.name}: layer {match['name']!r} has {array.size} numbers, not {list(shape)}")
            yield Entry(match["name"], array.reshape(shape), file.name, int(match["slot"]), printed=True)


def _benchmark(file: Path, match: re.Match[str]) -> Entry:
    shape = tuple(int(n) for n in match["shape"].split("_") if n)
    dtype = _DTYPES.get(match["dtype"] or "")
    array = np.fromfile(file, np.uint8)
    typed = dtype is not None and array.nbytes % np.dtype(dtype).itemsize == 0
    array = array.view(np.dtype(dtype)) if typed else array
    shaped = typed and array.size == np.prod(shape, dtype=np.int64)
    array = array.reshape(shape) if shaped else array
    return Entry(match["name"], array, file.name, int(match["slot"]), match["side"], typed, shaped, dotted=True)


def _raw(file: Path, shape: tuple[int, ...] | None, dtype: str | None) -> Entry:
    array = np.fromfile(file, np.uint8)
    dtype = RAW[file.suffix] or dtype
    if dtype is not None:
        if array.nbytes % np.dtype(dtype).itemsize:
            raise InputError(f"{file.name}: {array.nbytes} bytes are no whole number of {dtype}")
        array = array.view(dtype)
    elif shape is not None and array.size == 4 * np.prod(shape, dtype=np.int64):
        dtype, array = "float32", array.view(np.float32)
    if shape is not None:
        if array.size != np.prod(shape, dtype=np.int64):
            raise InputError(f"{file.name}: {array.size} elements of {array.dtype} do not fill {list(shape)}")
        array = array.reshape(shape)
    return Entry(file.stem, array, file.name, typed=dtype is not None, shaped=shape is not None)


def _table(file: Path) -> tuple[str, pd.DataFrame]:
    """A table of the converter and which one it is, ``""`` when it is none; every line of them ends in a comma."""
    table = pd.read_csv(file, skipinitialspace=True, index_col=False)
    table = table.loc[:, [c for c in table if not str(c).startswith("Unnamed")]]
    table = table.rename(columns={"sparsity": "Sparsity"})
    kind = next((kind for columns, kind in _TABLES.items() if set(columns) <= set(table)), "")
    if "Dims" in table:
        table["Dims"] = [tuple(int(n) for n in str(cell).split()) for cell in table["Dims"]]
    return kind, table
