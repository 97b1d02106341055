"""Results show what was found, in colour, and are plain pandas in everything else."""

import html
import pickle
import re

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect.analysis.findings import result
from mlinspect.colours import BAD


@pytest.fixture(scope="module")
def images():
    return mi.samples.digits().images[:8, ..., None].astype(np.float32) / 16


@pytest.fixture(scope="module")
def models():
    names = {"float": "digits_cnn.ms", "int8": "digits_cnn_int8.ms", "wq4": "digits_cnn_wq4.ms"}
    return {key: mi.open(mi.samples.path(name)) for key, name in names.items()}


@pytest.fixture(scope="module")
def broken(models):
    return models["int8"].with_quant("res.weight", zero_point=6)


@pytest.fixture(scope="module")
def results(models, broken, images):
    return {
        "compare": mi.compare(models["float"], broken, images),
        "blame": mi.blame(broken, models["float"], images, progress=False),
        "weights": mi.compare_weights(models["float"], models["wq4"]),
        "channels": mi.compare_weights(models["float"], models["wq4"], by="channel"),
        "lint": models["int8"].lint(),
    }


def heading(table):
    return html.unescape(re.search("<p><strong>(.*?)</strong></p>", table._repr_html_())[1])


def rows(table):
    return table._repr_html_().count("<tr>") - 1


def test_headings_say_what_was_found(results):
    compared, blamed = results["compare"], results["blame"]
    worst = compared.sqnr_db.min()
    assert heading(compared) == f"first divergent layer: /res/Conv, SQNR {worst:.1f} dB; 7 of 12 diverge"
    assert heading(blamed) == f"largest share of the final error: /res/Conv, {blamed.share.max():.0%}"
    assert heading(results["weights"]) == "worst of 10 pairs: res.weight, SQNR 19.3 dB"
    assert heading(results["channels"]).endswith(" pairs: res.weight, channel 19, SQNR 17.8 dB")
    assert heading(results["lint"]) == "2 info"


def test_headings_of_healthy_models(models, images):
    reference = models["float"]
    assert heading(mi.compare(reference, reference, images)) == "no difference in 12 layers"
    table = mi.compare(reference, models["int8"], images)
    assert heading(table) == f"no layer diverges; worst: {table.name_a.iloc[0]}, SQNR {table.sqnr_db.min():.1f} dB"
    assert heading(mi.compare_weights(reference, reference)) == "no difference in 10 pairs"
    assert heading(mi.blame(reference, reference, images, progress=False)) == "no layer makes an error of its own"
    own = mi.blame(models["int8"], reference, images, shares=False, progress=False)
    worst = own.loc[own.own_db.idxmin()]
    assert heading(own) == f"largest own error: {worst['name']}, SQNR {worst.own_db:.1f} dB"
    assert heading(reference.lint()) == "nothing found"
    assert "<table" not in reference.lint()._repr_html_()


def test_a_heading_tells_the_first_from_the_worst_and_what_was_not_compared(images, models, tmp_path):
    model = models["int8"]
    trace = model.trace(images[:1])
    np.savez(tmp_path / "dump.npz", **{"/stem/Conv": trace["/stem/Conv"], "/pw/Conv": -100 - 0 * trace["/pw/Conv"]})
    table = mi.compare(model, mi.read_dump(tmp_path / "dump.npz"), images[:1])
    assert heading(table).startswith("first divergent layer: /pw/Conv, SQNR ")
    assert heading(table).endswith(f"; 1 of {len(table)} diverge; {len(table) - 2} not compared")
    empty = pd.DataFrame(table).assign(sqnr_db=np.nan, divergent=False, first=False)
    assert heading(result("compare", empty)) == "no layer could be compared"
    two = pd.DataFrame(table).assign(divergent=True, sqnr_db=np.arange(len(table), 0, -1.0))
    two["first"] = two.index == two.index[0]
    assert "; worst: " in heading(result("compare", two))
    failed = two.assign(sqnr_db=np.nan, note="sizes differ")
    assert heading(result("compare", failed)).startswith(f"first divergent layer: {two.name_a.iloc[0]}, sizes differ;")


def test_lint_counts_by_severity(broken):
    scales = broken.quant.query("name == 'res.weight'").scale.to_numpy()
    table = broken.with_quant("res.weight", scale=1.5 * scales, zero_point=6).lint()
    assert heading(table) == "1 error, 1 warning, 2 info"
    text = table._repr_html_()
    assert all(part in text.replace(" ", "") for part in BAD.split(";"))


