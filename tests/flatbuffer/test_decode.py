"""The decoder: every kind of field, against the flatbuffers package, and every check it makes."""

import random
import struct
import time
import tracemalloc

import flatbuffers
import numpy as np
import pytest
from flatbuffers import number_types
from flatbuffers.table import Table as Reference

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, encode, parse_schema

SCHEMA = parse_schema(
    """
    enum Color : byte { Red = 0, Green, Blue }
    enum Flag : ubyte (bit_flags) { A, B }
    struct Point { x: short; y: double; }
    struct Pair { a: byte; p: Point; }
    union Any { Leaf, text: string }
    table Leaf { v: int; }
    table All {
      t: bool; i8: byte = -1; u8: ubyte; i16: short; u16: ushort; i32: int = 5; u32: uint; i64: long; u64: ulong;
      f32: float = 1.5; f64: double; color: Color = Green; flag: Flag; name: string; leaf: Leaf; any: Any; pair: Pair;
      ints: [int]; bools: [bool]; doubles: [double]; colors: [Color]; names: [string]; leaves: [Leaf]; points: [Point];
      self: All; many: [All];
    }
    root_type All;
    file_identifier "TEST";
    """
)
FULL = {
    "t": True, "i8": -128, "u8": 255, "i16": -32768, "u16": 65535, "i32": -(2**31), "u32": 2**32 - 1, "i64": -(2**63),
    "u64": 2**64 - 1, "f32": 0.5, "f64": 1e300, "color": "Blue", "flag": 3, "name": "näme",
    "leaf": {"v": 7}, "any_type": 1, "any": {"v": 8}, "pair": {"a": 1, "p.x": -2, "p.y": 2.5},
    "ints": np.array([1, -2], np.int32), "bools": np.array([True, False]), "doubles": np.array([0.25]),
    "colors": np.array([0, 2], np.int8), "names": ["", "b"], "leaves": [{"v": 1}, {"v": 2}],
    "points": [{"x": 1, "y": 2.0}, {"x": 3, "y": 4.0}], "self": {"i32": 1}, "many": [],
}  # fmt: skip


def as_buffer(data):
    return np.frombuffer(bytes(data), np.uint8)


def read(data, schema=SCHEMA):
    return Decoder(as_buffer(data), schema).root()


def test_every_kind_of_field(same):
    record = read(encode(SCHEMA, FULL))
    assert same(FULL, record)
    assert record["self"]["color"] == "Green"
    assert record.plan.table == "All"
    assert record.plan.unknown == ()
    assert record.plan.present == {*FULL}


def test_defaults():
    record = read(encode(SCHEMA, {}))
    assert (record["i8"], record["i32"]) == (-1, 5)
    assert (record["f32"], record["color"], record["t"], record["flag"]) == (1.5, "Green", False, 0)
    vectors = ["ints", "bools", "doubles", "colors", "names", "leaves", "points"]
    absent = ["name", "leaf", "any", "pair", *vectors, "self", "many"]
    assert [name for name, value in record.items() if value is None] == absent
    assert record["any_type"] == 0
    assert record.plan.present == frozenset()
    assert list(record) == list(read(encode(SCHEMA, FULL)))


def test_vectors_of_numbers_are_read_only_views():
    buffer = as_buffer(encode(SCHEMA, FULL))
    decoder = Decoder(buffer, SCHEMA)
    ints = decoder.root()["ints"]
    assert np.shares_memory(ints, buffer)
    assert not ints.flags.writeable
    at = decoder.position(ints)
    assert bytes(buffer[at : at + 8]) == bytes(ints)


