"""Records + Schema -> bytes: the decoder's reverse, on top of ``flatbuffers.Builder``.

Large vectors are not copied into the builder: they follow what it makes, one after the other, and a model of any size
can be written out with little memory. Offsets in a FlatBuffer lead forward, so all that is needed is where in that tail
each vector will lie.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import number_types

from mlinspect.errors import SchemaError, near
from mlinspect.flatbuffer.schema import Enum, Field, Schema, Table
from mlinspect.flatbuffer.structs import struct_layout

_FLAGS = {
    "?": number_types.BoolFlags,
    "b": number_types.Int8Flags,
    "B": number_types.Uint8Flags,
    "h": number_types.Int16Flags,
    "H": number_types.Uint16Flags,
    "i": number_types.Int32Flags,
    "I": number_types.Uint32Flags,
    "q": number_types.Int64Flags,
    "Q": number_types.Uint64Flags,
    "f": number_types.Float32Flags,
    "d": number_types.Float64Flags,
}

_ALIGN = 16  # what the vendors' writers give to weights, and enough for every element type
_LARGE = 1024  # bytes of a vector that goes into the tail
_MAX_BYTES = 2**31 - 1  # offsets to vtables are signed


@dataclass(frozen=True, slots=True)
class RawTable:
    """A table that is copied as it is, by its position in the ``carried`` bytes of :func:`encode_parts`."""

    position: int


def encode(schema: Schema, root: Mapping[str, Any], identifier: bool = True) -> bytes:
    """Write a record, and all that hangs on it, as a FlatBuffer.

    Parameters
    ----------
    schema : Schema
    root : mapping
        A record of the schema's root table, as the decoder returns it. Missing fields, and those that equal their
        default, are not stored; enums by name or number; a union ``u`` needs its tag (name or number) in ``u_type``.
    identifier : bool
        Write the schema's file identifier, if it has one.

    Returns
    -------
    bytes
        The same bytes for the same record.

    Raises
    ------
    SchemaError
        A field that the table does not have, or a value that does not fit its field.

    Examples
    --------
    >>> from mlinspect.flatbuffer import parse_schema
    >>> encode(parse_schema("table P { x: int; } root_type P;"), {"x": 1})[:4]
    b'\\x0c\\x00\\x00\\x00'
    """
    return b"".join(np.ascontiguousarray(part).data for part in encode_parts(schema, root, identifier))


def encode_parts(
    schema: Schema, root: Mapping[str, Any], identifier: bool = True, carried: np.ndarray | None = None
) -> list[np.ndarray]:
    """The bytes that :func:`encode` returns, in parts to be written one after the other.

    Parameters
    ----------
    schema, root, identifier
        As for :func:`encode`. A table of the record may be a :class:`RawTable`.
    carried : ndarray of uint8, optional
        The bytes of another FlatBuffer in which the raw tables, and all that hangs on them, lie; from a position there
        that is a multiple of 16.

    Returns
    -------
    list of ndarray
        The large vectors among them are those of the record, neither copied nor made contiguous.

    Raises
    ------
    SchemaError
        As for :func:`encode`, and if there are more bytes than a FlatBuffer can have.
    """
    builder = _Builder(carried)
    at = _table(builder, schema, schema.tables[schema.root], root, schema.root)
    if identifier and schema.identifier is not None:
        builder.Finish(at, schema.identifier.encode())
    else:
        builder.Finish(at)
    parts = [np.frombuffer(builder.Output(), np.uint8), *builder.tail]
    if (size := sum(part.nbytes for part in parts)) > _MAX_BYTES:
        raise SchemaError(f"{size} bytes are more than the {_MAX_BYTES} that a FlatBuffer can have")
    return parts


class _Builder(flatbuffers.Builder):
    """A Builder whose large vectors follow its own bytes.

    It counts positions from the end of its bytes backwards, so those in the tail are negative.
    """

    def __init__(self, carried: np.ndarray | None) -> None:
        super().__init__(1024)
        self.tail: list[np.ndarray] = []
        self.tail_size = 0
        if carried is not None:
            self._append(np.zeros(_ALIGN, np.uint8))  # position 0 would be that of an absent field
            self._append(carried)

    def _append(self, part: np.ndarray) -> None:
        self.minalign = _ALIGN  # the builder's bytes will be a multiple of this, so the tail begins aligned
        self.tail.append(part)
        self.tail_size += part.nbytes

    def large_vector(self, values: np.ndarray) -> int:
        """Put a vector into the tail; returns its position."""
        self._append(np.zeros((-self.tail_size - 4) % _ALIGN, np.uint8))
        position = -self.tail_size
        self._append(np.array([values.size], "<u4"))
        self._append(values)
        return position

    def raw_table(self, table: RawTable) -> int:
        """The position of a table in the carried bytes."""
        return -_ALIGN - table.position


def enum_value(enum: Enum, value: Any) -> int:
    """The number of an enum's name; numbers and ``Unknown(n)`` pass."""
    if isinstance(value, str):
        if value in enum.values:
            return enum.values[value]
        if value.startswith("Unknown(") and value.endswith(")"):
            return int(value[8:-1])
        hint = near(value, enum.values)
        raise SchemaError(f"enum {enum.name} has no value {value!r}; it has {', '.join(enum.values)}{hint}")
    return int(value)


def _scalar(schema: Schema, item: Field, code: str, value: Any, path: str) -> bool | int | float:
    enum = schema.enums.get(item.type)
    try:
        if enum is not None:
            value = enum_value(enum, value)
        value = bool(value) if code == "?" else float(value) if code in "fd" else int(value)
        struct.pack("<" + code, value)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        why = error.args[0] if isinstance(error, SchemaError) else f"{value!r} is not of type {item.type}"
        raise SchemaError(f"{path}: {why}") from None
    return value


