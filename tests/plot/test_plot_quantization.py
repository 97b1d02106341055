"""Pictures of quantisation show the numbers of the tables, in the given axes, with names taken literally."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.pairs import compare_weights
from mlinspect.analysis.stats import stats
from mlinspect.analysis.whatif import what_if
from mlinspect.plot import quantization
from mlinspect.plot.style import GREEN, ORANGE, VERMILION
from mlinspect.plot.weights import weights

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    _, axes = plt.subplots()
    yield axes
    plt.close("all")


def sample(name):
    return mi.open(mi.samples.path(name))


EMPTY = ir.Network("mslite", "", "", (ir.Graph(0, "", (), (), ()),), {})


def test_channel_ranges(ax):
    model = sample("digits_cnn_wq4.ms")
    assert quantization.channel_ranges(model, "res.weight", ax) is ax
    w = model.dequantized["res.weight"].reshape(32, -1)
    bars = ax.containers[0].patches
    assert [bar.get_y() for bar in bars] == pytest.approx(w.min(1).tolist())
    assert [bar.get_y() + bar.get_height() for bar in bars] == pytest.approx(w.max(1).tolist(), rel=1e-5)
    band = ax.patches[0]
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((w.min(), w.max()))
    ticks = [c.get_offsets()[:, 1] for c in ax.collections]
    q = model.network.tensors[model.tensors.index[model.tensors.name == "res.weight"][0]].quantization
    np.testing.assert_allclose(ticks, [q.scale * (-8 - q.zero_point), q.scale * (7 - q.zero_point)])


@pytest.mark.parametrize("key", ["image", "nothing"])
def test_channel_ranges_are_of_constants(ax, key):
    with pytest.raises((ValueError, KeyError), match=key):
        quantization.channel_ranges(sample("digits_cnn.ms"), key, ax)


def test_scales_over_depth(ax):
    model = sample("digits_cnn_u8.armnn")
    assert quantization.scales(model, ax) is ax
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    order = {layer: i for i, layer in enumerate(model.layers.index)}
    want = [
        (order[layer.index], model.tensors.scale[i])
        for layer in model.network.layers.values()
        for i in (*layer.outputs, *(i for i in layer.inputs if model.tensors.role[i] == "constant"))
        if model.tensors.dtype[i] == "uint8"
    ]
    np.testing.assert_allclose(sorted(map(tuple, points)), sorted(want), rtol=1e-6)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["outputs", "weights"]


def test_zero_points_are_shares_of_their_grids(ax):
    model = sample("digits_cnn_int8.ms")
    quantization.zero_points(model, ax)
    shares = {round(float(y), 6) for c in ax.collections for y in c.get_offsets()[:, 1]}
    q = model.quant[model.quant.bits == 8]
    quantized = model.tensors.index[model.tensors.quantized]
    want = {round((z + 128) / 255, 6) for z in q.zero_point[q.tensor.isin(quantized)]}
    assert shares == want


@pytest.mark.parametrize("draw", [quantization.scales, quantization.zero_points, quantization.levels])
def test_models_without_quantisation_say_so(ax, draw):
    for model in (sample("digits_cnn.ms"), EMPTY):
        assert "nothing is quantised" in draw(model, ax).get_title(loc="left")
        ax.clear()


def test_levels(ax):
    model = sample("digits_cnn_u8.armnn")
    quantization.levels(model, ax)
    table = stats(model).dropna(subset="levels_share")
    widths = [bar.get_width() for bar in ax.containers[1]]
    assert widths == table.levels_share.tolist()
    assert [bar.get_width() for bar in ax.containers[0]] == table.range_used.tolist()
    texts = [t.get_text() for t in ax.texts]
    assert texts == [f"{n} of 256" for n in table.levels]


def test_sqnr_bars_are_worst_first_and_coloured_by_the_limits(ax):
    pairs = compare_weights(sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn"))
    quantization.sqnr(pairs, ax=ax, good=45, bad=39)
    widths = [bar.get_width() for bar in ax.containers[0]]
    assert widths == pairs.sqnr_db.tolist()
    colours = [mpl.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.containers[0]]
    assert colours == [VERMILION if d < 39 else GREEN if d >= 45 else ORANGE for d in pairs.sqnr_db]
    marks = [t.get_text().endswith("!") for t in ax.texts]
    assert marks == (pairs.sqnr_db < 39).tolist()  # told apart without colours too


def test_sqnr_counts_what_it_does_not_show(ax):
    quantization.sqnr(sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms"), ax)
    assert len(ax.containers[0]) == 3
    assert "7 equal ones not shown" in ax.get_title(loc="left")
    ax.clear()
    many = pd.DataFrame({"name_a": [f"w{i}" for i in range(50)], "sqnr_db": np.arange(50.0)})
    quantization.sqnr(many, ax=ax)
    assert len(ax.containers[0]) == quantization.MAX_BARS
    assert "10 better ones" in ax.get_title(loc="left")


def test_what_if_lines(ax):
    table = what_if(sample("digits_cnn.ms"), (4, 8), (False, True), ("minmax", "mse"))
    assert quantization.what_if(table, ax) is ax
    assert len(ax.lines) == 4
    line = next(x for x in ax.lines if x.get_label() == "minmax, per channel")
    part = table[(table["clip"] == "minmax") & table.per_channel]
    want = [part[part.bits == b].bytes.sum() for b in (4, 8)]
    assert line.get_xdata().tolist() == want
    noise = [(10 ** (-part[part.bits == b].sqnr_db / 10)).sum() for b in (4, 8)]
    assert line.get_ydata().tolist() == pytest.approx((-10 * np.log10(noise)).tolist())
    assert [t.get_text() for t in ax.texts] == ["4 bits", "8 bits"]


def test_names_are_taken_literally(ax):
    model = sample("digits_cnn_wq4.ms")
    tensors = {i: replace(t, name=f"$\\frac{{$ {i}\n") for i, t in model.network.tensors.items()}
    network = replace(model.network, tensors=tensors)
    quantization.levels(network, ax)
    ax.figure.canvas.draw()
    assert all("\n" not in t.get_text() for t in ax.get_yticklabels())


def test_clipped_bars_are_red(ax):
    data = np.full((2, 100), 3, np.int8)
    data[0, :20] = 127
    q = ir.Quantization(np.ones(1), np.zeros(1, int), bits=8, symmetric=True)
    t = ir.Tensor(0, "w", 0, "constant", "int8", "", data.shape, data=data, quantization=q, quantized=True)
    weights(t, ax)
    red = [bar for bar in ax.containers[0] if mpl.colors.to_hex(bar.get_facecolor()).upper() == VERMILION]
    assert sum(bar.get_height() for bar in red) == 20
    assert "9.5% clipped" in ax.get_title(loc="left")
    ax.clear()
    data[0, 1:20] = 5
    weights(t, ax)
    assert "clipped" not in ax.get_title(loc="left")


def test_the_grid_is_drawn_under_the_bars(ax):
    model = sample("digits_cnn_wq4.ms")
    weights(model.network.tensors[model.tensors.index[model.tensors.name == "res.weight"][0]], ax)
    places = [segment[0][0] for segment in ax.collections[0].get_segments()]
    assert places == list(range(-8, 8))
