"""Layers of two networks paired by name, weights and structure; inputs split into samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.compare import compare
from mlinspect.analysis.errormaps import error_channels
from mlinspect.analysis.match import match
from mlinspect.analysis.samples import split
from mlinspect.execute import registry

IMAGES = mi.samples.digits().images[:3, ..., None].astype(np.float32) / 16


def sample(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


def chain(*kinds: tuple[str, str], shape: tuple[int, ...] = (1, 4, 4, 2)) -> ir.Network:
    layers = tuple(ir.Layer(i, name, kind, kind, 0, {}, (i,), (i + 1,)) for i, (name, kind) in enumerate(kinds))
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "", shape) for i in range(len(kinds) + 1)}
    ends = (ir.Port("x", 0),), (ir.Port("y", len(kinds)),)
    return ir.Network("mslite", "", "", (ir.Graph(0, "", *ends, layers),), tensors)


def names(a: ir.Network, b: ir.Network) -> list[tuple[str, str, str]]:
    return [
        (a.layers[p.layer_a].name, b.layers[p.layer_b].name, p.matched) for p in match(a, b) if p.layer_a is not None
    ]


def test_names_first_then_order() -> None:
    a = chain(("c1", "conv2d"), ("r1", "activation"), ("c2", "conv2d"), ("s", "softmax"))
    b = chain(("x", "quantize"), ("k1", "conv2d"), ("r1", "activation"), ("k2", "conv2d"), ("soft", "softmax"))
    assert names(a, b) == [
        ("c1", "k1", "structure"),
        ("r1", "r1", "name"),
        ("c2", "k2", "structure"),
        ("s", "soft", "structure"),
    ]


def test_repeated_and_empty_names_are_paired_in_order_or_not_at_all() -> None:
    a = chain(("n", "conv2d"), ("", "activation"), ("n", "conv2d"))
    assert names(a, a) == [("n", "n", "name"), ("", "", "structure"), ("n", "n", "name")]
    b = chain(("n", "conv2d"), ("m", "softmax"))
    assert names(a, b) == [("n", "n", "structure")]


def test_renamed_layers_are_paired_by_weights_and_operands() -> None:
    network = sample("digits_cnn_u8.armnn").network
    graph = network.graphs[0]
    layers = tuple(replace(layer, name=f"n{layer.index}") for layer in graph.layers)
    tensors = {i: replace(tensor, name=f"t{i}") for i, tensor in network.tensors.items()}
    points = match(network, replace(network, graphs=(replace(graph, layers=layers),), tensors=tensors))
    assert [(p.a, p.b) for p in points] == [(t, t) for layer in graph.layers for t in layer.outputs]
    assert [p.matched for p in points].count("weights") == 5


def test_branches_in_another_order_are_paired_by_what_they_read() -> None:
    def branching(names: dict[str, str], order: tuple[str, ...]) -> ir.Network:
        """x -> stem -> (left: softmax, right: tanh) -> sum of both; layers called and ordered as given."""
        parts = {
            "stem": ("conv2d", (0,), 1), "left": ("softmax", (1,), 2), "right": ("tanh", (1,), 3),
            "left2": ("exp", (2,), 4), "right2": ("exp", (3,), 5), "sum": ("add", (4, 5), 6),
        }  # fmt: skip
        layers = tuple(
            ir.Layer(i, names.get(part, part), parts[part][0], parts[part][0], 0, {}, parts[part][1], (parts[part][2],))
            for i, part in enumerate(order)
        )
        tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "", (1, 4)) for i in range(7)}
        graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 6),), layers)
        return ir.Network("mslite", "", "", (graph,), tensors)

    other_names = {"stem": "A", "left": "B", "right": "C", "left2": "D", "right2": "E", "sum": "F"}
    a = branching({}, ("stem", "left", "left2", "right", "right2", "sum"))
    b = branching(other_names, ("stem", "right", "right2", "left", "left2", "sum"))
    assert [(one, other) for one, other, _ in names(a, b)] == list(other_names_in(a, other_names))


def other_names_in(network: ir.Network, other: dict[str, str]) -> list[tuple[str, str]]:
    return [(layer.name, other[layer.name]) for layer in network.graphs[0].layers]


def test_a_real_network_in_both_formats(models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches stand in another order, PReLU is a StandIn in one of the two."""
    monkeypatch.setitem(registry.OPS, "armnn", dict(registry.operators("armnn")))

    @mi.register_op("armnn", "StandIn")
    def prelu(call, x, slope):
        return np.where(x < 0, x * slope, x)

    a, b = mi.open(models / "face_landmark.armnn"), mi.open(models / "face_landmark_fp32.ms")
    image = np.random.default_rng(0).uniform(0, 1, a.inputs["shape"].iloc[0]).astype(np.float32)
    table = compare(a, b, image)
    assert not table.divergent.any()
    assert (table.sqnr_db.dropna() > 100).all()
    assert len(table.layer_b.dropna()) == len(b.layers)
    assert "StandIn:0:1:6" in set(table[table.name_b == "PRELU-1"].name_a)


def test_what_stands_for_anything_is_not_paired_with_a_cast() -> None:
    a = chain(("c", "conv2d"), ("s", "stand_in"), ("d", "conv2d"))
    b = chain(("c", "conv2d"), ("x", "dequantize"), ("p", "prelu"), ("y", "quantize"), ("d", "conv2d"))
    assert names(a, b) == [("c", "c", "name"), ("s", "p", "structure"), ("d", "d", "name")]
    assert ("s", "c2", "structure") not in names(a, chain(("c", "conv2d"), ("c2", "cast"), ("d", "conv2d")))
    turned = [(other, one) for one, other, _ in names(b, a)]
    assert turned == [(one, other) for one, other, _ in names(a, b)]


