"""Bytes + Schema -> records, every offset checked before it is followed.

A table's vtable says which of its fields are there and where. All tables of one type that share a vtable share one
compiled plan (a ``struct.Struct`` for the numbers and a reader for each offset), so that checks of the layout cost once
a vtable, and a table costs one bounds check and one unpacking. FlatBuffers' C++ Verifier is the model for what is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer.schema import Enum, Schema, Table

_UINT = struct.Struct("<I")
_INT = struct.Struct("<i")
_MAX_DEPTH = 64
_MAX_VTABLE = 2 * (2 + 1024)

Reader = Callable[["Decoder", int, int], Any]  # decoder, position of the field, depth -> value


class Plan:
    """How to read the tables of one type that share a vtable.

    Attributes
    ----------
    table : str
        Name of the table type; ``Unknown(tag)`` for a union member that the schema does not have.
    present : frozenset of str
        The fields that are stored (the others have their defaults).
    unknown : tuple of int
        Slots that are stored but not in the schema.
    """

    __slots__ = ("defaults", "names", "object_size", "present", "readers", "table", "unknown", "unpack", "value_names")

    def __init__(self, schema: Schema, table: Table, vtable: bytes, position: int) -> None:
        slots = struct.unpack_from(f"<{len(vtable) // 2 - 2}H", vtable, 4)
        self.table = table.name
        self.object_size = object_size = struct.unpack_from("<H", vtable, 2)[0]
        known = {item.slot: item for item in table.fields}
        for item in table.fields:
            if schema.union(item.type) is not None:
                known[item.slot - 1] = item
        self.unknown = tuple(slot for slot, offset in enumerate(slots) if offset and slot not in known)
        self.defaults: dict[str, Any] = {}
        self.readers: list[tuple[str, int, Reader]] = []
        numbers: list[tuple[int, int, str, str]] = []  # offset, bytes, code, name
        spans: list[tuple[int, int, str]] = []
        present = []
        for item in table.fields:
            union = schema.union(item.type)
            offset = slots[item.slot] if item.slot < len(slots) else 0
            scalar = None if item.vector else schema.scalar(item.type)
            if union is not None and not item.vector:
                tag_offset = slots[item.slot - 1] if item.slot - 1 < len(slots) else 0
                self.defaults[f"{item.name}_type"] = 0
                if tag_offset:
                    numbers.append((tag_offset, 1, "B", f"{item.name}_type"))
                    spans.append((tag_offset, 1, f"{item.name}_type"))
            elif union is not None:
                raise ModelFormatError(f"vectors of unions ({table.name}.{item.name}) are not supported", position)
            enum = schema.enums.get(item.type) if scalar is not None else None
            default: Any = item.default if scalar is not None else None
            self.defaults[item.name] = default if enum is None else enum_name(enum, default)
            if not offset:
                continue
            present.append(item.name)
            struct_type = schema.tables.get(item.type)
            if scalar is not None:
                size = scalar[1]
                numbers.append((offset, size, scalar[0], item.name))
                if enum is not None:
                    self.readers.append((item.name, -1, _enum_reader(enum)))
            elif struct_type is not None and struct_type.is_struct and not item.vector:
                layout = struct_layout(schema, struct_type)
                size = layout.size
                self.readers.append((item.name, offset, _struct_reader(schema, struct_type)))
            else:
                size = 4
                reader = (
                    _union_reader(union, f"{item.name}_type")
                    if union is not None
                    else _offset_reader(schema, item.type, item.vector)
                )
                self.readers.append((item.name, offset, reader))
            spans.append((offset, size, item.name))
        self.present = frozenset(present)
        spans.sort()
        end = 4
        for offset, size, name in spans:
            if offset < end:
                raise ModelFormatError(f"field {name!r} of {table.name} overlaps its neighbour", position)
            end = offset + size
        if end > object_size:
            raise ModelFormatError(f"field {spans[-1][2]!r} lies outside its {table.name} table", position)
        code, at = "<", 0
        numbers.sort()
        for offset, size, letter, _ in numbers:
            code += f"{offset - at}x{letter}" if offset > at else letter
            at = offset + size
        self.unpack = struct.Struct(code).unpack_from
        self.value_names = tuple(name for *_, name in numbers)
        # offsets are followed in the order of declaration, after the numbers
        self.names = tuple(self.defaults)


class Record(dict[str, Any]):
    """A decoded table: its fields by name, defaults filled in.

    Numbers are Python's, strings str, enums their names (``Unknown(7)`` if the schema has none), vectors of numbers
    read-only numpy views, tables Records or None. A union field ``u`` has its tag in ``u_type``.
    """

    __slots__ = ("offset", "plan")

    offset: int
    plan: Plan


def enum_name(enum: Enum, value: Any) -> Any:
    """The name of an enum's value, ``Unknown(value)`` if it has none; numbers for bit flags."""
    if enum.bit_flags:
        return value
    return enum.names.get(value, f"Unknown({value})")