def test_what_the_schema_does_not_know():
    newer = parse_schema(
        """
        enum Color : byte { Red, Green, Blue, Pink } union Any { Leaf, Pair } table Pair { x: int; }
        table Leaf { v: int; w: int; } table All { c: Color; any: Any; leaf: Leaf; more: string; } root_type All;
        """
    )
    older = parse_schema(
        """
        enum Color : byte { Red, Green, Blue } union Any { Leaf } table Leaf { v: int; }
        table All { c: Color; any: Any; leaf: Leaf; } root_type All;
        """
    )
    wanted = {"c": "Pink", "any_type": "Pair", "any": {"x": 1}, "leaf": {"v": 1, "w": 2}, "more": "x"}
    decoder = Decoder(as_buffer(encode(newer, wanted)), older)
    record = decoder.root()
    assert record["c"] == "Unknown(3)"
    assert (record["any"].plan.table, dict(record["any"]), record["any"].plan.unknown) == ("Unknown(2)", {}, (0,))
    assert record["leaf"].plan.unknown == (1,)
    assert record.plan.unknown == (4,)
    assert sorted(plan.table for plan in decoder.plans) == ["All", "Leaf", "Unknown(2)"]
    assert decoder.tables_read == 3


def test_tables_that_share_a_vtable_share_a_plan():
    decoder = Decoder(as_buffer(encode(SCHEMA, {"leaves": [{"v": i + 1} for i in range(50)]})), SCHEMA)
    leaves = decoder.root()["leaves"]
    # the one that was written first ends at another alignment
    assert len({id(leaf.plan) for leaf in leaves}) <= 2
    assert len(decoder.plans) <= 3
    assert [leaf["v"] for leaf in leaves] == list(range(1, 51))


def test_strings_that_are_not_utf8():
    data = bytearray(encode(SCHEMA, {"name": "abcd"}))
    at = data.index(b"abcd")
    data[at + 1] = 0xFF
    assert read(data)["name"] == "a\\xffcd"


KINDS = [
    ("byte", number_types.Int8Flags),
    ("ushort", number_types.Uint16Flags),
    ("int", number_types.Int32Flags),
    ("ulong", number_types.Uint64Flags),
    ("float", number_types.Float32Flags),
    ("double", number_types.Float64Flags),
    ("bool", number_types.BoolFlags),
]


@pytest.mark.parametrize("seed", range(20))
def test_as_the_flatbuffers_package_reads(seed):
    """Random tables of numbers, written and read by flatbuffers' own Builder and Table, some fields left out."""
    rng = random.Random(seed)
    kinds = [rng.choice(KINDS) for _ in range(rng.randint(1, 12))]
    schema = parse_schema(f"table T {{ {' '.join(f'f{i}: {k[0]};' for i, k in enumerate(kinds))} }} root_type T;")
    builder = flatbuffers.Builder(0)
    builder.StartObject(len(kinds))
    for i in rng.sample(range(len(kinds)), rng.randint(0, len(kinds))):
        flags = kinds[i][1]
        value = rng.random() < 0.5 if flags is number_types.BoolFlags else flags.py_type(rng.randint(0, 100))
        builder.Prep(flags.bytewidth, 0)
        builder.Prepend(flags, value)
        builder.Slot(i)
    builder.Finish(builder.EndObject())
    data = bytes(builder.Output())
    record = read(data, schema)
    reference = Reference(data, struct.unpack_from("<I", data)[0])
    for i, (_, flags) in enumerate(kinds):
        offset = reference.Offset(4 + 2 * i)
        wanted = reference.Get(flags, reference.Pos + offset) if offset else 0
        assert record[f"f{i}"] == wanted


# ---- damaged files ---------------------------------------------------------------------------------------------------


def hand_made(slots, inline, schema_text="table T { x: int; } root_type T;", object_size=None, after=b""):
    """A file of one table: root offset, vtable, table, more bytes; offsets in ``inline`` are the test's business."""
    vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), object_size or 4 + len(inline), *slots)
    vtable += bytes(-len(vtable) % 4)
    data = struct.pack("<I", 4 + len(vtable)) + vtable + struct.pack("<i", len(vtable)) + inline + after
    return as_buffer(data), parse_schema(schema_text)


