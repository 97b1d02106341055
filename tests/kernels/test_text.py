"""Hashes against the reference library's values, text rules and skip-grams by hand."""

import numpy as np
import pytest

from mlinspect.kernels import text


@pytest.mark.parametrize(
    ("repeats", "want"),
    [
        (1, 3082347305946340766),
        (2, 18020937647720259998),
        (5, 17315453404834095789),
        (7, 6778690825823501222),
        (20, 11588080315219591232),
    ],
)
def test_fingerprints_of_the_farmhash_library(repeats, want):
    """Each falls into another branch: up to 16, 32, 64 bytes, and beyond."""
    assert text.fingerprint64(b"mlinspect " * repeats) == want


@pytest.mark.parametrize(
    ("short", "want"),
    [
        (b"", 0x9AE16A3B2F90404F),
        (b"a", 12917804110809363939),
        (b"abc", 2640714258260161385),
        (b"hello", 13009744463427800296),
    ],
)
def test_fingerprints_of_a_few_bytes(short, want):
    """Up to 3 and up to 7 bytes have branches of their own."""
    assert text.fingerprint64(short) == want


def test_fingerprints_of_words_are_those_of_their_bytes():
    words = np.random.default_rng(0).integers(0, 2**63, 50).astype(np.uint64)
    want = [text.fingerprint64(int(word).to_bytes(8, "little")) for word in words]
    assert text.fingerprints_of_words(words).tolist() == want


def test_lsh_bits_by_their_definition():
    rng = np.random.default_rng(1)
    seeds, features = rng.normal(size=(3, 4)).astype(np.float32), rng.integers(0, 99, 5).astype(np.int32)
    weights = rng.normal(size=5).astype(np.float32)
    for i, j in np.ndindex(3, 4):
        hashes = []
        for feature in features:
            value = text.fingerprint64(seeds[i, j].tobytes() + feature.tobytes())
            hashes.append(float(value - (1 << 64) if value >> 63 else value))
        assert text.lsh_bits(seeds, features)[i, j] == (sum(hashes) > 0)
        weighted = sum(h * float(w) for h, w in zip(hashes, weights, strict=True))
        assert text.lsh_bits(seeds, features, weights)[i, j] == (weighted > 0)


@pytest.mark.parametrize(
    ("sentence", "want"),
    [
        ("Hello", "<S> hello <E>"),
        ("  What's up??  ", "<S> what's up ? <E>"),
        ("They couldn't, I'm afraid.", "<S> they could not, i am afraid <E>"),
        ("you've it, we're in!", "<S> you have it, we are in ! <E>"),
        ("x" * 400, "<S> " + "x" * 300 + " <E>"),
    ],
)
def test_sentences(sentence, want):
    assert text.normalize_sentence(sentence) == want


def test_skip_grams():
    assert text.skip_grams("a b c d", 2, 0) == ["a b", "b c", "c d"]
    assert text.skip_grams("a b c d", 3, 1) == ["a b c", "a b d", "a c d", "b c d"]
    assert text.skip_grams(" a  b c", 2, 0, every_size=True) == ["a b", "a", "b c", "b", "c"]
    assert text.skip_grams("a", 2, 1) == []