def struct_layout(schema: Schema, table: Table) -> struct.Struct:
    """Struct for the inline bytes of a struct type, padding included; nested structs flattened."""
    code, at, largest = "<", 0, 1
    for letter, size in _struct_parts(schema, table):
        pad = -at % size
        code += f"{pad}x{letter}" if pad else letter
        at += pad + size
        largest = max(largest, size)
    tail = -at % largest
    return struct.Struct(f"{code}{tail}x" if tail else code)


def _struct_parts(schema: Schema, table: Table) -> list[tuple[str, int]]:
    parts: list[tuple[str, int]] = []
    for item in table.fields:
        scalar = schema.scalar(item.type)
        parts += [scalar] if scalar is not None else _struct_parts(schema, schema.tables[item.type])
    return parts


def _struct_names(schema: Schema, table: Table, prefix: str = "") -> list[str]:
    names: list[str] = []
    for item in table.fields:
        if schema.scalar(item.type) is not None:
            names.append(prefix + item.name)
        else:
            names += _struct_names(schema, schema.tables[item.type], f"{prefix}{item.name}.")
    return names


def _enum_reader(enum: Enum) -> Reader:
    names = enum.names
    flags = enum.bit_flags

    def read(decoder: Decoder, value: int, depth: int) -> Any:
        return value if flags else names.get(value) or f"Unknown({value})"

    return read


def _struct_reader(schema: Schema, table: Table) -> Reader:
    layout = struct_layout(schema, table)
    names = tuple(_struct_names(schema, table))
    unpack = layout.unpack_from

    def read(decoder: Decoder, position: int, depth: int) -> dict[str, Any]:
        return dict(zip(names, unpack(decoder.view, position), strict=True))

    return read


def _union_reader(union: Enum, tag_name: str) -> Reader:
    members = union.members

    def read(decoder: Decoder, position: int, depth: int, tag: int = 0) -> Record:
        target = decoder.follow(position)
        name = members.get(tag)
        if name == "string":
            return decoder.string(target)  # type: ignore[return-value]
        return decoder.table(name or f"Unknown({tag})", target, depth + 1)

    read.tag_name = tag_name  # type: ignore[attr-defined]
    return read  # type: ignore[return-value]


def _offset_reader(schema: Schema, kind: str, vector: bool) -> Reader:
    if not vector:
        if kind == "string":
            return lambda decoder, position, depth: decoder.string(decoder.follow(position))
        return lambda decoder, position, depth: decoder.table(kind, decoder.follow(position), depth + 1)
    scalar = schema.scalar(kind)
    if scalar is not None:
        dtype = np.dtype("<" + scalar[0]) if scalar[0] != "?" else np.dtype(bool)
        return lambda decoder, position, depth: decoder.numbers(decoder.follow(position), dtype)
    if kind == "string":
        return lambda decoder, position, depth: [decoder.string(at) for at in decoder.offsets(decoder.follow(position))]
    table = schema.tables[kind]
    if table.is_struct:
        layout, names = struct_layout(schema, table), tuple(_struct_names(schema, table))

        def read_structs(decoder: Decoder, position: int, depth: int) -> list[dict[str, Any]]:
            start, count = decoder.vector(decoder.follow(position), layout.size)
            return [
                dict(zip(names, layout.unpack_from(decoder.view, start + i * layout.size), strict=True))
                for i in range(count)
            ]

        return read_structs

    def read_tables(decoder: Decoder, position: int, depth: int) -> list[Record]:
        found: list[Record] = []
        read, deeper = decoder.table, depth + 1
        try:
            for at in decoder.offsets(decoder.follow(position)):
                found.append(read(kind, at, deeper))
        except ModelFormatError as error:
            raise error.within(f"[{len(found)}]") from None
        return found

    return read_tables


