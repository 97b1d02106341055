"""Sums of agreement against their plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlinspect.kernels.agreement import Agreement, agreement, decibels, dot, sqnr_db

values = st.floats(-1e3, 1e3, width=32)


@given(st.data(), hnp.array_shapes(max_dims=3, max_side=4))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_figures_follow_their_definitions(data: st.DataObject, shape: tuple[int, ...]) -> None:
    a = data.draw(hnp.arrays(np.float32, shape, elements=values)).astype(float)
    b = data.draw(hnp.arrays(np.float32, shape, elements=values)).astype(float)
    got = agreement(a, b)
    assert got.elements == a.size
    assert got.equal_share == np.mean(a == b)
    assert got.mse == pytest.approx(np.mean((a - b) ** 2))
    assert got.mean_error == pytest.approx(np.mean(b - a), abs=1e-9)
    assert got.max_abs == np.abs(a - b).max()
    if (a**2).sum() > 1e-6 and ((a - b) ** 2).sum() > 1e-6:
        assert sqnr_db(a, b) == pytest.approx(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))
    if np.linalg.norm(a) > 1e-3 and np.linalg.norm(b) > 1e-3:
        assert got.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


@given(hnp.arrays(np.float32, (6, 2), elements=values), st.integers(0, 6))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_sums_of_parts_are_the_sums_of_the_whole(pairs: np.ndarray, cut: int) -> None:
    a, b = pairs.T
    whole, parts = agreement(a, b), agreement(a[:cut], b[:cut]) + agreement(a[cut:], b[cut:])
    for field in Agreement.__dataclass_fields__:
        assert getattr(parts, field) == pytest.approx(getattr(whole, field), rel=1e-9)


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 30_000])
def test_long_vectors_are_multiplied_in_pieces(size: int) -> None:
    a, b = np.random.default_rng(size).normal(size=(2, size))
    assert dot(a, b) == pytest.approx(np.sum(a * b), rel=1e-12, abs=1e-9)
    assert dot(a[::2], b[::2]) == pytest.approx(np.sum(a[::2] * b[::2]), rel=1e-12, abs=1e-9)


def test_no_product_is_long_enough_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS starts them for more than 10,000 numbers; that takes ten times longer where others compute."""
    lengths = []
    vecdot = np.vecdot

    def noted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        lengths.append(x.shape[-1])
        return vecdot(x, y)

    monkeypatch.setattr(np, "vecdot", noted)
    agreement(np.ones(100_000), np.zeros(100_000))
    assert max(lengths) <= 8192
    assert len(lengths) == 8  # a piece and the rest, of four sums: none went another way


def test_what_is_not_finite() -> None:
    nan, inf = np.nan, np.inf
    same = agreement(np.array([1, nan, inf, -inf]), np.array([1, nan, inf, -inf]))
    assert (same.equal_share, same.sqnr_db, same.max_abs) == (1, inf, 0)
    for other in (nan, -inf, 3.0):
        lost = agreement(np.array([1, inf]), np.array([1, other]))
        assert (lost.sqnr_db, lost.mse, lost.equal) == (-inf, inf, 1)
        assert (lost + same).sqnr_db == -inf


def test_zeros_and_nothing() -> None:
    zero, one = np.zeros(2), np.ones(2)
    assert (agreement(zero, zero).sqnr_db, agreement(zero, zero).cosine) == (np.inf, 1)
    assert (agreement(zero, one).sqnr_db, agreement(zero, one).cosine) == (-np.inf, 0)
    assert (agreement(zero[:0], one[:0]).equal_share, agreement(zero[:0], one[:0]).mse) == (1, 0)
    assert decibels(1.0, 0.0) == np.inf
    assert np.isnan([decibels(np.nan, 1.0), decibels(1.0, np.nan)]).all()
    with pytest.raises(ValueError, match="differ"):
        agreement(zero, np.zeros(3))
