"""Large constants are summed in float32 to the figures that float64 gives."""

import numpy as np
import pytest

from mlinspect.analysis import float_sums, moments
from mlinspect.analysis.float_sums import of_view
from mlinspect.analysis.moments import COUNT, HIGH, INF, LOW, M2, M3, M4, MEAN, NAN, ZEROS

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(float_sums, "LARGE", 100)
    monkeypatch.setattr(float_sums, "_PIECE", 64)
    monkeypatch.setattr(moments, "BLOCK", 1000)


def reference(view, each):
    """Record and reach from the definitions, in float64."""
    rows = view.astype(np.float64).swapaxes(0, 1).reshape(view.shape[1], -1)
    reach = [np.abs(row[np.isfinite(row)]).max() for row in rows]
    record = np.zeros((10, len(rows) if each else 1))
    for column, x in zip(record.T, rows if each else rows.reshape(1, -1), strict=True):
        column[NAN], column[INF] = np.isnan(x).sum(), np.isinf(x).sum()
        x = x[np.isfinite(x)]
        d = x - x.mean()
        column[[COUNT, MEAN, LOW, HIGH, ZEROS]] = len(x), x.mean(), x.min(), x.max(), (x == 0).sum()
        column[[M2, M3, M4]] = (d**2).sum(), (d**3).sum(), (d**4).sum()
    return record, reach


def check(view, each, rel=1e-5):
    read = []
    record, reach = of_view(view, each, read.append)
    want, far = reference(view, each)
    np.testing.assert_array_equal(reach, far)
    exact = [COUNT, LOW, HIGH, ZEROS, NAN, INF]
    np.testing.assert_array_equal(record[exact], want[exact])
    deviation = np.sqrt(want[M2] / want[COUNT])
    np.testing.assert_allclose(record[MEAN], want[MEAN], atol=rel * deviation.max() + 1e-300)
    for row, power in ((M2, 2), (M3, 3), (M4, 4)):
        np.testing.assert_allclose(record[row], want[row], rtol=rel, atol=rel * (deviation**power * want[COUNT]).max())
    return sum(read)


SHAPES = [(1, 1, 5000), (1, 3, 2000), (1, 500, 9), (1, 7, 64), (700, 5, 1), (40, 3, 70), (3, 1500, 1), (2, 1, 3000)]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_figures_of_float64(shape, each):
    view = (RNG.standard_t(5, size=shape) * 3e-3 + 1e-4).astype(np.float32)
    view.flat[RNG.integers(view.size, size=5)] = 0
    assert check(view, each) == view.nbytes


@pytest.mark.parametrize("each", [False, True])
def test_dead_channels_are_summed_like_others(each, monkeypatch):
    view = RNG.normal(size=(1, 4, 3000)).astype(np.float32)
    view[0, 2] = 0
    monkeypatch.setattr(float_sums, "_in_float64", None)
    check(view, each)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x + np.float32(7),  # digits would be lost
        lambda x: x * np.float32(1e-20),  # fourth powers would be 0
        lambda x: x * np.float32(1e12),  # or infinite
        lambda x: np.where(np.arange(x.size).reshape(x.shape) == 4711, np.float32(np.nan), x),
        lambda x: np.where(np.arange(x.size).reshape(x.shape) == 4711, np.float32(-np.inf), x),
    ],
    ids=["far_from_0", "tiny", "huge", "nan", "inf"],
)
def test_what_float32_cannot_hold_is_summed_in_float64(spoil, each):
    view = spoil(RNG.normal(size=(1, 4, 3000)).astype(np.float32))
    check(view, each, rel=1e-9)


def test_the_reach_of_channels_has_the_digits_and_the_range_of_float64():
    view = RNG.normal(size=(1, 4, 3000)).astype(np.float32)
    view[0, 0] *= np.float32(1e8)
    view[0, 1] *= np.float32(1e-32)
    _, reach = of_view(view, False, lambda nbytes: None)
    assert 1e39 < reach.max() / reach.min() < np.inf


@pytest.mark.parametrize("each", [False, True])
def test_float64_numbers(each):
    check(RNG.normal(size=(3, 4, 300)) + 1000, each, rel=1e-9)
