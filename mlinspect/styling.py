"""Tables in colour: bars for sizes, red, amber and green by the readings that the columns' meanings document.

The thresholds are read from those meanings ("good above 40, bad below 20"), so that words and colours cannot part.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from mlinspect.glossary import COLUMNS

# black on each is readable, and bold tells bad from good without colour
GOOD, FAIR = "background-color:#bfe3cf;color:#000", "background-color:#ffe2a6;color:#000"
BAD = "background-color:#f4b8a6;color:#000;font-weight:bold"
SEVERITIES = {"error": BAD, "warning": FAIR, "info": ""}
_READING = re.compile(r"(good|bad) (above|below) (\d+(?:\.\d+)?(?:/\d+)?)|good: 0\b")
# words before or behind a reading that bind it to some rows: column, and what it has to hold
_ONLY = {
    "of 8-bit weights": ("bits", 8),
    "with one scale for all": ("scheme", "per_tensor"),
    "per tensor": ("scheme", "per_tensor"),
}
_SIZES = ("bytes", "multiply-adds", "elements", "share", "bits")


class Coloured(Styler):
    """A Styler that shows the plain table where there are no colours."""

    data: pd.DataFrame

    def __repr__(self) -> str:
        return repr(self.data)


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


def style(frame: pd.DataFrame, table: str | None = None) -> Styler:
    """A table in colour, for looking at: bars for sizes and counts, colours by what is documented as good or bad.

    Parameters
    ----------
    frame : DataFrame
        Any table of this package, or rows and columns of one; it stays as it is.
    table : str, optional
        Its name, as for ``mlinspect.describe``; by default the one whose columns fit best.

    Returns
    -------
    pandas Styler
        Green is good, red and bold is bad, amber lies between; columns that the tables do not know stay plain.

    Raises
    ------
    KeyError
        No such table.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_wq4.ms"))
    >>> html = style(model.stats()[["name", "nbytes", "levels_share"]]).to_html()
    >>> "linear-gradient" in html
    True
    """
    declared = {name: (unit, meaning) for name, _, unit, meaning in _rows(frame, table)}
    numeric = [
        str(c) for c in frame if c in declared and pd.api.types.is_numeric_dtype(frame[c]) and frame[c].dtype != bool
    ]
    # of its content: the same table gives the same HTML, and two on a page do not share their colours
    uuid = f"{crc32(frame.to_csv().encode()):08x}"
    styler: Styler = Coloured(frame, uuid=uuid).format(precision=4, na_rep="", escape="html")
    readings = {name: found for name in numeric if (found := reading(declared[name][1])) is not None}
    for name, found in readings.items():
        styler = styler.apply(_judged, subset=[name], frame=frame, found=found)
    sizes = [c for c in numeric if c not in readings and declared[c][0] in _SIZES and frame[c].min() >= 0]
    for name in sizes:
        if frame[name].max() > 0:
            styler = styler.bar(subset=[name], color="#8ab4d8", vmin=0, width=90, height=80, props="width: 7em;")
    if "severity" in declared and "severity" in frame:
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


def _rows(frame: pd.DataFrame, table: str | None) -> list[tuple[str, str, str, str]]:
    """The declared columns of a table, or of the one that shares most columns with the frame."""
    if table is None:
        has = {str(name) for name in [*frame.columns, *frame.index.names]}
        table = max(COLUMNS, key=lambda name: len(has & {row[0] for row in COLUMNS[name]}))
    if table not in COLUMNS:
        raise KeyError(f"no table {table!r}; the tables are {', '.join(COLUMNS)}")
    return COLUMNS[table]
