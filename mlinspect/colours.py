"""Tables in colour: bars for sizes, red, amber and green by the readings that the columns' meanings document.

The thresholds are read from those meanings ("good above 40, bad below 20"), so that words and colours always agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

# black on each is readable, and bold tells bad from good without colour
GOOD, FAIR = "background-color:#bfe3cf;color:#000", "background-color:#ffe2a6;color:#000"
BAD = "background-color:#f4b8a6;color:#000;font-weight:bold"
SEVERITIES = {"error": BAD, "warning": FAIR, "info": ""}
BAR = "#4a90c880"  # half transparent, for text of either colour
_LEFT, _WHOLE = "text-align:left;", "white-space:nowrap;"
_READING = re.compile(r"(good|bad) (above|below) (\d+(?:\.\d+)?(?:/\d+)?)|good: 0\b")
# words that restrict a reading to some rows: the column, and the value that it must have
_ONLY = {
    "of 8-bit weights": ("bits", 8),
    "with one scale for all": ("scheme", "per_tensor"),
    "per tensor": ("scheme", "per_tensor"),
}
_SIZES = ("bytes", "multiply-adds", "elements", "share", "bits")


class Reading(NamedTuple):
    """What a column's meaning says of good and bad values."""

    good_above: float | None = None
    good_below: float | None = None
    bad_above: float | None = None
    bad_below: float | None = None
    only: tuple[str, object] | None = None

    def judge(self, values: pd.Series) -> np.ndarray:
        """A CSS style for each value, ``""`` where there is nothing to say."""
        x = pd.to_numeric(values, errors="coerce").to_numpy(float, na_value=np.nan)
        with np.errstate(invalid="ignore"):
            bad = _beyond(x, self.bad_above, self.bad_below)
            good = _beyond(x, self.good_above, self.good_below)
        asked = self.good_above is not None or self.good_below is not None
        found = np.full(len(x), "", object)
        found[~np.isnan(x) & asked] = FAIR
        found[good] = GOOD
        found[bad] = BAD
        return found


def _beyond(x: np.ndarray, above: float | None, below: float | None) -> np.ndarray:
    """Values on the named side of either limit, the limit itself included."""
    found = np.zeros(len(x), bool)
    if above is not None:
        found |= x >= above
    if below is not None:
        found |= x <= below
    return found


def reading(meaning: str) -> Reading | None:
    """The reading in a column's meaning, or None where it has none.

    Examples
    --------
    >>> reading("signal / noise; good above 40, bad below 20")[:4]
    (40.0, None, None, 20.0)
    >>> reading("the tensor's name") is None
    True
    """
    found: dict[str, float] = {}
    for match in _READING.finditer(meaning):
        verdict, side, limit = match.groups()
        found[f"{verdict}_{side}" if verdict else "good_below"] = float(Fraction(limit)) if limit else 0.0
    only = next((rows for words, rows in _ONLY.items() if words in meaning), None)
    return Reading(**found, only=only) if found else None


def colour(styler: Styler, declared: Sequence[tuple[str, str, str, str]]) -> Styler:
    """Colour a table by what is declared of its columns: rows of name, dtype, unit and meaning.

    Parameters
    ----------
    styler : pandas Styler
        Of the table, which is left as it is; other columns stay plain.
    declared : sequence of tuple
        As in ``mlinspect.tables.COLUMNS``.

    Returns
    -------
    pandas Styler
        The same.

    Examples
    --------
    >>> frame = pd.DataFrame({"sqnr_db": [50.0, 10.0]})
    >>> html = colour(frame.style, [("sqnr_db", "float64", "dB", "good above 40, bad below 20")]).to_html()
    >>> "#bfe3cf" in html, "#f4b8a6" in html
    (True, True)
    """
    frame: pd.DataFrame = styler.data  # type: ignore[attr-defined]
    about = {name: (unit, meaning) for name, _, unit, meaning in declared if name in frame}
    numeric = [name for name in about if pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool]
    # from the content: equal tables have equal HTML, and different tables on a page do not share colours
    styler = styler.set_uuid(f"{crc32(frame.to_csv().encode()):08x}")
    reals = [str(name) for name in frame if pd.api.types.is_float_dtype(frame[name])]
    words = [str(name) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    styler = styler.format(dict.fromkeys(reals, "{:.4g}"), na_rep="", escape="html")
    left = {name: _LEFT + _WHOLE * (frame[name].dtype == "category") for name in words}
    styler = styler.set_table_styles({name: [{"selector": "", "props": props}] for name, props in left.items()})
    readings = {name: found for name in numeric if (found := reading(about[name][1])) is not None}
    for name, found in readings.items():
        styler = styler.apply(_judged, subset=[name], frame=frame, found=found)
    for name in numeric:
        size = name not in readings and about[name][0] in _SIZES and frame[name].min() >= 0
        if size and frame[name].max() > 0:
            styler = styler.bar(subset=[name], color=BAR, vmin=0, width=90, height=80, props="width: 7em;")
    if "severity" in about:
        styler = styler.map(lambda value: SEVERITIES.get(str(value), ""), subset=["severity"])
    return styler


def _judged(values: pd.Series, frame: pd.DataFrame, found: Reading) -> list[str]:
    styles = found.judge(values)
    if found.only is not None:
        column, wanted = found.only
        fits = (
            (frame[column] == wanted).to_numpy(bool, na_value=False) if column in frame else np.zeros(len(frame), bool)
        )
        styles[~fits] = ""
    return styles.tolist()
