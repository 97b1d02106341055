"""Weights of two models against each other: published figures, every layer matched, both formats in one order."""

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis.columns import COLUMNS
from mlinspect.analysis.operands import Use, by_channel, matrix
from mlinspect.analysis.pairs import compare_weights
from mlinspect.kernels.agreement import sqnr_db


def sample(name):
    return mi.open(mi.samples.path(name))


def test_face_model_against_its_quantised_pair(models):
    a, b = (mi.open(models / f"ml_face_isface{end}.ms") for end in ("", "_quant"))
    pairs = compare_weights(a, b)
    assert len(pairs) == 12
    assert (pairs.matched == "name").all()
    noisy = pairs[np.isfinite(pairs.sqnr_db)].sort_values("layer_a")
    assert noisy.name_a.str.split("/").str[0].tolist() == ["conv2", "conv3", "conv4", "fc5", "fc6"]
    assert noisy.sqnr_db.round(2).tolist() == [41.97, 41.76, 42.72, 41.46, 48.10]
    want = [sqnr_db(a.dequantized[i], b.dequantized[j]) for i, j in zip(noisy.tensor_a, noisy.tensor_b, strict=True)]
    assert noisy.corrected_db.tolist() == pytest.approx(want)
    assert (noisy.corrected_db > noisy.sqnr_db).all()


def by_hand(tensor):
    """Real values by scale and zero point alone, of tensors whose channels come first."""
    stored, q = tensor.array.astype(np.float64), tensor.quantization
    if not tensor.quantized:
        return stored
    return (stored.T * q.scale - q.scale * q.zero_point).T


@pytest.mark.parametrize(
    ("first", "second"),
    [("digits_cnn.armnn", "digits_cnn_u8.armnn")]
    + [("digits_cnn.ms", f"digits_cnn_{kind}.ms") for kind in ("fp16", "int8", "wq8", "wq4")],
)
def test_every_layer_of_the_digits_models_is_matched(first, second):
    a, b = sample(first), sample(second)
    pairs = compare_weights(a, b)
    weighty = [layer.index for layer in a.network.layers.values() if a.layers.params[layer.index]]
    assert set(pairs.layer_a) == set(weighty)
    assert pairs.matched.isin(["name", "structure"]).all()
    for _, row in pairs.iterrows():
        x, y = a.dequantized[row.tensor_a], b.dequantized[row.tensor_b]
        assert row.name_a == row.name_b
        assert row.corrected_db == pytest.approx(sqnr_db(x, y))
        plain = by_hand(b.network.tensors[row.tensor_b])
        assert row.sqnr_db == pytest.approx(sqnr_db(x, plain), rel=1e-4)
        assert row.max_abs_error == pytest.approx(np.abs(x - plain).max(), rel=1e-3)
    assert pairs.sqnr_db.is_monotonic_increasing


@pytest.mark.parametrize("name", ["ds_cnn_f32", "mobilenet_v1_f32", "ds_cnn_int8", "mobilenet_v1_int8"])
def test_one_network_in_both_formats_has_the_same_weights(name, golden):
    a = mi.open(golden("armnn-nets.zip").model(f"{name}.armnn"))
    b = mi.open(golden("mslite-nets.zip").model(f"{name}.ms"))
    pairs = compare_weights(a, b)
    assert (pairs.matched == "structure").all()
    assert len(pairs) == sum(c.size > 0 for c in a.weights.values())
    assert (pairs.max_abs_error == 0).all()
    assert (pairs.sqnr_db == np.inf).all()
    order = pairs[pairs.role == "weights"].sort_values("layer_a")
    assert order.layer_b.is_monotonic_increasing


def test_layers_without_partner_come_last():
    pairs = compare_weights(sample("digits_cnn.armnn"), sample("digits_cnn.ms"))
    assert pairs.matched[-4:].tolist() == ["a only"] * 4
    assert pairs.role[-4:].tolist() == ["mean", "variance", "beta", "gamma"]
    assert pairs.tensor_b[-4:].isna().all()
    assert pairs.sqnr_db[-4:].isna().all()
    back = compare_weights(sample("digits_cnn.ms"), sample("digits_cnn.armnn"))
    assert back.matched[-4:].tolist() == ["b only"] * 4


