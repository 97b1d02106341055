"""MindSpore Lite's operators that the real runtime refuses, or that no vendor-made vector covers: by definition."""

import dataclasses

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute.bind_mslite import loader
from mlinspect.execute.registry import operators

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
    ("Activation", {"activation_type": "NO_ACTIVATION"}, (X,), X),
    ("Activation", {"activation_type": "RELU"}, (np.int32([-3, 4]),), [0, 4]),
    ("AddFusion", {"activation_type": "RELU6"}, (np.int32([-3, 4]), np.int32([1, 5])), [0, 6]),
    ("AllGather", {"rank_size": 1}, (X,), X),
    ("BatchNorm", {"epsilon": 0.0}, (F([[4, 5]]), F([2, 5]), F([4, 1])), [[1, 0]]),
    ("Clip", {"min": -1.0, "max": 2.0}, (np.int32([-5, 1, 5]),), [-1, 1, 2]),
    ("LogicalAnd", {}, (np.int32([6, 5, 0]), np.int32([3, 2, 1])), [2, 0, 0]),  # bit by bit, as the runtime
    ("MatMulFusion", {}, (X[0, 0, 0], X[0, 0].T), X[0, 0, 0] @ X[0, 0].T),
    ("OneHot", {"axis": -1}, (np.int32([1, -1]), np.int32([3]), F([0, 5])), [[0, 5, 0], [0, 0, 5]]),
    ("Range", {}, (F([1]), F([2]), F([0.25])), [1, 1.25, 1.5, 1.75]),
    ("Rank", {}, (np.int32([[7]]),), [2]),
    ("Shape", {}, (X,), X.shape),
    ("Size", {}, (X,), X.size),
    ("Splice", {"context": (-1, 0, 1), "forward_indexes": (0, 0, 1, 0, 1, 2)}, (X[:, :, 0],), None),
    ("TensorScatterAdd", {}, (F([1, 2, 3]), np.int32([[2], [0], [2]]), F([10, 20, 30])), [21, 2, 43]),
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
    if op == "Splice":
        want = np.stack([X[:, [0, 0, 1], 0], X[:, [0, 1, 2], 0]], 1).reshape(2, 2, 9)
    got = run(op, *arrays, **attrs)
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want, np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs", "arrays", "said"),
    [
        ("AllGather", {"rank_size": 2}, (X,), "joins 2 devices"),
        ("Activation", {"activation_type": "Unknown(99)"}, (X,), r"activation Unknown\(99\) has no arithmetic here"),
    ],
)
def test_what_is_not_known_is_named(op, attrs, arrays, said):
    with pytest.raises(mi.UnsupportedError, match=said):
        run(op, *arrays, **attrs)


def test_reductions_of_no_axes_and_of_no_known_kind():
    (got,) = model("ReduceFusion", (np.array(F(3)),), mode="ReduceSum", keep_dims=False).run([np.array(F(3))]).values()
    assert got == 3
    with pytest.raises(mi.UnsupportedError, match=r"reduction ReduceXor has no .* ReduceMean"):
        model("ReduceFusion", (X,), mode="ReduceXor", keep_dims=False).run([X])


def test_an_assertion_of_the_model():
    assert run("Assert", np.array([True]), F([3])).tolist() == [True]
    with pytest.raises(mi.ExecutionError, match=r"assertion does not hold; it shows \[\[3\.0\]\]"):
        run("Assert", np.array([False]), F([3]))


