"""MindSpore Lite's operators that the real runtime refuses, or that no vendor-made vector covers: by definition."""

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir

F = np.float32
RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (2, 4, 6, 3)).astype(F)


def model(op, arrays, outputs=1, quantization=(), dtypes=(), **attrs):
    """One layer; every operand is an input. ``quantization``: parameters of the first operands, then of the outputs."""
    count = len(arrays)
    layer = ir.Layer(0, "layer", op, op.lower(), 0, attrs, tuple(range(count)), tuple(range(count, count + outputs)))
    kinds = ["string" if array.dtype == object else str(array.dtype) for array in arrays]
    kinds += list(dtypes) or ["float32"] * outputs
    params = dict(quantization)
    tensors = {}
    for i, kind in enumerate(kinds):
        q = None
        if i in params:
            q = ir.Quantization(np.array([params[i][0]]), np.array([params[i][1]]))
        tensors[i] = ir.Tensor(i, f"t{i}", 0, "activation", kind, kind, None, quantization=q, quantized=q is not None)
    ports = [ir.Port(f"t{i}", i) for i in range(count + outputs)]
    graph = ir.Graph(0, "", tuple(ports[:count]), tuple(ports[count:]), (layer,))
    return mi.Model(ir.Network("mslite", "msl2_newest", "", (graph,), tensors))


def run(op, *arrays, outputs=1, mode="vendor", **attrs):
    results = list(model(op, arrays, outputs, **attrs).run(list(arrays), mode=mode).values())
    return results if outputs > 1 else results[0]


CASES = [
    ("All", {"keep_dims": 1}, (np.array([[True, False], [True, True]]), np.int32([1])), np.array([[False], [True]])),
    ("BatchToSpaceND", {"block_shape": (2, 1), "crops": ((1, 0), (0, 2))}, (X,), None),
    ("Depend", {}, (X, X), X),
    ("Dropout", {"keep_prob": 0.5}, (X,), X),
    ("Elu", {"alpha": 1.5}, (F([1, -1]),), F([1, 1.5 * np.expm1(-1)])),
    ("FillV2", {}, (np.int32([2, 2]), F([3])), np.full((2, 2), 3, F)),
    ("FormatTranspose", {"src_format": "NHWC", "dst_format": "NCHW"}, (X,), X.transpose(0, 3, 1, 2)),
    ("FormatTranspose", {"src_format": "NHWC", "dst_format": "NHWC"}, (X,), X),
    ("LeakyRelu", {"negative_slope": 0.1}, (F([2, -2]),), F([2, -0.2])),
    ("LinSpace", {}, (F([0]), F([1]), np.int32([5])), np.linspace(0, 1, 5)),
    ("LpNormalization", {"axis": 3, "p": 2}, (X,), X / np.linalg.norm(X, axis=3, keepdims=True)),
    ("LpNormalization", {"axis": 1, "p": 1}, (X,), X / np.abs(X).sum(1, keepdims=True)),
    ("NonZero", {}, (np.int32([[0, 1], [1, 1]]),), [[0, 1, 1], [1, 0, 1]]),
    ("ScatterElements", {"axis": 1}, (np.zeros((1, 3), F), np.int32([[2, 0]]), F([[5, 6]])), [[6, 0, 5]]),
    ("Affine", {"context": (-1, 1), "output_dim": 1, "transpose_b": True}, None, None),
    (
        "SparseSegmentSum",
        {},
        (X[0, 0], np.int32([0, 2, 3]), np.int32([0, 0, 1])),
        np.stack([X[0, 0, [0, 2]].sum(0), X[0, 0, 3]]),
    ),
]


@pytest.mark.parametrize(("op", "attrs", "arrays", "want"), CASES, ids=[case[0] for case in CASES])
def test_published_definitions(op, attrs, arrays, want):
    if op == "BatchToSpaceND":
        want = np.stack([X[0], X[1]], 1).reshape(1, 8, 6, 3)[:, 1:, :4]
    if op == "Affine":
        weights = RNG.uniform(-1, 1, (1, 6)).astype(F)
        arrays = (X[:, 0], weights)
        want = np.concatenate([X[:, 0, :-2], X[:, 0, 2:]], -1) @ weights.T
    got = run(op, *arrays, **attrs)
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want, np.float64), rtol=1e-5, atol=1e-6)


