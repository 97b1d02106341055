"""Comparisons say where two runs part: twenty planted faults, both formats, traces, modes, layouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.blame import blame
from mlinspect.analysis.compare import compare
from mlinspect.analysis.layouts import best_layout, layouts

IMAGES = mi.samples.digits().images[:3, ..., None].astype(np.float32) / 16
Change = Callable[[ir.Network, str], ir.Network]  # a network and a layer's name -> one with a fault


def sample(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


@pytest.fixture(scope="module")
def opened(golden) -> Callable[[str], mi.Model]:
    """A bundled sample, or a network of the archives of both vendors."""

    def open_it(name: str) -> mi.Model:
        if name in mi.samples.names():
            return sample(name)
        archive = golden("armnn-nets.zip" if name.endswith(".armnn") else "mslite-nets.zip")
        return mi.open(archive.model(name))

    return open_it


def inputs_of(model: mi.Model) -> np.ndarray:
    shape = model.inputs["shape"].iloc[0]
    return IMAGES if shape == (1, 8, 8, 1) else np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


# --- faults -------------------------------------------------------------------------------------------------------


def layer_of(network: ir.Network, name: str) -> ir.Layer:
    return next(layer for layer in network.layers.values() if layer.name == name)


def with_layer(network: ir.Network, name: str, **changes: Any) -> ir.Network:
    old = layer_of(network, name)
    graph = network.graphs[0]
    layers = tuple(replace(layer, **changes) if layer is old else layer for layer in graph.layers)
    return replace(network, graphs=(replace(graph, layers=layers), *network.graphs[1:]))


def with_tensor(network: ir.Network, index: int, **changes: Any) -> ir.Network:
    return replace(network, tensors={**network.tensors, index: replace(network.tensors[index], **changes)})


def attrs(**changes: Any) -> Change:
    return lambda network, name: with_layer(network, name, attrs={**layer_of(network, name).attrs, **changes})


def constant(slot: int, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def apply(network: ir.Network, name: str) -> ir.Network:
        index = layer_of(network, name).inputs[slot]
        return with_tensor(network, index, data=np.ascontiguousarray(change(np.array(network.tensors[index].array))))

    return apply


def quantization(slot: int | None, **changes: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Of an operand, or of the output where slot is None."""

    def apply(network: ir.Network, name: str) -> ir.Network:
        layer = layer_of(network, name)
        index = layer.outputs[0] if slot is None else layer.inputs[slot]
        old = network.tensors[index].quantization
        assert old is not None
        new = replace(old, **{field: change(getattr(old, field)) for field, change in changes.items()})
        return with_tensor(network, index, quantization=new)

    return apply


def without(network: ir.Network, name: str) -> ir.Network:
    """The layer is gone; who read its output reads its input."""
    gone = layer_of(network, name)
    graph = network.graphs[0]
    layers = tuple(
        replace(layer, inputs=tuple(gone.inputs[0] if t == gone.outputs[0] else t for t in layer.inputs))
        for layer in graph.layers
        if layer is not gone
    )
    return replace(network, graphs=(replace(graph, layers=layers),))


def same_operand_twice(network: ir.Network, name: str) -> ir.Network:
    layer = layer_of(network, name)
    return with_layer(network, name, inputs=(layer.inputs[1], *layer.inputs[1:]))


def weights_exchanged_with(other: str) -> Change:
    def apply(network: ir.Network, name: str) -> ir.Network:
        a, b = layer_of(network, name).inputs[1], layer_of(network, other).inputs[1]
        first, second = network.tensors[a].array, network.tensors[b].array
        return with_tensor(with_tensor(network, a, data=second), b, data=first)

    return apply


def padding_swapped(network: ir.Network, name: str) -> ir.Network:
    old = layer_of(network, name).attrs
    assert old["padTop"] != old["padBottom"]
    return attrs(padTop=old["padBottom"], padBottom=old["padTop"])(network, name)


def average_pool(network: ir.Network, name: str) -> ir.Network:
    return with_layer(attrs(poolType="Average")(network, name), name, kind="average_pool2d")


