"""What both formats' readers need: locate schemas, decode under a layout and judge the fit, turn records into attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, Record, Schema, load_schema

_LONG_VECTOR = 4096  # longer attribute vectors stay arrays


def schema_folder() -> Path:
    """Where the ``.fbs`` files are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "schemas"
    return inside if inside.is_dir() else package.parent / "schemas"


def layout_schema(model_format: str, layout: str) -> Schema:
    """The schema of one layout, as ``layout_schema("mslite", "msl2_newest")``."""
    return load_schema(schema_folder() / model_format / f"{layout}.fbs")


@dataclass
class Reading:
    """A file decoded under one layout, with what speaks against that layout."""

    layout: str
    decoder: Decoder
    root: Record
    doubts: int


def best_reading(
    buffer: np.ndarray, schemas: Iterable[tuple[str, Schema]], doubts: Callable[[Record], int]
) -> Reading:
    """Decode under each layout until one fits without doubt; else the one with the fewest doubts.

    Raises
    ------
    ModelFormatError
        If none can be decoded: the error of the layout that got furthest.
    """
    best: Reading | None = None
    failure: ModelFormatError | None = None
    for layout, schema in schemas:
        decoder = Decoder(buffer, schema)
        try:
            root = decoder.root()
        except ModelFormatError as error:
            if failure is None or len(error.path) > len(failure.path):
                failure = error
            continue
        reading = Reading(layout, decoder, root, doubts(root))
        if reading.doubts == 0:
            return reading
        if best is None or reading.doubts < best.doubts:
            best = reading
    if best is not None:
        return best
    assert failure is not None, "no layout was given"
    raise failure


def unknown_slots(record: Any) -> int:
    """How many stored fields in the tree have no name in the schema."""
    if isinstance(record, Record):
        found = len(record.plan.unknown)
        for name in record.plan.present:
            value = record[name]
            if isinstance(value, Record | list):
                found += unknown_slots(value)
        return found
    if isinstance(record, list) and record and isinstance(record[0], Record):
        return sum(map(unknown_slots, record))
    return 0


def plain(value: Any) -> Any:
    """A record's value as plain Python: tables to dicts, vectors to tuples, tables that only wrap ``data`` to that."""
    if isinstance(value, Record):
        if tuple(value) == ("data",):
            return plain(value["data"])
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return tuple(value.tolist()) if value.size <= _LONG_VECTOR else value
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    return value
