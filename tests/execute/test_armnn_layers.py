"""Arm NN layers that no vendor-made vector covers: younger than 22.11, or refused by the reference backend."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute import registry
from mlinspect.formats.records import layout_schema
from mlinspect.kernels.recurrent import BIASES, weights_name
from mlinspect.model import Model

# what Arm NN itself defines no computation for, or what is no computation
WITHOUT_ARITHMETIC = {"Constant", "Input", "Merge", "Output", "StandIn", "Switch"}

NUMPY = {
    "Float32": "float32",
    "QAsymmU8": "uint8",
    "QAsymmS8": "int8",
    "QSymmS8": "int8",
    "QSymmS16": "int16",
    "Signed32": "int32",
}


def tensor(i: int, vendor: str, shape: tuple[int, ...], scale: float = 0.0, zero_point: int = 0) -> ir.Tensor:
    quantization = None
    if scale:
        quantization = ir.Quantization(np.array([scale]), np.array([zero_point]))
    return ir.Tensor(
        i, f"t{i}", 0, "activation", NUMPY[vendor], vendor, shape, quantization=quantization, quantized=bool(scale)
    )


def one_layer(op: str, attrs: dict[str, Any], inputs: list[ir.Tensor], outputs: list[ir.Tensor]) -> Model:
    layer = ir.Layer(0, "it", op, op.lower(), 0, attrs, tuple(t.index for t in inputs), tuple(t.index for t in outputs))
    ports = [tuple(ir.Port(t.name, t.index) for t in tensors) for tensors in (inputs, outputs)]
    graph = ir.Graph(0, "", *ports, (layer,))
    return Model(ir.Network("armnn", "", "", (graph,), {t.index: t for t in (*inputs, *outputs)}))


def run(op: str, attrs: dict[str, Any], arrays: list[np.ndarray], out_shape: tuple[int, ...]) -> np.ndarray:
    """A layer of plain (unquantised) tensors, output as the first input."""
    names = {np.dtype(numpy): vendor for vendor, numpy in NUMPY.items()}
    inputs = [tensor(i, names[array.dtype], array.shape) for i, array in enumerate(arrays)]
    output = tensor(len(arrays), names[arrays[0].dtype], out_shape)
    (result,) = one_layer(op, attrs, inputs, [output]).run(arrays).values()
    return result


def test_every_layer_type_of_the_schema_has_arithmetic_or_is_known_to_have_none() -> None:
    union = layout_schema("armnn", "armnn_superset").enums["Layer"]
    types = {name.removesuffix("Layer") for name in union.members.values()}
    assert len(types) == 73
    assert types - set(registry.operators("armnn")) == WITHOUT_ARITHMETIC


@pytest.mark.parametrize("op", sorted(WITHOUT_ARITHMETIC - {"Constant", "Input", "Output"}))
def test_a_layer_without_arithmetic_says_how_to_supply_it(op: str) -> None:
    x = tensor(0, "Float32", (2,))
    model = one_layer(op, {}, [x], [tensor(1, "Float32", (2,))])
    with pytest.raises(mi.UnsupportedError, match=rf"layer 0 'it'.*{op}.*register_op"):
        model.run(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("Add", lambda a, b: a + b),
        ("Sub", lambda a, b: a - b),
        ("Mul", lambda a, b: a * b),
        ("Div", lambda a, b: a / b),
        ("Maximum", np.maximum),
        ("Minimum", np.minimum),
        ("SqDiff", lambda a, b: (a - b) ** 2),
        ("Power", lambda a, b: a**b),
        ("FloorDiv", lambda a, b: np.floor(a / b)),
    ],
)
def test_elementwise_binary(operation: str, expected) -> None:
    a = np.float32([[1.5, 2, 7], [0.25, 3, 5]])
    b = np.float32([[2, 3, -2]])
    got = run("ElementwiseBinary", {"operation": operation}, [a, b], (2, 3))
    np.testing.assert_allclose(got, expected(a, b), rtol=1e-6)


def test_elementwise_binary_on_integers_wraps_and_truncates() -> None:
    a, b = np.int32([2**31 - 1, -7, 7]), np.int32([1, 2, -2])
    assert run("ElementwiseBinary", {"operation": "Add"}, [a, b], (3,)).tolist() == [-(2**31), -5, 5]
    assert run("ElementwiseBinary", {"operation": "Div"}, [a, b], (3,)).tolist() == [2**31 - 1, -3, -3]
    assert run("ElementwiseBinary", {"operation": "FloorDiv"}, [a, b], (3,)).tolist() == [2**31 - 1, -4, -4]


def test_ceil_and_gelu() -> None:
    x = np.float32([-1.5, -0.2, 0.3, 2])
    assert run("ElementwiseUnary", {"operation": "Ceil"}, [x], (4,)).tolist() == [-1, 0, 1, 2]
    gelu = run("Activation", {"activationFunction": "Gelu", "a": 0.0, "b": 0.0}, [x], (4,))
    want = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()]
    np.testing.assert_allclose(gelu, want, rtol=1e-5)


def test_soft_relu_is_a_sigmoid_to_the_vendor_and_itself_in_float_mode() -> None:
    x = np.float32([-2, 0, 1])
    attrs = {"activationFunction": "SoftReLu", "a": 0.0, "b": 0.0}
    model = one_layer("Activation", attrs, [tensor(0, "Float32", (3,))], [tensor(1, "Float32", (3,))])
    np.testing.assert_allclose(next(iter(model.run(x).values())), 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(next(iter(model.run(x, mode="float").values())), np.log1p(np.exp(x)), rtol=1e-6)


def test_tile_and_reverse() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run("Tile", {"m_Multiples": (2, 1)}, [x], (4, 3)), np.tile(x, (2, 1)))
    np.testing.assert_array_equal(run("ReverseV2", {}, [x, np.int32([1])], (2, 3)), x[:, ::-1])
    np.testing.assert_array_equal(run("ReverseV2", {}, [x, np.int32([-1, 0])], (2, 3)), x[::-1, ::-1])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("Update", [1, 9, 3, 7]),
        ("Add", [1, 11, 3, 11]),
        ("Sub", [1, -7, 3, -3]),
        ("Max", [1, 9, 3, 7]),
        ("Min", [1, 2, 3, 4]),
    ],
)
def test_scatter_nd(function: str, expected: list[float]) -> None:
    x, indices, updates = np.float32([1, 2, 3, 4]), np.int32([[3], [1]]), np.float32([7, 9])
    attrs = {"m_Function": function, "m_InputEnabled": True, "m_Axis": 0, "m_AxisEnabled": False}
    assert run("ScatterNd", attrs, [x, indices, updates], (4,)).tolist() == expected


def test_scatter_nd_into_zeros_of_a_given_shape() -> None:
    inputs = [tensor(0, "Signed32", (1,)), tensor(1, "Signed32", (2, 1)), tensor(2, "Float32", (2,))]
    attrs = {"m_Function": "Update", "m_InputEnabled": False, "m_Axis": 0, "m_AxisEnabled": False}
    model = one_layer("ScatterNd", attrs, inputs, [tensor(3, "Float32", (4,))])
    (got,) = model.run([np.int32([4]), np.int32([[3], [1]]), np.float32([7, 9])]).values()
    assert got.tolist() == [0, 9, 0, 7]


def test_moves_between_different_quantisations_requantise() -> None:
    inputs = [tensor(0, "QAsymmU8", (4,), 0.5, 10)]
    model = one_layer("Tile", {"m_Multiples": (2,)}, inputs, [tensor(1, "QAsymmU8", (8,), 0.25, 3)])
    (got,) = model.run(np.uint8([10, 11, 12, 255])).values()
    assert got.tolist() == [3, 5, 7, 255] * 2


def test_operators_by_their_old_names_are_the_new_ones() -> None:
    a, b = np.float32([1, 2, 3]), np.float32([2, 2, 2])
    names = {"Equal": "Equal", "Greater": "Greater"}
    for old, operation in names.items():
        inputs = [tensor(0, "Float32", (3,)), tensor(1, "Float32", (3,))]
        out = ir.Tensor(2, "t2", 0, "activation", "bool", "Boolean", (3,))
        (was,) = one_layer(old, {}, inputs, [out]).run([a, b]).values()
        (now,) = one_layer("Comparison", {"operation": operation}, inputs, [out]).run([a, b]).values()
        np.testing.assert_array_equal(was, now)


def test_an_unsigned_softmax_always_has_scale_1_256() -> None:
    x = np.uint8([[90, 71, 145, 122, 133, 121, 70, 184, 113, 155]])
    inputs, output = [tensor(0, "QAsymmU8", (1, 10), 0.12971533834934235, 152)], tensor(1, "QAsymmU8", (1, 10), 0.01, 3)
    model = one_layer("Softmax", {"beta": 1.0, "axis": -1}, inputs, [output])
    (got,) = model.run(x).values()
    assert got.tolist() == [[0, 0, 2, 0, 0, 0, 0, 248, 0, 6]]  # Arm NN 20.08's answer
    (real,) = model.run(x, dequantize=True).values()
    np.testing.assert_array_equal(real, got / np.float32(256))


def conv(op: str, x: tuple[int, ...], others: list[tuple[int, ...]], bias: bool = False) -> Model:
    attrs = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 0) | {"strideX": 1, "strideY": 1}
    attrs |= {"dataLayout": "NHWC", "biasEnabled": bias}
    inputs = [tensor(i, "Float32", shape) for i, shape in enumerate((x, *others))]
    return one_layer(op, attrs, inputs, [tensor(9, "Float32", (1, 2, 2, 1))])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (conv("Convolution2d", (1, 2, 2, 3), []), "operands are missing: weights"),
        (conv("Convolution2d", (2, 2, 3), [(1, 1, 1, 3)]), "operand 0 has 3 dimensions instead of 4"),
        (conv("DepthwiseConvolution2d", (1, 2, 2, 1), [(1, 1)]), "operand 1 has 2 dimensions instead of 4"),
        (conv("Convolution2d", (1, 2, 2, 3), [(1, 1, 1, 3)], bias=True), "a bias of 1 numbers is wanted, there are 0"),
        (conv("Convolution2d", (1, 2, 2, 3), [(2, 1, 1, 3), (1,)], bias=True), "a bias of 2 numbers is wanted"),
        (conv("Convolution2d", (1, 2, 2, 3), [(1, 1, 1, 4)]), "does not fit 1 filters"),
        (conv("Convolution2d", (1, 2, 2, 3), [(1, 1, 1, 3), (1,), (1,)]), "4 operands, where 3 have a meaning"),
        (conv("Addition", (1, 2), [(1, 3)]), "broadcast"),
    ],
)
def test_a_layer_that_cannot_be_computed_says_which_and_why(model: Model, said: str) -> None:
    arrays = [np.ones(port.shape, np.float32) for port in model.inputs.itertuples()]
    with pytest.raises(mi.ExecutionError, match=rf"layer 0 'it' .*float32\[.*{said}") as caught:
        model.run(arrays)
    assert caught.value.__cause__ is not None


def test_a_constant_that_a_layer_should_hold_is_missed_by_name() -> None:
    x, weights = tensor(0, "Float32", (1, 2)), tensor(1, "Float32", (2,))
    held = ir.Layer(0, "it", "FullyConnected", "fc", 0, {"biasEnabled": True}, (0, 1), (2,), ("bias",))
    graph = ir.Graph(0, "", (ir.Port("x", 0), ir.Port("b", 1)), (ir.Port("y", 2),), (held,))
    tensors = {0: x, 1: weights, 2: tensor(2, "Float32", (1, 2))}
    with pytest.raises(mi.ExecutionError, match="operands are missing: weights"):
        Model(ir.Network("armnn", "", "", (graph,), tensors)).run([np.ones((1, 2), "f"), np.ones(2, "f")])


@pytest.mark.parametrize(
    ("op", "attrs", "said"),
    [
        ("Slice", {"begin": (0,), "size": (1, 1)}, "begin is .* where 2 entries are wanted"),
        ("Transpose", {"dimMappings": None}, "dimMappings is None, where 2"),
        ("Pad", {"padList": (1, 1), "padValue": 0.0}, "padList is .* where 4"),
        ("Concat", {"viewOrigins": ((0,),)}, "other dimensions than the operands"),
        ("Splitter", {"origins": {"viewOrigins": ((0,),)}, "viewSizes": ((1,),)}, "other dimensions than the operand"),
        ("ChannelShuffle", {"axis": 4, "numGroups": 1}, "axis 4 is out of bounds"),
        ("SpaceToDepth", {"blockSize": 2, "dataLayout": "NHWC"}, "operand 0 has 2 dimensions instead of 4"),
    ],
)
def test_attributes_that_do_not_fit_are_named(op: str, attrs: dict, said: str) -> None:
    with pytest.raises(mi.ExecutionError, match=rf"layer 0 'it' .*{said}"):
        run(op, attrs, [np.ones((2, 3), np.float32)], (2, 3))


def test_a_result_of_unknown_type_is_refused() -> None:
    unknown = ir.Tensor(1, "t1", 0, "activation", "unknown", "none", None)
    model = one_layer(
        "Activation", {"activationFunction": "ReLu", "a": 0, "b": 0}, [tensor(0, "Float32", (2,))], [unknown]
    )
    with pytest.raises(mi.UnsupportedError, match=r"layer 0 'it'.*type of tensor t1 is not known"):
        model.run(np.ones(2, np.float32))


def test_pooling_counts_its_windows_where_the_file_gives_no_shape() -> None:
    attrs = {f"pad{side}": 0 for side in ("Left", "Right", "Top", "Bottom")} | {"poolWidth": 2, "poolHeight": 1}
    attrs |= {"strideX": 2, "strideY": 1, "dataLayout": "NHWC", "poolType": "Max", "paddingMethod": "Exclude"}
    for rounding, expected in (("Floor", [2, 4]), ("Ceiling", [2, 4, 5])):
        output = ir.Tensor(1, "t1", 0, "activation", "float32", "Float32", None)
        model = one_layer(
            "Pooling2d", attrs | {"outputShapeRounding": rounding}, [tensor(0, "Float32", (1, 1, 5, 1))], [output]
        )
        (got,) = model.run(np.float32([1, 2, 3, 4, 5]).reshape(1, 1, 5, 1)).values()
        assert got.ravel().tolist() == expected


def held(op: str, attrs: dict[str, Any], inputs: list[ir.Tensor], held: dict[str, ir.Tensor], outputs: list[ir.Tensor]):
    """One layer with constants of its own."""
    every = [*inputs, *held.values()]
    layer = ir.Layer(
        0, "it", op, op.lower(), 0, attrs, tuple(t.index for t in every), tuple(t.index for t in outputs), tuple(held)
    )
    ports = [tuple(ir.Port(t.name, t.index) for t in tensors) for tensors in (inputs, outputs)]
    graph = ir.Graph(0, "", *ports, (layer,))
    return Model(ir.Network("armnn", "", "", (graph,), {t.index: t for t in (*every, *outputs)}))


def constant(i: int, vendor: str, data: np.ndarray, scale: float = 0.0, zero_point: int = 0) -> ir.Tensor:
    return dataclasses.replace(tensor(i, vendor, data.shape, scale, zero_point), role="constant", data=data)


def test_constants_that_a_layer_holds_in_another_order_are_taken_by_name() -> None:
    members = {"bias": constant(1, "Float32", np.float32([7])), "weights": constant(2, "Float32", np.float32([[1, 2]]))}
    attrs = {"biasEnabled": True, "transposeWeightsMatrix": True}
    model = held("FullyConnected", attrs, [tensor(0, "Float32", (1, 2))], members, [tensor(3, "Float32", (1, 1))])
    (got,) = model.run(np.float32([[3, 4]])).values()
    assert got.tolist() == [[18]]


CELL = dict.fromkeys(("cifgEnabled", "peepholeEnabled", "projectionEnabled", "layerNormEnabled"), False)
QLSTM = CELL | {"cellClip": 0.0, "projectionClip": 0.0, "hiddenStateScale": 1 / 128, "hiddenStateZeroPoint": 0}
QLSTM |= {f"{gate}IntermediateScale": 1 / 4096 for gate in ("input", "forget", "cell", "output")}


def quantized_cell(op: str, attrs: dict[str, Any], weights: str, state: tuple[str, float, int]) -> Model:
    """A cell of one unit whose weights are all 1 (real) and whose biases are 0."""
    inputs = [
        tensor(0, "QAsymmS8" if op == "QLstm" else "QAsymmU8", (1, 1), 1 / 128, 128 if weights == "QAsymmU8" else 0)
    ]
    cell, out = tensor(1, "QSymmS16", (1, 1), 1 / 2048), tensor(2, state[0], (1, 1), *state[1:])
    inputs += [out, cell] if op == "QLstm" else [cell, out]
    zero = 100 if weights == "QAsymmU8" else 0
    one = np.full((1, 1), 1 + zero, np.uint8 if zero else np.int8)
    names = [weights_name(source, gate) for source in ("input", "recurrent") for gate in BIASES]
    members = {name: constant(10 + i, weights, one, 1.0, zero) for i, name in enumerate(names)}
    members |= {name: constant(30 + i, "Signed32", np.int32([0])) for i, name in enumerate(BIASES.values())}
    outputs = [tensor(40, "QSymmS16", (1, 1), 1 / 2048), tensor(41, state[0], (1, 1), *state[1:])]
    if op == "QLstm":
        outputs = [outputs[1], outputs[0], tensor(42, state[0], (1, 1), *state[1:])]
    return held(op, attrs, inputs, members, outputs)


def cell_by_hand(x: float) -> tuple[float, float]:
    """Cell and output from states of 0, where every gate sums to ``x``."""
    gate = 1 / (1 + math.exp(-x))
    cell = gate * math.tanh(x)
    return cell, gate * math.tanh(cell)


@pytest.mark.parametrize("mode", ["vendor", "float"])
def test_a_quantised_cell_is_near_the_real_one(mode: str) -> None:
    model = quantized_cell("QLstm", QLSTM, "QSymmS8", ("QAsymmS8", 1 / 128, 0))
    out, cell, y = model.run(
        [np.int8([[96]]), np.int8([[0]]), np.int16([[0]])]
        if mode == "vendor"
        else [np.float32([[0.75]]), np.float32([[0]]), np.float32([[0]])],
        mode=mode,
    ).values()
    if mode == "vendor":
        assert (out.dtype, cell.dtype, y.dtype) == (np.int8, np.int16, np.int8)
        out, cell, y = out / 128, cell / 2048, y / 128
    want_cell, want = cell_by_hand(0.75)
    # float mode is exact; the buffers of vendor mode round to 1 / 2048 and 1 / 128
    step = 0 if mode == "float" else 1
    assert float(cell[0, 0]) == pytest.approx(want_cell, abs=1e-6 + 2 * step / 2048)
    assert float(out[0, 0]) == float(y[0, 0]) == pytest.approx(want, abs=1e-6 + step / 128)


def test_the_quantized_lstm_of_android() -> None:
    model = quantized_cell("QuantizedLstm", {}, "QAsymmU8", ("QAsymmU8", 1 / 128, 128))
    assert model.layers.reference.tolist() == ["published definition"]
    cell, out = model.run([np.uint8([[224]]), np.int16([[0]]), np.uint8([[128]])]).values()
    want_cell, want = cell_by_hand(0.75)
    assert cell[0, 0] / 2048 == pytest.approx(want_cell, abs=2 / 2048)
    assert (int(out[0, 0]) - 128) / 128 == pytest.approx(want, abs=1 / 128)


@pytest.mark.parametrize(("op", "missing"), [("QLstm", "cellBias"), ("QuantizedLstm", "inputToCellWeights")])
def test_a_cell_misses_its_constants_by_name(op: str, missing: str) -> None:
    state = ("QAsymmS8", 1 / 128, 0) if op == "QLstm" else ("QAsymmU8", 1 / 128, 128)
    model = quantized_cell(op, QLSTM if op == "QLstm" else {}, "QSymmS8" if op == "QLstm" else "QAsymmU8", state)
    layer = model.network.layers[0]
    kept = [i for i, name in zip(layer.inputs[3:], layer.members, strict=True) if name != missing]
    members = tuple(name for name in layer.members if name != missing)
    broken = dataclasses.replace(layer, inputs=(*layer.inputs[:3], *kept), members=members)
    graph = dataclasses.replace(model.network.graphs[0], layers=(broken,))
    model = Model(dataclasses.replace(model.network, graphs=(graph,)))
    zeros = [np.zeros((1, 1), np.dtype(model.network.tensors[i].dtype)) for i in layer.inputs[:3]]
    with pytest.raises(mi.ExecutionError, match=f"operands are missing: {missing}"):
        model.run(zeros)


def test_padding_of_a_quantised_tensor_is_a_stored_number_in_both_modes() -> None:
    attrs = {"padList": (1, 0), "padValue": 20.0}
    model = one_layer("Pad", attrs, [tensor(0, "QAsymmU8", (2,), 0.5, 10)], [tensor(1, "QAsymmU8", (3,), 0.5, 10)])
    (stored,) = model.run(np.uint8([30, 10])).values()
    assert stored.tolist() == [20, 30, 10]
    (real,) = model.run(np.float32([10, 0]), mode="float").values()
    assert real.tolist() == [5, 10, 0]


def test_space_to_batch_pads_with_the_zero_point() -> None:
    attrs = {"blockShape": (1, 2), "padList": (0, 0, 1, 0), "dataLayout": "NHWC"}
    inputs, output = [tensor(0, "QAsymmU8", (1, 1, 1, 1), 0.5, 10)], tensor(1, "QAsymmU8", (2, 1, 1, 1), 0.5, 10)
    (got,) = one_layer("SpaceToBatchNd", attrs, inputs, [output]).run(np.uint8([[[[30]]]])).values()
    assert got.ravel().tolist() == [10, 30]


def test_pooling_without_a_stride_is_global() -> None:
    attrs = {f"pad{side}": 0 for side in ("Left", "Right", "Top", "Bottom")} | {"poolWidth": 3, "poolHeight": 1}
    attrs |= {"strideX": 0, "strideY": 0, "dataLayout": "NHWC", "poolType": "Max", "paddingMethod": "Exclude"}
    output = ir.Tensor(1, "t1", 0, "activation", "float32", "Float32", None)
    inputs = [tensor(0, "Float32", (1, 1, 3, 1))]
    model = one_layer("Pooling2d", attrs | {"outputShapeRounding": "Floor"}, inputs, [output])
    (got,) = model.run(np.float32([1, 5, 3]).reshape(1, 1, 3, 1)).values()
    assert got.tolist() == [[[[5]]]]


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "error", "said"),
    [
        ("Normalization", {"normMethodType": "LocalContrast"}, [(1, 1, 1, 2)], mi.UnsupportedError, "LocalContrast"),
        ("BatchMatMul", {"dataLayoutX": "NHWC"}, [(2,), (2, 2)], mi.ExecutionError, "operand X has 1 dimensions"),
        ("BatchNormalization", {"dataLayout": "NHWC"}, [(1, 2), *[(3,)] * 4], mi.ExecutionError, "other lengths"),
        ("ElementwiseUnary", {"operation": "Unknown(9)"}, [(2,)], mi.UnsupportedError, r"unary operation Unknown\(9\)"),
        ("Reduce", {"reduceOperation": "Xor", "axis": None, "keepDims": False}, [(2,)], mi.UnsupportedError, "'xor'"),
        (
            "Splitter",
            {"origins": {"viewOrigins": ((0,), (1,))}, "viewSizes": ((1,),)},
            [(2,)],
            mi.ExecutionError,
            "1 outputs have origins",
        ),
    ],
)
def test_more_that_does_not_fit_is_named(op: str, attrs: dict, shapes: list, error: type, said: str) -> None:
    with pytest.raises(error, match=rf"layer 0 'it' .*{said}"):
        run(op, attrs, [np.ones(shape, np.float32) for shape in shapes], shapes[0])
