"""What both formats' readers need: find schemas, decode under the layout that fits, turn records into plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Plan, Record, Schema, load_schema
from mlinspect.ir import Quantization

MAX_DIMENSIONS = 64  # numpy's limit; both vendors have lower ones
_LONG_VECTOR = 4096  # longer attribute vectors stay arrays
_PLAIN = frozenset((int, float, str, bool, type(None)))


@cache
def schema_folder() -> Path:
    """Where the ``.fbs`` files are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "schemas"
    return inside if inside.is_dir() else package.parent / "schemas"


@cache
def layout_schema(model_format: str, layout: str) -> Schema:
    """The schema of one layout, as ``layout_schema("mslite", "msl2_newest")``."""
    return load_schema(schema_folder() / model_format / f"{layout}.fbs")


@dataclass
class Reading:
    """A file decoded under one layout, and the number of things in it that do not fit that layout."""

    layout: str
    decoder: Decoder
    root: Record
    doubts: int


def best_reading(
    buffer: np.ndarray, schemas: Iterable[tuple[str, Schema]], doubts: Callable[[Record], int | None]
) -> Reading:
    """Decode under each layout until one fits without doubt.

    If none does, take the one with the fewest doubts, but none that comes after a layout under which decoding failed: a
    damaged file often makes some sense under a layout that is not its own.

    Parameters
    ----------
    buffer : ndarray of uint8
    schemas : iterable of (layout name, Schema)
        Likeliest first.
    doubts : callable
        Counts what in a root record does not fit its layout, or returns None if the layout is impossible.
        Stored fields that the schema has no name for are counted here.

    Raises
    ------
    ModelFormatError
        No layout fits: the error of the one that decoded most tables.
    """
    best: Reading | None = None
    failure, furthest = ModelFormatError("no known layout fits"), -1
    for layout, schema in schemas:
        decoder = Decoder(buffer, schema)
        try:
            root = decoder.root()
        except ModelFormatError as error:
            if decoder.tables_read > furthest:
                failure, furthest = error, decoder.tables_read
            continue
        found = doubts(root)
        if found is None:
            continue
        reading = Reading(layout, decoder, root, found + sum(map(_strange, decoder.plans)))
        if reading.doubts == 0:
            return reading
        if furthest < 0 and (best is None or reading.doubts < best.doubts):
            best = reading
    if best is None:
        raise failure
    return best


def _strange(plan: Plan) -> int:
    """Number of stored fields and union members that the schema does not know.

    Arm NN's writers store some members with the tag NONE, which says nothing of the layout.
    """
    if plan.table == "Unknown(0)":
        return 0
    return len(plan.unknown) + plan.table.startswith("Unknown(")


@dataclass(frozen=True)
class Raw:
    """A table that the schema does not know, or knows in part, where it lies in its file: all that a writer can keep.

    Attributes
    ----------
    buffer : ndarray of uint8
        The whole file.
    position, vtable : int
        Where the table and its vtable begin.
    attrs : mapping
        What was read of it: once that has changed, the table can no longer be copied.
    """

    buffer: np.ndarray = field(repr=False)
    position: int
    vtable: int
    attrs: Mapping[str, Any]


def raw_table(decoder: Decoder, record: Record, attrs: Mapping[str, Any]) -> Raw:
    """Where a record lies in its file."""
    back = int(decoder.buffer[record.offset : record.offset + 4].view("<i4")[0])
    return Raw(decoder.buffer, record.offset, record.offset - back, attrs)


def plain(value: Any) -> Any:
    """A record's value as plain Python: tables to dicts, vectors to tuples, tables that only wrap ``data`` to that."""
    if isinstance(value, Record):
        if tuple(value) == ("data",):
            return plain(value["data"])
        return {name: item if type(item) in _PLAIN else plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return tuple(value.tolist()) if value.size <= _LONG_VECTOR else value
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    return value


def shaped(values: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray | None:
    """A view in that shape, or None if the numbers do not fill it."""
    if shape is None or prod(shape) != values.size:
        return None
    try:
        return values.reshape(shape)
    except ValueError:  # a size of 0 beside others that numpy cannot hold
        return None


def dimensions(vector: np.ndarray | None, record: Record) -> tuple[int, ...]:
    """A shape as stored in the file; an absent vector is the shape of a scalar.

    Raises
    ------
    ModelFormatError
        More dimensions than any array can have.
    """
    if vector is None:
        return ()
    if vector.size > MAX_DIMENSIONS:
        raise ModelFormatError(
            f"a shape of {vector.size} dimensions; arrays have at most {MAX_DIMENSIONS}", record.offset
        )
    return tuple(vector.tolist())


def fits(quantization: Quantization, shape: tuple[int, ...] | None) -> bool:
    """Whether there is one scale for each place along the axis."""
    axis = quantization.axis
    return axis is None or (shape is not None and axis < len(shape) and shape[axis] == len(quantization.scale))
