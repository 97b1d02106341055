"""Packed weights: the real runtime's dequantised weights, and round trips through encoders written by definition."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Decoder, load_schema
from mlinspect.formats.compression import _fields, kind_of, unpack, unpack_bits

ROOT = Path(__file__).parents[2]
BITS = [b for b in range(1, 16) if b != 8]
quick = settings(derandomize=True, deadline=None, max_examples=40)


def wide(bits):
    return np.dtype(np.int8 if bits <= 8 else np.int16)


def weights(bits, low=0, high=60):
    return st.lists(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1), min_size=low, max_size=high)


# ---- encoders, one digit after the other -----------------------------------------------------------------------------


def as_bytes(text):
    """Bits as text -> bytes, first bit highest, padded with 0."""
    text += "0" * (-len(text) % 8)
    return np.array([int(text[i : i + 8], 2) for i in range(0, len(text), 8)], np.uint8)


def number(value, width):
    return format(value, f"0{width}b") if width else ""


def bitpack(values, bits):
    whole = sum((v + (1 << bits - 1)) << bits * i for i, v in enumerate(values))
    word = wide(bits).itemsize
    size = -(-len(values) * bits // (8 * word)) * word
    return np.frombuffer(whole.to_bytes(size, "little"), np.uint8)


def palette(values, bits):
    distinct = sorted(set(values))
    text = number(len(distinct) % (1 << bits), bits)
    return distinct, text + "".join(number(v + (1 << bits - 1), bits) for v in distinct)


def indexing(values, bits):
    distinct, text = palette(values, bits)
    width = int(np.ceil(np.log2(len(distinct))))
    return as_bytes(text + "".join(number(distinct.index(v), width) for v in values))


def sparse(values, bits, zeros, gap_width):
    distinct, text = palette(values, bits)
    width = int(np.ceil(np.log2(len(distinct))))
    per_channel = len(values) // len(zeros)
    kept, gaps, last = [], [], -1
    for i, v in enumerate(values):
        if v != zeros[i // per_channel] or i - last >= 1 << gap_width:
            kept.append(number(distinct.index(v), width))
            gaps.append(number(i - last - 1, gap_width))
            last = i
    return as_bytes(number(gap_width, 8) + number(len(kept), 32) + text + "".join(kept + gaps))


def fse_frequencies(counts, table_log):
    size = 1 << table_log
    found = [max(1, round(size * c / sum(counts))) for c in counts]
    while sum(found) > size:
        found[found.index(max(found))] -= 1
    found[found.index(max(found))] += size - sum(found)
    return found


def fse(values, centroid_type="<i4", frequency_type="<u4", extra_log=3, tail=b""):
    distinct = sorted(set(values))
    table_log = len(distinct).bit_length() - 1 + extra_log
    size = 1 << table_log
    frequency = fse_frequencies([values.count(v) for v in distinct], table_log)
    slots = [[] for _ in distinct]
    spread = [None] * size
    at = 0
    for symbol, many in enumerate(frequency):
        for _ in range(many):
            spread[at] = symbol
            at = (at + (size >> 1) + (size >> 3) + 3) % size
    for slot, symbol in enumerate(spread):
        slots[0 if symbol is None else symbol].append(slot)
    pushed, state = "", size
    for v in values:
        symbol = distinct.index(v)
        many, width = frequency[symbol], 0
        while state >> width >= 2 * many:
            width += 1
        pushed += number(state & (1 << width) - 1, width)
        state = size + slots[symbol][(state >> width) - many]
    pushed += number(state - size, table_log)
    chunks = [int(pushed[i : i + 64].ljust(64, "0"), 2) for i in range(0, len(pushed), 64)]
    valid = len(pushed) % 64
    if valid == 0:
        chunks.append(0)

    def padded(data):
        return data + bytes(-len(data) % 8)

    head = np.array([len(distinct), table_log], "<u2").tobytes() + np.array([len(chunks)], "<u4").tobytes()
    head = padded(head + np.array(frequency, frequency_type).tobytes())
    head += padded(np.array(distinct, centroid_type).tobytes())
    return np.frombuffer(head + np.array(chunks, "<u8").tobytes() + bytes([valid]) + tail, np.uint8)


def huffman(values, codes):
    table = " ".join(map(str, codes)) + " #" + " ".join(codes.values()) + " #"
    text = "".join(codes[v] for v in values) + codes[128]
    return np.concatenate([np.frombuffer(table.encode(), np.uint8), as_bytes(text)])


# ---- the real runtime ------------------------------------------------------------------------------------------------


def weight_cases():
    with zipfile.ZipFile(ROOT / "tests/data/mslite-ops.zip") as data:
        cases = [c for c in json.loads(data.read("manifest.json"))["cases"] if c["group"] == "wq"]
        return [c for c in cases if "compress" in c["configuration"]]


@pytest.mark.parametrize("case", weight_cases(), ids=lambda c: c["case"])
def test_vendor_weights(case):
    with zipfile.ZipFile(ROOT / "tests/data/mslite-ops.zip") as data:
        file = np.frombuffer(data.read(case["case"] + ".ms"), np.uint8)
        want = np.load(io.BytesIO(data.read(case["case"] + ".npz")))["dequantised_weight"]
    tensors = Decoder(file, load_schema(ROOT / "schemas/mslite/msl2_newest.fbs")).root()["allTensors"]
    (tensor,) = [t for t in tensors if t["data"] is not None and t["quantParams"]]
    params, dtype = tensor["quantParams"], {32: "int8", 33: "int16"}[tensor["dataType"]]
    kind = kind_of(tensor["weightQuantCompressType"], params[0]["numBits"], tensor["enableHuffmanCode"])
    zero = np.array([p["zeroPoint"] for p in params])
    if kind == "none":
        got = tensor["data"].view(dtype)
    else:
        got = unpack(tensor["data"], kind, count=want.size, dtype=dtype, bits=params[0]["numBits"], zero_point=zero)
    assert got.dtype == dtype
    shape = [1] * want.ndim
    shape[case["configuration"]["axis"] or 0] = len(params)
    scale, var, mean = (np.array([p[k] for p in params]).reshape(shape) for k in ("scale", "varCorr", "meanCorr"))
    real = (got.reshape(want.shape) - zero.reshape(shape).astype(np.float64)) * scale
    assert np.array_equal((real * var + mean if len(params) > 1 else real).astype(np.float32), want)


def test_vendor_cases_cover_every_packing():
    assert {c["configuration"]["compress"] for c in weight_cases()} >= {
        "none/bitpack",
        "bitpack_flag",
        "indexing",
        "sparse",
        "fse_int",
    }


# ---- round trips -----------------------------------------------------------------------------------------------------


@quick
@given(st.data(), st.sampled_from(BITS))
def test_bitpacking(data, bits):
    values = data.draw(weights(bits))
    got = unpack(bitpack(values, bits), "bitpacking", count=len(values), dtype=wide(bits), bits=bits)
    assert got.dtype == wide(bits) and got.tolist() == values
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    some = unpack_bits(bitpack(values, bits), start, stop, count=len(values), dtype=wide(bits), bits=bits)
    assert some.dtype == wide(bits) and some.tolist() == values[start:stop]


@quick
@given(st.data(), st.integers(1, 16))
def test_indexing(data, bits):
    values = data.draw(weights(bits, low=1))
    got = unpack(indexing(values, bits), "indexing", count=len(values), dtype=wide(bits), bits=bits)
    assert got.dtype == wide(bits) and got.tolist() == values


def test_indexing_of_every_value():
    values = list(range(-8, 8))
    packed = indexing(values, 4)
    assert packed[0] >> 4 == 0  # 16 does not fit 4 bits: 0 stands for it
    assert unpack(packed, "indexing", count=16, dtype="int8", bits=4).tolist() == values


def test_one_repeated_value_takes_no_memory():
    many = 1 << 30
    got = unpack(indexing([3], 8), "indexing", count=many, dtype="int8", bits=8)
    assert got.shape == (many,) and got.strides == (0,) and got[-1] == 3
    got = unpack(fse([-7]), "fse_int", count=many, dtype="int8")
    assert got.shape == (many,) and got.strides == (0,) and got[-1] == -7


@quick
@given(st.data(), st.integers(2, 10), st.integers(1, 4), st.integers(0, 10))
def test_sparse(data, bits, channels, gap_width):
    per_channel = data.draw(st.integers(1, 30))
    zeros = data.draw(weights(bits, channels, channels))
    values = []
    for zero in zeros:
        values += data.draw(
            st.lists(st.sampled_from([zero, zero, zero, 1, -2]), min_size=per_channel, max_size=per_channel)
        )
    packed = sparse(values, bits, zeros, gap_width)
    got = unpack(packed, "sparse", count=len(values), dtype=wide(bits), bits=bits, zero_point=tuple(zeros))
    assert got.dtype == wide(bits) and got.tolist() == values


@quick
@given(st.data(), st.sampled_from(["<u4", "<u2"]), st.integers(3, 6))
def test_fse(data, frequency_type, extra_log):
    values = data.draw(st.lists(st.integers(-20, 20).map(lambda v: v // 3), min_size=1, max_size=300))
    packed = fse(values, "<i4", frequency_type, extra_log)
    for dtype in (np.int8, np.int16):
        got = unpack(packed, "fse_int", count=len(values), dtype=dtype)
        assert got.dtype == dtype and got.tolist() == values
    packed = fse(values, "<f4", frequency_type, extra_log)
    got = unpack(packed, "fse", count=len(values), dtype="float32")
    assert got.dtype == np.float32 and got.tolist() == values


def test_fse_in_several_blocks(monkeypatch):
    values = np.random.default_rng(5).normal(0, 9, 4000).round().astype(int).tolist()
    monkeypatch.setattr("mlinspect.formats.compression._BLOCK", 64)
    assert unpack(fse(values), "fse_int", count=4000, dtype="int8").tolist() == values


def test_fse_infer_is_fse_with_chunk_ends():
    values = [1, 2, 1, 1, -4, 1, 1, 2]
    tail = bytes(3) + np.array([1, 0, 5 << 16], "<u4").tobytes()
    packed = fse(values, "<f4", tail=tail)
    assert unpack(packed, "fse_infer", count=8, dtype="float32").tolist() == values


def test_fse_that_fills_its_last_chunk():
    for count in range(8, 140):  # some of these end on a multiple of 64 bits
        values = [(i * i) % 5 for i in range(count)]
        assert unpack(fse(values), "fse_int", count=count, dtype="int8").tolist() == values


@quick
@given(st.lists(st.sampled_from([-128, -1, 0, 127]), max_size=60))
def test_huffman(values):
    codes = {-128: "000", -1: "01", 0: "1", 127: "0010", 128: "0011"}
    got = unpack(huffman(values, codes), "huffman", count=len(values), dtype="int8")
    assert got.dtype == np.int8 and got.tolist() == values


def test_kind_of():
    assert [kind_of("NONE", b) for b in (None, 0, 1, 7, 8, 9, 15, 16, 32)] == [
        "none", "none", "bitpacking", "bitpacking", "none", "bitpacking", "bitpacking", "none", "none",
    ]  # fmt: skip
    assert kind_of("FSE_INT", 4) == "fse_int" and kind_of("INDEXING", 8) == "indexing"
    assert kind_of("NONE", 8, huffman=True) == "huffman"


# ---- bad bytes -------------------------------------------------------------------------------------------------------

VALUES = [0, 0, 3, -4, 0, 1, 0, 0, 0, -2, 0, 3]
GOOD = {
    "bitpacking": (bitpack(VALUES, 5), {"dtype": "int8", "bits": 5}),
    "indexing": (indexing(VALUES, 8), {"dtype": "int8", "bits": 8}),
    "sparse": (sparse(VALUES, 8, [0, 0], 2), {"dtype": "int8", "bits": 8, "zero_point": (0, 0)}),
    "fse": (fse(VALUES, "<f4"), {"dtype": "float32"}),
    "fse_int": (fse(VALUES), {"dtype": "int16"}),
    "huffman": (huffman(VALUES, {-4: "000", -2: "001", 0: "1", 1: "0100", 3: "0101", 128: "011"}), {"dtype": "int8"}),
}


@pytest.mark.parametrize("kind", GOOD)
def test_truncated(kind):
    packed, how = GOOD[kind]
    assert unpack(packed, kind, count=12, **how).tolist() == VALUES
    shortest = 0 if kind != "huffman" else 1  # its end mark may lie in the last byte alone
    for size in range(len(packed) - shortest):
        with pytest.raises(ModelFormatError):
            unpack(packed[:size], kind, count=12, **how)


@pytest.mark.parametrize("kind", GOOD)
@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_damaged_bytes_never_break_it(kind, data):
    packed, how = GOOD[kind]
    packed = packed.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.sampled_from([0, 1, 11, 12, 13, 4000, 1 << 40, -1]))
    try:
        got = unpack(packed, kind, count=count, **how)
    except ModelFormatError:
        return
    assert got.shape == (count,) and got.dtype == how["dtype"]


@pytest.mark.parametrize("kind", GOOD)
def test_wrong_count(kind):
    packed, how = GOOD[kind]
    for count in (400, 1 << 40, -1):
        with pytest.raises(ModelFormatError):
            unpack(packed, kind, count=count, **how)


def patched(kind, at, value, dtype):
    packed = GOOD[kind][0].copy()
    new = np.array([value], dtype).view(np.uint8)
    packed[at : at + len(new)] = new
    return packed


@pytest.mark.parametrize(
    ("kind", "packed", "says"),
    [
        ("fse_int", patched("fse_int", 0, 65535, "<u2"), "FSE header"),
        ("fse_int", patched("fse_int", 2, 40, "<u2"), "FSE header"),
        ("fse_int", patched("fse_int", 4, 0, "<u4"), "FSE header"),
        ("fse_int", patched("fse_int", 4, 2**32 - 1, "<u4"), "bits"),
        ("fse_int", patched("fse_int", 8, 2**32 - 1, "<u4"), "frequencies"),
        ("fse_int", patched("fse_int", 32, 70000, "<i4"), "do not fit int16"),
        ("fse_int", patched("fse_int", len(GOOD["fse_int"][0]) - 1, 65, "u1"), "last 64-bit"),
        ("sparse", patched("sparse", 0, 200, "u1"), "gaps"),
        ("sparse", patched("sparse", 1, 255, "u1"), "kept"),
        ("indexing", patched("indexing", 0, 0, "u1"), "distinct weights"),
        ("huffman", np.frombuffer(b"1 2 #0 #x", np.uint8), "keys but"),
        ("huffman", np.frombuffer(b"1 2 #0 01 #x", np.uint8), "beginning of another"),
        ("huffman", np.frombuffer(b"1 900 #0 1 #x", np.uint8), "key 900"),
        ("huffman", np.frombuffer(b"1 x #0 1 #x", np.uint8), "numbers"),
        ("huffman", np.frombuffer(b"1 #0 #\xff", np.uint8), "not in their table"),
        ("huffman", np.frombuffer(b"1 #0 ", np.uint8), "table"),
    ],
)
def test_declared_sizes(kind, packed, says):
    with pytest.raises(ModelFormatError, match=says):
        unpack(packed, kind, count=12, **GOOD[kind][1])


def test_wrong_types():
    packed, how = GOOD["bitpacking"]
    with pytest.raises(ModelFormatError, match="unknown"):
        unpack(packed, "zip", count=12, **how)
    with pytest.raises(ModelFormatError, match="cannot be int16"):
        unpack(packed, "bitpacking", count=12, dtype="int16", bits=5)
    with pytest.raises(ModelFormatError, match="never"):
        unpack(packed, "bitpacking", count=8, dtype="int8", bits=8)
    with pytest.raises(ModelFormatError, match="cannot be int16"):
        unpack(packed, "indexing", count=8, dtype="int16", bits=17)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 32), st.integers(0, 40), st.integers(0, 50), st.sampled_from(["little", "big"]), st.data())
def test_fields_are_the_bits_that_they_span(width, count, at, bitorder, data) -> None:
    size = -(-(at + width * count) // 8)
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size + 2)), np.uint8)
    bits = np.unpackbits(raw, bitorder=bitorder)[at : at + width * count].reshape(count, width).astype(np.int64)
    powers = 1 << (np.arange(width) if bitorder == "little" else np.arange(width)[::-1])
    assert _fields(raw, at, count, width, bitorder).tolist() == (bits @ powers).tolist()
