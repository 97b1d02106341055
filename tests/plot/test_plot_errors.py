"""Pictures of errors show the numbers of their tables."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from mlinspect.plot import errors

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def compared() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name_a": ["$x", "b", "c", "d"],
            "sqnr_db": [np.inf, 30.0, np.nan, 10.0],
            "threshold_db": 20.0,
            "first": [False, False, False, True],
        }
    )


def test_accumulated(ax) -> None:
    assert errors.accumulated(compared().iloc[::-1], ax) is ax
    assert ax.lines[0].get_ydata().tolist() == [40, 30, 10]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["identical", "threshold", "first to diverge: d"]
    assert ax.lines[-1].get_xydata().tolist() == [[2, 10]]
    assert [t.get_text() for t in ax.get_xticklabels()] == [r"\$x", "b", "d"]
    assert ax.get_title(loc="left") == "SQNR by layer"
    ax.figure.canvas.draw()


def test_accumulated_without_anything_special(ax) -> None:
    table = pd.DataFrame({"name_a": ["a", "b"], "sqnr_db": [-np.inf, 3.0]})
    errors.accumulated(table, ax)
    assert ax.lines[0].get_ydata().tolist() == [-2, 3]
    assert ax.get_legend() is None


def blamed() -> pd.DataFrame:
    errors_db = {"own_db": [20.0, np.inf], "inherited_db": [np.inf, 40.0]}
    return pd.DataFrame({"name": ["a", "b"], **errors_db, "share": [1.2, -0.2]})


def test_own_and_inherited(ax) -> None:
    errors.own_and_inherited(blamed(), ax)
    own, inherited = ax.containers
    assert [bar.get_height() for bar in own] == pytest.approx([0.1, 0])
    assert [bar.get_height() for bar in inherited] == pytest.approx([0, 0.01])


def test_shares(ax) -> None:
    errors.shares(blamed(), ax)
    assert [bar.get_height() for bar in ax.containers[0]] == pytest.approx([120, -20])
    colors = {bar.get_facecolor() for bar in ax.containers[0]}
    assert len(colors) == 2


def test_channels(ax) -> None:
    errors.channels(pd.DataFrame({"mse": [4.0, 9.0], "bias": [1.0, -3.0]}), ax)
    assert [bar.get_height() for bar in ax.containers[0]] == [2, 3]
    assert ax.lines[0].get_ydata().tolist() == [1, -3]


def test_picture(ax) -> None:
    table = pd.DataFrame(np.arange(6.0).reshape(2, 3))
    errors.picture(table, ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), table)


@pytest.mark.parametrize("quantized", [True, False])
def test_margins(ax, quantized: bool) -> None:
    steps = [40.0, 20.0 if quantized else np.nan]
    table = pd.DataFrame({"margin_a": [0.5, 0.1], "margin_b": [0.4, 0.2], "steps_b": steps})
    errors.margins(table.assign(agree=[True, False]), ax)
    same, other = ax.lines[:2]
    assert same.get_xydata().tolist() == [[0.5, 40 if quantized else 0.4]]
    assert other.get_xydata().tolist() == [[0.1, 20 if quantized else 0.2]]
    assert ax.get_ylabel() == ("margin of b (steps)" if quantized else "margin of b")


def test_sensitivity(ax) -> None:
    scores = {"restored": [0.9, 0.8], "alone": [0.85, 0.95], "model": 0.8, "float": 0.95}
    table = pd.DataFrame({"name": ["a", "b"], **scores})
    errors.sensitivity(table, ax)
    assert [line.get_ydata()[0] for line in ax.lines] == [0.9, 0.85, 0.8, 0.95]


def test_many_names_are_thinned_and_a_figure_is_made() -> None:
    table = pd.DataFrame({"name": [f"layer{i}" for i in range(130)], "share": 0.1})
    ax = errors.shares(table)
    assert len(ax.get_xticklabels()) == 33
    plt.close(ax.figure)
