"""Tables that show themselves in a notebook: a line that says what was found, then the table in colour."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlinspect.analysis import columns, columns_runs
from mlinspect.analysis.rule import SEVERITIES
from mlinspect.colours import colour
from mlinspect.html import MAX_NAME, printable

COLUMNS = columns.COLUMNS | columns_runs.COLUMNS


class Result(pd.DataFrame):
    """A table with a picture of its own. What is made from it is a plain DataFrame."""

    _metadata = ["_table"]  # noqa: RUF012 (pandas wants a list)
    _table: str

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        """What was found, and the columns that tell it; pandas' own picture once columns were taken away in place."""
        declared, look = COLUMNS[self._table], LOOKS[self._table]
        if not {name for name, *_ in declared} <= {*self.columns, *self.index.names}:
            return super()._repr_html_()  # type: ignore[misc]
        shown = pd.DataFrame(self)[[*look.columns]].head(pd.get_option("display.max_rows") or len(self))
        hidden = [str(name) for name in self if name not in look.columns]
        notes = [f"{len(self) - len(shown):,} more rows"] if len(self) > len(shown) else []
        notes += [f"more columns: {', '.join(hidden)}"] if hidden else []
        body = colour(shown.style, declared).to_html() if len(self) else ""
        below = f"<p>{escape('; '.join(notes))}</p>" if notes and body else ""
        return f"<div><p><strong>{escape(printable(look.heading(self)))}</strong></p>{body}{below}</div>"


def result(table: str, frame: pd.DataFrame) -> Result:
    """A frame as that table's result.

    Examples
    --------
    >>> row = {"rule": "nan", "severity": "error", "layer": 1, "tensor": 2, "message": "5 NaN", "fix": "retrain"}
    >>> result("lint", pd.DataFrame([row]))._repr_html_()[:36]
    '<div><p><strong>1 error</strong></p>'
    """
    found = Result(frame)
    found._table = table
    return found


# ---- what was found --------------------------------------------------------------------------------------------------


def _compared(table: pd.DataFrame) -> str:
    judged = table[table["sqnr_db"].notna()]
    left_out = int((table["sqnr_db"].isna() & ~table["divergent"]).sum())
    rest = f"; {left_out} not compared" if left_out else ""
    if table["divergent"].any():
        first = table[table["first"]].iloc[0]
        worst = judged.nsmallest(1, "sqnr_db").iloc[0] if len(judged) else first
        figure = _decibels(first["sqnr_db"]) if first["sqnr_db"] == first["sqnr_db"] else str(first["note"])
        worse = "" if worst["first"] else f"; worst: {_names(worst)}, {_decibels(worst['sqnr_db'])}"
        count = f"{table['divergent'].sum()} of {len(table)} diverge"
        return f"first divergent layer: {_names(first)}, {figure}{worse}; {count}{rest}"
    if judged.empty:
        return "no layer could be compared"
    if np.isposinf(judged["sqnr_db"]).all():
        return f"no difference in {len(judged)} layers{rest}"
    worst = judged.nsmallest(1, "sqnr_db").iloc[0]
    return f"no layer diverges; worst: {_names(worst)}, {_decibels(worst['sqnr_db'])}{rest}"


def _blamed(table: pd.DataFrame) -> str:
    if table.empty:
        return "no layers"
    if table["share"].abs().sum() > 0:
        worst = table.nlargest(1, "share").iloc[0]
        return f"largest share of the final error: {_name(worst['name'])}, {worst['share']:.0%}"
    if np.isposinf(table["own_db"]).all():
        return "no layer makes an error of its own"
    worst = table.nsmallest(1, "own_db").iloc[0]
    return f"largest own error: {_name(worst['name'])}, {_decibels(worst['own_db'])}"


def _weighed(table: pd.DataFrame) -> str:
    alone = int(table["matched"].isin(["a only", "b only"]).sum())
    judged = table[table["sqnr_db"].notna()]
    rest = f"; {alone} without a partner" if alone else ""
    if judged.empty:
        return f"nothing could be compared{rest}"
    if np.isposinf(judged["sqnr_db"]).all():
        return f"no difference in {len(judged)} pairs{rest}"
    worst = judged.nsmallest(1, "sqnr_db").iloc[0]
    channel = f", channel {worst['channel']}" if "channel" in table else ""
    return f"worst of {len(judged)} pairs: {_names(worst)}{channel}, {_decibels(worst['sqnr_db'])}{rest}"


def _linted(table: pd.DataFrame) -> str:
    counts = {severity: int((table["severity"] == severity).sum()) for severity in SEVERITIES}
    said = [f"{n} {severity}{'s' if n > 1 and severity != 'info' else ''}" for severity, n in counts.items() if n]
    return ", ".join(said) or "nothing found"


def _names(row: pd.Series) -> str:
    """A pair's name: that of the first model, or of the second where only that has it."""
    return _name(str(row["name_a"] or row["name_b"]))


def _name(name: str) -> str:
    return name if len(name) <= MAX_NAME else "…" + name[1 - MAX_NAME :]


def _decibels(value: float) -> str:
    return f"SQNR {value:.1f} dB"


class _Look(NamedTuple):
    heading: Callable[[pd.DataFrame], str]
    columns: tuple[str, ...]  # those that a picture shows


_WEIGHTS = ("name_a", "name_b", "kind", "role", "matched")
_DISTANCE = ("elements", "sqnr_db", "cosine", "max_abs_error", "bias", "kl")
LOOKS = {
    "compare": _Look(
        _compared, ("name_a", "name_b", "kind", "sqnr_db", "cosine", "max_abs", "equal", "divergent", "note")
    ),
    "blame": _Look(_blamed, ("name", "kind", "sqnr_db", "own_db", "inherited_db", "share")),
    "weight_pairs": _Look(_weighed, (*_WEIGHTS, *_DISTANCE)),
    "weight_pair_channels": _Look(_weighed, ("channel", *_WEIGHTS, *_DISTANCE)),
    "lint": _Look(_linted, ("rule", "severity", "layer", "tensor", "message", "fix")),
}
