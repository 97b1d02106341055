"""Bytes + Schema -> records, every offset checked before it is followed.

A table's vtable says which of its fields are there and where. All tables of one type that share a vtable share one
compiled plan: a ``struct.Struct`` that unpacks numbers and offsets in one call, and a reader for what each offset leads
to. So the layout is checked once a vtable, and a table costs one bounds check and one unpacking. FlatBuffers' C++
Verifier is the model for what is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer.schema import Enum, Schema, Table
from mlinspect.flatbuffer.structs import struct_layout

_UINT = struct.Struct("<I")
_INT = struct.Struct("<i")
_MAX_DEPTH = 64
_MAX_STRING = 1 << 20
_SHORT_VECTOR = 4096  # numbers; their reader may make Python numbers of them
_MAX_VTABLE = 2 * (2 + 1024)

Reader = Callable[[int, int], Any]  # position that an offset leads to, depth -> value
ReaderOf = Callable[[str, bool], Reader]  # type, whether a vector of it -> its reader


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

    __slots__ = (
        "defaults",
        "enums",
        "links",
        "names",
        "object_size",
        "present",
        "structs",
        "table",
        "unions",
        "unknown",
        "unpack",
    )

    def __init__(self, schema: Schema, table: Table, vtable: bytes, reader_of: ReaderOf) -> None:
        self.object_size, *slots = struct.unpack_from(f"<{len(vtable) // 2 - 1}H", vtable, 2)
        self.table = table.name
        self.defaults: dict[str, Any] = {}
        self.enums: list[tuple[str, dict[int, str]]] = []
        self.structs: list[tuple[str, int, tuple[str, ...], Callable[..., tuple[Any, ...]]]] = []
        self.links: list[tuple[str, int, Reader]] = []  # field, where its offset stands, what it leads to
        self.unions: list[tuple[str, int, str, _Members]] = []  # the same, and the field of the tag
        spans = [(0, 4, "4x", "")]  # first byte, bytes, struct code, field
        known = set()

        def at(slot: int) -> int:
            known.add(slot)
            return slots[slot] if 0 <= slot < len(slots) else 0

        for item in table.fields:
            name, offset = item.name, at(item.slot)
            union, inner = schema.union(item.type), schema.tables.get(item.type)
            enum = None if item.vector else schema.enums.get(item.type)
            if union is not None:
                tag = f"{name}_type"
                self.defaults[tag] = 0
                if tag_offset := at(item.slot - 1):
                    spans.append((tag_offset, 1, "B", tag))
            names = enum.names if enum is not None and not enum.is_union and not enum.bit_flags else None
            self.defaults[name] = item.default if names is None or item.default is None else names[int(item.default)]
            if not offset:
                continue
            if inner is not None and inner.is_struct and not item.vector:
                layout, fields, _ = struct_layout(schema, inner)
                self.structs.append((name, offset, fields, layout.unpack_from))
                spans.append((offset, layout.size, f"{layout.size}x", name))
                continue
            scalar = None if item.vector else schema.scalar(item.type)
            code, size = scalar or ("I", 4)
            spans.append((offset, size, code, name))
            if names is not None:
                self.enums.append((name, names))
            elif union is not None:
                self.unions.append((name, offset, tag, _Members(union, reader_of)))
            elif scalar is None:
                self.links.append((name, offset, reader_of(item.type, item.vector)))
        self.unpack, self.names = self._unpacking(sorted(spans))
        self.present = frozenset(name for *_, name in spans[1:])
        self.unknown = tuple(slot for slot, offset in enumerate(slots) if offset and slot not in known)

    def _unpacking(self, spans: list[tuple[int, int, str, str]]) -> tuple[Callable[..., Any], tuple[str, ...]]:
        code, end = "<", 0
        for offset, size, letter, name in spans:
            if offset < end:
                raise ModelFormatError(f"field {name!r} of {self.table} overlaps its neighbour")
            code += f"{offset - end}x{letter}"
            end = offset + size
        if end > self.object_size:
            raise ModelFormatError(f"field {spans[-1][3]!r} lies outside its {self.table} table")
        names = tuple(name for *_, letter, name in spans if not letter.endswith("x"))
        return struct.Struct(code).unpack_from, names


class _Members(dict[int, Reader]):
    """Readers of a union's members by tag, made when first met."""

    def __init__(self, union: Enum, reader_of: ReaderOf) -> None:
        self.union, self.reader_of = union, reader_of

    def __missing__(self, tag: int) -> Reader:
        reader = self[tag] = self.reader_of(self.union.members.get(tag) or f"Unknown({tag})", False)
        return reader


