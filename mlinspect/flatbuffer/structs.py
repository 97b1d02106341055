"""Structs, the inline bytes of a FlatBuffer: how they lie, and the names of their numbers."""

from __future__ import annotations

import struct

from mlinspect.flatbuffer.schema import Schema, Table


def struct_fields(schema: Schema, table: Table) -> list[tuple[str, str, int]]:
    """``(name, struct code, bytes)`` of each number; those of a struct within are called ``outer.inner``."""
    found: list[tuple[str, str, int]] = []
    for item in table.fields:
        scalar = schema.scalar(item.type)
        if scalar is not None:
            found.append((item.name, *scalar))
        else:
            inner = struct_fields(schema, schema.tables[item.type])
            found += [(f"{item.name}.{name}", code, size) for name, code, size in inner]
    return found


def struct_layout(schema: Schema, table: Table) -> tuple[struct.Struct, tuple[str, ...], int]:
    """The bytes of a struct type, padding included; the names of its numbers in their order; its alignment.

    Examples
    --------
    >>> from mlinspect.flatbuffer import parse_schema
    >>> schema = parse_schema("struct S { a: byte; b: short; } table T { s: S; } root_type T;")
    >>> layout, names, align = struct_layout(schema, schema.tables["S"])
    >>> layout.format, names, align
    ('<b1xh', ('a', 'b'), 2)
    """
    code, at = "<", 0
    fields = struct_fields(schema, table)
    for _, letter, size in fields:
        code += f"{-at % size}x{letter}" if at % size else letter
        at += -at % size + size
    align = max(size for *_, size in fields)
    code += f"{-at % align}x" if at % align else ""
    return struct.Struct(code), tuple(name for name, *_ in fields), align
