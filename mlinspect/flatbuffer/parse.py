"""``.fbs`` text -> Schema.

The grammar is that of FlatBuffers' own schema language, less what no data depends on (services and documentation are
skipped) and less what neither model format uses: fixed-length arrays, vectors of unions, structs in unions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from mlinspect.errors import SchemaError
from mlinspect.flatbuffer.schema import SCALARS, Enum, Field, Schema, Table

_MAX_FIELDS = 1024  # in one table, union tags counted; FlatBuffers itself would allow more
_TOKEN = re.compile(
    r"""\s*(?:(?P<skip>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:inf|infinity|nan)\b))
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<mark>[{}()\[\]:;,=]))""",
    re.VERBOSE | re.DOTALL,
)
Include = Callable[[str], str]  # name in the include statement -> text


class _Tokens:
    def __init__(self, text: str, name: str) -> None:
        self.name, self.text = name, text.rstrip()
        self.items: list[tuple[str, int]] = []  # token, where it ends
        self.at = position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                stray = self.text[position : position + 20].strip()
                raise SchemaError(f"{name}:{self.line(position)}: cannot read {stray!r}")
            position = match.end()
            if match.lastgroup != "skip":
                self.items.append((match[match.lastgroup or 0], position))

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
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.peek() or 'the end'!r}")

    def word(self) -> str:
        """A name, without the namespace before it."""
        token = self.next()
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.error(f"expected a name, found {token!r}")
        return token.rsplit(".", 1)[-1]

    def integer(self) -> int:
        token = self.next()
        try:
            return int(token, 0)
        except ValueError:
            raise self.error(f"expected a whole number, found {token!r}") from None

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.accept("("):
            while not self.accept(")"):
                key = self.next().strip('"')
                found[key] = self.next().strip('"') if self.accept(":") else ""
                self.accept(",")
        return found

    def error(self, message: str) -> SchemaError:
        position = self.items[min(self.at, len(self.items) - 1)][1] if self.items else 0
        return SchemaError(f"{self.name}:{self.line(position)}: {message}")


@dataclass
class _Declarations:
    """What was read so far: defaults are still text, and fields without an id have no slot yet."""

    tables: dict[str, Table] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    defaults: dict[tuple[str, str], str] = field(default_factory=dict)  # (table, field) -> text
    words: dict[str, str] = field(default_factory=dict)  # root_type, file_identifier, file_extension


def _parse(tokens: _Tokens, include: Include, into: _Declarations, seen: set[str]) -> None:
    while tokens.peek():
        word = tokens.next()
        if word == "include":
            target = tokens.next().strip('"')
            tokens.expect(";")
            if target not in seen:
                seen.add(target)
                _parse(_Tokens(include(target), target), include, into, seen)
        elif word in ("namespace", "attribute"):
            if not tokens.accept(";"):
                tokens.next()
                tokens.expect(";")
        elif word in ("root_type", "file_identifier", "file_extension"):
            into.words[word] = tokens.word() if word == "root_type" else tokens.next().strip('"')
            tokens.expect(";")
        elif word in ("enum", "union"):
            enum = _parse_enum(tokens, word == "union")
            into.enums[enum.name] = enum
        elif word in ("table", "struct"):
            table = _parse_table(tokens, word == "struct", into.defaults)
            into.tables[table.name] = table
        elif word == "rpc_service":
            while tokens.next() != "}":
                pass
        else:
            raise tokens.error(f"unknown declaration {word!r}")


def _parse_enum(tokens: _Tokens, is_union: bool) -> Enum:
    name, base = tokens.word(), "ubyte"
    if not is_union:
        tokens.expect(":")
        base = tokens.word()
        if base not in SCALARS or SCALARS[base][0] in "fd?":
            raise tokens.error(f"enum {name} cannot be based on {base!r}")
    flags = "bit_flags" in tokens.metadata()
    tokens.expect("{")
    values = {"NONE": 0} if is_union else {}
    members: dict[int, str] = {}
    value = 1 if is_union else 0
    while not tokens.accept("}"):
        label = tokens.word()
        kind = tokens.word() if tokens.accept(":") else label
        tokens.metadata()
        if tokens.accept("="):
            value = tokens.integer()
        if not -(1 << 63) <= value < 1 << 64 or (flags and not 0 <= value < 64) or (is_union and not 0 < value < 256):
            raise tokens.error(f"{name}.{label} cannot be {value}")
        values[label] = 1 << value if flags else value
        members[value] = kind
        value += 1
        if not tokens.accept(",") and tokens.peek() != "}":
            raise tokens.error(f"expected ',' or '}}' in {name}, found {tokens.peek() or 'the end'!r}")
    return Enum(name, base, values, is_union, members if is_union else {}, flags)


def _parse_table(tokens: _Tokens, is_struct: bool, defaults: dict[tuple[str, str], str]) -> Table:
    label = tokens.word()
    tokens.metadata()
    tokens.expect("{")
    fields: list[Field] = []
    while not tokens.accept("}"):
        name = tokens.word()
        tokens.expect(":")
        vector = tokens.accept("[")
        kind = tokens.word()
        if vector:
            if tokens.accept(":"):
                raise tokens.error(f"fixed-length array {name!r} is not supported")
            tokens.expect("]")
        if tokens.accept("="):
            defaults[label, name] = tokens.next()
        meta = tokens.metadata()
        tokens.expect(";")
        slot = meta.get("id", "-1")
        if not slot.removeprefix("-").isdecimal():
            raise tokens.error(f"{label}.{name}: id {slot!r} is not a number")
        fields.append(Field(name, kind, vector, None, int(slot), "deprecated" in meta))
    if len({item.name for item in fields}) < len(fields):
        raise tokens.error(f"{label} has two fields of one name")
    if len({item.slot < 0 for item in fields}) > 1:
        raise tokens.error(f"{label}: either all fields have an id or none")
    return Table(label, tuple(fields), is_struct)


# ---- after all declarations are known --------------------------------------------------------------------------------


def _resolve(schema: Schema, defaults: dict[tuple[str, str], str]) -> Schema:
    """Assign slots, read defaults, and check that all types are declared."""
    for enum in schema.enums.values():
        for member in enum.members.values():
            if member != "string" and (member not in schema.tables or schema.tables[member].is_struct):
                raise SchemaError(f"{schema.name}: union {enum.name} has {member!r}, which is not a table")
    tables: dict[str, Table] = {}
    for table in schema.tables.values():
        fields: list[Field] = []
        slot, taken = 0, set[int]()
        for item in table.fields:
            where = f"{schema.name}: {table.name}.{item.name}"
            union = schema.union(item.type)
            known = item.type == "string" or schema.scalar(item.type) or union or item.type in schema.tables
            if not known or (union is not None and item.vector):
                what = "unknown type" if not known else "a vector of unions, which is not supported:"
                raise SchemaError(f"{where} has {what} {item.type!r}")
            if table.is_struct and (item.vector or not (schema.scalar(item.type) or item.type in tables)):
                raise SchemaError(f"{where}: a struct holds numbers and structs declared before it")
            if table.is_struct and item.type in tables and not tables[item.type].is_struct:
                raise SchemaError(f"{where}: a struct cannot hold a table")
            width = 1 if union is None else 2
            number = item.slot if item.slot >= 0 else slot + width - 1
            slot += width
            mine = set(range(number - width + 1, number + 1))
            if taken & mine or min(mine) < 0 or number >= _MAX_FIELDS:
                raise SchemaError(f"{where}: id {number} is taken or out of range")
            taken |= mine
            default = _default(schema, item, defaults.get((table.name, item.name)), where)
            fields.append(replace(item, slot=number, default=default))
        if table.is_struct and not fields:
            raise SchemaError(f"{schema.name}: struct {table.name} is empty")
        tables[table.name] = replace(table, fields=tuple(fields))
    return replace(schema, tables=tables)


def _default(schema: Schema, item: Field, text: str | None, where: str) -> bool | int | float | None:
    scalar = schema.scalar(item.type)
    if item.vector or scalar is None or text == "null":
        return None
    enum = schema.enums.get(item.type)
    try:
        value: int | float
        if enum is not None and text is not None and text.rsplit(".", 1)[-1] in enum.values:
            value = enum.values[text.rsplit(".", 1)[-1]]
        else:
            value = _number({None: "0", "true": "1", "false": "0"}.get(text, text or ""))
        value = bool(value) if scalar[0] == "?" else float(value) if scalar[0] in "fd" else int(value)
        struct.pack("<" + scalar[0], value)
    except (ValueError, OverflowError, struct.error):
        raise SchemaError(f"{where}: default {text!r} is not of type {item.type}") from None
    return value


def _number(text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def parse_schema(text: str, name: str = "schema", include: Include | None = None) -> Schema:
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

    parsed = _Declarations()
    _parse(_Tokens(text, name), include or refuse, parsed, set())
    root, identifier = parsed.words.get("root_type", ""), parsed.words.get("file_identifier")
    if root not in parsed.tables or parsed.tables[root].is_struct:
        raise SchemaError(f"{name}: root_type {root!r} is not a table")
    if identifier is not None and len(identifier.encode()) != 4:
        raise SchemaError(f"{name}: file_identifier {identifier!r} must have 4 bytes")
    schema = Schema(name, parsed.tables, parsed.enums, root, identifier, parsed.words.get("file_extension"))
    return _resolve(schema, parsed.defaults)


@lru_cache(maxsize=64)
def _load(path: Path, _stamp: int) -> Schema:
    def include(target: str) -> str:
        for folder in (path.parent, *path.parents):
            if (folder / target).is_file():
                return _text(folder / target)
        raise SchemaError(f"{path.name}: cannot find the included file {target!r}")

    return parse_schema(_text(path), path.stem, include)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"cannot read schema {path.name}: {error}") from None


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
        raise SchemaError(f"cannot read schema {path.name}: {error.strerror}") from None
    return _load(path, stamp)