def test_several_pieces():
    for i, part in enumerate(run("Unstack", X, outputs=4, axis=1)):
        np.testing.assert_array_equal(part, X[:, i])
    splits, values = run("RaggedRange", np.int32([0, 5]), np.int32([3, 3]), np.int32([2, -1]), outputs=2)
    assert (splits.tolist(), values.tolist()) == ([0, 2, 4], [0, 2, 5, 4])
    y, mean, variance = run("LayerNormFusion", X, outputs=3, begin_norm_axis=1, epsilon=1e-5)
    np.testing.assert_allclose(mean.ravel(), X.mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(variance.ravel(), X.var((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(y, (X - mean) / np.sqrt(variance + 1e-5), atol=1e-4)


def test_strided_slices_without_strides():
    begin, end = np.int32([0, 1]), np.int32([2, 3])
    np.testing.assert_array_equal(run("StridedSlice", X, begin, end), X)
    np.testing.assert_array_equal(run("StridedSlice", X, begin, end, mode="float"), X[:2, 1:3])


def test_a_single_crop_offset():
    x = np.arange(24).reshape(2, 3, 4).astype(F)
    np.testing.assert_array_equal(run("Crop", x, np.zeros((2, 2, 2), F), axis=1, offsets=(1,)), x[:, 1:3, :2])
    got = run("Crop", x, np.zeros((2, 2, 2), F), axis=1, offsets=(1,), mode="float")
    np.testing.assert_array_equal(got, x[:, 1:3, 1:3])


def test_sequences_are_blocks_along_one_axis():
    x = X[:, :, 0]
    got = run("SpaceToBatchND", x, block_shape=(2,), paddings=((0, 0),))
    np.testing.assert_array_equal(got, np.concatenate([x[:, ::2], x[:, 1::2]]))
    np.testing.assert_array_equal(run("BatchToSpaceND", got, block_shape=(2,), crops=((0, 0),)), x)


def test_embeddings_are_scaled_by_sum_or_by_norm():
    table, ids = F([[3, 4], [0.3, 0.4]]), np.int32([1, 0])
    got = run("EmbeddingLookupFusion", table, ids, max_norm=1.0)
    np.testing.assert_allclose(got, [[3 / 7, 4 / 7], [3 / 7, 4 / 7]], rtol=1e-6)  # the runtime's plain sums
    got = run("EmbeddingLookupFusion", table, ids, max_norm=1.0, mode="float")
    np.testing.assert_allclose(got, [[0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_array_equal(run("EmbeddingLookupFusion", table, ids, max_norm=0.0), table[ids])


def test_same_padding_of_a_transposed_convolution_gives_size_times_stride():
    attrs = {"stride": (2, 2), "dilation": (1, 1), "pad_mode": "SAME", "pad_list": None, "group": 1}
    got = run("Conv2dTransposeFusion", F([[[[1], [10]]]]), np.ones((1, 3, 3, 1), F), **attrs)
    # three taps a cell, two cells apart: one column is cut, on the right
    assert got[0, :, :, 0].tolist() == [[1, 1, 11, 10]] * 2


def test_lstm_weights_in_one_vector_are_those_of_the_other_form():
    units, inputs = 2, 3
    x, state = RNG.normal(size=(4, 1, inputs)).astype(F), np.zeros((1, 1, units), F)
    # each form has its own order of gates: input, forget, cell, output; and input, output, forget, cell
    matrices = [RNG.normal(size=(4, units, depth)).astype(F) for depth in (inputs, units)]
    flat = np.concatenate([matrix.ravel() for matrix in matrices])
    y, hidden, cell, *rest = run("LSTM", x, state, state, flat, outputs=5, bidirectional=False)
    assert [part.size for part in rest] == [0, 0]
    other = [matrix[[0, 3, 1, 2]].reshape(1, 4 * units, -1) for matrix in matrices]
    want = run("LSTM", x, *other, np.zeros((1, 8 * units), F), state, state, outputs=3, bidirectional=False)
    for a, b in zip((y, hidden, cell), want, strict=True):
        np.testing.assert_array_equal(a.ravel(), b.ravel())


@pytest.mark.parametrize(("op", "more"), [("InstanceNorm", {}), ("GroupNormFusion", {"num_groups": 3})])
def test_normalisation_of_nchw_tensors(op, more):
    gamma, beta = F([1, 2, 3]), F([0, 1, 2])
    opened = model(op, (X.transpose(0, 3, 1, 2), gamma, beta), epsilon=1e-5, **more)
    tensors = dict(opened.network.tensors)
    tensors[0] = dataclasses.replace(tensors[0], layout="NCHW")
    (got,) = (
        mi.Model(dataclasses.replace(opened.network, tensors=tensors))
        .run([np.ascontiguousarray(X.transpose(0, 3, 1, 2)), gamma, beta])
        .values()
    )
    want = run(op, X, gamma, beta, epsilon=1e-5, **more)
    np.testing.assert_allclose(got.transpose(0, 2, 3, 1), want, rtol=1e-5, atol=1e-6)


def test_int8_operators_that_no_vector_covers():
    """By the real values of what is stored."""
    a, b = np.int8([[10, -20, 30]]), np.int8([5, 6, -7])
    q = {0: (0.1, 0), 1: (0.1, 0), 2: (0.1, 0)}
    assert run("BiasAdd", a, b, dtypes=["int8"], quantization=q).tolist() == [[15, -14, 23]]
    scaled = run("ScaleFusion", a, b, np.int8([1, 1, 1]), dtypes=["int8"], quantization={**q, 3: (0.1, 0)}, axis=-1)
    assert scaled.tolist() == [[6, -11, -20]]  # 1 * 0.5 + 0.1, -2 * 0.6 + 0.1, 3 * -0.7 + 0.1
    unit = run("L2NormalizeFusion", np.int8([[3, 4]]), dtypes=["int8"], quantization={0: (0.5, 0), 1: (0.1, 3)})
    assert unit.tolist() == [[77, 102]]  # 0.6 and 0.8 on a scale of 1/128, whatever the output says
    box = run(
        "SliceFusion", a, np.int32([0, 1]), np.int32([1, 2]), dtypes=["int8"], quantization={0: q[0], 3: (0.2, 0)}
    )
    assert box.tolist() == [[-10, 15]]
    cut = run(
        "Crop", a, np.zeros((1, 2), F), dtypes=["int8"], quantization={0: q[0], 2: (0.2, 0)}, axis=1, offsets=(1,)
    )
    assert cut.tolist() == [[-10, 15]]
    moved = run("QuantDTypeCast", a, dtypes=["int8"], quantization={0: q[0], 1: (0.2, 1)})
    assert moved.tolist() == [[6, -9, 16]]


def test_every_int8_operator_is_an_operator():
    """An operator is looked up by its name first, and then for the type of its operands."""
    assert set(operators("mslite:int8")) <= set(operators("mslite"))


def test_an_operator_without_arithmetic():
    opened = model("Attention", (X,))
    assert opened.layers.reference.tolist() == ["none"]
    with pytest.raises(mi.UnsupportedError, match=r"no arithmetic for Attention.*register_op"):
        opened.run([X])


def strings_of(*words):
    """As a file stores them: how many, where each begins and the last ends, their bytes."""
    starts = np.cumsum([4 * (len(words) + 2), *map(len, words)]).astype(np.int32)
    return np.frombuffer(np.int32([len(words)]).tobytes() + starts.tobytes() + b"".join(words), np.uint8)


@pytest.mark.parametrize(("raw", "want"), [(strings_of(b"one", b"three"), [b"one", b"three"]), (strings_of(), [])])
def test_constant_strings(raw, want):
    tensor = ir.Tensor(7, "words", 0, "constant", "string", "String", None, data=raw)
    network = ir.Network("mslite", "msl2_newest", "", (ir.Graph(0, "", (), (), ()),), {7: tensor})
    assert loader(network, "vendor")(tensor).tolist() == want


@pytest.mark.parametrize("raw", [np.zeros(0, np.uint8), strings_of(b"one")[:4], np.int32([-1, 0]).view(np.uint8)])
def test_constant_strings_that_are_cut_off(raw):
    tensor = ir.Tensor(7, "words", 0, "constant", "string", "String", None, data=raw)
    network = ir.Network("mslite", "msl2_newest", "", (ir.Graph(0, "", (), (), ()),), {7: tensor})
    with pytest.raises(mi.ModelFormatError, match=r"constant words of .* bytes does not hold"):
        loader(network, "vendor")(tensor)


def test_int8_without_what_it_needs_is_refused():
    with pytest.raises(mi.UnsupportedError, match="'t0' is int8 without quantisation parameters"):
        run("Softmax", np.int8([[1, 2]]), dtypes=["int8"], axis=(-1,))
    with pytest.raises(mi.UnsupportedError, match="no int8 kernel for CUBIC resizing"):
        attrs = {"method": "CUBIC", "coordinate_transform_mode": "ASYMMETRIC", "new_height": 2, "new_width": 2}
        run("Resize", np.zeros((1, 1, 1, 1), np.int8), dtypes=["int8"], quantization={0: (1, 0), 1: (1, 0)}, **attrs)


def test_a_constant_of_clusters_is_looked_up():
    """Weights packed as indices into a table of values."""
    layer = ir.Layer(0, "layer", "AddFusion", "add", 0, {"activation_type": "NO_ACTIVATION"}, (0, 1), (2,))
    clusters = np.linspace(-1, 1, 256).astype(F)
    stored = np.int8([-128, 0, 127])
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "Float32", (3,)) for i in (0, 2)}
    tensors[1] = ir.Tensor(
        1, "t1", 0, "constant", "int8", "Int8", (3,), data=stored, meta={"quantClusters": tuple(clusters.tolist())}
    )
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 2),), (layer,))
    (got,) = mi.Model(ir.Network("mslite", "msl2_newest", "", (graph,), tensors)).run(np.zeros(3, F)).values()
    np.testing.assert_array_equal(got, clusters[[0, 128, 255]])


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
    # by definition, clip keeps boxes in the image: one of 20 pixels around the first cell's centre
    attrs |= {"min_sizes": (20,), "max_sizes": None, "aspect_ratios": None}
    boxes, _ = run("PriorBox", features, image, mode="float", **attrs).reshape(2, -1, 4)
    np.testing.assert_allclose(boxes[0] * [16, 8, 16, 8], [0, 0, 14, 8], atol=1e-5)


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
    table = mi.quirks("mslite")
    assert set(table.op) - {"all"} <= set(operators("mslite")) | set(operators("mslite:int8"))
    assert table.vendor_mode.str.startswith(("followed", "not followed")).all()
    assert not table.duplicated().any()
    with pytest.raises(ValueError, match="armnn"):
        mi.quirks("onnx")
