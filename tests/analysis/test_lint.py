"""Lint: each rule has a model with the fault and one without; bundled and vendor-run models are clean."""

from dataclasses import replace

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS
from mlinspect.analysis.lint import annotations, lint, rules, worst
from mlinspect.analysis.rule import RULES, SEVERITIES, rule
from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema

RNG = np.random.default_rng(4)
ONE = np.ones((), np.int32)
X, W, B, C, D, E, Y, S, J, OUT = range(
    10
)  # tensors: input, conv (weights, bias, output), depthwise (same), softmax, ...
CONV, DEPTHWISE, CONCAT, SOFTMAX = range(4)


def q(scale, zero_point=0, axis=None, bits=8):
    scale = np.atleast_1d(np.asarray(scale, np.float64))
    zero_point = np.broadcast_to(np.int64(zero_point), scale.shape).copy()
    return ir.Quantization(scale, zero_point, axis, bits, not zero_point.any())


def flow(index, name, shape, quantization, role="activation", dtype="int8"):
    return ir.Tensor(index, name, 0, role, dtype, dtype, shape, "NHWC", None, quantization, quantization is not None)


def stored(index, name, data, quantization, layout=None):
    dtype = str(data.dtype)
    known = quantization is not None
    return ir.Tensor(
        index, name, 0, "constant", dtype, dtype, data.shape, layout, data, quantization, known, nbytes=data.nbytes
    )


def full_range(shape):
    """8-bit weights that reach both ends of the grid in every channel."""
    w = RNG.integers(-120, 121, shape).astype(np.int8)
    w.reshape(shape[0], -1)[:, 0], w.reshape(shape[0], -1)[:, 1] = 127, -127
    return w


def quantised(fmt="mslite"):
    """input -> convolution (per channel), ReLU -> depthwise (per tensor) -> concatenation of both -> softmax."""
    act = q(0.05, -128)
    scales = RNG.uniform(0.01, 0.02, 8)
    flag = {"quantType": "QUANT_ALL"} if fmt == "mslite" else {}
    weights = full_range((8, 3, 3, 4))
    depthwise = full_range((8, 3, 3, 1)) if fmt == "mslite" else full_range((8, 1, 3, 3)).swapaxes(0, 1)
    tensors = [
        flow(X, "x", (1, 8, 8, 4), q(0.02, 3), "input"),
        stored(W, "conv/weights", weights, q(scales, axis=0), "OHWI"),
        stored(B, "conv/bias", RNG.integers(-999, 999, 8).astype(np.int32), q(0.02 * scales, axis=0, bits=32)),
        flow(C, "conv", (1, 8, 8, 8), act),
        stored(D, "dw/weights", depthwise, q(0.01), "MIHW" if fmt == "armnn" else "NHWC"),
        stored(E, "dw/bias", RNG.integers(-999, 999, 8).astype(np.int32), q(0.05 * 0.01, bits=32)),
        flow(Y, "dw", (1, 8, 8, 8), act),
        flow(J, "concat", (1, 8, 8, 16), act),
        flow(OUT, "out", (1, 8, 8, 16), q(1 / 256, -128), "output"),
    ]
    op = {"mslite": ("Conv2DFusion", "Conv2DFusion", "Concat", "Softmax")}.get(
        fmt, ("Convolution2d", "DepthwiseConvolution2d", "Concat", "Softmax")
    )
    relu = {"activation_type": "RELU"} if fmt == "mslite" else {}
    layers = (
        ir.Layer(CONV, "conv", op[0], "conv2d", 0, relu, (X, W, B), (C,), meta=flag),
        ir.Layer(DEPTHWISE, "dw", op[1], "depthwise_conv2d", 0, {}, (C, D, E), (Y,), meta=flag),
        ir.Layer(CONCAT, "concat", op[2], "concat", 0, {}, (C, Y), (J,), meta=flag),
        ir.Layer(SOFTMAX, "softmax", op[3], "softmax", 0, {}, (J,), (OUT,), meta=flag),
    )
    graph = ir.Graph(0, "", (ir.Port("x", X),), (ir.Port("out", OUT),), layers)
    return ir.Network(fmt, "", "", (graph,), {t.index: t for t in tensors})


