"""Encoding in parts: large vectors come as they are, behind the rest; tables of another buffer are carried along."""

import numpy as np
import pytest

from mlinspect.errors import SchemaError
from mlinspect.flatbuffer import Decoder, encode, parse_schema
from mlinspect.flatbuffer.encode import RawTable, encode_parts

SCHEMA = parse_schema(
    """
    union Any { Leaf }
    table Leaf { n: int; words: [string]; }
    table Root { small: [short]; big: [int]; wide: [double]; bytes: [ubyte]; any: Any; leaf: Leaf; many: [Leaf]; }
    root_type Root;
    file_identifier "PART";
    """
)


def joined(parts):
    return b"".join(np.ascontiguousarray(part).data for part in parts)


def read(data):
    return Decoder(np.frombuffer(data, np.uint8), SCHEMA).root()


def record(size):
    rng = np.random.default_rng(size)
    return {
        "small": np.arange(5, dtype=np.int16),
        "big": rng.integers(-100, 100, size).astype(np.int32),
        "wide": rng.normal(size=size // 2),
        "bytes": rng.integers(0, 255, size + 3).astype(np.uint8),
        "leaf": {"n": 3, "words": ["a", "bc"]},
    }


@pytest.mark.parametrize("size", [0, 1, 100, 255, 256, 257, 1000, 5001])
def test_parts_are_the_whole(same, size):
    wanted = record(size)
    data = joined(encode_parts(SCHEMA, wanted))
    assert data == encode(SCHEMA, wanted)
    assert data[4:8] == b"PART"
    found = read(data)
    assert same(wanted, found)
    for name in ("big", "wide", "bytes"):
        if found[name].nbytes >= 1024:
            offset = found[name].__array_interface__["data"][0] - np.frombuffer(data, np.uint8).ctypes.data
            assert offset % 16 == 0, name


def test_large_vectors_are_not_copied():
    wanted = record(5000)
    parts = encode_parts(SCHEMA, wanted)
    for name in ("big", "wide", "bytes"):
        assert any(part is wanted[name] for part in parts), name
    assert sum(part.nbytes for part in parts[:1]) < 1024


def test_vectors_that_are_not_contiguous():
    grid = np.arange(40 * 50, dtype=np.int32).reshape(40, 50)
    parts = encode_parts(SCHEMA, {"big": grid.T})
    assert any(np.shares_memory(part, grid) for part in parts)
    np.testing.assert_array_equal(read(joined(parts))["big"], grid.T.ravel())


def test_carried_tables(same):
    """A table is taken over from another buffer with all that hangs on it, wherever its vtable lies."""
    leaves = [{"n": 7, "words": ["one", "two"]}, {"n": 8, "words": ["three"]}]
    first = np.frombuffer(encode(SCHEMA, {"many": leaves, "big": np.arange(600, dtype=np.int32)}), np.uint8)
    source = read(first.tobytes())
    positions = [leaf.offset for leaf in source["many"]]
    for start in (0, 16):
        carried = first[start:]
        wanted = record(700)
        taken = [RawTable(position - start) for position in positions]
        more = {"leaf": taken[0], "any_type": "Leaf", "any": taken[1]}
        found = read(joined(encode_parts(SCHEMA, wanted | more, carried=carried)))
        assert same(leaves[0], found["leaf"])
        assert same(leaves[1], found["any"])
        assert same({name: wanted[name] for name in ("small", "big", "wide", "bytes")}, found)


def test_a_union_member_without_its_tag():
    """Arm NN's old writer stores tables with the tag NONE."""
    data = encode(SCHEMA, {"any_type": 0, "any": ("Leaf", {"n": 5})})
    found = read(data)
    assert found["any_type"] == 0
    leaf = Decoder(np.frombuffer(data, np.uint8), SCHEMA).table("Leaf", found["any"].offset)
    assert leaf["n"] == 5


def test_more_bytes_than_a_flatbuffer_can_have():
    huge = np.broadcast_to(np.int32(0), (1 << 29,))
    with pytest.raises(SchemaError, match="more than the 2147483647 that a FlatBuffer can have"):
        encode_parts(SCHEMA, {"big": huge})
