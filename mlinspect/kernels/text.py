"""Strings as MindSpore Lite's smart-reply operators treat them: hashes, normalisation, skip-grams.

Few and short values: plain Python, but for the hashes of many numbers.
"""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _rotate(x: int, bits: int) -> int:
    return (x >> bits | x << (64 - bits)) & _MASK


def _mix(x: int) -> int:
    return x ^ x >> 47


def _join(u: int, v: int, factor: int) -> int:
    a = _mix((u ^ v) * factor & _MASK)
    b = _mix((v ^ a) * factor & _MASK)
    return b * factor & _MASK


def fingerprint64(text: bytes) -> int:
    """FarmHash's 64-bit fingerprint of bytes (google/farmhash ``Fingerprint64``).

    Parameters
    ----------
    text : bytes

    Returns
    -------
    int
        0 .. 2**64 - 1.

    Notes
    -----
    MindSpore Lite ``CustomExtractFeatures``, ``LshProjection`` (``StringHash64``).

    Examples
    --------
    >>> fingerprint64(b"") == 0x9AE16A3B2F90404F, fingerprint64(b"hello")
    (True, 13009744463427800296)
    """
    n = len(text)

    def word(at: int, size: int = 8) -> int:
        at = at if at >= 0 else n + at
        return int.from_bytes(text[at : at + size], "little")

    factor = (_K2 + 2 * n) & _MASK
    if n < 4:
        if not n:
            return _K2
        y, z = text[0] + (text[n >> 1] << 8), n + (text[-1] << 2)
        return _mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    if n < 8:
        return _join((n + (word(0, 4) << 3)) & _MASK, word(-4, 4), factor)
    if n <= 16:
        a, b = (word(0) + _K2) & _MASK, word(-8)
        c = (_rotate(b, 37) * factor + a) & _MASK
        return _join(c, (_rotate(a, 25) + b) * factor & _MASK, factor)
    if n <= 64:
        first = _K1 if n <= 32 else _K2
        a, b = word(0) * first & _MASK, word(8)
        c, d = word(-8) * factor & _MASK, word(-16) * _K2 & _MASK
        y = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
        z = (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK
        if n <= 32:
            return _join(y, z, factor)
        z = _join(y, z, factor)
        e, f = word(16) * factor & _MASK, word(24)
        g, h = (y + word(-32)) * factor & _MASK, (z + word(-24)) * factor & _MASK
        u = (_rotate((e + f) & _MASK, 43) + _rotate(g, 30) + h) & _MASK
        return _join(u, (e + _rotate((f + a) & _MASK, 18) + g) & _MASK, factor)
    return _long_fingerprint(text)


def _long_fingerprint(text: bytes) -> int:
    """Of more than 64 bytes: runs of 64, the last of which may overlap the one before."""

    def weak(at: int, a: int, b: int) -> tuple[int, int]:
        w = [int.from_bytes(text[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
        a = (a + w[0]) & _MASK
        b = _rotate((b + a + w[3]) & _MASK, 21)
        total = (a + w[1] + w[2]) & _MASK
        b = (b + _rotate(total, 44)) & _MASK
        return (total + w[3]) & _MASK, (b + a) & _MASK

    def word(at: int) -> int:
        return int.from_bytes(text[at : at + 8], "little")

    seed = 81
    y = (seed * _K1 + 113) & _MASK
    z = _mix((y * _K2 + 113) & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = (seed * _K2 + word(0)) & _MASK
    last = len(text) - 64
    for at in [*range(0, (len(text) - 1) // 64 * 64, 64), last]:
        final = at == last
        factor = (_K1 + ((z & 0xFF) << 1)) & _MASK if final else _K1
        if final:
            w = ((w[0] + (len(text) - 1 & 63)) & _MASK, w[1])
            v = ((v[0] + w[0]) & _MASK, v[1])
            w = ((w[0] + v[0]) & _MASK, w[1])
        x = _rotate((x + y + v[0] + word(at + 8)) & _MASK, 37) * factor & _MASK
        y = _rotate((y + v[1] + word(at + 48)) & _MASK, 42) * factor & _MASK
        x ^= w[1] * (9 if final else 1) & _MASK
        y = (y + v[0] * (9 if final else 1) + word(at + 40)) & _MASK
        z = _rotate((z + w[0]) & _MASK, 33) * factor & _MASK
        v = weak(at, v[1] * factor & _MASK, (x + w[0]) & _MASK)
        w = weak(at + 32, (z + w[1]) & _MASK, (y + word(at + 16)) & _MASK)
        z, x = x, z
    inner = (_join(v[0], w[0], factor) + _mix(y) * _K0 + z) & _MASK
    return _join(inner, (_join(v[1], w[1], factor) + x) & _MASK, factor)


def fingerprints_of_words(words: np.ndarray) -> np.ndarray:
    """:func:`fingerprint64` of 8-byte values, all at once.

    Parameters
    ----------
    words : ndarray of uint64

    Returns
    -------
    ndarray of uint64

    Examples
    --------
    >>> word = int.from_bytes(b"12345678", "little")
    >>> int(fingerprints_of_words(np.array([word], np.uint64))[0]) == fingerprint64(b"12345678")
    True
    """
    u = np.uint64
    factor = u(_K2 + 16 & _MASK)

    def rotated(x: np.ndarray, bits: int) -> np.ndarray:
        return x >> u(bits) | x << u(64 - bits)

    def mixed(x: np.ndarray) -> np.ndarray:
        return x ^ x >> u(47)

    with np.errstate(over="ignore"):
        a, b = words + u(_K2), words
        c = rotated(b, 37) * factor + a
        d = (rotated(a, 25) + b) * factor
        left = mixed((c ^ d) * factor)
        return mixed((d ^ left) * factor) * factor


def lsh_bits(seeds: np.ndarray, features: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Sign of the weighted sum of hashes of (seed, feature), a bit for every seed.

    Parameters
    ----------
    seeds : ndarray of float32
    features : ndarray of int32, shape (n,)
    weights : ndarray of float32, shape (n,), optional

    Returns
    -------
    ndarray of int32, shape of `seeds`

    Notes
    -----
    MindSpore Lite ``LshProjection``.

    Examples
    --------
    >>> lsh_bits(np.float32([[0.1, 0.2], [0.3, 0.4]]), np.int32([1, 2])).shape
    (2, 2)
    """
    low = seeds.reshape(-1, 1).astype(np.float32).view(np.uint32).astype(np.uint64)
    high = features.reshape(1, -1).astype(np.int32).view(np.uint32).astype(np.uint64) << np.uint64(32)
    hashes = fingerprints_of_words(low | high).view(np.int64).astype(np.float64)
    score = hashes.sum(1) if weights is None else hashes @ weights.reshape(-1).astype(np.float64)
    return (score > 0).astype(np.int32).reshape(seeds.shape)


_SHORT = r"('t|'nt|n't|'d|'ll|'s|'m|'ve|'re)"
_RULES = (
    (r'[.*()"]', ""),
    (rf"\s{_SHORT}([\s,;:/])", r"\1\2"),
    (rf"\s{_SHORT}$", r"\1"),
    (r"(\S+)'ll", r"\1 will"),
    (r"(\S+)'nt", r"\1 not"),
    (r"(\S+)'re", r"\1 are"),
    (r"(\S+)'ve", r"\1 have"),
    (r"(\S+)n't", r"\1 not"),
    (r"i'm", "i am"),
    (r"([?])+", r"\1"),
    (r"([!])+", r"\1"),
    (r"([^?!]+)([?!])", r"\1 \2 "),
    (r"([?!])([?!])", r"\1 \2"),
    (r"[\s,:;\-&'\"]+$", ""),
    (r"^[\s,:;\-&'\"]+", ""),
)


def normalize_sentence(text: str) -> str:
    """Lower case, punctuation out, short forms spelt out, between sentence marks.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Notes
    -----
    MindSpore Lite ``CustomNormalize`` (TFLite's smart reply): at most 300 characters before the marks.

    Examples
    --------
    >>> normalize_sentence(" I'm sure we'll (not) GO!!")
    '<S> i am sure we will not go ! <E>'
    """
    result = text.lower().strip(" \t\n\v\f\r")
    for pattern, replacement in _RULES:
        result = re.sub(pattern, replacement, result)
    return f"<S> {result.strip(' ')[:300]} <E>"


def skip_grams(text: str, size: int, skip: int, every_size: bool = False) -> list[str]:
    """Runs of `size` words in order, with at most `skip` words left out between neighbours.

    Parameters
    ----------
    text : str
    size, skip : int
    every_size : bool
        Shorter runs, too.

    Returns
    -------
    list of str
        By the places of their words; a longer run comes before its own beginning.

    Notes
    -----
    MindSpore Lite ``SkipGram`` (TFLite).

    Examples
    --------
    >>> skip_grams("a b c d", 2, 1)
    ['a b', 'a c', 'b c', 'b d', 'c d']
    """
    words = [word for word in text.split(" ") if word]
    sizes = range(1, size + 1) if every_size else [size]
    found = [
        places
        for n in sizes
        for places in combinations(range(len(words)), n)
        if all(b - a <= skip + 1 for a, b in pairwise(places))
    ]
    # a run sorts behind all that begin with it
    found.sort(key=lambda places: (*places, *[len(words)] * (size - len(places))))
    return [" ".join(words[place] for place in places) for places in found]