def edit(network, tensor=None, layer=None, ports=None, add=(), more_layers=(), **changes):
    """The network with one tensor, one layer, or its ports changed, and some more of both."""
    tensors, graph = dict(network.tensors), network.graphs[0]
    if tensor is not None:
        tensors[tensor] = replace(tensors[tensor], **changes)
    if layer is not None:
        graph = replace(graph, layers=tuple(replace(x, **changes) if x.index == layer else x for x in graph.layers))
    if ports is not None:
        graph = replace(graph, **ports)
    tensors |= {t.index: t for t in add}
    graph = replace(graph, layers=graph.layers + tuple(more_layers))
    return replace(network, graphs=(graph,), tensors=tensors)


def data(network, tensor, change):
    """The network with a constant's numbers changed in place of a copy."""
    array = network.tensors[tensor].array.copy()
    change(array)
    return edit(network, tensor, data=array)


def scaled(network, tensor, scale, zero_point=0, **more):
    old = network.tensors[tensor].quantization
    return edit(network, tensor, quantization=replace(q(scale, zero_point, old.axis, old.bits), **more))


def one_layer(op, kind, fmt="mslite", dtype="float32", attrs=None, more=(), outputs=1, **layer):
    """One layer between an input and an output."""
    known = q(0.1, 0) if dtype in ("int8", "uint8") else None
    tensors = [flow(0, "x", (1, 4, 4, 4), known, "input", dtype), flow(1, "y", (1, 4, 4, 4), known, "output", dtype)]
    made = ir.Layer(0, "it", op, kind, 0, attrs or {}, (0, *(t.index for t in more)), (1,), **layer)
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 1),), (made,))
    return ir.Network(fmt, "", "", (graph,), {t.index: t for t in [*tensors, *more]})


def vendor(network, tensor, name):
    return edit(network, tensor, vendor_dtype=name)


def floating(fmt="mslite"):
    """The quantised network with all tensors float32."""
    network = quantised(fmt)
    tensors = {
        i: replace(
            t, dtype="float32", vendor_dtype="Float32", quantization=None, quantized=False,
            data=None if t.data is None else (t.array * 0.01).astype(np.float32),
        )
        for i, t in network.tensors.items()
    }  # fmt: skip
    layers = tuple(replace(x, meta={"quantType": "QUANT_NONE"}) for x in network.graphs[0].layers)
    return replace(network, tensors=tensors, graphs=(replace(network.graphs[0], layers=layers),))


def softmax_of(scale, zero_point=0):
    """Arm NN: a softmax of unsigned 8-bit numbers."""
    return edit(one_layer("Softmax", "softmax", "armnn", "uint8"), 1, quantization=q(scale, zero_point))


def dequantized_constant(vendor_dtype, dtype, scale=0.1, gives="float32"):
    """Arm NN: a constant, a layer that makes it real, and their sum with an input."""
    axis = None if np.ndim(scale) == 0 else 0
    known = None if dtype is np.float16 else q(scale, axis=axis)
    constant = replace(stored(20, "c", RNG.integers(1, 99, (2, 4)).astype(dtype), known), vendor_dtype=vendor_dtype)
    real = flow(21, "real", (2, 4), None, dtype=gives)
    network = one_layer("Addition", "add", "armnn", "float32", more=(real,))
    before = [ir.Layer(10, "c", "Constant", "constant", 0, {}, (), (20,))]
    before += [ir.Layer(11, "deq", "Dequantize", "dequantize", 0, {}, (20,), (21,))]
    graph = replace(network.graphs[0], layers=(*before, *network.graphs[0].layers))
    return replace(network, graphs=(graph,), tensors=network.tensors | {20: constant})


def island(kind="max_pool2d", more=()):
    """dequantise -> a float layer -> quantise, before the quantised network's softmax."""
    network = quantised()
    tensors = [flow(20, "f", (1, 8, 8, 16), None, dtype="float32"), flow(21, "g", (1, 8, 8, 16), None, dtype="float32")]
    tensors += [flow(22, "h", (1, 8, 8, 16), q(0.05, -128)), *more]
    layers = [
        ir.Layer(10, "deq", "QuantDTypeCast", "dequantize", 0, {}, (J,), (20,)),
        ir.Layer(11, "float", "Any", kind, 0, {}, (20, *(t.index for t in more)), (21,)),
        ir.Layer(12, "q", "QuantDTypeCast", "quantize", 0, {}, (21,), (22,)),
        ir.Layer(13, "softmax2", "Softmax", "softmax", 0, {}, (22,), (OUT,)),
    ]
    graph = network.graphs[0]
    graph = replace(graph, layers=(*graph.layers[:SOFTMAX], *layers))
    return edit(replace(network, graphs=(graph,)), add=tensors)


