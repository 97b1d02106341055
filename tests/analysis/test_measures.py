"""Every way to measure a constant gives the figures of the plain definitions."""

import numpy as np
import pytest

from mlinspect import constants, ir
from mlinspect.analysis import counts, float_sums, measures, moments
from mlinspect.analysis.counts import levels_of_counts, numbers_of
from mlinspect.analysis.measures import measure
from mlinspect.analysis.moments import COUNT, HIGH, INF, LOW, M2, M3, M4, MEAN, NAN, ZEROS, merge
from mlinspect.analysis.operands import grid

RNG = np.random.default_rng(10)


def quantization(channels=None, zero_point=0, bits=8, extra=(), scale=None):
    n = channels or 1
    scale = RNG.uniform(0.01, 0.2, n) if scale is None else np.resize(scale, n)
    q = ir.Quantization(scale, np.resize(zero_point, n), None if channels is None else 1, bits, False)
    q.extra.update(extra)
    return q


def constant(view, q, dtype=None, **meta):
    dtype = dtype or str(view.dtype)
    return ir.Tensor(
        0, "w", 0, "constant", dtype, dtype, view.shape, data=view, quantization=q, quantized=q is not None, meta=meta
    )


def whole(shape, dtype, low=-100, high=120):
    return RNG.integers(low, high, shape).astype(dtype)


def record_of(rows):
    """A record from the definitions, row by row."""
    record = np.zeros((10, len(rows)))
    for column, x in zip(record.T, rows.astype(np.float64), strict=True):
        column[NAN], column[INF] = np.isnan(x).sum(), np.isinf(x).sum()
        x = x[np.isfinite(x)]
        column[[COUNT, LOW, HIGH, ZEROS]] = len(x), x.min(initial=np.inf), x.max(initial=-np.inf), (x == 0).sum()
        if len(x):
            d = x - x.mean()
            column[[MEAN, M2, M3, M4]] = x.mean(), (d**2).sum(), (d**3).sum(), (d**4).sum()
    return record


def rows_of(values, each):
    rows = values.swapaxes(0, 1).reshape(values.shape[1], -1)
    return rows if each else rows.reshape(1, -1)


def near(found, want, rel):
    exact = [COUNT, LOW, HIGH, ZEROS, NAN, INF]
    np.testing.assert_array_equal(found[exact], want[exact])
    n = np.maximum(want[COUNT], 1)
    deviation = np.sqrt(want[M2] / n)
    size = deviation + np.where(want[COUNT] > 0, np.abs(want[MEAN]), 0)
    assert (np.abs(found[MEAN] - want[MEAN]) <= rel * size + 1e-300).all()
    for row, power in ((M2, 2), (M3, 3), (M4, 4)):
        assert (np.abs(found[row] - want[row]) <= rel * n * deviation**power + 1e-12 * n * size**power).all(), power


SHAPES = [(1, 1, 900), (1, 5, 100), (1, 60, 9), (130, 4, 1), (6, 7, 11)]


