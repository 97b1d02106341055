"""The declarations of a FlatBuffers format as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

# name -> (struct code, bytes); the FlatBuffers language has two names for most
SCALARS: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "byte": ("b", 1),
    "int8": ("b", 1),
    "ubyte": ("B", 1),
    "uint8": ("B", 1),
    "short": ("h", 2),
    "int16": ("h", 2),
    "ushort": ("H", 2),
    "uint16": ("H", 2),
    "int": ("i", 4),
    "int32": ("i", 4),
    "uint": ("I", 4),
    "uint32": ("I", 4),
    "float": ("f", 4),
    "float32": ("f", 4),
    "long": ("q", 8),
    "int64": ("q", 8),
    "ulong": ("Q", 8),
    "uint64": ("Q", 8),
    "double": ("d", 8),
    "float64": ("d", 8),
}


class _Names(dict[int, str]):
    """Value -> name of an enum."""

    def __missing__(self, value: int) -> str:
        return f"Unknown({value})"


@dataclass(frozen=True)
class Enum:
    """An enum, or a union (whose values name tables; 0 is ``NONE``)."""

    name: str
    base: str
    values: dict[str, int]
    is_union: bool = False
    members: dict[int, str] = field(default_factory=dict)  # union: tag -> type name
    bit_flags: bool = False

    @cached_property
    def names(self) -> dict[int, str]:
        """Value -> name, ``Unknown(value)`` for others; the first name wins where two share a value."""
        return _Names((value, name) for name, value in reversed(self.values.items()))


@dataclass(frozen=True)
class Field:
    """One field of a table or struct.

    ``type`` names a scalar, ``string``, an enum, a union, a struct or a table; ``vector``: it is a list of them.
    ``slot`` is the position in the vtable (a union's tag sits one slot before).
    """

    name: str
    type: str
    vector: bool = False
    default: bool | int | float | None = None
    slot: int = -1
    deprecated: bool = False


@dataclass(frozen=True)
class Table:
    """A table or a struct with its fields in order of declaration."""

    name: str
    fields: tuple[Field, ...]
    is_struct: bool = False

    def __getitem__(self, name: str) -> Field:
        for item in self.fields:
            if item.name == name:
                return item
        raise KeyError(f"table {self.name} has no field {name!r}")


@dataclass(frozen=True, eq=False)
class Schema:
    """All declarations of one format in one layout."""

    name: str
    tables: dict[str, Table]
    enums: dict[str, Enum]
    root: str
    identifier: str | None = None
    extension: str | None = None

    def union(self, field_type: str) -> Enum | None:
        """The union of that name, or None."""
        enum = self.enums.get(field_type)
        return enum if enum is not None and enum.is_union else None

    def scalar(self, field_type: str) -> tuple[str, int] | None:
        """``(struct code, bytes)`` of a scalar or enum type, or None."""
        enum = self.enums.get(field_type)
        if enum is not None:
            return None if enum.is_union else SCALARS[enum.base]
        return SCALARS.get(field_type)