def quantize_pair():
    network = quantised()
    a, b, concat, d = network.graphs[0].layers
    layers = (
        a, b,
        ir.Layer(2, "deq", "QuantDTypeCast", "dequantize", 0, {}, (C,), (20,)),
        ir.Layer(3, "quant", "QuantDTypeCast", "quantize", 0, {}, (20,), (21,)),
        replace(concat, index=4, inputs=(21, Y)), replace(d, index=5),
    )  # fmt: skip
    more = [flow(20, "f", (1, 8, 8, 8), None, dtype="float32"), flow(21, "g", (1, 8, 8, 8), q(0.05, -128))]
    return edit(replace(network, graphs=(replace(network.graphs[0], layers=layers),)), add=more)


def broken():
    raise ModelFormatError("the stream ends early", 12)


def batch_norm():
    more = [stored(2, "mean", np.zeros(4, np.float32), None), stored(3, "var", np.float32([1, 2, -0.1, 1]), None)]
    return one_layer("BatchNormalization", "batch_norm", "armnn", more=more, members=("mean", "variance"))


def swapped():
    """Nodes that stand in the file in the wrong order."""
    network = quantised()
    a, b, c, d = network.graphs[0].layers
    return replace(network, graphs=(replace(network.graphs[0], layers=(replace(a, index=7), b, c, d)),))


def dangling(reader=False):
    """A layer whose result nobody reads, or only another such layer."""
    tensors = [flow(20, "t", (1, 8, 8, 4), q(0.1)), flow(21, "u", (1, 8, 8, 4), q(0.1))]
    layers = [ir.Layer(20, "aside", "Abs", "abs", 0, {}, (X,), (20,))]
    layers += [ir.Layer(21, "further", "Abs", "abs", 0, {}, (20,), (21,))] if reader else []
    return edit(quantised(), add=tensors, more_layers=layers)


def zero_channel(value):
    def change(array):
        array[2] = value

    return data(quantised(), W, change)


def wide_channels():
    def change(array):
        array[3] = np.sign(array[3]) * np.minimum(abs(array[3]), 3)

    return data(quantised(), D, change)


