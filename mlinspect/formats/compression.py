"""MindSpore Lite's packed weights: stored bytes -> the integers or floats they stand for.

Layouts follow the runtime's loader (``weight_decoder``, ``huffman_decode``, ``fse_decoder``) and what the converter
writes (``bitpacking``, ``tensor_compressor``, ``fse_encoder``). Every size that the bytes declare is checked against
the bytes before memory is taken for it; whatever does not fit is a :class:`~mlinspect.errors.ModelFormatError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlinspect.errors import ModelFormatError

_MAX_BYTES = 1 << 31  # a FlatBuffer could not have held more before it was packed
_MAX_TABLE_LOG = 16  # FSE states are 16-bit numbers
_END_MARK = 128  # Huffman's key that is no int8
_BLOCK = 1 << 15  # bytes of an FSE stream looked at in one go


def kind_of(compress_type: str, bits: int | None, huffman: bool = False) -> str:
    """How a constant tensor is packed, by the loader's own rule.

    Parameters
    ----------
    compress_type : str
        ``weightQuantCompressType`` by name (``"NONE"``, ``"BITPACKING"``, ``"FSE_INT"``, ...).
    bits : int or None
        ``numBits`` of the tensor's first QuantParam; None when it has none.
    huffman : bool
        ``enableHuffmanCode``.

    Returns
    -------
    str
        ``"none"`` or a key for :func:`unpack`. BITPACKING itself decides nothing: widths other than 8 and 16 are
        packed whether it is set or not.

    Examples
    --------
    >>> kind_of("NONE", 4), kind_of("BITPACKING", 8), kind_of("FSE", None)
    ('bitpacking', 'none', 'fse')
    """
    if compress_type not in ("NONE", "BITPACKING"):
        return compress_type.lower()
    if huffman:
        return "huffman"
    return "bitpacking" if bits is not None and (1 <= bits < 8 or 8 < bits < 16) else "none"


def unpack(
    raw: np.ndarray,
    kind: str,
    *,
    count: int,
    dtype: np.dtype | str,
    bits: int = 8,
    zero_point: np.ndarray | tuple[int, ...] = (0,),
) -> np.ndarray:
    """Unpack a constant tensor's bytes.

    Parameters
    ----------
    raw : ndarray of uint8, shape (n,)
        ``Tensor.data``.
    kind : str
        ``"bitpacking"``, ``"indexing"``, ``"sparse"``, ``"fse"``, ``"fse_int"``, ``"fse_infer"`` or ``"huffman"``.
        Huffman is decoded by the loader's definition; no runtime was seen to do it (2.0.0 skips it by mistake).
    count : int
        Elements: the product of the tensor's dims.
    dtype : dtype
        The tensor's type: int8 up to 8 bits, int16 above; float32 for ``fse`` and ``fse_infer``.
    bits : int
        ``numBits`` of the tensor's first QuantParam.
    zero_point : sequence of int
        One per QuantParam; what sparse packing leaves out.

    Returns
    -------
    ndarray, shape (count,)
        May be a read-only view.

    Raises
    ------
    ModelFormatError
        The bytes and what is declared do not agree.

    Examples
    --------
    Two 4-bit numbers a byte, low half first, 8 added:

    >>> unpack(np.array([0x0F, 0x87], np.uint8), "bitpacking", count=4, dtype="int8", bits=4)
    array([ 7, -8, -1,  0], dtype=int8)
    """
    dtype = _checked(kind, count, np.dtype(dtype), bits)
    if count == 0:
        return np.empty(0, dtype)
    return _KINDS[kind](raw, count=count, dtype=dtype, bits=bits, zero_point=zero_point)


def unpack_bits(raw: np.ndarray, start: int, stop: int, *, count: int, dtype: np.dtype | str, bits: int) -> np.ndarray:
    """Numbers ``start`` to ``stop`` of a bit-packed tensor of ``count``; parameters and errors as of :func:`unpack`.

    Examples
    --------
    >>> unpack_bits(np.array([0x0F, 0x87], np.uint8), 1, 3, count=4, dtype="int8", bits=4)
    array([-8, -1], dtype=int8)
    """
    dtype = _checked("bitpacking", count, np.dtype(dtype), bits)
    if bits in (8, 16):
        raise ModelFormatError(f"{bits}-bit weights are never bit-packed")
    word = 8 * dtype.itemsize
    wanted = -(-count * bits // word) * dtype.itemsize
    if len(raw) != wanted:  # the runtime refuses more, and leaves rubbish in the rest when there is less
        raise ModelFormatError(f"{count} packed {bits}-bit weights take {wanted} bytes, not {len(raw)}")
    numbers = _fields(raw, start * bits, stop - start, bits, "little").view(dtype)
    numbers -= 1 << bits - 1
    return numbers


def _checked(kind: str, count: int, dtype: np.dtype, bits: int) -> np.dtype:
    """The type, once what is declared makes sense."""
    if kind not in _KINDS:
        raise ModelFormatError(f"weights are packed in an unknown way: {kind!r}")
    if not 0 <= count <= _MAX_BYTES // dtype.itemsize:
        raise ModelFormatError(f"a packed tensor of {count} elements is larger than a file can be")
    if kind in ("bitpacking", "indexing", "sparse"):
        wanted = "int8" if bits <= 8 else "int16"
        if not 1 <= bits <= 16 or dtype != wanted:
            raise ModelFormatError(f"{bits}-bit weights packed as {kind} cannot be {dtype.name}")
    return dtype


def _need(bits_there: int, bits_wanted: int, what: str) -> None:
    if bits_wanted > bits_there:
        raise ModelFormatError(f"{what} need {bits_wanted} bits, {bits_there} are there")


def _narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``values`` as ``dtype``; they must fit."""
    narrow = values.astype(dtype)
    if not np.array_equal(narrow, values):
        raise ModelFormatError(f"unpacked values do not fit {dtype.name}")
    return narrow