def two_swapped(array: np.ndarray) -> np.ndarray:
    return array[[1, 0, *range(2, len(array))]]


def one_zeroed(array: np.ndarray) -> np.ndarray:
    array[3] = 0
    return array


def fourth_doubled(scale: np.ndarray) -> np.ndarray:
    return scale * np.where(np.arange(len(scale)) == 3, 2, 1)


CAST = "/res/Conv_dtype_cast_1_pre"
# model, layer that the fault is in, fault
FAULTS: dict[str, tuple[str, str, Change]] = {
    "zero point of weights off by one": (
        "digits_cnn_u8.armnn", "residual/conv", quantization(1, zero_point=lambda z: z + 1)),
    "zero point of int8 weights off by one": (
        "digits_cnn_int8.ms", "/res/Conv", quantization(1, zero_point=lambda z: z + 1)),
    "scale of per-channel weights x 2": ("ds_cnn_int8.armnn", "Conv2D:0:4", quantization(1, scale=lambda s: s * 2)),
    "scale of one channel x 2": ("ds_cnn_int8.ms", "CONV_2D-6", quantization(1, scale=fourth_doubled)),
    "clipped output": ("digits_cnn_u8.armnn", "residual/add", quantization(None, scale=lambda s: s / 4)),
    "clipped by a cast": ("digits_cnn_int8.ms", CAST, quantization(None, scale=lambda s: s / 4)),
    "scale of the input": ("digits_cnn_u8.armnn", "image", quantization(None, scale=lambda s: s / 2)),
    "two channels swapped": ("mobilenet_v1_f32.armnn", "Conv2D:0:6", constant(1, two_swapped)),
    "channels of the input reversed": ("digits_cnn.ms", "/pw/Conv", constant(1, lambda w: w[..., ::-1])),
    "stride changed, sizes no longer fit": ("digits_cnn.armnn", "residual/conv", attrs(strideX=2, strideY=2)),
    "stride of a pool changed": ("digits_cnn.ms", "/MaxPool", attrs(strides=(1, 1), pad_mode="PAD", pad=(0, 1, 0, 1))),
    "padding side swapped": ("ds_cnn_f32.armnn", "Conv2D:0:0", padding_swapped),
    "picture shifted by padding": ("digits_cnn.armnn", "block/depthwise", attrs(padLeft=2, padRight=0)),
    "bias dropped": ("digits_cnn.ms", "/head/Gemm", constant(2, lambda b: b * 0)),
    "bias of an int8 layer dropped": ("mobilenet_v1_int8.ms", "CONV_2D-11", constant(2, lambda b: b * 0)),
    "weights of one channel zeroed": ("digits_cnn.ms", "/res/Conv", constant(1, one_zeroed)),
    "activation layer removed": ("digits_cnn_u8.armnn", "stem/relu", without),
    "fused activation removed": ("digits_cnn.ms", "/dw/Conv", attrs(activation_type="NO_ACTIVATION")),
    "bound of an activation": ("digits_cnn.armnn", "block/pointwise/relu6", attrs(a=1.0)),
    "filter transposed": ("mobilenet_v1_f32.ms", "CONV_2D-0", constant(1, lambda w: w.transpose(0, 2, 1, 3))),
    "matrix the other way round": ("digits_cnn.armnn", "head", constant(1, lambda w: w.T.reshape(w.shape))),
    "average instead of maximum": ("digits_cnn.armnn", "block/pool", average_pool),
    "means of the normalisation lost": ("digits_cnn.armnn", "stem/bn", constant(1, lambda m: m * 0)),
    "weights of two layers exchanged": ("ds_cnn_int8.ms", "CONV_2D-2", weights_exchanged_with("CONV_2D-4")),
    "sum reads one operand twice": ("digits_cnn_wq4.ms", "/Add", same_operand_twice),
    "slope of the softmax": ("digits_cnn_u8.armnn", "probability", attrs(beta=2.0)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*are clipped:UserWarning")  # one fault is the scale of the input
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_named(opened, fault: str) -> None:
    name, layer, change = FAULTS[fault]
    model = opened(name)
    table = compare(model, mi.Model(change(model.network, layer)), inputs_of(model))
    first = table[table["first"]]
    assert layer in (*first.name_a, *first.name_b), table.sort_index()
    assert len(first) == 1
    assert first.divergent.all()
    before = table[table.index < first.index[0]]
    assert (before.sqnr_db == np.inf).all()


@pytest.mark.parametrize(
    "name", ["digits_cnn_u8.armnn", "digits_cnn_wq4.ms", "ds_cnn_int8.armnn", "mobilenet_v1_f32.ms"]
)
def test_a_model_agrees_with_itself(opened, name: str) -> None:
    model = opened(name)
    table = compare(model, model, inputs_of(model))
    assert (table.sqnr_db == np.inf).all()
    assert (table.equal == 1).all()
    assert not table.divergent.any()
    assert not table["first"].any()
    layers = [layer.index for layer in model.network.graphs[0].layers if layer.outputs and layer.kind != "input"]
    assert table.sort_index().layer_a.dropna().tolist() == layers


# --- the two formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ds_cnn_f32", "mobilenet_v1_f32"])
def test_every_convolution_of_the_two_formats_agrees(opened, name: str) -> None:
    a, b = opened(f"{name}.armnn"), opened(f"{name}.ms")
    table = compare(a, b, inputs_of(a))
    convolutions = table[table.kind.isin(["conv2d", "depthwise_conv2d"])]
    for model, column in ((a, "layer_a"), (b, "layer_b")):
        wanted = model.layers.index[model.layers.kind.isin(["conv2d", "depthwise_conv2d"])]
        assert sorted(convolutions[column]) == list(wanted)
    scale = np.sqrt(convolutions.mse * 10 ** (convolutions.sqnr_db / 10))  # root mean square of the reference
    assert (convolutions.max_abs <= 1e-5 * np.maximum(scale.fillna(0), 1)).all()
    assert not table.divergent.any()
    assert not table.matched.str.startswith("only").any()


@pytest.mark.parametrize("name", ["ds_cnn_int8", "mobilenet_v1_int8"])
def test_every_int8_convolution_of_the_two_formats_pairs_up(opened, name: str) -> None:
    a, b = opened(f"{name}.armnn"), opened(f"{name}.ms")
    table = compare(a, b, inputs_of(a))
    convolutions = table[table.kind.isin(["conv2d", "depthwise_conv2d"])]
    assert len(convolutions) == (b.layers.op == "Conv2DFusion").sum()
    assert (convolutions.sqnr_db > 40).all()
    assert not table.divergent.any()


def test_batch_norm_and_activations_are_folded_as_the_other_format_folds_them() -> None:
    table = compare(sample("digits_cnn.armnn"), sample("digits_cnn.ms"), IMAGES).sort_index()
    pairs = dict(zip(table.name_a, table.name_b, strict=True))
    assert pairs["stem"] == "/stem/Conv"
    assert pairs["residual/add"] == "/Add"
    assert pairs["head"] == "/head/Gemm"
    names = sample("digits_cnn.armnn").tensors.name
    assert [names[i] for i in table.tensor_a] == [
        "image", "stem/relu", "block/depthwise/relu6", "block/pointwise/relu6", "block/pool", "residual/conv",
        "residual/relu", "global_pool", "flatten", "head", "probability"]  # fmt: skip
    assert (table.sqnr_db > 120).all()


# --- operands -----------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_real_values() -> None:
    a, b = sample("digits_cnn.armnn"), sample("digits_cnn_u8.armnn")
    table = compare(a, b, IMAGES)
    assert table.sqnr_db.is_monotonic_increasing
    want, got = [], []
    for image in IMAGES:
        want.append(a.trace(image[None])["residual/add"])
        trace = b.trace(image[None], quantize=True)
        q = trace.network.tensors[
            next(i for i in trace if trace.network.tensors[i].name == "residual/add")
        ].quantization
        got.append((trace["residual/add"].astype(float) - q.zero_point[0]) * np.float32(q.scale[0]))
    want, got = np.stack(want).astype(float), np.stack(got)
    row = table.set_index("name_a").loc["residual/add"]
    noise = ((want - got) ** 2).sum()
    assert row.sqnr_db == pytest.approx(10 * np.log10((want**2).sum() / noise))
    assert row.mse == pytest.approx(noise / want.size)
    assert row.max_abs == pytest.approx(np.abs(want - got).max())
    assert row.cosine == pytest.approx((want * got).sum() / np.linalg.norm(want) / np.linalg.norm(got))
    assert row.equal == (want == got).mean()


@pytest.mark.parametrize("name", ["digits_cnn_u8.armnn", "digits_cnn_int8.ms"])
def test_modes_and_traces_are_operands(name: str) -> None:
    model = sample(name)
    by_mode = compare(model, "float", IMAGES[:1])
    assert by_mode.sqnr_db.between(20, 80).sum() >= 10
    assert not by_mode.divergent.any()
    traces = model.trace(IMAGES[:1], quantize=True), model.trace(IMAGES[:1], mode="float")
    for pair in (traces, (model, traces[1]), (traces[0], model)):
        modes = ("vendor", "float") if pair[1] is model else ("vendor", "vendor")
        got = compare(*pair, IMAGES[:1], modes=modes)
        pd.testing.assert_frame_equal(got, by_mode)
    assert compare(*traces).equals(by_mode)


def test_thresholds() -> None:
    a, b = sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms")
    assert not compare(a, b, IMAGES).divergent.any()
    table = compare(a, b, IMAGES, threshold_db=26)
    assert table[table["first"]].name_a.tolist() == ["/pw/Conv"]
    assert (table.divergent == (table.sqnr_db < 26)).all()
    assert set(compare(a, b, IMAGES).threshold_db) == {20}
    assert set(compare(a, a, IMAGES).threshold_db) == {60}
    assert set(compare(*[sample("digits_cnn_u8.armnn")] * 2, IMAGES).threshold_db) == {40}
    # weights alike, activations in float32 here and in int8 there: whichever comes first
    packed, stored = sample("digits_cnn_wq8.ms"), sample("digits_cnn_int8.ms")
    for one, other in ((packed, stored), (stored, packed)):
        assert set(compare(one, other, IMAGES).threshold_db) == {20}


def test_what_cannot_be_compared_is_said() -> None:
    model = sample("digits_cnn.ms")
    with pytest.raises(mi.InputError, match="give inputs"):
        compare(model, model)
    with pytest.raises(mi.InputError, match="'exact' is no mode"):
        compare(model, "exact", IMAGES)
    with pytest.raises(mi.InputError, match=r"'net.ms' is no mode.*mlinspect.open"):
        compare(model, "net.ms", IMAGES)
    with pytest.raises(mi.InputError, match="threshold_db='20 dB' is no number of decibels"):
        compare(model, "float", IMAGES, threshold_db="20 dB")
    for modes in ("float", ("vendor",), ("vendor", "exact")):
        with pytest.raises(mi.InputError, match="is no pair of 'vendor' and 'float'"):
            compare(model, model, IMAGES, modes=modes)
    with pytest.raises(mi.InputError, match="wants shape"):
        compare(model, model, IMAGES[:, :4])
    with pytest.raises(mi.InputError, match="no input 'nobody'"):
        compare(model, model, {"nobody": IMAGES})


def test_a_layer_that_fails_is_where_they_part() -> None:
    model = sample("digits_cnn.armnn")
    broken = mi.Model(attrs(strideX=2, strideY=2)(model.network, "residual/conv"))
    table = compare(model, broken, IMAGES).sort_index()
    assert table[table["first"]].name_a.tolist() == ["residual/conv"]
    failed = table[table.note.str.contains("failed on")]
    assert failed.name_a.tolist() == ["residual/add"]
    assert failed.divergent.all()
    assert table[table.name_a == "head"].note.iloc[0] == "not computed in b"


# --- layouts ------------------------------------------------------------------------------------------------------


def conv_net(layout: str) -> ir.Network:
    """A convolution and an activation in Arm NN, NHWC or NCHW."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(5, 3, 3, 2)).astype(np.float32)
    order = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)

    def shaped(*nhwc: int) -> tuple[int, ...]:
        return tuple(nhwc[i] for i in order)

    def tensor(index: int, shape: tuple[int, ...], **more: Any) -> ir.Tensor:
        role = "constant" if "data" in more else "activation"
        return ir.Tensor(index, f"t{index}", 0, role, "float32", "Float32", shape, **more)

    data = np.ascontiguousarray(weights.transpose(order))
    tensors = [
        tensor(0, shaped(1, 6, 7, 2)),
        tensor(1, data.shape, data=data, layout="OHWI" if layout == "NHWC" else "OIHW"),
        tensor(2, shaped(1, 4, 5, 5)),
        tensor(3, shaped(1, 4, 5, 5)),
    ]
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 0)
    conv = {
        **pads,
        "strideX": 1,
        "strideY": 1,
        "dilationX": 1,
        "dilationY": 1,
        "biasEnabled": False,
        "dataLayout": layout,
    }
    layers = (
        ir.Layer(0, "conv", "Convolution2d", "conv2d", 0, conv, (0, 1), (2,), ("weights",)),
        ir.Layer(
            1, "act", "Activation", "activation", 0, {"activationFunction": "ReLu", "a": 0.0, "b": 0.0}, (2,), (3,)
        ),
    )
    graph = ir.Graph(0, "", (ir.Port("x", 0, 0),), (ir.Port("y", 3, 0),), layers)
    return ir.Network("armnn", "", "", (graph,), {t.index: t for t in tensors})


def test_another_layout_is_said_and_is_no_error() -> None:
    a, b = mi.Model(conv_net("NHWC")), mi.Model(conv_net("NCHW"))
    image = np.random.default_rng(2).normal(size=(2, 6, 7, 2)).astype(np.float32)
    table = compare(a, b, image).sort_index()
    assert not table.divergent.any()
    assert (table.sqnr_db > 100).all()
    assert set(table.note) == {"layout: NCHW against NHWC"}
    assert table.shape_b.tolist() == [(1, 2, 6, 7), (1, 5, 4, 5), (1, 5, 4, 5)]


@pytest.mark.parametrize(
    ("order", "shape", "note"),
    [
        ((0, 1, 2, 3), (2, 3, 4, 5), ""),
        ((0, 3, 1, 2), (2, 5, 3, 4), "NCHW against NHWC"),
        ((0, 1, 2, 3), (2, 60), "shape"),
        ((0, 3, 1, 2), (2, 60), "shape, and NCHW against NHWC"),
        ((0, 1, 2, 3), (2, 3, 1, 4, 5), "shape"),
    ],
)
def test_layouts_are_recognised_and_undone(order: tuple[int, ...], shape: tuple[int, ...], note: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    other = x.transpose(order).reshape(shape)
    layout = best_layout(other, x)
    assert layout is not None
    assert layout.note == note
    np.testing.assert_array_equal(layout.apply(other), x)
    np.testing.assert_array_equal(layout.undo(x, other.shape), other)


def test_turned_pictures_are_no_layout() -> None:
    x = np.random.default_rng(0).normal(size=(1, 8, 8, 3))
    assert [layout.note for layout in layouts((1, 8, 8, 3), (1, 8, 8, 3))] == [""]
    assert best_layout(x.transpose(0, 2, 1, 3), x).note == ""
    assert best_layout(x[..., :2], x) is None


# --- ports --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
def test_a_layer_missing_at_the_end_is_where_they_part(side: int) -> None:
    pair = [sample("digits_cnn.armnn"), sample("digits_cnn.ms")]
    last = ("probability", "/Softmax")
    pair[side] = pair[side].without(last[side])
    table = compare(*pair, IMAGES)
    first = table[table["first"]].iloc[0]
    assert first.matched == "output"
    assert last[1 - side] in (first.name_a, first.name_b)
    assert table.divergent.sum() == 1


def difference(vendor: Any, op: str, turned: bool) -> mi.Model:
    """p - q and p + q, with inputs and outputs in either order."""
    net = vendor()
    for name in ("q", "p") if turned else ("p", "q"):
        net = net.input(name, (1, 4))
    add, sub = ("Addition", "Subtraction") if op == "armnn" else ("AddFusion", "SubFusion")
    net = net.layer(sub, f"{op} less", "p", "q").layer(add, f"{op} more", "p", "q")
    ends = [("less", f"{op} less"), ("more", f"{op} more")]
    for name, tensor in reversed(ends) if turned else ends:
        net = net.output(name, tensor)
    return net.model()


@pytest.mark.parametrize("turned", [False, True])
def test_inputs_and_outputs_go_by_name(turned: bool) -> None:
    a, b = difference(mi.build.armnn, "armnn", False), difference(mi.build.mslite, "mslite", turned)
    p, q = np.float32([[1, 2, 3, 4]]), np.float32([[5, 7, 9, 1]])
    for inputs in ([p, q], {"q": q, "p": p}):
        table = compare(a, b, inputs)
        assert (table.sqnr_db == np.inf).all()
        pairs = dict(zip(table.name_a, table.name_b, strict=True))
        assert pairs == {"p": "p", "q": "q", "armnn less": "mslite less", "armnn more": "mslite more"}
        assert (mi.blame(a, b, inputs, progress=False).mse == 0).all()


# --- activations in the range of what is stored -------------------------------------------------------------------


@pytest.mark.parametrize(("net", "layers"), [("ds_cnn", 13), ("mobilenet_v1", 31)])
def test_layers_stored_in_the_range_of_their_relu_are_judged_behind_it(opened, golden, net: str, layers: int) -> None:
    """As TensorFlow Lite makes them: the int8 convolution clips what the float one still gives."""
    a, b = opened(f"{net}_f32.armnn"), opened(f"{net}_int8.armnn")
    arrays = golden("armnn-nets.zip").arrays(f"{net}_f32.npz")
    image = next(array for name, array in arrays.items() if name.startswith("in_"))
    table = compare(a, b, image).sort_index()
    assert len(table) == layers
    assert not table.divergent.any()
    assert (table.sqnr_db > 38).all()
    behind = table[table.note.str.startswith("behind")]
    assert set(a.layers.name[a.layers.kind == "activation"]) == {
        name for note in behind.note for name in note.removeprefix("behind ").replace("'", "").split(", ")
    } & set(a.layers.name)
    # the same the other way round, and against the model's own float mode, which does not clip
    assert not compare(b, a, image).divergent.any()
    assert not compare(b, "float", image).divergent.any()


STORED_IN_RANGE: dict[str, Change] = {
    "scale of the weights": quantization(1, scale=lambda s: s * 2),
    "bias dropped": constant(2, lambda b: b * 0),
    "scale of the output": quantization(None, scale=lambda s: s / 4),
    "activation": lambda network, name: quantization(None, scale=lambda s: s / 4)(network, f"{name}:RELU"),
}


@pytest.mark.parametrize("layer", ["Conv2D:0:0", "DepthwiseConv2D:0:7"])
@pytest.mark.parametrize("fault", STORED_IN_RANGE)
def test_faults_in_layers_stored_in_the_range_of_their_relu_are_found(opened, fault: str, layer: str) -> None:
    a, good = opened("ds_cnn_f32.armnn"), opened("ds_cnn_int8.armnn")
    broken = mi.Model(STORED_IN_RANGE[fault](good.network, layer))
    table = compare(a, broken, inputs_of(a))
    assert table[table["first"]].name_a.tolist() == [layer], table.sort_index()
    blamed = blame(broken, a, inputs_of(a), shares=False, progress=False)
    assert blamed.name[blamed.own_db.idxmin()] == layer
    assert f"{layer}:RELU" in blamed.folded[blamed.own_db.idxmin()]