def refused(buffer, schema):
    with pytest.raises(ModelFormatError) as caught:
        Decoder(buffer, schema).root()
    return caught.value


def test_hand_made_is_readable():
    assert dict(Decoder(*hand_made([4], struct.pack("<i", 9))).root()) == {"x": 9}


@pytest.mark.parametrize(
    ("buffer_and_schema", "message", "path"),
    [
        ((as_buffer(b"1234567"), SCHEMA), "7 bytes are too few", ""),
        ((as_buffer(struct.pack("<II", 0, 0)), SCHEMA), "offset 0 leads outside", ""),
        ((as_buffer(struct.pack("<II", 8, 0)), SCHEMA), "offset 8 leads outside", ""),
        ((as_buffer(struct.pack("<Ii", 4, 0)), SCHEMA), "impossible length 0", ""),
        ((as_buffer(struct.pack("<Ii", 4, 100)), SCHEMA), "vtable of a All table lies outside", ""),
        ((as_buffer(struct.pack("<Ii", 4, -100)), SCHEMA), "vtable of a All table lies outside", ""),
        ((as_buffer(struct.pack("<IHHi", 8, 3, 4, 4)), SCHEMA), "impossible length 3", ""),
        ((as_buffer(struct.pack("<IHHi", 8, 200, 4, 4)), SCHEMA), "impossible length 200", ""),
        ((as_buffer(struct.pack("<IHHi", 8, 4, 3, 4)), SCHEMA), "impossible object size", ""),
        ((as_buffer(struct.pack("<IHHi", 8, 4, 8, 4)), SCHEMA), "runs past the end", ""),
        (hand_made([6], bytes(4), object_size=8), "field 'x' lies outside its T table", ""),
        (hand_made([2], bytes(4)), "field 'x' of T overlaps", ""),
        (hand_made([4, 6], bytes(8), "table T { x: int; y: int; } root_type T;"), "overlaps its neighbour", ""),
        (hand_made([4], struct.pack("<I", 0), "table T { s: string; } root_type T;"), "offset 0 leads", "s"),
        (hand_made([4], struct.pack("<I", 1000), "table T { s: string; } root_type T;"), "leads outside", "s"),
        (hand_made([4], struct.pack("<II", 4, 9), "table T { s: string; } root_type T;", 8), "9 x 1 bytes", "s"),
        (
            hand_made([4], struct.pack("<II", 4, 2), "table T { s: string; } root_type T;", 8, b"ab"),
            "without a terminating zero",
            "s",
        ),
        (
            hand_made([4], struct.pack("<II", 4, 2), "table T { s: string; } root_type T;", 8, b"abc"),
            "without a terminating zero",
            "s",
        ),
        (
            hand_made([4], struct.pack("<II", 4, 2**30), "table T { v: [int]; } root_type T;", 8),
            "1073741824 x 4 bytes",
            "v",
        ),
        (
            hand_made([4], struct.pack("<IIII", 4, 2, 4, 0), "table T { v: [T]; } root_type T;", 8),
            "impossible length",
            "v[0]",
        ),
        (
            hand_made([4], struct.pack("<IIII", 4, 2, 0, 0), "table T { v: [string]; } root_type T;", 8),
            "offset 0 leads",
            "v[0]",
        ),
    ],
)
def test_refuses(buffer_and_schema, message, path):
    error = refused(*buffer_and_schema)
    assert message in error.message
    assert error.path == path
    assert 0 <= error.offset <= len(buffer_and_schema[0])


def test_errors_name_the_fields_that_lead_there():
    data = bytearray(encode(SCHEMA, {"many": [{}, {"self": {"names": ["a", "here"]}}]}))
    at = data.index(b"here")
    data[at - 4 : at] = struct.pack("<I", 1 << 20)
    error = refused(as_buffer(data), SCHEMA)
    assert error.path == "many[1].self.names[1]"
    assert error.offset == at - 4
    assert str(error).endswith(f"(at byte {at - 4}, in many[1].self.names[1])")