# ---- fields of equal width in a stream of bits -----------------------------------------------------------------------


def _fields(raw: np.ndarray, at: int, count: int, width: int, bitorder: str) -> np.ndarray:
    """Unsigned numbers of ``width`` bits each, 1 <= width <= 32, from bit ``at`` on.

    Every eighth begins at the same bit of a byte, so eight passes over strided bytes find them all.
    """
    wide = np.dtype(np.uint16 if width <= 8 else np.uint64)
    found: np.ndarray = np.empty(count, np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32)
    for phase in range(min(8, count)):
        byte, shift = divmod(at + phase * width, 8)
        span = -(-(shift + width) // 8)  # bytes that hold a part of the number
        word: np.ndarray = np.zeros(len(found[phase::8]), wide)
        for k in range(span):
            place = k if bitorder == "little" else span - 1 - k
            word |= np.left_shift(raw[byte + k :: width][: len(word)], 8 * place, dtype=wide)
        word >>= shift if bitorder == "little" else 8 * span - shift - width
        found[phase::8] = word & (1 << width) - 1
    return found


def _bitpacking(raw: np.ndarray, *, count: int, dtype: np.dtype, bits: int, **_: Any) -> np.ndarray:
    return unpack_bits(raw, 0, count, count=count, dtype=dtype, bits=bits)


class _BigEndianBits:
    """Reads fields one after the other, most significant bit first."""

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = raw
        self.at = 0

    @property
    def left(self) -> int:
        """Bits that were not read yet."""
        return 8 * len(self.raw) - self.at

    def take(self, count: int, width: int, what: str) -> np.ndarray:
        _need(self.left, count * width, what)
        if width == 0:
            return np.broadcast_to(np.uint8(0), (count,))
        start, self.at = self.at, self.at + count * width
        return _fields(self.raw, start, count, width, "big")

    def palette(self, bits: int) -> tuple[np.ndarray, int]:
        """The distinct values (a count of 0 stands for all), and the width of an index into them."""
        number = int(self.take(1, bits, "the number of distinct weights")[0]) or 1 << bits
        values = self.take(number, bits, "distinct weights").astype(np.int32) - (1 << bits - 1)
        return values, (number - 1).bit_length()


def _looked_up(values: np.ndarray, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
    values = values.astype(dtype)
    if len(values) == 1:  # an index takes no bits then, so the count may be anything: take no memory for it
        return np.broadcast_to(values[0], index.shape)
    if index.size and index.max() >= len(values):
        raise ModelFormatError(f"weight index {index.max()} into {len(values)} distinct weights")
    return values[index]


def _indexing(raw: np.ndarray, *, count: int, dtype: np.dtype, bits: int, **_: Any) -> np.ndarray:
    stream = _BigEndianBits(raw)
    values, width = stream.palette(bits)
    return _looked_up(values, stream.take(count, width, "weight indices"), dtype)


def _sparse(
    raw: np.ndarray, *, count: int, dtype: np.dtype, bits: int, zero_point: np.ndarray | tuple[int, ...]
) -> np.ndarray:
    stream = _BigEndianBits(raw)
    gap_width = int(stream.take(1, 8, "the width of gaps")[0])
    number = int(stream.take(1, 32, "the number of weights that are kept")[0])
    values, width = stream.palette(bits)
    zeros = _narrowed(np.asarray(zero_point, np.int64).ravel(), dtype)
    if gap_width > 32 or number > count or len(zeros) == 0 or count % len(zeros):
        raise ModelFormatError(
            f"sparse weights: {number} of {count} kept, {gap_width}-bit gaps, {len(zeros)} zero points"
        )
    _need(stream.left, number * (width + gap_width), "sparse weights")
    kept = _looked_up(values, stream.take(number, width, "weight indices"), dtype)
    gaps = stream.take(number, gap_width, "gaps").astype(np.int64)
    at = np.cumsum(gaps + 1) - 1
    end = int(at[-1]) + 1 if number else 0
    if not end <= count < end + (1 << gap_width):  # a longer gap would have needed one more weight
        raise ModelFormatError(f"sparse weights end at {end} of {count}")
    out = np.repeat(zeros, count // len(zeros))
    out[at] = kept
    return out


# ---- FSE: tabled asymmetric numeral system ---------------------------------------------------------------------------


def _fse_table(frequency: np.ndarray, table_log: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each of the ``2 ** table_log`` states means: its symbol, the bits to read next, and the base to add them to.

    The sizes that ``frequency`` gives sum to the size of the table.
    """
    size = 1 << table_log
    step = (size >> 1) + (size >> 3) + 3
    symbol = np.zeros(size, np.int64)
    # Below 16 states the step may not reach every slot; later symbols then overwrite earlier ones, as in the runtime.
    symbol[np.arange(size) * step & size - 1] = np.repeat(np.arange(len(frequency)), frequency)
    found = np.bincount(symbol, minlength=len(frequency))
    rank = np.empty(size, np.int64)
    rank[np.argsort(symbol, kind="stable")] = np.arange(size) - np.repeat(np.cumsum(found) - found, found)
    count = frequency[symbol] + rank
    bits = table_log + 1 - np.frexp(count)[1]
    if count.min() < 1 or bits.min() < 0:
        raise ModelFormatError("FSE symbol frequencies make no table")
    return symbol, bits, (count << bits) - size


def _windows(stream: np.ndarray, first: int) -> np.ndarray:
    """For each bit of ``_BLOCK`` bytes from byte ``first``: it and the 15 bits after, as a number."""
    block = np.zeros(_BLOCK + 2, np.uint32)
    there = stream[first : first + _BLOCK + 2]
    block[: len(there)] = there
    words = block[:-2] | block[1:-1] << 8 | block[2:] << 16
    return (words[:, None] >> np.arange(8, dtype=np.uint32)).astype(np.uint16).ravel()


def _fse_states(stream: np.ndarray, at: int, count: int, table_log: int, bits: np.ndarray, base: np.ndarray) -> Any:
    """The states that the decoder walks through: the bits from ``at`` give the first, the rest follow one by one."""
    states = np.empty(count, np.uint16)
    table = list(zip(base.tolist(), ((1 << bits) - 1).tolist(), bits.tolist(), strict=True))
    done, total, most = 0, 8 * len(stream), int(bits.max())
    _need(total - at, table_log, "FSE weights")
    state = int(_windows(stream, at >> 3)[at & 7]) & (1 << table_log) - 1
    at += table_log
    while done < count:
        window = _windows(stream, at >> 3).data
        start, here = at & ~7, at & 7
        walked = []
        for _ in range(min(count - done, (8 * _BLOCK - 8) // most)):
            walked.append(state)
            plus, mask, width = table[state]
            state = plus + (window[here] & mask)
            here += width
        states[done : done + len(walked)] = walked
        done += len(walked)
        at = start + here
        if at > total:
            raise ModelFormatError(f"FSE weights end after {done} or fewer of {count}")
    return states


def _fse(raw: np.ndarray, *, count: int, dtype: np.dtype, stored: str, **_: Any) -> np.ndarray:
    _need(8 * len(raw), 64, "the FSE header")
    symbols, table_log = (int(v) for v in raw[:4].view("<u2"))
    chunks = int(raw[4:8].view("<u4")[0])
    if not (1 <= table_log <= _MAX_TABLE_LOG and 1 <= symbols <= 1 << table_log and chunks >= 1):
        raise ModelFormatError(f"FSE header: {symbols} symbols, table of 2^{table_log}, {chunks} chunks")
    for wide in (4, 2):  # the first converters to know FSE wrote 16-bit frequencies
        frequency = raw[8 : 8 + wide * symbols]
        if len(frequency) == wide * symbols and frequency.view(f"<u{wide}").sum(dtype=np.int64) == 1 << table_log:
            break
    else:
        raise ModelFormatError(f"FSE frequencies of {symbols} symbols do not sum to 2^{table_log}")
    centroids_at = -(-(8 + wide * symbols) // 8) * 8
    chunks_at = centroids_at + -(-4 * symbols // 8) * 8
    _need(8 * len(raw), 8 * (chunks_at + 8 * chunks + 1), "FSE weights")
    centroids = raw[centroids_at : centroids_at + 4 * symbols].view(stored)
    if dtype != centroids.dtype:
        centroids = _narrowed(centroids, dtype)
    valid = int(raw[chunks_at + 8 * chunks])
    if valid > 64:
        raise ModelFormatError(f"{valid} bits in the last 64-bit FSE chunk")
    symbol, bits, base = _fse_table(frequency.view(f"<u{wide}").astype(np.int64), table_log)
    if not bits.any():  # one symbol takes no bits
        return np.broadcast_to(centroids[symbol[0]], (count,))
    # What was pushed last comes first; the last chunk is filled from its top.
    words = raw[chunks_at : chunks_at + 8 * chunks].view("<u8")[::-1]
    states = _fse_states(np.ascontiguousarray(words).view(np.uint8), 64 - valid, count, table_log, bits, base)
    return centroids[symbol][states[::-1]]


def _fse_float(raw: np.ndarray, **how: Any) -> np.ndarray:
    return _fse(raw, stored="<f4", **how)


def _fse_int(raw: np.ndarray, **how: Any) -> np.ndarray:
    return _fse(raw, stored="<i4", **how)


# ---- Huffman ---------------------------------------------------------------------------------------------------------


def _huffman_tree(keys: list[bytes], codes: list[bytes]) -> list[list[int]]:
    """Nodes as ``[on 0, on 1]``: another node's index, or ``-1 - (key + 128)`` for a leaf; 0 is nowhere."""
    tree = [[0, 0]]
    for key, code in zip(keys, codes, strict=True):
        try:
            number, path = int(key), [b"01".index(c) for c in code]
        except ValueError:
            raise ModelFormatError("a Huffman table is not made of numbers") from None
        if not -128 <= number <= _END_MARK:
            raise ModelFormatError(f"Huffman key {number} is neither an int8 nor the end mark {_END_MARK}")
        node = 0
        for bit in path[:-1]:
            if tree[node][bit] == 0:
                tree.append([0, 0])
                tree[node][bit] = len(tree) - 1
            node = tree[node][bit]
            if node < 0:
                break
        if node < 0 or tree[node][path[-1]]:
            raise ModelFormatError("a Huffman code is the beginning of another one")
        tree[node][path[-1]] = -1 - (number + 128)
    return tree


def _huffman(raw: np.ndarray, *, count: int, dtype: np.dtype, **_: Any) -> np.ndarray:
    parts = raw.tobytes().split(b"#", 2)
    if len(parts) != 3:
        raise ModelFormatError("Huffman weights do not begin with their table")
    keys, codes = parts[0].split(), parts[1].split()
    if len(keys) != len(codes):
        raise ModelFormatError(f"a Huffman table has {len(keys)} keys but {len(codes)} codes")
    tree = _huffman_tree(keys, codes)
    out = bytearray()
    node = 0
    for bit in np.unpackbits(np.frombuffer(parts[2], np.uint8)).tobytes():
        node = tree[node][bit]
        if node < 0:
            key = -1 - node
            if key == _END_MARK + 128:
                break
            out.append(key - 128 & 255)
            node = 0
        elif node == 0:
            raise ModelFormatError("Huffman weights hold a code that is not in their table")
    if len(out) != count * dtype.itemsize:
        raise ModelFormatError(f"Huffman weights are {len(out)} bytes, not {count * dtype.itemsize}")
    return np.frombuffer(out, dtype)


_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "bitpacking": _bitpacking,
    "indexing": _indexing,
    "sparse": _sparse,
    "fse": _fse_float,
    "fse_int": _fse_int,
    "fse_infer": _fse_float,
    "huffman": _huffman,
}
