"""``.fbs`` text -> Schema: the declarations of a FlatBuffers format as plain data.

The grammar is that of FlatBuffers' own schema language, less what no data depends on
(RPC services and documentation are skipped).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from mlinspect.errors import SchemaError

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


class _Names(dict[int, str]):
    def __missing__(self, value: int) -> str:
        return f"Unknown({value})"


@dataclass(frozen=True)
class Field:
    """One field of a table or struct.

    ``type`` names a scalar, ``string``, an enum, a union, a struct or a table; ``vector`` says that it is a list of them.
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


_TOKEN = re.compile(
    r"""\s*(?:(?P<skip>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:inf|infinity|nan)\b))
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<mark>[{}()\[\]:;,=]))""",
    re.VERBOSE | re.DOTALL,
)


class _Tokens:
    def __init__(self, text: str, name: str) -> None:
        self.name, self.text = name, text.rstrip()
        self.items: list[tuple[str, int]] = []  # token, position
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                stray = self.text[position : position + 20].strip()
                raise SchemaError(f"{name}:{self.line(position)}: cannot read {stray!r}")
            position = match.end()
            if match.lastgroup != "skip":
                token = match[match.lastgroup or 0]
                self.items.append((token, position))
        self.at = 0

    def line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def peek(self) -> str:
        return self.items[self.at][0] if self.at < len(self.items) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise self.error("the text ends too early")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.peek() or 'the end'!r}")

    def error(self, message: str) -> SchemaError:
        position = self.items[min(self.at, len(self.items) - 1)][1] if self.items else 0
        return SchemaError(f"{self.name}:{self.line(position)}: {message}")


@dataclass
class _Parsed:
    tables: dict[str, Table] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # root_type, file_identifier, file_extension


