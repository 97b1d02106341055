"""Packing bit by bit is the reverse of unpacking."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlinspect.errors import InputError
from mlinspect.formats import packing
from mlinspect.formats.compression import unpack


@settings(derandomize=True, deadline=None, max_examples=60)
@given(bits=st.sampled_from([2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 15]), count=st.integers(0, 300), seed=st.integers(0, 9))
def test_unpacks_to_the_same(bits, count, seed):
    half = 1 << (bits - 1)
    dtype = np.int8 if bits < 8 else np.int16
    values = np.random.default_rng(seed).integers(-half, half, count).astype(dtype)
    raw = packing.pack_bits(values, bits)
    np.testing.assert_array_equal(unpack(raw, "bitpacking", bits=bits, count=count, dtype=dtype), values)


def test_blocks_join_without_a_seam(monkeypatch):
    values = np.random.default_rng(0).integers(-4, 4, 1001).astype(np.int8)
    whole = packing.pack_bits(values, 3)
    monkeypatch.setattr(packing, "_BLOCK", 64)
    np.testing.assert_array_equal(packing.pack_bits(values, 3), whole)


def test_the_vendors_bytes(golden):
    """What the real converter packed comes out again."""
    import mlinspect as mi

    count = 0
    for name in golden("mslite-converted.zip").names:
        for tensor in mi.open(golden("mslite-converted.zip").model(name)).network.tensors.values():
            if tensor.compression == "bitpacking":
                raw = packing.pack_bits(tensor.array, tensor.quantization.bits)
                np.testing.assert_array_equal(raw, tensor.data.raw)
                count += 1
    assert count > 10


def test_numbers_that_do_not_fit():
    for value in (8, -9):
        with pytest.raises(InputError, match="4-bit numbers go from -8 to 7"):
            packing.pack_bits(np.array([0, value], np.int8), 4)