def test_channels_add_up_to_the_tensor():
    a, b = sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms")
    whole, parts = compare_weights(a, b), compare_weights(a, b, by="channel")
    row = whole[whole.name_a == "res.weight"].iloc[0]
    channels = parts[parts.name_a == "res.weight"].sort_values("channel")
    assert channels.channel.tolist() == list(range(32))
    power = (a.dequantized["res.weight"].astype(float) ** 2).reshape(32, -1).sum(1)
    noise = power / 10 ** (channels.sqnr_db / 10)
    assert row.sqnr_db == pytest.approx(10 * np.log10(power.sum() / noise.sum()))
    assert row.bias == pytest.approx(channels.bias.mean())
    assert row.max_abs_error == channels.max_abs_error.max()


# ---- small networks --------------------------------------------------------------------------------------------------


def net(weights, names, order=None, kind="matmul", fmt="mslite"):
    """One layer a weight, in the given order."""
    tensors = {
        i: ir.Tensor(i, name, 0, "constant", str(w.dtype), str(w.dtype), w.shape, data=w)
        for i, (w, name) in enumerate(zip(weights, names, strict=True))
    }
    layers = [
        ir.Layer(n, f"l{n}", kind, kind, 0, {"transpose_b": True}, (99, i), ()) for n, i in enumerate(order or tensors)
    ]
    return ir.Network(fmt, "", "", (ir.Graph(0, "", (), (), tuple(layers)),), tensors)


def filters(seed, count=4, shape=(6, 5)):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(count)]


def partners(pairs):
    return dict(zip(pairs.tensor_a.astype(int), pairs.tensor_b.astype(int), strict=True))


def test_renamed_and_reordered_weights_find_each_other_by_correlation():
    w = filters(0)
    noisy = [x + np.float32(0.1) for x in w]
    pairs = compare_weights(net(w, "abcd"), net(noisy, "wxyz", order=[2, 0, 3, 1]))
    assert partners(pairs) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert (pairs.matched == "structure").all()
    assert pairs.bias.tolist() == pytest.approx([0.1] * 4, rel=1e-5)


def test_unlike_weights_are_matched_in_order():
    pairs = compare_weights(net(filters(0), "abcd"), net(filters(1), "wxyz"))
    assert partners(pairs) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert (pairs.sqnr_db < 0).all()


def test_equal_constants_are_matched_in_order():
    zeros = [np.zeros((6, 5), np.float32)] * 3
    pairs = compare_weights(net(zeros, "abc"), net(zeros, "xyz"))
    assert partners(pairs) == {0: 0, 1: 1, 2: 2}
    assert (pairs.sqnr_db == np.inf).all()


def test_a_name_is_not_believed_where_the_size_differs():
    a, b = net(filters(0, 1), "a"), net(filters(0, 1, (5, 6)), "a")
    pairs = compare_weights(a, b)
    assert sorted(pairs.matched) == ["a only", "b only"]


def test_unequal_numbers_of_unlike_weights_stay_unmatched():
    pairs = compare_weights(net(filters(0, 3), "abc"), net(filters(1, 2), "xy"))
    assert sorted(pairs.matched) == ["a only"] * 3 + ["b only"] * 2


def test_wrong_parameters_give_no_figures():
    w = filters(0, 1)
    a, b = net(w, "a"), net([np.zeros((6, 5), np.int8)], "a")
    q = ir.Quantization(np.ones(4), np.zeros(4), 0)
    bad = ir.Tensor(0, "a", 0, "constant", "int8", "", (6, 5), data=b.tensors[0].data, quantization=q, quantized=True)
    pairs = compare_weights(a, ir.Network("mslite", "", "", b.graphs, {0: bad}))
    assert pairs.matched.tolist() == ["name"]
    assert pairs[["sqnr_db", "kl"]].isna().all(axis=None)


def test_figures_by_hand():
    a = net([np.float32([[3, 4], [0, 5]])], "w")
    b = net([np.float32([[3, 4], [1, 5]])], "w")
    row = compare_weights(a, b).iloc[0]
    assert row.sqnr_db == pytest.approx(10 * np.log10(50 / 1))
    assert row.cosine == pytest.approx(50 / np.sqrt(50 * 51))
    assert (row.max_abs_error, row.bias) == (1.0, 0.25)
    # four bins from 0 to 5: [0, 0, 2, 2] of {0, 3, 4, 5} with a 0 first, against {1, 3, 4, 5}; the 0 and 1 share a bin
    assert row.kl == 0
    far = net([np.float32([[3, 4], [4, 5]])], "w")
    p, q = np.array([1.5, 0.5, 1.5, 2.5]) / 6, np.array([0.5, 0.5, 1.5, 3.5]) / 6
    assert compare_weights(a, far).kl[0] == pytest.approx((p * np.log(p / q)).sum())