def _metadata(tokens: _Tokens) -> dict[str, str]:
    found: dict[str, str] = {}
    if tokens.accept("("):
        while not tokens.accept(")"):
            key = tokens.next()
            found[key] = tokens.next().strip('"') if tokens.accept(":") else ""
            tokens.accept(",")
    return found


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _number(text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def _parse_enum(tokens: _Tokens, is_union: bool) -> Enum:
    name = tokens.next()
    base = "ubyte"
    if not is_union:
        tokens.expect(":")
        base = _short(tokens.next())
        if base not in SCALARS:
            raise tokens.error(f"enum {name} cannot be based on {base!r}")
    flags = "bit_flags" in _metadata(tokens)
    tokens.expect("{")
    values: dict[str, int] = {"NONE": 0} if is_union else {}
    members: dict[int, str] = {}
    value = 1 if is_union else 0
    while not tokens.accept("}"):
        label = tokens.next()
        kind = tokens.next() if tokens.accept(":") else label
        _ = _metadata(tokens)
        if tokens.accept("="):
            value = int(tokens.next(), 0)
        label = _short(label)
        values[label] = 1 << value if flags else value
        members[value] = _short(kind)
        value += 1
        tokens.accept(",")
    return Enum(name, base, values, is_union, members if is_union else {}, flags)


def _parse_fields(tokens: _Tokens) -> list[tuple[Field, int | None]]:
    """Fields with their explicit id, if any; defaults stay text until all enums are known."""
    tokens.expect("{")
    found: list[tuple[Field, int | None]] = []
    while not tokens.accept("}"):
        name = tokens.next()
        tokens.expect(":")
        vector = tokens.accept("[")
        kind = _short(tokens.next())
        if vector:
            if tokens.accept(":"):
                raise tokens.error(f"fixed-length array {name!r} is not supported")
            tokens.expect("]")
        default = tokens.next() if tokens.accept("=") else None
        meta = _metadata(tokens)
        tokens.expect(";")
        slot = int(meta["id"]) if "id" in meta else None
        # the default is resolved in _resolve; until then it is the text
        found.append((Field(name, kind, vector, default, deprecated="deprecated" in meta), slot))  # type: ignore[arg-type]
    return found


def _parse(text: str, name: str, include: Callable[[str], str], into: _Parsed, seen: set[str]) -> None:
    tokens = _Tokens(text, name)
    while tokens.peek():
        word = tokens.next()
        if word == "include":
            target = tokens.next().strip('"')
            tokens.expect(";")
            if target not in seen:
                seen.add(target)
                _parse(include(target), target, include, into, seen)
        elif word in ("namespace", "attribute"):
            tokens.next()
            tokens.expect(";")
        elif word in ("root_type", "file_identifier", "file_extension"):
            into.words[word] = _short(tokens.next()) if word == "root_type" else tokens.next().strip('"')
            tokens.expect(";")
        elif word in ("enum", "union"):
            enum = _parse_enum(tokens, word == "union")
            into.enums[enum.name] = enum
        elif word in ("table", "struct"):
            label = tokens.next()
            _metadata(tokens)
            raw = _parse_fields(tokens)
            into.tables[label] = Table(label, _number_slots(tokens, label, raw), word == "struct")
        elif word == "rpc_service":
            while tokens.next() != "}":
                pass
        else:
            raise tokens.error(f"unknown declaration {word!r}")


def _number_slots(tokens: _Tokens, table: str, raw: list[tuple[Field, int | None]]) -> tuple[Field, ...]:
    explicit = [slot is not None for _, slot in raw]
    if any(explicit) and not all(explicit):
        raise tokens.error(f"table {table}: either all fields have an id or none")
    # without ids slots are dealt out in _resolve, when it is known which types are unions
    return tuple(replace(item, slot=-1 if slot is None else slot) for item, slot in raw)


def _default(item: Field, schema: Schema) -> bool | int | float | None:
    scalar = schema.scalar(item.type)
    if item.vector or scalar is None:
        return None
    text = item.default
    if text is None:
        return False if item.type == "bool" else 0.0 if scalar[0] in "fd" else 0
    text = str(text)
    enum = schema.enums.get(item.type)
    if enum is not None and _short(text) in enum.values:
        return enum.values[_short(text)]
    if text in ("true", "false"):
        return text == "true"
    try:
        value = _number(text)
    except ValueError:
        raise SchemaError(f"{schema.name}: field {item.name}: default {text!r} is no {item.type}") from None
    if item.type == "bool":
        return bool(value)
    return float(value) if scalar[0] in "fd" else int(value)


def _resolve(schema: Schema) -> Schema:
    tables = {}
    for table in schema.tables.values():
        fields, slot = [], 0
        for item in table.fields:
            if not (
                item.type == "string" or item.type in SCALARS or item.type in schema.enums or item.type in schema.tables
            ):
                raise SchemaError(f"{schema.name}: {table.name}.{item.name} has unknown type {item.type!r}")
            number = item.slot
            if number < 0:
                slot += 1 if schema.union(item.type) is not None else 0
                number = slot
                slot += 1
            fields.append(replace(item, default=_default(item, schema), slot=number))
        tables[table.name] = replace(table, fields=tuple(fields))
    return replace(schema, tables=tables)


def parse_schema(text: str, name: str = "schema", include: Callable[[str], str] | None = None) -> Schema:
    """Parse the text of a ``.fbs`` file.

    Parameters
    ----------
    text : str
        Declarations in FlatBuffers' schema language.
    name : str
        How error messages call the text.
    include : callable, optional
        Gives the text of an included file by the name in the ``include`` statement.

    Returns
    -------
    Schema

    Raises
    ------
    SchemaError
        With the line at fault.

    Examples
    --------
    >>> schema = parse_schema("table Point { x: int; y: int = 7; } root_type Point;")
    >>> schema.root, schema.tables["Point"]["y"].default
    ('Point', 7)
    """

    def refuse(target: str) -> str:
        raise SchemaError(f"{name}: cannot find the included file {target!r}")

    parsed = _Parsed()
    _parse(text, name, include or refuse, parsed, set())
    words = parsed.words
    root = words.get("root_type", "")
    if root not in parsed.tables:
        raise SchemaError(f"{name}: root_type {root!r} is not a table")
    identifier = words.get("file_identifier")
    return _resolve(Schema(name, parsed.tables, parsed.enums, root, identifier, words.get("file_extension")))


@lru_cache(maxsize=64)
def _load(path: Path, _stamp: int) -> Schema:
    def include(target: str) -> str:
        for folder in (path.parent, *path.parents):
            if (folder / target).is_file():
                return (folder / target).read_text("utf-8")
        raise SchemaError(f"{path.name}: cannot find the included file {target!r}")

    return parse_schema(path.read_text("utf-8"), path.stem, include)


def load_schema(path: str | Path) -> Schema:
    """Parse a ``.fbs`` file (kept: a second call costs nothing).

    Parameters
    ----------
    path : str or Path
        The file; its ``include`` statements are looked up beside it and in its parent folders.

    Returns
    -------
    Schema

    Raises
    ------
    SchemaError
    """
    path = Path(path).resolve()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise SchemaError(f"cannot read schema {path.name}: {error.strerror}") from error
    return _load(path, stamp)