PLANTED = {
    "bias-scale": [
        lambda: scaled(quantised(), E, 0.001),
        lambda: scaled(quantised(), B, np.full(8, 1e-9)),
        lambda: edit(quantised(), W, quantization=q(0.001)),
        lambda: edit(quantised("armnn"), B, quantization=None, quantized=False),
    ],
    "bias-type": [lambda: edit(quantised(), B, dtype="float32", data=np.zeros(8, np.float32), quantized=False)],
    "mixed-types": [
        lambda: edit(quantised(), W, dtype="float32", data=np.ones((8, 3, 3, 4), "f4"), quantized=False),
        lambda: edit(quantised("armnn"), X, dtype="float32", quantized=False),
        lambda: edit(quantised(), W, dtype="int16", data=np.ones((8, 3, 3, 4), "i2")),
        lambda: edit(floating("armnn"), W, dtype="float16", data=np.ones((8, 3, 3, 4), "f2")),
    ],
    "missing-parameters": [lambda: edit(quantised(), C, quantization=None, quantized=False)],
    "bad-scale": [lambda s=s: scaled(quantised(), C, s, -128) for s in (0.0, -0.05, np.nan, np.inf, 1e-40)],
    "zero-point-range": [lambda: scaled(quantised(), C, 0.05, 200), lambda: scaled(quantised(), X, 0.02, -129)],
    "symmetric-zero-point": [
        lambda: vendor(scaled(quantised("armnn"), C, 0.05, 5), C, "QSymmS8"),
        lambda: scaled(quantised(), E, 0.05 * 0.01, 3),
    ],
    "weight-zero-point": [lambda: scaled(quantised(), W, quantised().tensors[W].quantization.scale, 6)],
    "parameter-count": [
        lambda: edit(quantised(), W, quantization=q(np.full(5, 0.01), axis=0)),
        lambda: edit(quantised(), Y, quantization=replace(q(0.05, -128), zero_point=np.zeros(2, int))),
    ],
    "concat-scales": [lambda: scaled(quantised(), Y, 0.2, -128), lambda: scaled(quantised(), Y, 0.05, -100)],
    "softmax-scale": [lambda: scaled(quantised(), OUT, 1 / 127, -128), lambda: scaled(quantised(), OUT, 1 / 256, 0)],
    "softmax-replaced": [lambda: softmax_of(1 / 127), lambda: softmax_of(1 / 256, 3)],
    "constant-dequantize": [
        lambda: dequantized_constant("QAsymmU8", np.uint8),
        lambda: dequantized_constant("QSymmS16", np.int16),
        lambda: dequantized_constant("QSymmS8", np.int8, scale=(0.1, 0.2)),
        lambda: dequantized_constant("QAsymmS8", np.int8, gives="float16"),
    ],
    "raw-bytes": [lambda: scaled(quantised(), X, 1.0, -128)],
    "relu-range": [lambda: scaled(quantised(), C, 0.05, 0), lambda: scaled(quantised(), C, 0.05, 30)],
    "quant-flags": [
        lambda: edit(quantised(), layer=CONV, meta={"quantType": "QUANT_NONE"}),
        lambda: edit(floating(), layer=CONV, meta={"quantType": "QUANT_WEIGHT"}),
        lambda: edit(floating(), layer=CONV, meta={"quantType": "QUANT_ALL"}),
    ],
    "nan": [lambda: data(floating(), W, lambda w: w.__setitem__((1, 0, 0, 2), np.nan))],
    "inf": [lambda: data(floating(), D, lambda w: w.__setitem__((1, 0, 0, 0), -np.inf))],
    "negative-variance": [batch_norm],
    "dead-channel": [lambda: zero_channel(0), lambda: zero_channel(7)],
    "clipped": [lambda: data(quantised(), W, lambda w: np.put(w, np.arange(0, 288, 20), 127))],
    "few-levels": [
        lambda: data(quantised(), W, lambda w: np.floor_divide(w, 16, out=w)),
        lambda: data(quantised(), D, lambda w: np.floor_divide(w, 16, out=w)),
    ],
    "channel-range": [wide_channels],
    "float16-range": [
        lambda: edit(data(floating(), W, lambda w: w.__setitem__((0, 0, 0, 0), 1e5)), C, dtype="float16"),
    ],
    "no-outputs": [lambda: edit(quantised(), ports={"outputs": ()})],
    "no-inputs": [lambda: edit(quantised(), ports={"inputs": ()})],
    "missing-tensor": [lambda: edit(quantised(), W, data=None)],
    "empty-constant": [lambda: edit(quantised(), W, data=np.zeros(0, np.int8))],
    "constant-size": [lambda: edit(quantised(), W, data=np.ones(17, np.int8))],
    "unreadable-constant": [lambda: edit(quantised(), W, data=ir.PackedData(np.zeros(3, np.uint8), broken))],
    "unknown-type": [lambda: edit(floating(), W, dtype="unknown(99)", vendor_dtype="99", data=np.zeros(288, np.uint8))],
    "unknown-operator": [lambda: edit(quantised(), layer=CONCAT, op="Unknown(81)", kind="unknown")],
    "input-channels": [lambda: edit(quantised(), X, shape=(1, 8, 8, 3))],
    "bias-length": [lambda: edit(quantised(), E, shape=(7,), data=np.zeros(7, np.int32))],
    "dangling": [dangling],
    "unreachable": [lambda: dangling(reader=True)],
    "unused-constant": [lambda: edit(quantised(), add=[stored(30, "left over", np.ones(9, "f4"), None)])],
    "duplicate-names": [
        lambda: edit(quantised(), layer=DEPTHWISE, name="conv"),
        lambda: edit(quantised(), ports={"inputs": (ir.Port("x", X), ir.Port("x", X))}),
    ],
    "quantize-pair": [lambda: quantize_pair()],
    "float-island": [island],
    "float-product": [lambda: island("conv2d", [stored(23, "w", np.float32(RNG.normal(size=(16, 1, 1, 16))), None)])],
    "node-order": [swapped],
    "refused": [
        lambda: one_layer("StandIn", "stand_in", "armnn"),
        lambda: one_layer("Elu", "elu"),
        lambda: one_layer("Activation", "activation", attrs={"activation_type": "SELU"}),
        lambda: one_layer("Activation", "activation", dtype="int8", attrs={"activation_type": "SWISH"}),
        lambda: one_layer("Neg", "neg", dtype="int8"),
        lambda: one_layer("AddFusion", "add", dtype="int32", attrs={"activation_type": "RELU"}),
        lambda: one_layer("PadFusion", "pad"),
        lambda: one_layer("Gather", "gather", more=[stored(2, "i", np.int32([0]), None), stored(3, "a", -ONE, None)]),
        lambda: one_layer("SliceFusion", "slice", attrs={"axes": (1, 3)}),
        lambda: one_layer("BroadcastTo", "broadcast_to", attrs={"shape": (2, -1, 4, 4)}),
        lambda: one_layer("Conv2dTransposeFusion", "conv2d_transpose", attrs={"group": 2}),
        lambda: one_layer("Gather", "gather", "armnn", attrs={"axis": 1}),
    ],
}  # fmt: skip