def relu_net(
    quantized: bool, function: str = "ReLu", zero_point: int = 0, relu: bool = True, **bounds: float
) -> ir.Network:
    """x -> dense -> relu -> tanh -> y; quantised, with the dense layer's zero point as given."""
    coding = {"scale": 1 / 16, "dtype": "uint8"} if quantized else {}
    net = mi.build.armnn().input(
        "x", (1, 4), "uint8" if quantized else "float32", **coding and {"scale": 1 / 16, "zero_point": 128}
    )
    weights = np.eye(4, dtype=np.float32)
    if quantized:
        weights = mi.build.quantized((weights * 16).astype(np.uint8), 1 / 16)
    net = net.layer("FullyConnected", "dense", weights=weights, **coding and coding | {"zero_point": zero_point})
    if relu:
        net = net.layer("Activation", "relu", activationFunction=function, **bounds, **coding)
    return (
        net.layer("Activation", "tanh", activationFunction="TanH", a=1.0, b=1.0, **coding).output("y").model().network
    )


VENDOR = ("vendor", "vendor")


@pytest.mark.parametrize(
    ("changes", "folded"),
    [
        ({}, True),
        ({"function": "BoundedReLu", "a": 6.0, "b": 0.0}, True),
        ({"function": "BoundedReLu", "a": 1.0, "b": -1.0, "zero_point": 16}, True),
        ({"zero_point": 3}, True),  # a few steps below what the ReLU gives are no range for a convolution
        ({"zero_point": 100}, False),
        ({"function": "BoundedReLu", "a": 1.0, "b": -1.0, "zero_point": 100}, False),
        ({"function": "LeakyReLu", "a": 0.1}, False),
    ],
)
def test_an_activation_in_a_stored_range_is_folded(changes: dict, folded: bool) -> None:
    a, b = relu_net(False, **{**changes, "zero_point": 0}), relu_net(True, **changes)
    for one, other, modes in ((a, b, VENDOR), (b, a, VENDOR), (b, b, ("vendor", "float")), (b, b, ("float", "vendor"))):
        points = match(one, other, modes)
        assert len(points) == (3 if folded else 4)
        dense = points[1]
        assert (one.layers[dense.layer_a].name, other.layers[dense.layer_b].name) == ("dense", "dense")
        assert one.tensors[dense.a].name == other.tensors[dense.b].name == ("relu" if folded else "dense")
        assert [len(layers) for layers in dense.folded] == ([1, 1] if folded else [0, 0])
    # where both clip, or neither, each layer is a pair of its own
    for pair in ((a, a, VENDOR), (b, b, VENDOR), (a, b)):
        assert len(match(*pair)) == 4


def test_the_activation_may_be_missing_where_the_range_does_its_work() -> None:
    a, b = relu_net(False), relu_net(True, relu=False)
    _, dense, _ = match(a, b, VENDOR)
    assert (a.tensors[dense.a].name, b.tensors[dense.b].name, dense.folded[1]) == ("relu", "dense", ())
    x = np.float32([[-1, -0.5, 0.5, 1]])
    assert not compare(mi.Model(a), mi.Model(b), x).divergent.any()


def test_error_maps_take_the_names_of_layers_judged_with_another() -> None:
    models = mi.Model(relu_net(False)), mi.Model(relu_net(True))
    x = np.float32([[-1, -0.52, 0.52, 1]])
    tables = [error_channels(*models, name, x) for name in ("dense", "relu")]
    pd.testing.assert_frame_equal(*tables)
    assert (tables[0].max_abs > 0).tolist() == [False, False, True, False]


def test_a_tensor_that_others_read_is_judged_before_the_activation() -> None:
    def with_output(network: ir.Network) -> ir.Network:
        graph = network.graphs[0]
        dense = next(layer for layer in graph.layers if layer.name == "dense")
        return replace(network, graphs=(replace(graph, outputs=(*graph.outputs, ir.Port("z", dense.outputs[0]))),))

    a, b = with_output(relu_net(False)), with_output(relu_net(True))
    assert [len(p.folded[0]) for p in match(a, b, VENDOR)] == [0, 0, 0, 0]


def test_layers_of_another_size_are_not_paired_by_structure() -> None:
    assert names(chain(("a", "conv2d")), chain(("b", "conv2d"), shape=(1, 9, 9, 2))) == []


def test_samples_of_every_form() -> None:
    network = sample("digits_cnn_u8.armnn").network
    for form in (
        IMAGES,
        {"image": IMAGES},
        {0: IMAGES},
        [IMAGES],
        list(np.split(IMAGES, 3)),
        [{"image": IMAGES[:2]}, [IMAGES[2:]]],
    ):
        found = split(network, form)
        assert [s[0].shape for s in found] == [(1, 8, 8, 1)] * 3
        np.testing.assert_array_equal(np.concatenate([s[0] for s in found]), IMAGES)
    stored = np.full((1, 8, 8, 1), 51, np.uint8)
    q = network.tensors[network.graphs[0].inputs[0].tensor].quantization
    np.testing.assert_allclose(split(network, stored)[0][0], (51 - q.zero_point[0]) * q.scale[0], rtol=1e-6)
