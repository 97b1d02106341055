"""What-if tables against the real converter's files and slow definitions; plans against trying everything."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.analysis import whatif as module
from mlinspect.analysis.columns import COLUMNS
from mlinspect.analysis.pairs import compare_weights
from mlinspect.analysis.whatif import PARAMETER_BYTES, plan, what_if
from mlinspect.kernels.agreement import sqnr_db


def digits():
    return mi.open(mi.samples.path("digits_cnn.ms"))


def network(weights, fmt="mslite", bias=0):
    """One fully connected layer a weight."""
    tensors, layers = {}, []
    for n, w in enumerate(weights):
        w = np.asarray(w, np.float32)
        tensors[n] = ir.Tensor(n, f"w{n}", 0, "constant", "float32", "", w.shape, data=w, nbytes=w.nbytes)
        layers.append(ir.Layer(n, f"fc{n}", "FullConnection", "fully_connected", 0, {}, (99, n), ()))
    if bias:
        b = np.zeros(bias, np.float32)
        tensors[98] = ir.Tensor(98, "b", 0, "constant", "float32", "", b.shape, data=b, nbytes=b.nbytes)
        layers[0] = ir.Layer(0, "fc0", "FullConnection", "fully_connected", 0, {}, (99, 0, 98), ())
    return ir.Network(fmt, "", "", (ir.Graph(0, "", (), (), tuple(layers)),), tensors)


@pytest.mark.parametrize(("bits", "name"), [(8, "digits_cnn_wq8.ms"), (4, "digits_cnn_wq4.ms")])
def test_the_real_converter_gives_what_was_foretold(bits, name):
    foretold = what_if(digits(), (bits,), (True,), ("minmax",)).set_index("name").sqnr_db
    real = compare_weights(digits(), mi.open(mi.samples.path(name)))
    real = real[np.isfinite(real.sqnr_db)].set_index("name_a").sqnr_db
    assert sorted(real.index) == ["head.weight", "pw.weight", "res.weight"]
    for weight, db in real.items():
        assert foretold[weight] == pytest.approx(db, abs=0.01)


def by_hand(w, bits, symmetric, low, high):
    """One row, number by number."""
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale = max(-low, high) / top
        return np.array([scale * max(-top, min(top, round(x / scale))) for x in w])
    scale = (high - low) / (2**bits - 1)
    zero = round(-low / scale)
    return np.array([scale * (max(0, min(2**bits - 1, round(x / scale) + zero)) - zero) for x in w])


@pytest.mark.parametrize("fmt", ["mslite", "armnn"])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("bits", [2, 5, 8])
def test_against_slow_rounding(fmt, each, bits):
    w = np.random.default_rng(bits).normal(0.3, 1, (3, 40)).astype(np.float32)
    row = what_if(network([w], fmt), (bits,), (each,), ("minmax",)).loc[0]
    rows = w.astype(float) if each else w.astype(float).reshape(1, -1)
    symmetric = fmt == "armnn" and each
    want = np.array([by_hand(r, bits, symmetric, min(r.min(), 0), max(r.max(), 0)) for r in rows])
    assert row.sqnr_db == pytest.approx(sqnr_db(rows, want))
    assert row.bytes == -(-120 * bits // 8) + len(rows) * PARAMETER_BYTES[fmt]
    assert row.clipped == 0


def test_clipping_pays_where_there_are_outliers():
    w = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32)
    w[0, 17] = 40
    table = what_if(network([w]), (4,), (False, True)).set_index(["per_channel", "clip"])
    for each in (False, True):
        db, clipped = table.sqnr_db[each], table.clipped[each]
        assert db["mse"] >= db["minmax"]
        assert clipped["minmax"] == 0
        assert 0 < clipped["percentile"] <= 0.0011
        assert clipped["mse"] > 0
    assert table.sqnr_db[True, "minmax"] > table.sqnr_db[False, "minmax"]


def test_mse_finds_the_best_of_its_ratios():
    w = np.random.default_rng(3).standard_t(3, (1, 300)).astype(np.float32)
    found = what_if(network([w]), (4,), (False,), ("mse",)).sqnr_db[0]
    low, high = float(w.min()), float(w.max())
    tried = [sqnr_db(w[0], by_hand(w[0].astype(float), 4, False, r * low, r * high)) for r in np.linspace(1, 0.3, 36)]
    assert found == pytest.approx(max(tried), abs=1e-6)


def test_blocks_give_the_same_table(monkeypatch):
    w = np.random.default_rng(0).normal(size=(5, 70)).astype(np.float32)
    want = what_if(network([w]))
    monkeypatch.setattr(module, "_BLOCK", 32)
    got = what_if(network([w]))
    np.testing.assert_allclose(got.sqnr_db, want.sqnr_db)
    assert got.clipped.tolist() == want.clipped.tolist()


def test_a_weight_of_zeros_loses_nothing():
    table = what_if(network([np.zeros((2, 9))]))
    assert (table.sqnr_db == np.inf).all()


def test_only_float_weights_are_tried():
    quantised = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    for call in (what_if, lambda model: plan(model, 12_000)):
        with pytest.raises(mi.InputError, match="no float weights to quantise: give the float model"):
            call(quantised)
    mixed = what_if(mi.open(mi.samples.path("digits_cnn_wq8.ms")), (8,), (True,), ("minmax",))
    assert mixed.name.tolist() == ["onnx::Conv_40", "dw.weight"]
    half = what_if(mi.open(mi.samples.path("digits_cnn_fp16.ms")), (8,), (True,), ("minmax",))
    assert len(half) == 5


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({"bits": (1,)}, "2 to 16"),
        ({"bits": []}, "bits is empty: use one or some of 2 to 16"),
        ({"bits": "8"}, "bits='8' is unknown: use one or some of 2 to 16"),
        ({"bits": 4.5}, "2 to 16"),
        ({"clip": ("max",)}, "'max' is unknown"),
        ({"clip": "percentil"}, "use one or some of 'minmax', 'percentile', 'mse'; did you mean 'percentile'"),
        ({"per_channel": "yes"}, "use one or some of False, True"),
    ],
)
def test_wrong_ways_are_refused(ways, message):
    with pytest.raises(ValueError, match=message):
        what_if(digits(), **ways)
    with pytest.raises(ValueError, match=message):
        plan(digits(), 10**6, **ways)


def test_one_value_is_a_sequence_of_one():
    model = digits()
    pd.testing.assert_frame_equal(what_if(model, 8, True, "mse"), what_if(model, [8], [True], ["mse"]))
    one, same = plan(model, 12_000, 4, False, "mse"), plan(model, 12_000, (4,), (False,), ("mse",))
    pd.testing.assert_frame_equal(one.table, same.table)
    assert plan(model, 12_000, 6, one_width=True).bytes == plan(model, 12_000, (6,), one_width=True).bytes


# ---- plans -----------------------------------------------------------------------------------------------------------


def noise(db):
    return sum(10 ** (-d / 10) for d in db)


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_t(4, (8, int(rng.integers(20, 200)))) for _ in range(4)]
    net = network(weights, bias=10)
    table = what_if(net, (2, 4, 8), (True,), ("minmax",))
    ways = [[(np.inf, w.size * 4)] for w in weights]
    for n, db, size in zip(table.tensor, table.sqnr_db, table.bytes, strict=True):
        ways[n].append((db, size))
    combined = [([o[0] for o in c], sum(o[1] for o in c) + 40) for c in product(*ways)]
    smallest, largest = min(s for _, s in combined), max(s for _, s in combined)
    for budget in np.linspace(smallest, largest, 7).astype(int):
        found = plan(net, int(budget), (2, 4, 8))
        best = min(noise(db) for db, size in combined if size <= budget)
        assert noise(found.table.sqnr_db) == pytest.approx(best)
        assert found.bytes == found.table.bytes.sum() + 40 <= budget
        assert found.sqnr_db == pytest.approx(-10 * np.log10(best) if best else np.inf)


def test_a_budget_that_is_too_small_says_what_is_needed():
    with pytest.raises(ValueError, match="need at least 9280"):
        plan(digits(), 5000)
    assert plan(digits(), 9280).bytes == 9280
    with pytest.raises(ValueError, match="too few"):
        plan(digits(), 10)
    assert plan(digits(), 12_000.5).budget_bytes == 12_000
    for budget in ("12k", None, True, float("nan"), float("inf")):
        with pytest.raises(mi.InputError, match=f"budget_bytes={budget!r} is no number of bytes"):
            plan(digits(), budget)


def test_arm_nn_has_no_converter_to_configure():
    found = plan(mi.open(mi.samples.path("digits_cnn.armnn")), 12_000)
    assert (found.config, found.bytes <= 12_000) == ("", True)


def test_more_bytes_never_cost_accuracy():
    found = [plan(digits(), budget).sqnr_db for budget in (9500, 11_000, 14_000, 20_000, 42_000)]
    assert found == sorted(found)
    assert found[-1] == np.inf


def test_one_width_for_one_run_of_the_converter():
    mixed, single = plan(digits(), 12_000), plan(digits(), 12_000, one_width=True)
    assert mixed.table.bits.nunique() == 2
    assert single.table.bits.nunique() == 1
    assert mixed.sqnr_db > single.sqnr_db
    assert single.config == (
        "[common_quant_param]\nquant_type=WEIGHT_QUANT\nbit_num=6\nmin_quant_weight_size=0\n"
        "min_quant_weight_channel=0\nskip_quant_node=/stem/Conv,/dw/Conv\n"
    )
    assert "# 8 bits in the plan, 6 by this file: /pw/Conv, /head/Gemm" in mixed.config
    assert plan(digits(), 10**6).config.startswith("# the plan quantises nothing")


def test_names_cannot_add_lines_to_the_configuration():
    net = network([np.random.default_rng(0).normal(size=(8, 100))])
    layer = net.graphs[0].layers[0]
    evil = ir.Layer(0, "a\nbit_num=1", layer.op, layer.kind, 0, {}, layer.inputs, ())
    small = ir.Layer(1, "b", layer.op, layer.kind, 0, {}, (99, 1), ())
    tensors = net.tensors | {
        1: ir.Tensor(1, "w1", 0, "constant", "float32", "", (1, 2), data=np.float32([[1, 2]]), nbytes=8)
    }
    bad = ir.Network("mslite", "", "", (ir.Graph(0, "", (), (), (evil, small)),), tensors)
    for budget in (10**6, 1000, 800):
        lines = plan(bad, budget, (4,)).config.splitlines()
        assert "bit_num=1" not in lines


def test_columns_are_as_declared():
    for name, table in (("what_if", what_if(digits())), ("plan", plan(digits(), 12_000).table)):
        assert [(c, str(d)) for c, d in table.dtypes.items()] == [(c, d) for c, d, _, _ in COLUMNS[name]]
    assert "<table" in plan(digits(), 12_000)._repr_html_()