# what else a planted fault may bring about; anything beyond that would be noise
ALSO = {
    "bias-scale": {"mixed-types", "clipped"},
    "weight-zero-point": {"bias-scale"},
    "bias-type": set(),
    "mixed-types": {"dead-channel", "few-levels", "quant-flags", "missing-parameters"},
    "missing-parameters": {"mixed-types"},
    "bad-scale": {"bias-scale", "concat-scales", "missing-parameters"},
    "zero-point-range": {"concat-scales", "relu-range"},
    "symmetric-zero-point": {"concat-scales"},
    "relu-range": {"concat-scales"},
    "parameter-count": {"clipped", "concat-scales"},
    "raw-bytes": {"bias-scale"},
    "dead-channel": {"few-levels"},
    "empty-constant": {"constant-size"},
    "missing-tensor": {"quant-flags"},
    "unreachable": {"dangling"},
    "unknown-type": {"mixed-types"},
    "no-outputs": {"dangling", "unreachable"},
    "no-inputs": {"missing-tensor"},
    "few-levels": {"channel-range"},
    "concat-scales": set(),
}

CLEAN = {
    "quantised": quantised,
    "quantised armnn": lambda: quantised("armnn"),
    "float": floating,
    "float armnn": lambda: floating("armnn"),
    "relu6": lambda: one_layer("Activation", "activation", attrs={"activation_type": "RELU6"}),
    "gather": lambda: one_layer("Gather", "gather", "armnn", attrs={"axis": 0}),
    "softmax of 1/256": lambda: softmax_of(1 / 256),
    "constant of QAsymmS8 made real": lambda: dequantized_constant("QAsymmS8", np.int8),
    "constant of Float16 made real": lambda: dequantized_constant("Float16", np.float16),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_networks_have_no_findings(name):
    found = lint(CLEAN[name]())
    assert found.empty, found[["rule", "message"]].to_string()


def test_every_rule_has_a_planted_fault():
    assert set(PLANTED) == set(RULES)
    assert sum(map(len, PLANTED.values())) >= 25


@pytest.mark.parametrize(
    ("name", "plant"),
    [pytest.param(n, p, id=f"{n}-{i}") for n, plants in PLANTED.items() for i, p in enumerate(plants)],
)
def test_planted_faults_are_found(name, plant):
    network = plant()
    found = lint(network)
    assert set(found.rule) - {name} <= ALSO.get(name, set())  # no noise
    hits = found[found.rule == name]
    assert len(hits), found[["rule", "message"]].to_string()
    assert hits.severity.iloc[0] == RULES[name].severity
    assert (hits.message.str.len() > 0).all()
    assert set(hits.layer.dropna()) <= set(network.layers)
    assert set(hits.tensor.dropna()) <= set(network.tensors)
    pd_hits = lint(network, rules=[name])
    assert pd_hits.message.tolist() == hits.message.tolist()


@pytest.mark.parametrize("name", mi.samples.names())
def test_bundled_models_are_clean(name):
    found = lint(mi.open(mi.samples.path(name)))
    assert not worst(found, "warning"), found[["rule", "message"]].to_string()


@pytest.mark.parametrize("archive", ["armnn-nets.zip", "mslite-nets.zip", "mslite-converted.zip"])
def test_networks_by_the_vendors_converters_are_clean(archive, golden):
    for name in golden(archive).names:
        found = lint(mi.open(golden(archive).model(name)))
        assert not worst(found, "warning"), name


def test_what_the_vendors_runtimes_ran_has_no_errors_and_what_they_refused_has(golden):
    for archive in ("armnn-22.11.zip", "mslite-ops.zip"):
        names = golden(archive).names
        ran = [name for name in names if not name.startswith("parse_only")]
        for name in [*ran[::5], *(set(names) - set(ran))]:
            found = lint(mi.open(golden(archive).model(name)))
            assert worst(found, "error") == (name not in ran), name


def test_face_landmark_stand_ins_are_found(models):
    found = lint(mi.open(models / "face_landmark.armnn"))
    assert found.rule.tolist() == ["refused"] * 23


# ---- files -----------------------------------------------------------------------------------------------------------


def ms_file(**weights):
    weights = {
        "nodeType": 0, "dataType": 32, "dims": [4, 9], "format": 1, "name": "w",
        "data": RNG.integers(-100, 100, 36).astype(np.int8).view(np.uint8),
        "quantParams": [{"scale": 0.01, "zeroPoint": 0, "numBits": 8}],
    } | weights  # fmt: skip
    tensor = {"nodeType": 2, "dataType": 43, "dims": [1, 9], "format": 1, "name": "x"}
    primitive = {"value_type": "MatMulFusion", "value": {"transpose_b": True}}
    node = {"name": "fc", "inputIndex": [0, 1], "outputIndex": [2], "primitive": primitive, "quantType": "QUANT_WEIGHT"}
    root = {"name": "m", "version": "MindSpore Lite 2.0.0", "inputIndex": [0], "outputIndex": [2], "nodes": [node]}
    root["allTensors"] = [tensor, weights, tensor | {"name": "y", "dims": [1, 4]}]
    return mi.open(encode(layout_schema("mslite", "msl2_newest"), root))


@pytest.mark.parametrize(
    ("weights", "want"),
    [
        ({}, []),
        ({"dataType": 99}, ["quant-flags", "unknown-type"]),
        ({"quantParams": [{"scale": -1.0, "zeroPoint": 300, "numBits": 8}]}, ["bad-scale", "zero-point-range"]),
        ({"dims": [4, 10]}, ["constant-size"]),
    ],
)
def test_faults_in_files(weights, want):
    found = lint(ms_file(**weights))
    assert sorted(found.rule) == want


# ---- the table -------------------------------------------------------------------------------------------------------


def test_columns_order_and_rules():
    network = scaled(scaled(quantised(), OUT, 0.5, 1000), C, 0.0, -128)
    found = lint(network)
    assert [(c, str(d)) for c, d in found.dtypes.items()] == [(c, d) for c, d, _, _ in COLUMNS["lint"]]
    ranks = [SEVERITIES.index(s) for s in found.severity]
    assert ranks == sorted(ranks)
    assert lint(quantised()).columns.tolist() == found.columns.tolist()
    with pytest.raises(KeyError, match="no rule 'x'"):
        lint(network, rules=["x"])
    with pytest.raises(KeyError, match="did you mean 'bias-scale'"):
        lint(network, rules="bias_scale")


def test_rules_are_documented():
    table = rules()
    assert table.rule.tolist() == list(RULES)
    assert table.severity.isin(SEVERITIES).all()
    assert (table.meaning.str.len() > 10).all()
    assert (table.fix.str.len() > 10).all()
    with pytest.raises(ValueError, match="severity"):
        rule("x", "fatal", "nothing")


def test_annotations_cannot_be_broken_out_of():
    network = edit(scaled(quantised(), C, 0.0, -128), C, name="a\n::error::b%")
    lines = annotations(lint(network, rules=["bad-scale"]), "dir,x:y.ms").split("\n")
    assert lines == ["::error file=dir%2Cx%3Ay.ms,title=bad-scale::a%0A::error::b%25: scale 0"]


def test_worst():
    found = lint(dangling())
    assert worst(found, "warning")
    assert not worst(found, "error")
