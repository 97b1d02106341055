"""The graph: layers ranked and apart, every edge drawn, legible up to 100 layers, in blocks above."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.rule import SUMS
from mlinspect.plot.graph import MAX_NODES, blocks, graph, layout
from mlinspect.plot.style import FAMILY_COLOURS

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    _, axes = plt.subplots()
    yield axes
    plt.close("all")


def sample(name):
    return mi.open(mi.samples.path(name))


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 25))
    edges = [(a, b) for b in range(count) for a in range(b) if draw(st.integers(0, 3)) == 0]
    return count, edges


@settings(derandomize=True, deadline=None, max_examples=40)
@given(graphs())
def test_edges_fall_and_nothing_lies_on_nothing(made):
    count, edges = made
    places, routes = layout(count, edges)
    assert places.shape == (count, 2)
    assert len(routes) == len(edges)
    for (a, b), route in zip(edges, routes, strict=True):
        assert places[a][1] > places[b][1]
        np.testing.assert_array_equal(route[[0, -1]], places[[a, b]])
        assert (np.diff(route[:, 1]) < 0).all()
    for i in range(count):
        apart = np.abs(places - places[i])
        near = (apart[:, 1] < 0.9) & (apart[:, 0] < 0.9)
        assert near.sum() == 1
        passing = [
            point for (a, b), route in zip(edges, routes, strict=True) if i not in (a, b) for point in route[1:-1]
        ]
        assert all(abs(p[1] - places[i][1]) > 0.5 or abs(p[0] - places[i][0]) > 0.4 for p in passing)


def test_circles_are_refused():
    with pytest.raises(ValueError, match="order of execution"):
        layout(2, [(1, 0)])


def test_digits_have_a_node_a_layer_and_an_edge_a_connection(ax):
    model = sample("digits_cnn.ms")
    assert graph(model, ax=ax) is ax
    names = [t.get_text() for t in ax.texts]
    assert len(names) == len(model.layers) + 2
    nodes, edges = blocks(model.network)
    assert [node.kind for node in nodes] == ["input", *model.layers.kind, "output"]
    flowing = model.edges[model.tensors.role.reindex(model.edges.tensor).ne("constant").to_numpy()]
    assert len(edges) == len(flowing) + 1
    assert len(ax.collections[0].get_paths()) == len(edges)
    colours = {mpl.colors.to_hex(p.get_facecolor()).upper() for p in ax.patches}
    assert FAMILY_COLOURS["convolution"].upper() in colours


def test_arm_networks_draw_their_own_ends(ax):
    model = sample("digits_cnn.armnn")
    nodes, edges = blocks(model.network)
    assert len(nodes) == len(model.layers)
    assert len(edges) == len(model.layers)  # a chain with one detour


def chain(count, heavy_every=3, skip=0):
    """A chain of layers, every so many a convolution, with additions that reach back over `skip` layers."""
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "", (1,)) for i in range(count + 1)}
    layers = []
    for i in range(count):
        back = (i - skip,) if skip and i > skip and i % skip == 0 else ()
        kind = "add" if back else "conv2d" if i % heavy_every == 0 else "activation"
        layers.append(ir.Layer(i, f"l{i}", kind, kind, 0, {}, (i, *back), (i + 1,)))
    main = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", count),), tuple(layers))
    return ir.Network("mslite", "", "", (main,), tensors)


@pytest.mark.parametrize("network", [chain(101), chain(400), chain(1000, 2, 10), chain(3000, 1)])
def test_large_graphs_are_summarised_by_block(network):
    nodes, edges = blocks(network)
    assert len(nodes) <= MAX_NODES
    drawn = sorted(i for node in nodes for i in node.layers)
    assert drawn == list(range(len(network.layers)))
    assert all(a < b for a, b in edges)
    owner = {i: n for n, node in enumerate(nodes) for i in node.layers}
    for layer in network.layers.values():
        for tensor in layer.inputs:
            before = owner.get(tensor - 1)
            assert tensor == 0 or before == owner[layer.index] or (before, owner[layer.index]) in edges


def test_blocks_begin_with_what_is_heavy():
    nodes, _ = blocks(chain(150))
    inner = [node for node in nodes if len(node.layers) > 1]
    assert all(node.kind in SUMS for node in inner)
    assert inner[1].name == "l3 +2"


def test_few_layers_are_not_summarised():
    nodes, _ = blocks(chain(MAX_NODES))
    assert len(nodes) == MAX_NODES + 2
    assert len(blocks(chain(30), max_nodes=10)[0]) <= 10


@pytest.mark.parametrize(
    "name", ["ssd_mobilenet_v3_small_coco_2019_08_14.armnn", "ppocr_cls_int8.ms", "xiaoyi_train_codegen.ms"]
)
def test_real_models_fit(models, name):
    nodes, edges = blocks(mi.open(models / name).network)
    assert 10 < len(nodes) <= MAX_NODES
    layout(len(nodes), edges)


def test_a_hundred_layers_are_legible():
    axes = graph(chain(98, skip=7))
    axes.figure.canvas.draw()
    sizes = [t.get_fontsize() for t in axes.texts]
    assert min(sizes) >= 6
    boxes = [t.get_window_extent() for t in axes.texts]
    patches = [p.get_window_extent() for p in axes.patches]
    assert all(b.width <= p.width + 2 for b, p in zip(boxes, patches, strict=True))
    plt.close(axes.figure)


def test_colours_by_a_column_by_costs_and_by_the_users_numbers(ax):
    model = sample("digits_cnn_int8.ms")
    graph(model, "dtype", ax)
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"int8", "float32"}
    plt.close("all")
    axes = graph(model, "macs")
    bar = axes.figure.axes[1]
    assert bar.get_ylabel() == "macs"
    assert bar.get_ylim() == (0, model.layers.macs.max())
    values = pd.Series({3: 1.0, 7: 5.0}, name="sqnr_db")
    axes = graph(model, values)
    assert axes.figure.axes[1].get_ylim() == (1, 5)
    plt.close("all")
    with pytest.raises(ValueError, match="have a column 'x'"):
        graph(model, "x")


def test_odd_networks(ax):
    empty = ir.Network("mslite", "", "", (), {})
    assert graph(empty, ax=ax) is ax
    ax.clear()
    alone = ir.Graph(0, "$", (), (), (ir.Layer(0, "$\\frac{$", "A", "a", 0, {}, (), ()),))
    graph(replace(empty, graphs=(alone,)), ax=ax)
    ax.figure.canvas.draw()
    plt.close("all")
    graph(replace(empty, graphs=(alone,)), color={0: "word"})


@pytest.mark.parametrize("none", [np.nan, pd.NA])
def test_values_of_no_layer_are_left_out(ax, none):
    model = sample("digits_cnn.ms")
    graph(model, pd.Series([1.0, 2.0, 9.0], index=pd.Index([0, 1, none], dtype=object), name="dB"), ax)
    assert ax.figure.axes[1].get_ylim() == (1.0, 2.0)


@pytest.mark.parametrize(
    ("color", "message"), [(5, "not 5"), ({"/Add": 1}, "not by '/Add'"), ({0.5: 1}, r"not by 0\.5")]
)
def test_values_that_do_not_go_by_layer_are_refused(ax, color, message):
    with pytest.raises(mi.InputError, match=message):
        graph(sample("digits_cnn.ms"), color, ax)
