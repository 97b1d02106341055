"""Operators of 2020 give what their definition says; the table fits the schemas; nothing to compute is forgotten."""

from pathlib import Path

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.errors import ExecutionError
from mlinspect.execute import bind_mslite  # noqa: F401 (registers the operators)
from mlinspect.execute.registry import operators
from mlinspect.execute.upgrade_mslite import ROWS, snake_case, upgraded, upgraded_op
from mlinspect.flatbuffer import load_schema

F = np.float32
RNG = np.random.default_rng(3)
X = RNG.uniform(-2, 2, (1, 4, 6, 3)).astype(F)
SCHEMAS = Path(__file__).parents[2] / "schemas" / "mslite"


def run(op, attrs, *arrays, outputs=1, layout="ms_v0_compat"):
    """One layer of a file of 2020; every operand is an input."""
    count = len(arrays)
    layer = ir.Layer(0, "layer", op, op.lower(), 0, attrs, tuple(range(count)), tuple(range(count, count + outputs)))
    dtypes = [str(array.dtype) for array in arrays] + ["float32"] * outputs
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", dtype, dtype, None) for i, dtype in enumerate(dtypes)}
    ports = [ir.Port(f"t{i}", i) for i in range(count + outputs)]
    graph = ir.Graph(0, "", tuple(ports[:count]), tuple(ports[count:]), (layer,))
    results = list(mi.Model(ir.Network("mslite", layout, "", (graph,), tensors)).run(list(arrays)).values())
    return results if outputs > 1 else results[0]


CONV = {"kernelH": 3, "kernelW": 2, "strideH": 2, "strideW": 1, "dilateH": 1, "dilateW": 1, "padMode": "NOTSET"}
CONV |= {"padUp": 1, "padDown": 0, "padLeft": 0, "padRight": 1, "activationType": "RELU"}
POOL = {"windowH": 2, "windowW": 3, "strideH": 2, "strideW": 3, "padMode": "NOTSET", "global": False}
POOL |= {"padUp": 0, "padDown": 0, "padLeft": 0, "padRight": 0, "roundMode": "FLOOR", "activationType": "NO_ACTIVATION"}


def conv_by_hand(x, weights, stride, pads):
    x = np.pad(x, ((0, 0), *pads, (0, 0)))
    view = np.lib.stride_tricks.sliding_window_view(x, weights.shape[1:3], (1, 2))[:, :: stride[0], :: stride[1]]
    return np.einsum("nyxcij,oijc->nyxo", view, weights)


def test_convolutions():
    weights = RNG.uniform(-1, 1, (5, 3, 2, 3)).astype(F)
    want = np.maximum(conv_by_hand(X, weights, (2, 1), ((1, 0), (0, 1))), 0)
    np.testing.assert_allclose(run("Conv2D", {**CONV, "group": 1}, X, weights), want, atol=1e-5)
    # listed padding counts for nothing under VALID, and SAME_LOWER is explicit padding
    valid = run("Conv2D", {**CONV, "padMode": "VALID", "group": 1}, X, weights)
    np.testing.assert_allclose(valid, np.maximum(conv_by_hand(X, weights, (2, 1), ((0, 0), (0, 0))), 0), atol=1e-5)
    lower = run("Conv2D", {**CONV, "padMode": "SAME_LOWER", "group": 1}, X, weights)
    np.testing.assert_allclose(lower, want, atol=1e-5)
    same = run("Conv2D", {**CONV, "padMode": "SAME_UPPER", "group": 1}, X, weights)
    assert same.shape == (1, 2, 6, 5)


def test_depthwise_convolutions_by_the_weights_own_shape():
    """``channelIn`` is 0 in many files."""
    taps = RNG.uniform(-1, 1, (3, 3, 2, 1)).astype(F)
    full = np.einsum("chwi,co->ohwc", taps, np.eye(3)).astype(F)
    want = np.maximum(conv_by_hand(X, full, (2, 1), ((1, 0), (0, 1))), 0)
    got = run("DepthwiseConv2D", {**CONV, "channelIn": 0, "channelMultiplier": 1}, X, taps)
    np.testing.assert_allclose(got, want, atol=1e-5)
    spread = run("DeDepthwiseConv2D", {**CONV, "channelIn": 0, "padUp": 0, "padRight": 0}, X, taps)
    assert spread.shape == (1, 9, 7, 3)
    np.testing.assert_allclose(spread[0, 0, 0], np.maximum(X[0, 0, 0] * taps[:, 0, 0, 0], 0), atol=1e-6)