def test_strings_have_a_limit():
    assert len(read(encode(SCHEMA, {"name": "x" * (1 << 20)}))["name"]) == 1 << 20
    error = refused(as_buffer(encode(SCHEMA, {"name": "x" * ((1 << 20) + 1)})), SCHEMA)
    assert (error.message, error.path) == (
        "a string of 1048577 bytes: longer than any name, at most 1048576 are read",
        "name",
    )


def test_tables_nested_too_deep():
    # offsets lead forward only, so what can hang is a chain of tables, not a true circle
    schema = parse_schema("table T { t: T; } root_type T;")
    record = {}
    for _ in range(100):
        record = {"t": record}
    assert "in a circle" in refused(as_buffer(encode(schema, record)), schema).message


def test_tables_shared_without_end():
    """Two fields that lead to one table, again and again: 2 ** 40 tables in a few hundred bytes."""
    schema = parse_schema("table T { a: T; b: T; } root_type T;")
    builder = flatbuffers.Builder(0)
    at = None
    for _ in range(40):
        builder.StartObject(2)
        if at is not None:
            builder.PrependUOffsetTRelativeSlot(0, at, 0)
            builder.PrependUOffsetTRelativeSlot(1, at, 0)
        at = builder.EndObject()
    builder.Finish(at)
    start = time.perf_counter()
    assert "in a circle" in refused(as_buffer(builder.Output()), schema).message
    assert time.perf_counter() - start < 1


def shared(count, make):
    """A vector of tables that all lead to one string or vector."""
    builder = flatbuffers.Builder(0)
    at = make(builder)
    tables = []
    for _ in range(count):
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, at, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, count, 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject())
    return as_buffer(builder.Output())


@pytest.mark.parametrize(
    ("kind", "make", "fair"),
    [
        ("string", lambda builder: builder.CreateString("x" * 20000), lambda builder: builder.CreateString("x" * 80)),
        (
            "[short]",
            lambda builder: builder.CreateNumpyVector(np.zeros(4000, np.int16)),
            lambda builder: builder.CreateNumpyVector(np.zeros(8, np.int16)),
        ),
    ],
)
def test_much_that_leads_to_the_same_bytes(kind, make, fair):
    """A short thing may be shared by many; a long one by so many would make gigabytes of a small file."""
    schema = parse_schema(f"table U {{ a: {kind}; }} table T {{ v: [U]; }} root_type T;")
    assert len(Decoder(shared(2000, fair), schema).root()["v"]) == 2000
    assert "lead to the same bytes" in refused(shared(2000, make), schema).message


def test_large_vectors_may_be_shared():
    schema = parse_schema("table U { a: [short]; } table T { v: [U]; } root_type T;")
    buffer = shared(2000, lambda builder: builder.CreateNumpyVector(np.zeros(5000, np.int16)))
    assert all(np.shares_memory(item["a"], buffer) for item in Decoder(buffer, schema).root()["v"])


def test_vectors_are_not_believed_before_they_are_checked():
    """A vector that claims the whole file allocates nothing like it."""
    data = bytearray(encode(SCHEMA, {"leaves": [{"v": 1}] * 77, "ints": np.zeros(1 << 20, np.int32)}))
    at = data.index(struct.pack("<I", 77))
    data[at : at + 4] = struct.pack("<I", 1 << 20)
    tracemalloc.start()
    error = refused(as_buffer(data), SCHEMA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.path.startswith("leaves[")
    assert peak < 2 * len(data)


def test_random_damage_gives_format_errors_only():
    rng = random.Random(5)
    original = encode(SCHEMA, FULL)
    refusals = 0
    for _ in range(2000):
        data = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            data[at] = rng.choice([0, 1, 0xFF, data[at] ^ 1 << rng.randrange(8)])
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            read(data)
        except ModelFormatError:
            refusals += 1
    assert 500 < refusals < 2000