class Decoder:
    """Reads tables of one schema out of one buffer.

    Parameters
    ----------
    buffer : ndarray of uint8
        The file, usually a read-only memory map.
    schema : Schema

    Examples
    --------
    >>> from mlinspect.flatbuffer import encode, parse_schema
    >>> schema = parse_schema("table P { x: int; name: string; } root_type P;")
    >>> record = Decoder(np.frombuffer(encode(schema, {"x": 3, "name": "a"}), np.uint8), schema).root()
    >>> dict(record)
    {'x': 3, 'name': 'a'}
    """

    def __init__(self, buffer: np.ndarray, schema: Schema) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.size = len(buffer)
        self.schema = schema
        self._plans: dict[tuple[str, int], Plan] = {}
        # one table takes at least its vtable offset and an offset to it; more reads than that go in circles
        self._left = self.size // 8 + 16

    def root(self) -> Record:
        """The root table.

        Raises
        ------
        ModelFormatError
            With the byte offset and the path of fields to the fault.
        """
        if self.size < 8:
            raise ModelFormatError(f"{self.size} bytes are too few for a FlatBuffer", self.size)
        return self.table(self.schema.root, self.follow(0))

    def follow(self, position: int) -> int:
        """The position that the offset stored at ``position`` leads to."""
        (offset,) = _UINT.unpack_from(self.view, position)
        target: int = position + offset
        if offset == 0 or target > self.size - 4:
            raise ModelFormatError(f"offset {offset} leads outside the {self.size} bytes", position)
        return target

    def vector(self, position: int, item_size: int) -> tuple[int, int]:
        """First byte and length of the vector at ``position``."""
        (count,) = _UINT.unpack_from(self.view, position)
        if count * item_size > self.size - position - 4:
            raise ModelFormatError(
                f"a vector of {count} x {item_size} bytes does not fit the {self.size} bytes", position
            )
        return position + 4, count

    def numbers(self, position: int, dtype: np.dtype[Any]) -> np.ndarray:
        """A vector of numbers, as a view of the buffer."""
        start, count = self.vector(position, dtype.itemsize)
        return np.ndarray((count,), dtype, self.buffer, start)

    def offsets(self, position: int) -> list[int]:
        """Where the elements of a vector of tables or strings are."""
        start, count = self.vector(position, 4)
        last = self.size - 4
        found = []
        for i, offset in enumerate(struct.unpack_from(f"<{count}I", self.view, start)):
            target = start + 4 * i + offset
            if offset == 0 or target > last:
                raise ModelFormatError(f"element {i}: offset {offset} leads outside the file", start + 4 * i)
            found.append(target)
        return found

    def string(self, position: int) -> str:
        """A string; bytes that are not UTF-8 come out as ``\\xNN``."""
        start, count = self.vector(position, 1)
        end = start + count
        if end >= self.size or self.view[end] != 0:
            raise ModelFormatError("string without a terminating zero", position)
        return str(self.view[start:end], "utf-8", "backslashreplace")

    def table(self, kind: str, position: int, depth: int = 0) -> Record:
        """The table of type ``kind`` at ``position``."""
        view = self.view
        back = _INT.unpack_from(view, position)[0]
        plan = self._plans.get((kind, position - back))
        if plan is None:
            plan = self._plan(kind, position, position - back)
        if position + plan.object_size > self.size:
            raise ModelFormatError(f"a {kind} table runs past the end of the file", position)
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise ModelFormatError("tables refer to each other without end", position)
        record = Record(plan.defaults)
        record.plan = plan
        record.offset = position
        record.update(zip(plan.value_names, plan.unpack(view, position)))  # noqa: B905 (made together)
        name = ""
        try:
            for name, offset, read in plan.readers:
                if offset < 0:
                    record[name] = read(self, record[name], 0)
                elif (tag := getattr(read, "tag_name", None)) is not None:
                    record[name] = read(self, position + offset, depth, record[tag])  # type: ignore[call-arg]
                else:
                    record[name] = read(self, position + offset, depth)
        except ModelFormatError as error:
            raise error.within(name) from None
        return record

    def _plan(self, kind: str, position: int, start: int) -> Plan:
        if start < 0 or start > self.size - 4:
            raise ModelFormatError(f"the vtable of a {kind} table lies outside the file", position)
        length = int.from_bytes(self.view[start : start + 2], "little")
        if length < 4 or length % 2 or length > _MAX_VTABLE or start + length > self.size:
            raise ModelFormatError(f"the vtable of a {kind} table has an impossible length {length}", start)
        if int.from_bytes(self.view[start + 2 : start + 4], "little") < 4:
            raise ModelFormatError(f"the vtable of a {kind} table has an impossible object size", start)
        table = self.schema.tables.get(kind) or Table(kind, ())
        plan = Plan(self.schema, table, bytes(self.view[start : start + length]), position)
        self._plans[(kind, start)] = plan
        return plan