class Record(dict[str, Any]):
    """A decoded table: its fields by name, defaults filled in.

    Numbers are Python's, strings str, enums their names (``Unknown(7)`` if the schema has none), vectors of numbers
    read-only numpy views, tables Records or None. A union field ``u`` has its tag in ``u_type``.
    """

    __slots__ = ("offset", "plan")

    offset: int
    plan: Plan


class Decoder:
    """Reads tables of one schema out of one buffer.

    Parameters
    ----------
    buffer : ndarray of uint8
        The file, usually a read-only memory map.
    schema : Schema

    Attributes
    ----------
    plans : list of Plan
        One for each table type and vtable met so far.
    tables_read : int
        Tables met so far.

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
        self._address = buffer.ctypes.data
        self.view = memoryview(buffer)  # type: ignore[arg-type]
        self.size = len(buffer)
        self.schema = schema
        self.plans: list[Plan] = []
        self._readers: dict[tuple[str, bool], Reader] = {}
        self.tables_read = 0
        # a table needs at least 8 bytes: its vtable offset and an offset to it; more tables can only be met in circles
        self._most_tables = self.size // 8 + 16
        self._claims = 16 * self.size + (1 << 16)

    def root(self) -> Record:
        """The root table.

        Raises
        ------
        ModelFormatError
            With the byte offset and the path of fields to the fault.
        """
        if self.size < 8:
            raise ModelFormatError(f"{self.size} bytes are too few for a FlatBuffer", self.size)
        (offset,) = _UINT.unpack_from(self.view, 0)
        return self.table(self.schema.root, self._target(0, offset))

    def table(self, kind: str, position: int) -> Record:
        """The table of type ``kind`` at ``position``."""
        record: Record = self._reader_of(kind, False)(position, 0)
        return record

    def position(self, values: np.ndarray) -> int:
        """Where in the file a vector's first byte stands."""
        return values.ctypes.data - self._address

    def claim(self, amount: int, position: int) -> None:
        """Count bytes of the file that are to become Python objects.

        Writers store each thing once, or a short one a few times; a small file in which many fields lead to the same
        long vector would otherwise grow without measure.

        Raises
        ------
        ModelFormatError
            When they are many times more than the file has.
        """
        self._claims -= amount
        if self._claims < 0:
            raise ModelFormatError("too many fields lead to the same bytes", position)

    def _target(self, position: int, offset: int) -> int:
        """Where the offset that is stored at ``position`` leads."""
        target = position + offset
        if offset == 0 or target > self.size - 4:
            raise ModelFormatError(f"offset {offset} leads outside the {self.size} bytes", position)
        return target

    def _vector(self, position: int, item_size: int) -> tuple[int, int]:
        """First byte of the vector at ``position``, and the byte after its last."""
        (count,) = _UINT.unpack_from(self.view, position)
        end = position + 4 + count * item_size
        if end > self.size:
            message = f"a vector of {count} x {item_size} bytes does not fit the {self.size} bytes"
            raise ModelFormatError(message, position)
        return position + 4, end

    # ---- readers: one per type, closed over what they need. They run for every field, so they do what `claim` and
    # `_target` do without calling them, but for the error: files open 6 % faster -----------------------------------

    def _reader_of(self, kind: str, vector: bool) -> Reader:
        """What reads a string, a table, or a vector of anything."""
        found = self._readers.get((kind, vector))
        if found is None:
            table, scalar = self.schema.tables.get(kind), self.schema.scalar(kind)
            if vector and scalar is not None:
                found = self._numbers_reader(np.dtype(bool if scalar[0] == "?" else "<" + scalar[0]))
            elif vector and table is not None and table.is_struct:
                found = self._structs_reader(table)
            elif vector:
                found = self._vector_reader(self._reader_of(kind, False))
            elif kind == "string":
                found = self._string
            else:
                found = self._table_reader(table or Table(kind, ()))
            self._readers[(kind, vector)] = found
        return found

    def _string(self, position: int, depth: int) -> str:
        """A string; bytes that are not UTF-8 come out as ``\\xNN``."""
        start, end = self._vector(position, 1)
        if end - start > _MAX_STRING:
            raise ModelFormatError(
                f"a string of {end - start} bytes: longer than any name, at most {_MAX_STRING} are read", position
            )
        self._claims -= end - start
        if self._claims < 0:
            self.claim(0, position)
        if end >= self.size or self.view[end] != 0:
            raise ModelFormatError("string without a terminating zero", position)
        return str(self.view[start:end], "utf-8", "backslashreplace")

    def _numbers_reader(self, dtype: np.dtype[Any]) -> Reader:
        buffer, item_size = self.buffer, dtype.itemsize
        short = _SHORT_VECTOR * item_size

        def read_numbers(position: int, depth: int) -> np.ndarray:
            start, end = self._vector(position, item_size)
            if end - start <= short:
                self._claims -= 8 * (end - start) // item_size
                if self._claims < 0:
                    self.claim(0, position)
            return buffer[start:end].view(dtype)

        return read_numbers

    def _structs_reader(self, table: Table) -> Reader:
        layout, names, _ = struct_layout(self.schema, table)

        def read_structs(position: int, depth: int) -> list[dict[str, Any]]:
            start, end = self._vector(position, layout.size)
            return [dict(zip(names, row, strict=True)) for row in layout.iter_unpack(self.view[start:end])]

        return read_structs

    def _vector_reader(self, read: Reader) -> Reader:
        view, size, offsets = self.view, self.size, _UINT.iter_unpack

        def read_vector(position: int, depth: int) -> list[Any]:
            at, end = self._vector(position, 4)
            found: list[Any] = []
            try:
                for (offset,) in offsets(view[at:end]):
                    target = at + offset
                    if offset == 0 or target > size - 4:
                        raise ModelFormatError(f"offset {offset} leads outside the {size} bytes", at)
                    found.append(read(target, depth))
                    at += 4
            except ModelFormatError as error:
                raise error.within(f"[{len(found)}]") from None
            return found

        return read_vector

    def _table_reader(self, table: Table) -> Reader:
        view, size, most_tables, unpack_int = self.view, self.size, self._most_tables, _INT.unpack_from
        plans: dict[int, Plan] = {}

        def read_table(position: int, depth: int) -> Record:
            vtable = position - unpack_int(view, position)[0]
            plan = plans.get(vtable)
            if plan is None:
                plan = plans[vtable] = self._plan(table, position, vtable)
            if position + plan.object_size > size:
                raise ModelFormatError(f"a {table.name} table runs past the end of the file", position)
            self.tables_read += 1
            if self.tables_read > most_tables or depth > _MAX_DEPTH:
                raise ModelFormatError("tables refer to each other in a circle, or too deeply", position)
            record = Record(plan.defaults)
            record.plan = plan
            record.offset = position
            record.update(zip(plan.names, plan.unpack(view, position)))  # noqa: B905 (made together)
            for name, names in plan.enums:
                record[name] = names[record[name]]
            for name, at, fields, unpack in plan.structs:
                record[name] = dict(zip(fields, unpack(view, position + at)))  # noqa: B905 (made together)
            depth += 1
            name = ""
            try:
                for name, at, read in plan.links:
                    target = position + at + record[name]
                    if target == position + at or target > size - 4:
                        self._target(position + at, record[name])
                    record[name] = read(target, depth)
                for name, at, tag, members in plan.unions:
                    record[name] = members[record[tag]](self._target(position + at, record[name]), depth)
            except ModelFormatError as error:
                raise error.within(name) from None
            return record

        return read_table

    def _plan(self, table: Table, position: int, start: int) -> Plan:
        if start < 0 or start > self.size - 4:
            raise ModelFormatError(f"the vtable of a {table.name} table lies outside the file", position)
        length, object_size = struct.unpack_from("<HH", self.view, start)
        if length < 4 or length % 2 or length > _MAX_VTABLE or start + length > self.size:
            raise ModelFormatError(f"the vtable of a {table.name} table has an impossible length {length}", start)
        if object_size < 4:
            raise ModelFormatError(f"the vtable of a {table.name} table has an impossible object size", start)
        try:
            plan = Plan(self.schema, table, bytes(self.view[start : start + length]), self._reader_of)
        except ModelFormatError as error:
            raise ModelFormatError(error.message, start) from None
        self.plans.append(plan)
        return plan
