"""Colours follow the readings that the columns' meanings document, and nothing else."""

import numpy as np
import pandas as pd
import pytest

import mlinspect as mi
from mlinspect.colours import BAD, FAIR, GOOD, reading
from mlinspect.styling import style


def cells(frame, table=None):
    """(row, column) -> CSS properties, as the Styler has computed them."""
    styler = style(frame, table)
    styler._compute()
    names = dict(enumerate(frame.columns))
    return {(row, names[column]): ";".join(f"{k}:{v}" for k, v in css) for (row, column), css in styler.ctx.items()}


def has(css, wanted):
    return all(part in css.replace(" ", "") for part in wanted.split(";"))


def test_thresholds_come_from_the_meaning():
    assert reading("signal; good above 40, bad below 20")._asdict() == {
        "good_above": 40, "good_below": None, "bad_above": None, "bad_below": 20, "only": None,
    }  # fmt: skip
    assert reading("of 8-bit weights: good above 1/2, bad below 1/8").only == ("bits", 8)
    assert reading("values; good: 0").good_below == 0
    assert reading("mean; good near 0") is None


def test_green_amber_red():
    css = cells(pd.DataFrame({"name_a": list("abcd"), "sqnr_db": [np.inf, 30, 20, np.nan]}), "compare")
    assert has(css[0, "sqnr_db"], GOOD)
    assert has(css[1, "sqnr_db"], FAIR)
    assert has(css[2, "sqnr_db"], BAD)
    assert (3, "sqnr_db") not in css
    assert not any(column == "name_a" for _, column in css)


def test_readings_of_8_bit_weights_say_nothing_of_others():
    frame = pd.DataFrame({"name": ["a", "b"], "bits": [8, 4], "levels_share": [0.1, 0.1]})
    css = cells(frame, "stats")
    assert has(css[0, "levels_share"], BAD)
    assert (1, "levels_share") not in css
    assert not any(column == "levels_share" for _, column in cells(frame[["name", "levels_share"]], "stats"))


def test_bars_for_sizes():
    frame = mi.open(mi.samples.path("digits_cnn_int8.ms")).layers[["name", "macs", "weight_bytes"]]
    css = cells(frame)
    largest = frame.macs.to_numpy().argmax()
    assert "linear-gradient" in css[largest, "macs"] and "90.0%" in css[largest, "macs"]
    assert not any(column == "name" for _, column in css)


def test_severities():
    frame = pd.DataFrame({"rule": ["a", "b"], "severity": ["error", "info"], "message": ["<b>", ""], "fix": ["", ""]})
    css = cells(frame)
    assert has(css[0, "severity"], BAD) and (1, "severity") not in css
    html = style(frame).to_html()
    assert "&lt;b&gt;" in html and "<b>" not in html


def test_the_table_stays_as_it_is_and_gives_the_same_html_twice():
    frame = mi.open(mi.samples.path("digits_cnn_wq4.ms")).tensors
    before = frame.copy()
    assert style(frame).to_html() == style(frame).to_html()
    pd.testing.assert_frame_equal(frame, before)


def test_small_numbers_keep_their_digits():
    html = style(pd.DataFrame({"name_a": ["w"], "max_abs_error": [0.0000123456]}), "weight_pairs").to_html()
    assert "1.235e-05" in html


def test_unknown_columns_stay_plain():
    assert cells(pd.DataFrame({"mine": [1.0, 2.0]})) == {}
    with pytest.raises(KeyError, match="no table 'nope'; the tables are layers"):
        style(pd.DataFrame(), "nope")
