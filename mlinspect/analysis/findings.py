"""Tables that show themselves: a line that says what was found, then the columns that tell it."""

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

_FEW = 8  # inputs, with fewer of which shares say little
_CANCELLING = 2  # sizes of shares, beyond which layers undo each other's errors

COLUMNS = columns.COLUMNS | columns_runs.COLUMNS


class Result(pd.DataFrame):
    """A table with a picture of its own. What is made from it is a plain DataFrame."""

    _metadata = ["_table"]  # noqa: RUF012 (pandas wants a list)
    _table: str

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _whole(self) -> bool:
        """False once columns were taken away in place: then it looks as pandas makes it look."""
        return {name for name, *_ in COLUMNS[self._table]} <= {*self.columns, *self.index.names}

    def _shown(self) -> tuple[pd.DataFrame, list[str]]:
        """As many rows as pandas is set to show, and a note on those left out."""
        shown = pd.DataFrame(self).head(pd.get_option("display.max_rows") or len(self))
        return shown, [f"{len(self) - len(shown):,} more rows"] if len(self) > len(shown) else []

    @property
    def finding(self) -> str:
        """What was found, in one line."""
        return printable(LOOKS[self._table].heading(self))

    @property
    def telling(self) -> pd.DataFrame:
        """The columns that tell it."""
        return pd.DataFrame(self)[[*LOOKS[self._table].columns]]

    def __repr__(self) -> str:
        if not self._whole():
            return super().__repr__()
        look, (shown, notes) = LOOKS[self._table], self._shown()
        lines = [self.finding, *(look.text(shown) if len(self) else []), *notes]
        return "\n".join(printable(line) for line in lines)

    def _repr_html_(self) -> str:
        if not self._whole():
            return super()._repr_html_()  # type: ignore[misc]
        look, (shown, notes) = LOOKS[self._table], self._shown()
        hidden = [str(name) for name in self if name not in look.columns]
        notes += [f"more columns: {', '.join(hidden)}"] if hidden else []
        body = colour(shown[[*look.columns]].style, COLUMNS[self._table]).to_html() if len(self) else ""
        below = f"<p>{escape('; '.join(notes))}</p>" if notes and body else ""
        return f"<div><p><strong>{escape(self.finding)}</strong></p>{body}{below}</div>"


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
    inputs = int(table["samples"].max())
    few = f" ({inputs} input{'s' if inputs > 1 else ''} only)" if inputs < _FEW else ""
    if np.isposinf(table["own_db"]).all():
        return "no layer makes an error of its own"
    noisiest = table.nsmallest(1, "own_db").iloc[0]
    own = f"largest own error: {_name(noisiest['name'])}, {_decibels(noisiest['own_db'])}"
    sizes = table["share"].abs().sum()
    if not sizes > 0:
        return own + few
    worst = table.nlargest(1, "share").iloc[0]
    share = f"largest share of the final error: {_name(worst['name'])}, {worst['share']:.0%}"
    if sizes > _CANCELLING:
        return f"errors cancel (sizes of shares add up to {sizes:.0%}); {own}; {share}{few}"
    return share + few


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


# ---- how it is shown -------------------------------------------------------------------------------------------------


def _table(*columns: str) -> Callable[[pd.DataFrame], list[str]]:
    """Lines of a table of these columns, whatever the width of the terminal: a figure cut off tells nothing."""

    def lines(frame: pd.DataFrame) -> list[str]:
        text = frame[[*columns]].to_string(
            index=False, max_colwidth=MAX_NAME, na_rep="", float_format=lambda x: f"{x:.4g}"
        )
        return text.split("\n")

    return lines


def _sentences(frame: pd.DataFrame) -> list[str]:
    """Lint's findings as compilers print theirs; a fix comes once, behind the last finding that it mends."""
    lines = []
    last = frame["fix"].ne(frame["fix"].shift(-1))
    for row, ends in zip(frame.itertuples(), last, strict=True):
        places = [f"{what} {number}" for what in ("layer", "tensor") if pd.notna(number := getattr(row, what))]
        where = f"{', '.join(places)}: " if places else ""
        lines.append(f"{row.severity}: {where}{row.message} [{row.rule}]")
        lines += [f"    fix: {row.fix}"] if ends else []
    return lines


class _Look(NamedTuple):
    heading: Callable[[pd.DataFrame], str]
    columns: tuple[str, ...]  # those that a notebook shows
    text: Callable[[pd.DataFrame], list[str]]  # what a terminal shows


_WEIGHTS = ("name_a", "name_b", "kind", "role", "matched")
_DISTANCE = ("elements", "sqnr_db", "cosine", "max_abs_error", "bias", "kl")
LOOKS = {
    "compare": _Look(
        _compared,
        ("name_a", "name_b", "kind", "sqnr_db", "cosine", "max_abs", "equal", "divergent", "note"),
        _table("name_a", "name_b", "sqnr_db", "cosine", "divergent", "note"),
    ),
    "blame": _Look(
        _blamed,
        ("name", "kind", "sqnr_db", "own_db", "inherited_db", "share"),
        _table("name", "kind", "sqnr_db", "own_db", "share"),
    ),
    "weight_pairs": _Look(
        _weighed, (*_WEIGHTS, *_DISTANCE), _table("name_a", "name_b", "role", "sqnr_db", "cosine", "max_abs_error")
    ),
    "weight_pair_channels": _Look(
        _weighed,
        ("channel", *_WEIGHTS, *_DISTANCE),
        _table("name_a", "name_b", "channel", "sqnr_db", "cosine", "max_abs_error"),
    ),
    "lint": _Look(_linted, ("rule", "severity", "layer", "tensor", "message", "fix"), _sentences),
}
