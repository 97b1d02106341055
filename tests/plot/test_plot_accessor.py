"""The accessor hands a model to every plot."""

import matplotlib as mpl
import pytest

import mlinspect as mi
from mlinspect.plot.accessor import PlotAccessor

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

CALLS = [
    ("weights", ("res.weight",)),
    ("weights", ("/res/Conv",)),
    ("channel_ranges", ("/res/Conv",)),
    ("scales", ()),
    ("zero_points", ()),
    ("levels", ()),
    ("cost", ("params",)),
    ("memory", ()),
    ("graph", ()),
]


@pytest.fixture
def ax():
    _, axes = plt.subplots()
    yield axes
    plt.close("all")


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_methods_draw_into_the_given_axes(ax, name, arguments):
    plot = PlotAccessor(mi.open(mi.samples.path("digits_cnn_wq4.ms")))
    assert getattr(plot, name)(*arguments, ax=ax) is ax
    assert ax.has_data() or ax.patches
    ax.figure.canvas.draw()


def test_sqnr_takes_the_reference(ax):
    a, b = (mi.open(mi.samples.path(name)) for name in ("digits_cnn.ms", "digits_cnn_wq4.ms"))
    assert PlotAccessor(b).sqnr(a, ax=ax) is ax
    assert len(ax.containers[0]) == 3


def test_a_layers_name_stands_for_its_weights(ax):
    plot = PlotAccessor(mi.open(mi.samples.path("digits_cnn_u8.armnn")))
    plot.weights("stem", ax)
    assert ax.get_title(loc="left").startswith("stem/weights")
    with pytest.raises(KeyError, match="no tensor is called"):
        plot.weights("nowhere", ax)
    with pytest.raises(ValueError, match="not a constant"):
        plot.weights("image", ax)


def test_repr_names_the_plots():
    assert "memory" in repr(PlotAccessor(None))


@pytest.mark.parametrize("name", ["levels", "scales", "zero_points", "memory"])
def test_what_is_no_axes_is_refused_in_words(name):
    plot = PlotAccessor(mi.open(mi.samples.path("digits_cnn_wq4.ms")))
    with pytest.raises(mi.InputError, match=r"ax is the matplotlib Axes .* not int: .* take no tensor"):
        getattr(plot, name)(15)


def test_limits_are_numbers(ax):
    model = mi.open(mi.samples.path("digits_cnn_wq4.ms"))
    with pytest.raises(mi.InputError, match="good='40 dB' and bad=20 are to be numbers"):
        model.plot.sqnr(mi.open(mi.samples.path("digits_cnn.ms")), ax, "40 dB")
    with pytest.raises(mi.InputError, match="max_nodes='a' is no number"):
        model.plot.graph(ax=ax, max_nodes="a")