def test_the_picture_has_the_telling_columns_and_names_the_others(results):
    text = results["compare"]._repr_html_()
    assert ">sqnr_db</th>" in text and ">layer_a</th>" not in text
    assert "more columns: layer_a, layer_b, " in text


def test_long_tables_keep_to_the_option_of_pandas(results):
    table = results["channels"]
    with pd.option_context("display.max_rows", 7):
        assert rows(table) == 7
        assert f"{len(table) - 7:,} more rows" in table._repr_html_()
    with pd.option_context("display.max_rows", None):
        assert rows(table) == len(table)
        assert "more rows" not in table._repr_html_()


@pytest.mark.parametrize("name", ["compare", "blame", "weights", "channels", "lint"])
def test_all_else_is_plain_pandas(results, name, tmp_path):
    table = results[name]
    plain = pd.DataFrame(table)
    pd.testing.assert_frame_equal(table, plain)
    assert table.equals(plain) and plain.equals(table)
    assert table.to_csv() == plain.to_csv() and table.to_string() == plain.to_string()
    assert {type(part) for part in (plain, table.head(2), table.copy(), table.reset_index())} == {pd.DataFrame}
    again = pickle.loads(pickle.dumps(table))
    assert again._repr_html_() == table._repr_html_()
    pd.testing.assert_frame_equal(again, table)
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "x.parquet")
    pd.testing.assert_index_equal(pd.read_parquet(tmp_path / "x.parquet").columns, table.columns)


def test_a_table_that_lost_columns_in_place_is_shown_as_any_other(results):
    table = result("lint", results["lint"].copy())
    del table["severity"]
    assert table._repr_html_() == pd.DataFrame(table)._repr_html_()


def test_names_are_escaped():
    bad = "<script>alert(1)</script>\x1b[31m"
    row = {"rule": "nan", "severity": "error", "layer": 1, "tensor": 2, "message": bad, "fix": bad}
    text = result("lint", pd.DataFrame([row]))._repr_html_()
    assert "<script" not in text
    names = dict.fromkeys(("name_a", "name_b", "kind", "role", "matched"), bad)
    numbers = dict.fromkeys(("elements", "sqnr_db", "corrected_db", "cosine", "max_abs_error", "bias", "kl"), 1.0)
    others = dict.fromkeys(("tensor_a", "tensor_b", "layer_a", "layer_b", "dtype_a", "dtype_b", "shape_a", "shape_b"))
    text = result("weight_pairs", pd.DataFrame([names | numbers | others]))._repr_html_()
    assert "<script" not in text and "&lt;script" in text
    assert "\x1b" not in text.split("</strong>")[0]


def test_a_terminal_shows_what_was_found_and_the_figures_that_tell_it(results):
    lines = {name: repr(table).split("\n") for name, table in results.items()}
    for name, table in results.items():
        assert lines[name][0] == heading(table)
    assert lines["compare"][1].split() == ["name_a", "name_b", "sqnr_db", "cosine", "divergent", "note"]
    assert lines["blame"][1].split() == ["name", "kind", "sqnr_db", "own_db", "share"]
    row = results["blame"].set_index("name").loc["/res/Conv"]
    assert [f"{row.own_db:.4g}", f"{row.share:.4g}"] == next(
        one for one in lines["blame"] if one.split()[0] == "/res/Conv"
    ).split()[-2:]
    assert lines["lint"][1].startswith("info: layer ")
    assert lines["lint"][-1].startswith("    fix: ")
    assert repr(results["lint"]).count("fix: ") == results["lint"].fix.nunique()


def test_a_terminal_is_not_filled_by_long_tables_nor_misled_by_names(results):
    with pd.option_context("display.max_rows", 3):
        assert repr(results["compare"]).split("\n")[-1] == f"{len(results['compare']) - 3} more rows"
    table = results["weights"].copy()
    table["name_a"] = "a\x1b[2J\n" + "b" * 200
    text = repr(result("weight_pairs", table))
    assert "\x1b" not in text
    assert max(map(len, text.split("\n"))) < 220
    assert len(text.split("\n")) == len(table) + 2


def test_shares_that_cancel_and_few_inputs_are_told(results):
    table = pd.DataFrame(results["blame"]).copy()
    assert "only" not in result("blame", table).finding
    assert result("blame", table.assign(samples=1)).finding.endswith(" (1 input only)")
    table["share"] = [1.5, -1.5, *[0.0] * (len(table) - 2)]
    found = result("blame", table).finding
    assert found.startswith("errors cancel (sizes of shares add up to 300%); largest own error: /res/Conv, SQNR ")
    assert found.endswith("; largest share of the final error: /stem/Conv, 150%")
