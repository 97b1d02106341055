"""Statistics of constants against brute force: every figure computed the slow way from the plain arrays."""

from collections import Counter
from dataclasses import replace
from math import log2

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis import counts, moments
from mlinspect.analysis.columns import COLUMNS
from mlinspect.analysis.operands import by_channel, uses
from mlinspect.analysis.stats import stats

RNG = np.random.default_rng(6)


def quantization(channels=1, axis=None, bits=8, zero_point=0):
    zero = np.full(channels, zero_point)
    return ir.Quantization(RNG.uniform(0.01, 0.2, channels), zero, axis, bits, zero_point == 0)


def constant(data, q=None, dtype=None, **more):
    data = np.asarray(data)
    dtype = dtype or str(data.dtype)
    more = {
        "data": data,
        "quantization": q,
        "quantized": q is not None,
        "nbytes": data.nbytes,
        "shape": data.shape,
    } | more
    return ir.Tensor(0, "w", 0, "constant", dtype, dtype, **more)


def network(tensor, kind=None, slot=1, fmt="mslite", **attrs):
    """A network of one constant, read by a layer of that kind."""
    layers = () if kind is None else (ir.Layer(0, "l", kind, kind, 0, attrs, (9,) * slot + (0,), ()),)
    return ir.Network(fmt, "", "", (ir.Graph(0, "", (), (), layers),), {0: tensor})


def figures_of(values):
    """The figures of a flat float64 array."""
    values = np.asarray(values, np.float64).ravel()
    good = values[np.isfinite(values)]
    mean = sum(good) / len(good)
    powers = [sum((v - mean) ** p for v in good) / len(good) for p in (2, 4)]
    return {
        "min": min(good), "max": max(good), "absmax": max(abs(v) for v in good), "mean": mean, "std": powers[0] ** 0.5,
        "kurtosis": powers[1] / powers[0] ** 2 - 3, "zeros": sum(v == 0 for v in good),
        "nan": sum(v != v for v in values), "inf": sum(abs(v) == np.inf for v in values),
    }  # fmt: skip


def entropy(values):
    counts = Counter(np.asarray(values).ravel().tolist())
    return -sum(n / values.size * log2(n / values.size) for n in counts.values())


def check(row, values, stored=None, **tolerance):
    for name, want in figures_of(values).items():
        assert row[name] == pytest.approx(want, **tolerance), name
    if stored is not None:
        want = figures_of(stored)
        for name in ("min", "max", "absmax", "mean", "std", "kurtosis", "zeros"):
            assert row[f"stored_{name}"] == pytest.approx(want[name], rel=1e-9, abs=1e-9), name


def grids():
    def ints(shape, low, high, dtype):
        return RNG.integers(low, high, shape).astype(dtype)

    yield "int8", constant(ints((7, 3, 3, 5), -128, 128, np.int8), quantization(7, 0)), "conv2d", {}
    yield "last_axis", constant(ints((40, 6), -100, 90, np.int8), quantization(6, 1)), "matmul", {}
    yield "middle_axis", constant(ints((4, 6, 5), -100, 90, np.int8), quantization(6, 1)), None, {}
    yield "per_tensor", constant(ints((7, 3, 3, 5), 0, 256, np.uint8), quantization(zero_point=131)), "conv2d", {}
    yield "int4", constant(ints((5, 60), -8, 8, np.int8), quantization(5, 0, 4)), "fully_connected", {}
    yield "int16", constant(ints((3, 70), -3000, 3000, np.int16), quantization(3, 0, 16)), "fully_connected", {}
    yield "int32", constant(ints((3,), -(10**6), 10**6, np.int32), quantization(3, 0, 32)), "conv2d", {}
    yield (
        "depthwise",
        constant(ints((2, 4, 3, 3), -128, 128, np.int8), quantization(8, 0), layout="MIHW"),
        "depthwise_conv2d",
        {},
    )