def test_adder_convolution_sums_distances():
    weights = RNG.uniform(-1, 1, (2, 2, 2, 3)).astype(F)
    attrs = {"stride": (1, 1), "dilation": (1, 1), "pad_mode": "PAD", "pad_list": (0, 0, 0, 0)}
    got = run("AdderFusion", X, weights, activation_type="NO_ACTIVATION", **attrs)
    assert got.shape == (2, 3, 5, 2)
    np.testing.assert_allclose(got[1, 2, 3, 1], -np.abs(X[1, 2:4, 3:5] - weights[1]).sum(), rtol=1e-5)


def test_group_norm_of_both_layouts():
    gamma, beta = F([1, 2, 3]), F([0, 1, 2])
    got = run("GroupNormFusion", X, gamma, beta, num_groups=3, epsilon=1e-5, affine=True)
    want = (X - X.mean((1, 2), keepdims=True)) / np.sqrt(X.var((1, 2), keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_fake_quantisation_nudges_to_zero():
    got = run("FakeQuantWithMinMaxVars", F([-0.1, 0, 0.26, 9]), F([-0.1]), F([0.9]), num_bits=4, narrow_range=False)
    np.testing.assert_allclose(got, [-0.06666667, 0, 0.26666668, 0.8666667], rtol=1e-5)  # steps of 1/15 from -2/15


def test_sparse_tensors():
    places, values, empty, went = run(
        "SparseFillEmptyRows",
        np.int32([[0, 1], [2, 3]]),
        np.int32([5, 6]),
        np.int32([4, 5]),
        np.int32([9]),
        outputs=4,
        dtypes=["int32", "int32", "bool", "int32"],
    )
    assert places.tolist() == [[0, 1], [1, 0], [2, 3], [3, 0]]
    assert values.tolist() == [5, 9, 6, 9]
    assert empty.tolist() == [False, True, False, True]
    assert went.tolist() == [0, 2]
    moved, shape = run("SparseReshape", np.int32([[0, 1], [2, 3]]), np.int32([3, 4]), np.int32([2, -1]), outputs=2)
    assert (moved.tolist(), shape.tolist()) == ([[0, 1], [1, 5]], [2, 6])
    dense = run("SparseToDense", np.int32([[0, 1], [1, 0]]), np.int32([2, 2]), F([7, 8]), F([-1]))
    np.testing.assert_array_equal(dense, [[-1, 7], [8, -1]])


def test_prior_boxes():
    attrs = {"min_sizes": (4,), "max_sizes": (9,), "aspect_ratios": (4.0,), "variances": (0.1, 0.1, 0.2, 0.2)}
    attrs |= {
        "image_size_w": 0,
        "image_size_h": 0,
        "step_w": 0.0,
        "step_h": 0.0,
        "clip": True,
        "flip": True,
        "offset": 0.5,
    }
    features, image = np.zeros((1, 1, 2, 3), F), np.zeros((1, 8, 16, 3), F)
    boxes, spread = run("PriorBox", features, image, **attrs).reshape(2, -1, 4)
    # cells of 8 x 8: a square of 4, one of 6, 8 x 2 and 2 x 8
    want = [[2, 2, 6, 6], [1, 1, 7, 7], [0, 3, 8, 5], [3, 0, 5, 8]]
    np.testing.assert_allclose(boxes[:4] * [16, 8, 16, 8], want, atol=1e-5)
    np.testing.assert_allclose(spread, np.tile(F([0.1, 0.1, 0.2, 0.2]), (8, 1)))


def test_smart_reply():
    """Sentences to features to labels."""
    sentence = run("CustomNormalize", np.array(["I'm SURE!"], object), dtypes=["string"])
    assert sentence.tolist() == ["<S> i am sure ! <E>"]
    grams = run("SkipGram", sentence, ngram_size=2, max_skip_size=0, include_all_grams=False, dtypes=["string"])
    assert grams.tolist() == ["<S> i", "i am", "am sure", "sure !", "! <E>"]
    hashes, counts = run("CustomExtractFeatures", grams, outputs=2)
    assert counts.tolist() == [2, 2, 2, 2, 2]
    assert ((hashes > -1_000_000) & (hashes < 1_000_000)).all()
    keys = np.sort(hashes[:2])
    labels, weights = np.int32([[3, 1], [1, 2]]), F([[0.5, 0.25], [1.0, 0.125]])
    best, score = run("CustomPredict", hashes, keys, labels, weights, outputs=2, output_num=3, weight_threshold=0.06)
    assert best.tolist() == [1, 3, -1]
    np.testing.assert_allclose(score, [0.25, 0.1, 0])
    values, hit = run("HashtableLookup", np.int32([5, 4]), np.int32([1, 5]), F([7, 8]), outputs=2)
    assert (values.tolist(), hit.tolist()) == ([8, 0], [1, 0])
    seeds = RNG.normal(size=(2, 3)).astype(F)
    dense = run("LshProjection", seeds, np.int32([1, 2]), type="DENSE").reshape(2, 3)
    sparse = run("LshProjection", seeds, np.int32([1, 2]), type="SPARSE")
    assert sparse.tolist() == [int("".join(map(str, row)), 2) + 8 * i for i, row in enumerate(dense)]


@pytest.mark.parametrize(
    ("op", "attrs", "function"),
    [
        ("Maximum", {}, lambda a, b: np.maximum(a, b)),
        ("FloorDiv", {}, lambda a, b: np.floor(a / b)),
        ("SquaredDifference", {}, lambda a, b: (a - b) ** 2),
    ],
)
def test_int8_operators_without_a_kernel_go_by_real_values(op, attrs, function):
    """The runtime refuses them; here they are dequantised, computed and quantised, and the table says so."""
    a, b = RNG.integers(-128, 128, 40).astype(np.int8), RNG.integers(10, 128, 40).astype(np.int8)
    params = {0: (0.05, 3), 1: (0.1, -4), 2: (0.2, 1)}
    opened = model(op, (a, b), dtypes=["int8"], quantization=params.items(), **attrs)
    assert opened.layers.reference.tolist() == ["published definition"]
    (got,) = opened.run([a, b]).values()
    real = function((a.astype(float) - 3) * 0.05, (b.astype(float) + 4) * 0.1)
    assert np.abs(got - np.clip(real / 0.2 + 1, -128, 127)).max() <= 0.5 + 1e-3


def test_float_mode_follows_the_definitions():
    """Where the runtime departs from them (``mi.quirks``)."""
    assert run("SubFusion", F([1]), F([3]), activation_type="RELU")[0] == -2
    assert run("SubFusion", F([1]), F([3]), activation_type="RELU", mode="float")[0] == 0
    _, index = run("TopKFusion", F([3, 1, 2]), np.int32([1]), outputs=2, sorted=True, axis=-1, largest=0)
    assert index[0] == 0
    _, index = run("TopKFusion", F([3, 1, 2]), np.int32([1]), outputs=2, sorted=True, axis=-1, largest=0, mode="float")
    assert index[0] == 1
    fusion = {"base": 2.0, "scale": 1.0, "shift": 1.0}
    assert run("ExpFusion", F([3]), **fusion)[0] == pytest.approx(np.exp(3) * 2, rel=1e-4)
    assert run("ExpFusion", F([3]), mode="float", **fusion)[0] == pytest.approx(16, rel=1e-6)
    assert run("Activation", F([7] * 8), activation_type="TANH", mode="float")[0] == pytest.approx(np.tanh(7), abs=1e-7)
    low, high = F([-1]), F([1])
    assert run("Clip", F([5]), low, high, min=-9.0, max=9.0)[0] == 5
    assert run("Clip", F([5]), low, high, min=-9.0, max=9.0, mode="float")[0] == 1


def test_every_quirk_is_of_a_known_operator_and_says_what_is_done():
    from mlinspect.execute.registry import operators

    table = mi.quirks("mslite")
    assert set(table.op) - {"all"} <= set(operators("mslite")) | set(operators("mslite:int8"))
    assert table.vendor_mode.str.startswith(("followed", "not followed")).all()
    assert not table.duplicated().any()
    with pytest.raises(ValueError, match="armnn"):
        mi.quirks("onnx")