def _table(builder: Any, schema: Schema, table: Table, record: Mapping[str, Any], path: str) -> int:
    names = {item.name for item in table.fields}
    tags = {f"{item.name}_type" for item in table.fields if schema.union(item.type) is not None}
    if stray := [name for name in record if name not in names and name not in tags]:
        some = f"it has {', '.join(sorted(names))}{near(stray[0], names)}"
        where = table.name if path == table.name else f"{path}: {table.name}"
        raise SchemaError(f"{where} has no field {stray[0]!r}; {some}")
    offsets: dict[str, int] = {}
    for item in table.fields:
        value = record.get(item.name)
        if value is not None and (item.vector or (schema.scalar(item.type) is None and not _is_struct(schema, item))):
            try:
                offsets[item.name] = _child(builder, schema, item, value, record, f"{path}.{item.name}")
            except SchemaError:
                raise
            except (AttributeError, OverflowError, TypeError, ValueError) as error:
                raise SchemaError(f"{path}.{item.name}: {error}") from None
    builder.StartObject(max((item.slot for item in table.fields), default=-1) + 1)
    for item in sorted(table.fields, key=lambda item: -_inline_size(schema, item)):
        value = record.get(item.name)
        union = schema.union(item.type)
        if union is not None and (tag := record.get(f"{item.name}_type")):
            builder.PrependUint8Slot(item.slot - 1, enum_value(union, tag), 0)
        if value is None:
            continue
        if item.name in offsets:
            builder.PrependUOffsetTRelativeSlot(item.slot, offsets[item.name], 0)
        elif (scalar := schema.scalar(item.type)) is None:
            inner = schema.tables[item.type]
            builder.PrependStructSlot(item.slot, _struct(builder, schema, inner, value, f"{path}.{item.name}"), 0)
        else:
            code, size = scalar
            number = _scalar(schema, item, code, value, f"{path}.{item.name}")
            if number != item.default:
                builder.Prep(size, 0)
                builder.Prepend(_FLAGS[code], number)
                builder.Slot(item.slot)
    return int(builder.EndObject())


def _is_struct(schema: Schema, item: Field) -> bool:
    return item.type in schema.tables and schema.tables[item.type].is_struct and not item.vector


def _inline_size(schema: Schema, item: Field) -> int:
    scalar = None if item.vector else schema.scalar(item.type)
    return scalar[1] if scalar is not None else 4


def _struct(builder: Any, schema: Schema, table: Table, value: Mapping[str, Any], path: str) -> int:
    data = _struct_bytes(schema, table, value, path)
    align = struct_layout(schema, table)[2]
    builder.Prep(align, len(data))
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.Offset())


def _struct_bytes(schema: Schema, table: Table, value: Mapping[str, Any], path: str) -> bytes:
    try:
        layout, names, _ = struct_layout(schema, table)
        return layout.pack(*(value[name] for name in names))
    except (KeyError, struct.error) as error:
        raise SchemaError(f"{path}: {value!r} is not a {table.name} ({error})") from None


def _child(builder: Any, schema: Schema, item: Field, value: Any, record: Mapping[str, Any], path: str) -> int:
    """Write what an offset field points to; returns its position."""
    if isinstance(value, RawTable):
        return int(builder.raw_table(value))
    if item.vector:
        return _vector(builder, schema, item.type, value, path)
    if item.type == "string":
        return int(builder.CreateString(value))
    union = schema.union(item.type)
    if union is None:
        return _table(builder, schema, schema.tables[item.type], value, path)
    if isinstance(value, tuple):  # a table by name, whatever the tag says: some writers store tables with the tag NONE
        return _table(builder, schema, schema.tables[value[0]], value[1], path)
    tag = enum_value(union, record.get(f"{item.name}_type") or 0)
    if tag not in union.members:
        raise SchemaError(f"{path}: union {union.name} has no member {tag}")
    if union.members[tag] == "string":
        return int(builder.CreateString(value))
    return _table(builder, schema, schema.tables[union.members[tag]], value, path)


def _vector(builder: Any, schema: Schema, kind: str, values: Any, path: str) -> int:
    scalar = schema.scalar(kind)
    if scalar is not None:
        enum = schema.enums.get(kind)
        if enum is not None and not isinstance(values, np.ndarray):
            values = [enum_value(enum, value) for value in values]
        dtype = np.dtype(bool) if scalar[0] == "?" else np.dtype("<" + scalar[0])
        array = np.asarray(values, dtype)
        if array.nbytes >= _LARGE:
            return int(builder.large_vector(array))
        return _raw_vector(builder, array.tobytes(), array.size, dtype.itemsize)
    if kind in schema.tables and schema.tables[kind].is_struct:
        table = schema.tables[kind]
        data = b"".join(_struct_bytes(schema, table, value, f"{path}[{i}]") for i, value in enumerate(values))
        return _raw_vector(builder, data, len(values), struct_layout(schema, table)[2])
    return _offset_vector(builder, schema, kind, values, path)


def _offset_vector(builder: Any, schema: Schema, kind: str, values: Sequence[Any], path: str) -> int:
    if kind == "string":
        offsets = [builder.CreateString(value) for value in values]
    else:
        table = schema.tables[kind]
        offsets = [_table(builder, schema, table, value, f"{path}[{i}]") for i, value in enumerate(values)]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _raw_vector(builder: Any, data: bytes, count: int, align: int) -> int:
    builder.StartVector(1, len(data), max(align, _ALIGN if len(data) >= 64 else 4))
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    builder.vectorNumElems = count
    return int(builder.EndVector())
