"""What both formats' writers need: plain values back to records, and tables that no schema describes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import UnsupportedError
from mlinspect.flatbuffer import Schema
from mlinspect.flatbuffer.encode import RawTable
from mlinspect.formats.records import Raw


def wrapped(schema: Schema, kind: str, value: Any) -> Any:
    """The reverse of :func:`mlinspect.formats.records.plain`, for a value of the type ``kind``.

    Fields that are None are left out.

    Examples
    --------
    >>> from mlinspect.flatbuffer import parse_schema
    >>> schema = parse_schema("table V { data: [int]; } table T { a: [V]; b: int; } root_type T;")
    >>> wrapped(schema, "T", {"a": ((1, 2), (3,)), "b": None})
    {'a': [{'data': (1, 2)}, {'data': (3,)}]}
    """
    table = schema.tables.get(kind)
    if table is None or table.is_struct:
        return value
    if not isinstance(value, Mapping):
        value = {"data": value}
    found = {}
    for name, content in value.items():
        if content is None:
            continue
        item = next((item for item in table.fields if item.name == name), None)
        if item is None or item.type not in schema.tables:  # the encoder says what is wrong with a stray name
            found[name] = content
        elif item.vector:
            found[name] = [wrapped(schema, item.type, part) for part in content]
        else:
            found[name] = wrapped(schema, item.type, content)
    return found


class Carrier:
    """Carries tables that no schema describes to a new file: all bytes from the first of them on are copied.

    What hangs on a table lies behind it, so nothing need be known of what is in it.
    """

    def __init__(self, raws: Iterable[Raw]) -> None:
        found = list(raws)
        self.bytes: np.ndarray | None = None
        self._start = 0
        if found:
            # a multiple of 16 keeps every number aligned; and of the file so written the same bytes are carried again
            self._start = min(min(raw.position, raw.vtable) for raw in found) // 16 * 16
            self.bytes = found[0].buffer[self._start :]
            if any(raw.buffer is not found[0].buffer for raw in found):
                raise UnsupportedError("layers of types that no schema knows come from several files")

    def table(self, raw: Raw, layer: ir.Layer) -> RawTable:
        """The table of a layer, if nothing that is known of it has changed."""
        if raw.attrs is not layer.attrs:
            raise UnsupportedError(
                f"layer {layer.index} {layer.name!r} holds fields that the schema does not know: its attributes "
                "cannot be changed, nor put into another layout; release='unchanged' keeps the file's own"
            )
        return RawTable(raw.position - self._start)


def compact_numbers(numbers: Iterable[int], order: Iterable[int]) -> dict[int, int]:
    """New numbers 0, 1, 2, ... for ids: the ids themselves if they are those numbers, else by the given order.

    Examples
    --------
    >>> compact_numbers([2, 0, 1], [2, 0, 1]), compact_numbers([5, 3], [5, 3])
    ({0: 0, 1: 1, 2: 2}, {5: 0, 3: 1})
    """
    listed = sorted(numbers)
    if listed != list(range(len(listed))):
        listed = list(order)
    return {old: new for new, old in enumerate(listed)}


def same_parameters(one: ir.Quantization | None, other: ir.Quantization | None) -> bool:
    """Whether two tensors are quantised alike."""
    if one is None or other is None:
        return one is other
    return (one.axis, one.scale.tolist(), one.zero_point.tolist()) == (
        other.axis,
        other.scale.tolist(),
        other.zero_point.tolist(),
    )