@pytest.mark.parametrize(("tensor", "kind", "attrs"), [pytest.param(*g[1:], id=g[0]) for g in grids()])
def test_quantised_constants_against_brute_force(tensor, kind, attrs):
    net = network(tensor, kind, **attrs)
    use = uses(net).get(0)
    stored, q = tensor.array, tensor.quantization
    by_row = by_channel(stored, tensor, use).swapaxes(0, 1)
    by_row = by_row.reshape(len(by_row), -1)
    scale = np.broadcast_to(q.scale, len(by_row))[:, None].astype(np.float64)
    real = (by_row.astype(np.float64) - q.zero_point[0]) * scale
    row = stats(net).loc[0]
    check(row, real, stored, rel=1e-6, abs=1e-6)
    qmin = 0 if tensor.dtype == "uint8" else -(2 ** (q.bits - 1))
    qmax = qmin + 2**q.bits - 1
    assert row.elements == stored.size
    if q.bits <= 16:
        assert row.levels == len(set(stored.ravel().tolist()))
        assert row.levels_share == row.levels / 2**q.bits
        assert row.entropy == pytest.approx(entropy(stored))
        assert row.compressed_bytes == int(np.ceil(stored.size * entropy(stored) / 8 - 1e-9))
        assert (row.at_qmin, row.at_qmax) == ((stored == qmin).sum(), (stored == qmax).sum())
        span = np.ptp(by_row.astype(np.int64), axis=1) / (qmax - qmin)
        assert row.range_used == pytest.approx(
            span.mean() if q.per_channel else np.ptp(stored.astype(int)) / (qmax - qmin)
        )
    extent = np.abs(real).max(axis=1)
    if by_row.shape[1] > 1:
        assert row.channel_range_ratio == pytest.approx(extent.max() / extent.min(), rel=1e-6)
    table = stats(net, by="channel")
    assert table.channel.tolist() == list(range(len(by_row)))
    for (_, line), numbers, values in zip(table.iterrows(), by_row, real, strict=True):
        if len(numbers) > 1:
            check(line, values, numbers, rel=1e-5, abs=1e-5)
        if q.bits <= 16:
            assert line.levels == len(set(numbers.tolist()))
            assert line.entropy == pytest.approx(entropy(numbers))
            assert line.at_qmax == (numbers == qmax).sum()
        assert line.range_share == pytest.approx(np.abs(values).max() / extent.max(), rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("shift", [0, 1000])
def test_floats_against_brute_force(dtype, shift):
    data = (RNG.normal(size=(6, 5, 7)) + shift).astype(dtype)
    data.flat[[3, 50, 77]] = np.nan, np.inf, -np.inf
    data.flat[9:20] = 0
    row = stats(network(constant(data))).loc[0]
    check(row, data, rel=1e-9)
    assert pd.isna(row.stored_min)
    assert pd.isna(row.at_qmin)
    assert pd.isna(row.levels) == (dtype != "float16")
    if dtype == "float16":
        assert row.levels == len(np.unique(data.view(np.uint16)))


@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_whole_numbers_are_not_rounded_to_float32(by):
    row = stats(network(constant(np.int32([[(1 << 24) + 1, -(1 << 30) - 1]]))), by).iloc[0]
    assert (row["min"], row["max"], row["absmax"]) == (-(1 << 30) - 1, (1 << 24) + 1, (1 << 30) + 1)


def test_blocks_give_the_same_counts(monkeypatch):
    data = RNG.integers(-128, 128, (9, 11, 13)).astype(np.int8)
    tensors = [constant(data, quantization(11, 1)), constant(data, quantization()), constant(data * np.int16(200))]
    want = [stats(network(tensor), by=by) for tensor in tensors for by in ("tensor", "channel")]

    def check():
        found = (stats(network(tensor), by=by) for tensor in tensors for by in ("tensor", "channel"))
        for table, wanted in zip(found, want, strict=True):
            pd.testing.assert_frame_equal(table, wanted)

    monkeypatch.setattr(moments, "BLOCK", 29)
    monkeypatch.setattr(counts, "_SHORT", 31)
    monkeypatch.setattr(counts, "_PIECE", 23)
    check()
    monkeypatch.setattr(counts, "LONG", 1)  # every row by Pillow
    check()


def test_what_is_clipped_lies_beyond_the_extremes_that_a_range_is_made_for():
    data = np.full((2, 10), 3, np.int8)
    data[0, :4], data[1, 0] = 127, -128
    per_channel = stats(network(constant(data, quantization(2, 0)), "fully_connected"))
    assert per_channel.clipped[0] == pytest.approx(3 / 20)
    assert stats(network(constant(data, quantization(2, 0)), "fully_connected"), by="channel").clipped.tolist() == [
        0.3,
        0,
    ]
    assert stats(network(constant(data, quantization()))).clipped[0] == pytest.approx(4 / 20)
    assert stats(network(constant(data, quantization(zero_point=5)))).clipped[0] == pytest.approx(3 / 20)


@pytest.mark.parametrize(
    "tensor",
    [
        constant(np.zeros((0, 3), np.float32)),
        constant(np.zeros((0,), np.int8), quantization()),
        constant(np.zeros((4,), np.uint8), dtype="string"),
        constant(np.zeros((4,), np.uint8), dtype="unknown(99)"),
        constant(np.zeros((4,), np.int8), quantization(3, 0)),
        constant(np.full((4,), np.nan, np.float32)),
    ],
    ids=["empty", "empty_int8", "string", "unknown", "scales_missing", "all_nan"],
)
@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_constants_without_figures_have_a_row(tensor, by):
    table = stats(network(tensor), by)
    assert len(table) == (4 if by == "channel" and tensor.dtype == "int8" and tensor.array.size else 1)
    assert table[["min", "max", "mean", "std"]].isna().all(axis=None)


@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_odd_constants_have_a_row(by):
    odd = [
        constant(np.arange(11, dtype=np.uint8), dtype="float16", shape=(5,)),  # of a damaged file: as bytes
        constant(np.zeros((0, 3), np.uint8), dtype="string", layout="OI"),
        constant(np.zeros((0, 3), np.int8), quantization(3, 1), layout="IO"),
        constant(np.zeros((2, 0), np.float32), layout="OI"),
        constant(np.zeros(4, np.uint8), quantization(), dtype="unknown(99)"),
        constant(np.int8([[1, 2]]), ir.Quantization(np.ones(2), np.zeros(1, int), 0), quantized=False),
    ]
    rows = pd.concat(stats(network(tensor, "conv2d"), by) for tensor in odd)
    assert rows.elements.tolist() == [11, 0, 0, 0, 4, 2]
    assert rows.stored_max.fillna(-1).tolist() == [10, -1, -1, -1, -1, 2]


@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_integers_beyond_int64_are_told_as_real_values_only(by):
    row = stats(network(constant(np.array([3, 2**64 - 1], np.uint64))), by).iloc[0]
    assert (row["max"], row.stored_min) == (2.0**64, 3)
    assert pd.isna(row.stored_max)


def test_ranges_of_channels_may_lie_far_apart():
    far = (np.float32([[1e-5, 0], [3e38, 1]]).view(np.uint32) >> 16).astype(np.uint16)
    row = stats(network(constant(far, dtype="bfloat16"), "conv2d")).loc[0]
    assert row.channel_range_ratio == pytest.approx(3e43, rel=0.01)


def test_columns_are_as_declared():
    for by, name in (("tensor", "stats"), ("channel", "channel_stats")):
        table = stats(network(constant(np.ones(3, np.int8), quantization())), by).reset_index(drop=by == "channel")
        declared = [(column, dtype) for column, dtype, _, _ in COLUMNS[name]]
        assert [(c, str(d)) for c, d in table.dtypes.items()] == declared
    assert stats(network(replace(constant([1.0]), data=None))).empty
    with pytest.raises(ValueError, match="'tensor' or 'channel'"):
        stats(network(constant([1.0])), by="layer")


@pytest.mark.parametrize("name", mi.samples.names())
def test_samples_against_numpy(name):
    model = mi.open(mi.samples.path(name))
    table = stats(model)
    assert table.index.tolist() == sorted(model.weights)
    for tensor, row in table.iterrows():
        real, stored = model.dequantized[tensor].astype(np.float64), model.weights[tensor]
        assert (row["min"], row["max"]) == (real.min(), real.max())
        assert row["std"] == pytest.approx(real.std(), rel=1e-6, abs=1e-12)
        if stored.itemsize == 1:
            assert row.levels == len(np.unique(stored))
            assert row.entropy == pytest.approx(entropy(stored))


def test_a_bar_appears_only_when_it_takes_long(capsys):
    stats(network(constant(np.ones(9, np.float32))))
    assert capsys.readouterr().err == ""