def test_against_zeros_there_is_no_sqnr():
    """float biases that are 0 against int8 ones that are nearly so"""
    w, zeros = filters(0, 1)[0], [np.zeros((3, 2), np.float32)] * 3
    a = net([*zeros, w], ["zero", "small", "large", "w"])
    b = net(
        [zeros[0], zeros[0] + np.float32(0.01), zeros[0] + np.float32(0.04), w * 2], ["zero", "small", "large", "w"]
    )
    pairs = compare_weights(a, b)
    assert pairs.name_a.tolist() == ["w", "zero", "large", "small"]
    assert np.isnan(pairs.sqnr_db[2:]).all()
    assert np.isnan(pairs.corrected_db[2:]).all()
    assert pairs.max_abs_error[2:].tolist() == pytest.approx([0.04, 0.01])
    assert pairs.sqnr_db[1] == np.inf
    channels = compare_weights(a, b, by="channel")
    assert channels.sqnr_db.isna().tolist() == [False] * 9 + [True] * 6


def test_columns_are_as_declared():
    a = net(filters(0, 1), "a")
    for by, name in (("tensor", "weight_pairs"), ("channel", "weight_pair_channels")):
        table = compare_weights(a, a, by)
        assert [(c, str(d)) for c, d in table.dtypes.items()] == [(c, d) for c, d, _, _ in COLUMNS[name]]
    with pytest.raises(ValueError, match="'tensor' or 'channel'"):
        compare_weights(a, a, by="layer")
    assert isinstance(compare_weights(net([], ""), net([], "")), pd.DataFrame)


LAYOUTS = {
    "OHWI": ((4, 2, 3, 5), lambda w: w.reshape(4, -1)),
    "OIHW": ((4, 5, 2, 3), lambda w: np.moveaxis(w, 1, 3).reshape(4, -1)),
    "1HWO": ((1, 2, 3, 8), lambda w: np.moveaxis(w[0], 2, 0).reshape(8, -1)),
    "MIHW": ((2, 4, 2, 3), lambda w: np.array([w[c % 2, c // 2].ravel() for c in range(8)])),
    "DHWIO": ((2, 2, 3, 4, 5), lambda w: np.moveaxis(w, 4, 0).reshape(5, -1)),
    "IO": ((7, 3), lambda w: w.T),
    "OI": ((3, 7), lambda w: w),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_become_rows_of_output_channels(layout):
    shape, want = LAYOUTS[layout]
    w = np.arange(np.prod(shape)).reshape(shape)
    t = ir.Tensor(0, "w", 0, "constant", "int64", "", shape, layout=layout)
    use = Use(ir.Layer(0, "", "", "conv2d", 0, {}, (), ()), 1)
    np.testing.assert_array_equal(matrix(w, t, use), want(w))
    view = by_channel(w, t, use).swapaxes(0, 1).reshape(len(want(w)), -1)
    np.testing.assert_array_equal(np.sort(view, axis=1), np.sort(want(w), axis=1))


@pytest.mark.parametrize(
    ("kind", "attrs", "shape", "axis"),
    [
        ("conv2d_transpose", {"group": 1}, (3, 2, 2, 4), 3),
        ("conv2d_transpose", {"group": 4}, (4, 2, 2, 1), 0),
        ("matmul", {"transpose_b": True}, (6, 5), 0),
        ("matmul", {"transpose_b": False}, (6, 5), 1),
        ("matmul", {"transpose_b": False}, (2, 6, 5), 2),
        ("fully_connected", {}, (6, 5), 0),
        ("conv2d", {}, (4, 3, 3, 2), 0),
    ],
)
def test_output_channels_of_mindspore_weights(kind, attrs, shape, axis):
    t = ir.Tensor(0, "w", 0, "constant", "float32", "", shape)
    use = Use(ir.Layer(0, "", "", kind, 0, attrs, (), ()), 1)
    w = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(matrix(w, t, use), np.moveaxis(w, axis, 0).reshape(shape[axis], -1))
