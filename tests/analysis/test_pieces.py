"""Constants cut into groups of channels have the figures that they have in one piece."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis import pieces as module
from mlinspect.analysis.operands import Use
from mlinspect.analysis.pieces import pieces
from mlinspect.analysis.stats import stats
from mlinspect.formats.compression import unpack_bits
from mlinspect.formats.packing import pack_bits

RNG = np.random.default_rng(12)
CHANNELS = 23


def network(tensor, kind="fully_connected"):
    layer = ir.Layer(0, "l", kind, kind, 0, {}, (9, 0), ())
    return ir.Network("mslite", "", "", (ir.Graph(0, "", (), (), (layer,)),), {0: tensor})


def quantization(bits=8, n=CHANNELS):
    extra = {"var_corr": RNG.uniform(0.9, 1.1, n), "mean_corr": RNG.uniform(-0.1, 0.1, n)}
    return ir.Quantization(RNG.uniform(0.01, 0.2, n), np.zeros(n, int), 0, bits, True, extra)


def constant(data, q=None, **more):
    dtype = str(data.dtype)
    more = {"data": data, "nbytes": data.nbytes} | more
    return ir.Tensor(
        0, "w", 0, "constant", dtype, dtype, data.shape, quantization=q, quantized=q is not None, layout="OI", **more
    )


def packed(bits, q):
    numbers = RNG.integers(-(1 << bits - 1), 1 << bits - 1, (CHANNELS, 37)).astype(np.int8)
    raw = pack_bits(numbers, bits)

    def part(start, stop):
        return unpack_bits(raw, start, stop, count=numbers.size, dtype="int8", bits=bits)

    whole = constant(numbers, q, compression="bitpacking", nbytes=raw.nbytes)
    return replace(whole, data=ir.PackedData(raw, lambda: numbers, part))


def cases():
    yield "float32", constant(RNG.normal(size=(CHANNELS, 37)).astype(np.float32))
    yield "float16", constant(RNG.normal(size=(CHANNELS, 37)).astype(np.float16))
    yield "int8", constant(RNG.integers(-90, 99, (CHANNELS, 37)).astype(np.int8), quantization())
    yield "int16", constant(RNG.integers(-9000, 9900, (CHANNELS, 37)).astype(np.int16), quantization(bits=16))
    yield "int32", constant(RNG.integers(-9000, 9900, (CHANNELS, 37)).astype(np.int32))
    yield "too few parameters", constant(RNG.integers(-90, 99, (CHANNELS, 37)).astype(np.int8), quantization(n=8))
    yield "too many parameters", constant(RNG.integers(-90, 99, (CHANNELS, 37)).astype(np.int8), quantization(n=30))
    yield "int4", packed(4, quantization(bits=4))
    yield "int7 per tensor", packed(7, ir.Quantization(np.array([0.1]), np.array([3]), None, 7))


@pytest.mark.parametrize(("name", "tensor"), list(cases()))
@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_groups_change_no_figure(name, tensor, by, monkeypatch):
    net = network(tensor)
    want = stats(net, by)
    monkeypatch.setattr(module, "_UNPACKED", 37 * 5)
    monkeypatch.setattr(module, "_CHANNELS", 4)
    groups = [view.shape[1] for view, _ in pieces(tensor, Use(net.graphs[0].layers[0], 1))]
    assert sum(groups) == CHANNELS
    assert len(groups) == (1 if name.startswith(("too", "float")) else 4 if tensor.compression != "none" else 5)
    pd.testing.assert_frame_equal(stats(net, by), want, rtol=1e-12, atol=1e-12)
    assert want["mean"].isna().all() == name.startswith("too")


@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_a_group_of_one_channel_keeps_its_corrections(by, monkeypatch):
    net = network(packed(4, quantization(4)))
    want = stats(net, by)
    monkeypatch.setattr(module, "_UNPACKED", 37)
    assert len(list(pieces(net.tensors[0], Use(net.graphs[0].layers[0], 1)))) == CHANNELS
    pd.testing.assert_frame_equal(stats(net, by), want, rtol=1e-12, atol=1e-12)


def test_the_file_says_which_numbers_are_unpacked():
    model = mi.open(mi.samples.path("digits_cnn_wq4.ms"))
    for tensor in model.network.tensors.values():
        if isinstance(tensor.data, ir.PackedData):
            flat = tensor.array.ravel()
            assert np.array_equal(tensor.data.part(3, flat.size - 2), flat[3:-2])
            break
    else:
        raise AssertionError("no packed tensor")