def test_pooling():
    windows = X.reshape(1, 2, 2, 2, 3, 3)
    largest = run("Pooling", {**POOL, "poolingMode": "MAX_POOLING"}, X)
    np.testing.assert_array_equal(largest, windows.max((2, 4)))
    mean = run("Pooling", {**POOL, "poolingMode": "MEAN_POOLING"}, X)
    np.testing.assert_allclose(mean, windows.mean((2, 4)), atol=1e-6)
    everywhere = run("Pooling", {**POOL, "poolingMode": "MEAN_POOLING", "global": True}, X)
    np.testing.assert_allclose(everywhere, X.mean((1, 2), keepdims=True), atol=1e-6)


CASES = {
    "Activation": (
        {"type": "LEAKY_RELU", "alpha": 0.5, "min_val": -1.0, "max_val": 1.0},
        (X,),
        np.where(X > 0, X, X / 2),
    ),
    "Add": ({"activationType": "RELU6"}, (X, X), np.clip(2 * X, 0, 6)),
    "Sub": ({"activationType": "NO_ACTIVATION"}, (X, X[0, 0, 0]), X - X[0, 0, 0]),
    "Mul": ({"activationType": "RELU"}, (X, -X), np.zeros_like(X)),
    "BiasAdd": ({"axis": (0,)}, (X, X[0, 0, 0]), X + X[0, 0, 0]),
    "ArgMax": (
        {"axis": 3, "outMaxValue": False, "topK": 1, "keepDims": True, "axisType": 0},
        (X,),
        X.argmax(3)[..., None],
    ),
    "BatchToSpace": (
        {"blockShape": (2, 1), "crops": (1, 0, 0, 2)},
        (np.concatenate([X, X + 1]),),
        np.stack([X, X + 1], 2).reshape(1, 8, 6, 3)[:, 1:, :4],
    ),
    "BroadcastTo": ({"dst_shape": (2, 3)}, (X[0, 0, 0],), np.tile(X[0, 0, 0], (2, 1))),
    "Cast": ({"srcT": 43, "dstT": 34}, (X,), X.astype(np.int32)),
    "Concat": ({"axis": 1, "n": 2}, (X, X), np.concatenate([X, X], 1)),
    "ConstantOfShape": ({"dataType": 43, "value": (1.5,)}, (np.int32([2, 2]),), np.full((2, 2), 1.5, F)),
    "ExpandDims": ({"dim": 1}, (X,), X[:, None]),
    "Exp": ({"base": 2.0, "scale": 3.0, "shift": 0.0}, (X,), 2 ** (3 * X)),
    "Fill": ({"dims": (2, 3)}, (F([7]),), np.full((2, 3), 7, F)),
    "Flatten": ({}, (X,), X.reshape(1, -1)),
    "FullConnection": (
        {"hasBias": False, "axis": 1, "useAxis": True, "activationType": "NO_ACTIVATION"},
        (X, np.ones((2, 72), F)),
        np.full((1, 2), X.sum()),
    ),
    "Gather": ({"axis": 2, "batchDims": 0}, (X, np.int32([5, 0])), X[:, :, [5, 0]]),
    "GeLU": ({"approximate": False}, (F([0, 100, -100]),), F([0, 100, 0])),
    "Identity": ({}, (X,), X),
    "L2Norm": (
        {"axis": (3,), "epsilon": 0.0, "activationType": None},
        (X,),
        X / np.linalg.norm(X, axis=3, keepdims=True),
    ),
    "LeakyReLU": ({"negativeSlope": 0.25}, (X,), np.where(X > 0, X, X / 4)),
    "Lrn": ({"alpha": 0.3, "beta": 1.0, "bias": 2.0, "size": 1}, (X,), X / (2 + 0.3 * X * X)),
    "MatMul": ({"transposeA": False, "transposeB": True}, (X[0, 0], X[0, 1]), X[0, 0] @ X[0, 1].T),
    "Mean": ({"axis": (1, 2), "keepDims": True}, (X,), X.mean((1, 2), keepdims=True)),
    "Nchw2Nhwc": ({}, (X,), X.transpose(0, 2, 3, 1)),
    "Nhwc2Nchw": ({}, (X,), X.transpose(0, 3, 1, 2)),
    "Pad": (
        {"paddings": (0, 0, 1, 2, 0, 0, 0, 1), "paddingMode": "CONSTANT", "constantValue": 3.0},
        (X,),
        np.pad(X, ((0, 0), (1, 2), (0, 0), (0, 1)), constant_values=3),
    ),
    "Permute": ({"order": (0, 2, 1, 3)}, (X,), X.transpose(0, 2, 1, 3)),
    "Power": ({"power": 2.0, "scale": 3.0, "shift": 1.0}, (X,), (3 * X + 1) ** 2),
    "PReLU": ({"channelShared": True, "slope": (0.5,)}, (X,), np.where(X > 0, X, X / 2)),
    "Reduce": (
        {"axes": (1,), "keepDims": 0, "mode": "ReduceMax", "reduceToEnd": False, "coeff": 1.0},
        (np.abs(X),),
        np.abs(X).max(1),
    ),
    "Reshape": ({"format": "NHWC", "shape": (0, -1)}, (X,), X.reshape(1, -1)),
    "Resize": (
        {"method": "NEAREST_NEIGHBOR", "newHeight": 8, "newWidth": 12, "alignCorners": False},
        (X,),
        X.repeat(2, 1).repeat(2, 2),
    ),
    "Reverse": ({"axis": (1,)}, (X,), X[:, ::-1]),
    "ReverseSequence": ({"seqAxis": 1, "batchAxis": 0}, (X, np.int32([4])), X[:, ::-1]),
    "Scale": ({"axis": 3, "activationType": "NO_ACTIVATION"}, (X, X[0, 0, 0]), X * X[0, 0, 0]),
    "Slice": ({"begin": (0, 1, 2, 0), "size": (1, 2, -1, 3), "axes": (0, 1, 2, 3)}, (X,), X[:, 1:3, 2:]),
    "SoftMax": ({"axis": -1}, (X,), np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
    "SpaceToBatch": (
        {"blockShape": (2, 2), "paddings": (0, 0, 0, 0)},
        (X,),
        X.reshape(1, 2, 2, 3, 2, 3).transpose(2, 4, 0, 1, 3, 5).reshape(4, 2, 3, 3),
    ),
    "SpaceToDepth": ({"blockSize": 2, "format": "NHWC"}, (X[..., :1],), None),
    "Squeeze": ({"axis": (0,)}, (X,), X[0]),
    "Stack": ({"axis": 1, "n": 2, "isScale": None}, (X, X), np.stack([X, X], 1)),
    "StridedSlice": (
        {"begin": (0, 1, 0, 0), "end": (1, 4, 6, 3), "stride": (1, 2, 1, 1), "shrinkAxisMask": 1, "beginMask": 0},
        (X,),
        X[0, 1:4:2],
    ),
    "Tan": ({}, (X,), np.tan(X)),
    "Tile": ({"multiples": (1, 2, 1, 1), "dims": None}, (X,), np.tile(X, (1, 2, 1, 1))),
    "Transpose": ({"perm": (3, 2, 1, 0), "conjugate": False}, (X,), X.T),
    "UnsortedSegmentSum": ({"numSegments": 3}, (X[0], np.int32([0, 2, 0, 2])), None),
}


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("layout", ["ms_v0_compat", "msl1_r1_1"])
def test_attributes_that_became_operands_are_supplied(op, layout):
    attrs, arrays, want = CASES[op]
    got = run(op, attrs, *arrays, layout=layout)
    if op == "SpaceToDepth":
        want = X[..., 0].reshape(1, 2, 2, 3, 2).transpose(0, 1, 3, 2, 4).reshape(1, 2, 3, 4)
    if op == "UnsortedSegmentSum":
        want = np.stack([X[0, 0] + X[0, 2], np.zeros((6, 3)), X[0, 1] + X[0, 3]])
    assert got.dtype.kind == np.asarray(want).dtype.kind or op in ("ArgMax", "UnsortedSegmentSum", "GeLU")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_several_results():
    parts = run("Split", {"numberSplit": 2, "sizeSplits": (1, 3), "splitDim": 1}, X, outputs=2)
    np.testing.assert_array_equal(parts[1], X[:, 1:])
    values, indices = run("TopK", {"k": 2, "sorted": True}, X[0, 0, 0], outputs=2)
    np.testing.assert_array_equal(values, np.sort(X[0, 0, 0])[:0:-1])
    np.testing.assert_array_equal(indices, np.argsort(X[0, 0, 0])[:0:-1])


def test_operands_that_a_file_has_are_not_supplied_again():
    """Later files of the old layout have the operand and the attribute."""
    got = run("Reshape", {"format": "NHWC", "shape": (9, 9)}, X, np.int32([4, 18]))
    assert got.shape == (4, 18)
    attrs = {"begin": (9,), "end": (1, 2, 6, 3), "stride": (1, 1, 1, 1)}
    assert run("StridedSlice", attrs, X, np.int32([0, 1, 0, 0])).shape == (1, 1, 6, 3)


def test_msl2_files_keep_their_words():
    layer = ir.Layer(0, "", "MatMul", "matmul", 0, {"transpose_a": False, "transpose_b": True}, (0, 1), (2,))
    renamed, extra = upgraded(layer, "msl2_r1_2")
    assert (renamed.op, renamed.attrs["transpose_b"], extra) == ("MatMulFusion", True, ())
    newest = ir.Layer(0, "", "Activation", "activation", 0, {"activation_type": "RELU"}, (0,), (1,))
    assert upgraded(newest, "msl2_newest") == (newest, ())


def members(layout):
    schema = load_schema(SCHEMAS / f"{layout}.fbs")
    return schema, set(schema.union("PrimitiveType").members.values())


def test_rows_name_fields_that_exist():
    newest, known = members("msl2_newest")
    layouts = [members(layout) for layout in ("ms_v0_compat", "ms_v0_r1_0", "ms_v0_r0_7", "msl1_r1_1")]
    for op, row in ROWS.items():
        fields = {item.name for schema, ops in layouts if op in ops for item in schema.tables[op].fields}
        assert fields or any(op in ops for _, ops in layouts), op
        sources = [source for source in row.attrs.values() if not callable(source)]
        named = {name for source in sources for name in ([source] if isinstance(source, str) else source)}
        named |= {operand if isinstance(operand, str) else operand[0] for operand in row.operands} - {"nhwc", "nchw"}
        assert named <= fields, op
        if row.op in known:
            new_fields = {item.name for item in newest.tables[row.op].fields}
            assert set(row.attrs) - {"depthwise"} <= new_fields | {"approximate"}, op


# training, audio, random numbers, vendors' own blobs, and what nobody defines
NOT_COMPUTED = {
    *("BatchNormGrad", "DeConv2DGradFilter", "LSTMGrad", "LSTMGradData", "LSTMGradWeight", "ResizeGrad"),
    *("NLLLoss", "NLLLossGrad"),
    *("AudioSpectrogram", "Mfcc", "Rfft", "FftReal", "FftImag"),
    *("RandomNormal", "RandomStandardNormal", "UniformReal"),
    *("Custom", "GenOP", "Attention"),
}


def test_every_other_operator_of_the_newest_schema_is_computed():
    _, known = members("msl2_newest")
    computed = set(operators("mslite")) | set(operators("mslite:int8"))
    assert known - computed == NOT_COMPUTED


def test_snake_case():
    assert snake_case("beginMask") == "begin_mask"


def test_the_name_alone_needs_no_attributes():
    for op in ROWS:
        bare = ir.Layer(0, "", op, "", 0, {}, (), ())
        try:
            new, _ = upgraded(bare, "ms_v0_r1_0")
        except ExecutionError:
            new = bare
        assert upgraded_op(bare, "ms_v0_r1_0") == (new.op if new is not bare else ROWS[op].op)
    pooling = ir.Layer(0, "", "Pooling", "", 0, {"poolingMode": "MEAN_POOLING"}, (), ())
    assert upgraded_op(pooling, "ms_v0_r1_0") == "AvgPoolFusion"
    assert upgraded_op(ir.Layer(0, "", "Pooling", "", 0, {}, (), ()), "ms_v0_r1_0") == "Pooling"


def test_attributes_that_a_damaged_file_lost_are_named():
    tile = ir.Layer(64, "tile", "Tile", "tile", 0, {"multiples": None, "dims": None}, (0,), (1,))
    assert upgraded_op(tile, "ms_v0_r0_7") == "TileFusion"
    with pytest.raises(ExecutionError, match=r"layer 64 'tile' \(Tile\): the file gives no multiples, dims"):
        upgraded(tile, "ms_v0_r0_7")
