"""The encoder: what it writes the decoder reads, aligned as the format asks, and what it refuses."""

import numpy as np
import pytest

from mlinspect.errors import SchemaError
from mlinspect.flatbuffer import Decoder, encode, load_schema, parse_schema
from mlinspect.formats.records import schema_folder

SCHEMA = parse_schema(
    """
    enum Color : byte { Red = 0, Green, Blue }
    struct Point { x: short; y: double; }
    union Any { Leaf, text: string }
    table Leaf { v: int; }
    table T {
      b: byte; d: double; s: string; c: Color; any: Any; p: Point; v: [ubyte]; doubles: [double]; points: [Point];
      colors: [Color]; leaves: [Leaf]; maybe: int = null; m: bool = true;
    }
    root_type T;
    file_identifier "TEST";
    """
)


def read(data, schema=SCHEMA):
    decoder = Decoder(np.frombuffer(data, np.uint8), schema)
    return decoder, decoder.root()


def test_identifier():
    assert encode(SCHEMA, {"b": 1})[4:8] == b"TEST"
    assert encode(SCHEMA, {"b": 1}, identifier=False)[4:8] != b"TEST"


def test_the_same_bytes_for_the_same_record():
    record = {"s": "x", "v": [1, 2], "leaves": [{"v": 1}, {}]}
    assert encode(SCHEMA, record) == encode(SCHEMA, dict(reversed(record.items())))


def test_defaults_are_not_stored():
    assert len(encode(SCHEMA, {"b": 0, "c": "Red", "m": True, "d": 0.0})) == len(encode(SCHEMA, {}))
    _, record = read(encode(SCHEMA, {"m": False, "maybe": 0}))
    assert record.plan.present == {"m", "maybe"}
    assert record["maybe"] == 0


def test_a_record_that_was_read_encodes_again():
    record = {
        "b": -1, "d": 0.5, "s": "ü", "c": "Blue", "any_type": "text", "any": "inside", "p": {"x": 1, "y": 2.0},
        "v": np.arange(100, dtype=np.uint8), "doubles": [1.0, 2.0], "points": [{"x": 3, "y": 4.0}],
        "colors": ["Green", 2], "leaves": [{"v": 1}, {"v": 2}], "maybe": 3, "m": False,
    }  # fmt: skip
    data = encode(SCHEMA, record)
    _, found = read(data)
    assert found["any"] == "inside"
    assert found["colors"].tolist() == [1, 2]
    assert encode(SCHEMA, found) == data


@pytest.mark.parametrize("size", [1, 3, 63, 64, 1000])
def test_alignment(size):
    decoder, record = read(encode(SCHEMA, {"b": 1, "v": np.zeros(size, np.uint8), "doubles": np.ones(size), "s": "x"}))
    assert decoder.position(record["doubles"]) % 8 == 0
    assert decoder.position(record["v"]) % (16 if size >= 64 else 1) == 0
    assert record["doubles"].flags.aligned


@pytest.mark.parametrize("path", sorted(schema_folder().glob("*/*.fbs")), ids=lambda path: path.stem)
def test_every_table_of_every_schema(path, filler, same):
    """All fields of all tables, set to something else than their defaults, come back."""
    schema = load_schema(path)
    for name, table in schema.tables.items():
        if table.is_struct:
            continue
        record = filler(schema).table(name)
        root = parse_schema("table T { x: int; } root_type T;")
        alone = type(schema)(schema.name, schema.tables, schema.enums, name)
        assert root.identifier is None
        _, found = read(encode(alone, record), alone)
        assert same(record, found), name
        assert found.plan.present >= record.keys() - {"_"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"nothing": 1}, "T has no field 'nothing'"),
        ({"b": 128}, "T.b: 128 is not of type byte"),
        ({"b": "x"}, "T.b: 'x' is not of type byte"),
        ({"d": None, "b": 1e300}, "T.b"),
        ({"c": "Pink"}, "T.c: enum Color has no value 'Pink'; it has Red, Green, Blue"),
        ({"c": 300}, "T.c: 300 is not of type Color"),
        ({"c": "Unknown(x)"}, "T.c"),
        ({"any": {"v": 1}}, "T.any: union Any has no member 0"),
        ({"any": {"v": 1}, "any_type": 9}, "T.any: union Any has no member 9"),
        ({"any": {"w": 1}, "any_type": 1}, "T.any: Leaf has no field 'w'"),
        ({"p": {"x": 1}}, "T.p: .* is not a Point"),
        ({"p": {"x": 1 << 20, "y": 0.0}}, "T.p: .* is not a Point"),
        ({"leaves": [{}, {"v": "a"}]}, r"T.leaves\[1\].v: 'a' is not of type int"),
        ({"v": [1, 256]}, "T.v"),
        ({"v": ["a"]}, "T.v"),
        ({"s": 5}, "T.s"),
        ({"leaves": 5}, "T.leaves"),
    ],
)
def test_refuses(record, message):
    with pytest.raises(SchemaError, match=message):
        encode(SCHEMA, record)


def test_unknown_values_pass_by_number():
    _, record = read(encode(SCHEMA, {"c": "Unknown(7)"}))
    assert record["c"] == "Unknown(7)"
    assert encode(SCHEMA, record) == encode(SCHEMA, {"c": 7})
