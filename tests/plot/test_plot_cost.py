"""Cost bars and the memory timeline show the cost table."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import mlinspect as mi
from mlinspect.analysis.cost import cost as table_of
from mlinspect.plot.cost import MAX_BARS, cost, memory
from mlinspect.plot.style import FAMILY_COLOURS, VERMILION, family

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    _, axes = plt.subplots()
    yield axes
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return mi.open(mi.samples.path("digits_cnn.ms"))


@pytest.mark.parametrize(
    "column", ["macs", "other_ops", "params", "weight_bytes", "bytes_in", "bytes_out", "intensity"]
)
def test_bars_are_the_column(ax, model, column):
    assert cost(model, column, ax) is ax
    table = table_of(model)
    rows = table[table[column] > 0]
    assert [bar.get_width() for bar in ax.containers[0]] == rows[column].astype(float).tolist()
    assert [t.get_text() for t in ax.get_yticklabels()] == rows.name.tolist()
    colours = [mpl.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.containers[0]]
    assert colours == [FAMILY_COLOURS[family(kind)].upper() for kind in rows.kind]


def test_shares_add_up(ax, model):
    cost(model, ax=ax)
    assert sum(int(t.get_text().rstrip("%")) for t in ax.texts) == pytest.approx(100, abs=3)
    assert "198,976 in all" in ax.get_title(loc="left")


def test_only_the_largest_layers_are_shown(ax, golden):
    network = mi.open(golden("armnn-nets.zip").model("mobilenet_v1_f32.armnn")).network
    cost(table_of(network), "bytes_out", ax)
    table = table_of(network)
    shown = min((table.bytes_out > 0).sum(), MAX_BARS)
    assert len(ax.containers[0]) == shown
    hidden = (table.bytes_out > 0).sum() - shown
    assert (f"{hidden} smaller layers" in ax.get_title(loc="left")) == (hidden > 0)


@pytest.mark.parametrize("column", ["name", "nothing"])
def test_columns_that_are_no_numbers(ax, model, column):
    with pytest.raises(ValueError, match="no numbers called"):
        cost(model, column, ax)


def test_memory_is_the_liveness_table_and_marks_the_peak(ax, model):
    assert memory(model, ax) is ax
    table = table_of(model)
    steps = ax.patches[0].get_data()
    assert steps.values.tolist() == table.liveness.live_bytes.tolist()
    peak = next(p for p in ax.patches if mpl.colors.to_hex(p.get_facecolor()).upper() == VERMILION)
    assert peak.get_height() == table.peak
    assert "12,288" in ax.texts[0].get_text()
    assert "/pw/Conv, /dw/Conv" in ax.texts[0].get_text()


def test_memory_of_open_shapes(ax, model):
    network = model.network
    last = network.graphs[0].layers[-1].outputs[0]
    partly = replace(network, tensors=network.tensors | {last: replace(network.tensors[last], shape=(-1, 10))})
    memory(partly, ax)
    assert "not known" in ax.texts[0].get_text()
    ax.clear()
    everything = {i: replace(t, shape=(-1,)) for i, t in network.tensors.items()}
    memory(replace(network, tensors=everything), ax)
    assert "cost(shapes=...)" in ax.get_title(loc="left")
    assert not ax.patches


def test_new_figures_by_default(model):
    for draw in (cost, memory):
        axes = draw(model)
        assert np.prod(axes.figure.get_size_inches()) > 5
        plt.close(axes.figure)