def zoo(shape):
    """Constants of at most 16 bits, well and badly quantised: name -> tensor."""
    n = shape[1]
    yield "int8 plain", constant(whole(shape, np.int8), None)
    yield "uint8 plain", constant(whole(shape, np.uint8, 0, 256), None)
    yield "int16 plain", constant(whole(shape, np.int16, -30000, 30000), None)
    yield "int8", constant(whole(shape, np.int8), quantization())
    yield "uint8 zero point", constant(whole(shape, np.uint8, 0, 256), quantization(zero_point=131))
    yield "int8 zero point off the grid", constant(whole(shape, np.int8), quantization(zero_point=300))
    yield "int16", constant(whole(shape, np.int16, -30000, 30000), quantization(bits=16))
    yield "int8 channels", constant(whole(shape, np.int8), quantization(n))
    yield "int4 channels", constant(whole(shape, np.int8, -8, 8), quantization(n, bits=4))
    yield "uint8 channels", constant(whole(shape, np.uint8, 0, 256), quantization(n, zero_point=range(100, 100 + n)))
    yield "one zero point", constant(whole(shape, np.uint8, 0, 256), quantization(n, zero_point=128))
    yield "int16 channels", constant(whole(shape, np.int16, -30000, 30000), quantization(n, bits=16))
    corrections = {"var_corr": RNG.uniform(0.8, 1.2, n), "mean_corr": RNG.uniform(-1, 1, n)}
    yield "corrected", constant(whole(shape, np.int8), quantization(n, extra=corrections))
    for name, scale in {"0": 0, "negative": -0.1, "NaN": np.nan, "Inf": np.inf, "tiny": 1e-42, "huge": 1e37}.items():
        yield f"scale {name}", constant(whole(shape, np.int8), quantization(scale=scale))
        yield f"scales {name}", constant(whole(shape, np.int8), quantization(n, scale=[0.1, scale]))
    big = whole(shape, np.uint8, 0, 30)
    yield "ends too large", constant(big, quantization(scale=1e37))
    yield "ends of a channel too large", constant(big, quantization(n, scale=[0.1, 1e37]))
    yield "int16 ends too large", constant(whole(shape, np.int16), quantization(bits=16, scale=1e35))
    yield "float16 as bytes", constant(whole(shape, np.uint8, 0, 256), None, "float16")
    yield "bfloat16 as bytes", constant(whole(shape, np.uint8, 0, 256), None, "bfloat16")
    yield "far zero point", constant(whole(shape, np.int8), quantization(zero_point=10**6))
    clusters = RNG.normal(size=256).astype(np.float32)
    yield "clusters", constant(whole(shape, np.int8), None, quantClusters=clusters)
    dead = whole(shape, np.int8)
    dead[:, 0] = 0
    yield "dead channel", constant(dead, quantization(n))
    same = whole(shape, np.int8)
    same[:, -1] = 127
    yield "equal channel", constant(same, quantization(n))
    halves = RNG.normal(size=shape).astype(np.float16)
    yield "float16", constant(halves, None)
    bits = RNG.normal(size=shape).astype(np.float32).view(np.uint32) >> 16
    yield "bfloat16", constant(bits.astype(np.uint16), None, "bfloat16")
    spoilt = halves.copy()
    spoilt[:, 0] = np.nan
    spoilt.flat[[3, 5, 8]] = np.inf, -np.inf, -0.0
    yield "float16 spoilt", constant(spoilt, None)


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid).*:RuntimeWarning")
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model_format", ["armnn", "mslite"])
def test_against_the_definitions(shape, model_format, large, monkeypatch):
    if large:
        monkeypatch.setattr(measures, "LARGE", 10)
        monkeypatch.setattr(float_sums, "LARGE", 10)
        monkeypatch.setattr(moments, "BLOCK", 128)
        monkeypatch.setattr(counts, "LONG", 1 << 30)
    for name, tensor in zoo(shape):
        for each in (False, True):
            try:
                check(tensor, model_format, each)
            except AssertionError as error:
                raise AssertionError(f"{name}, {each=}: {error}") from error


def check(tensor, model_format, each):
    view, read = tensor.array, []
    real = constants.real(tensor, model_format)
    found = measure(view, tensor, model_format, each, read.append)
    stored, values = (r if each else merge(r[:, None]) for r in (found.stored, found.real))
    near(values, record_of(rows_of(real, each)), 1e-5)
    reach = [np.abs(row[np.isfinite(row)]).max(initial=-1) for row in rows_of(real, True)]
    np.testing.assert_allclose(np.nan_to_num(found.reach, nan=-1), reach, rtol=1e-6)
    assert sum(read) == view.nbytes
    numbers = rows_of(view, each)
    if view.dtype.kind in "iu" and tensor.dtype != "bfloat16":
        near(stored, record_of(numbers), 1e-9)
        ends = rows_of(view, True)
        np.testing.assert_array_equal(found.span, [ends.min(axis=1), ends.max(axis=1)])
    levels = found.levels if each else levels_of_counts(found.counts[None], numbers_of(view.dtype), grid(tensor))
    assert levels.distinct.tolist() == [len(np.unique(row)) for row in numbers.view(f"u{view.itemsize}")]
    if tensor.quantized:
        low, high = grid(tensor)
        assert levels.at_qmin.tolist() == np.count_nonzero(numbers <= low, axis=1).tolist()
        assert levels.at_qmax.tolist() == np.count_nonzero(numbers >= high, axis=1).tolist()
