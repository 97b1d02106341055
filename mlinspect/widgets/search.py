"""Rows of a table by a word or a pandas query, with errors that say what to do; pure functions."""

from __future__ import annotations

from collections.abc import Container
from html import escape
from typing import Any

import pandas as pd

from mlinspect.errors import InputError
from mlinspect.html import code, count_text, shape_text, table
from mlinspect.widgets.facts import button

MAX_ROWS = 200
EXAMPLE = "macs > 1000 and not quantized"
# what a list shows of a table: column, head
LISTS = {
    "layers": (("name", "name"), ("op", "operator"), ("output_shapes", "shape"), ("dtype", "type"), ("macs", "macs"),
               ("params", "params")),
    "tensors": (("name", "name"), ("role", "role"), ("shape", "shape"), ("dtype", "type"), ("scheme", "scheme"),
                ("nbytes", "bytes")),
}  # fmt: skip


def find(frame: pd.DataFrame, word: str = "", query: str = "") -> pd.DataFrame:
    """Rows whose name or operator has a word in it, and for which a query is true.

    Parameters
    ----------
    frame : DataFrame
        ``model.layers`` or ``model.tensors``.
    word : str
        In any case; ``""``: all rows.
    query : str
        As for ``DataFrame.query``; ``""``: all rows.

    Raises
    ------
    InputError
        The query cannot be evaluated; the message says why.

    Examples
    --------
    >>> layers = pd.DataFrame({"name": ["conv1", "relu"], "op": ["Conv2D", "ReLU"], "macs": [9, 0]})
    >>> find(layers, "CONV", "macs > 3").name.tolist()
    ['conv1']
    >>> find(layers, query="mac > 3")
    Traceback (most recent call last):
    mlinspect.errors.InputError: there is no column 'mac'; the columns are name, op, macs
    """
    if word:
        searched = frame["name"].astype(str)
        for column in ("op", "kind", "role"):
            searched = searched + "\n" + frame[column].astype(str) if column in frame else searched
        frame = frame[searched.str.contains(word, case=False, regex=False)]
    if not query.strip():
        return frame
    try:
        wanted = frame.eval(query)
    except pd.errors.UndefinedVariableError as error:
        missing = str(error).split("'")[1]
        columns = ", ".join(str(name) for name in (frame.index.name, *frame.columns) if name)
        raise InputError(f"there is no column {missing!r}; the columns are {columns}") from None
    except SyntaxError:
        raise InputError(f"not a pandas expression: {query}; write for example: {EXAMPLE}") from None
    except Exception as error:
        raise InputError(f"{type(error).__name__}: {error}") from None
    if not isinstance(wanted, pd.Series) or not pd.api.types.is_bool_dtype(wanted):
        raise InputError(f"not a condition: {query}; write for example: {EXAMPLE}")
    return frame[wanted.fillna(False).astype(bool)]


def listing(frame: pd.DataFrame, kind: str, chosen: int, warned: Container[int] = ()) -> str:
    """Rows as a table; the first column is a button that sets the form's trait ``layer`` or ``tensor``.

    Parameters
    ----------
    frame : DataFrame
        Rows of a table.
    kind : {"layers", "tensors"}
    chosen : int
        Index of the row that stands out.
    warned : container of int
        Indices that lint has findings about.

    Examples
    --------
    >>> frame = pd.DataFrame({"name": ["a"], "op": ["Relu"], "macs": [7]}, index=[3])
    >>> "data-set='layer' data-value='3'" in listing(frame, "layers", 3)
    True
    """
    trait, columns = kind.removesuffix("s"), [(c, head) for c, head in LISTS[kind] if c in frame]
    shown = frame.head(MAX_ROWS)
    rows = []
    for index, row in zip(shown.index.tolist(), shown.to_dict("records"), strict=True):
        mark = "▸ " if index == chosen else ""
        first = button(f"{mark}{index}", trait, index, f"look at {trait} {index}")
        rows.append([first, *(_cell(c, row[c]) for c, _ in columns), "⚠ lint" if index in warned else ""])
    numbers = [i for i, (c, _) in enumerate(columns, 1) if c in ("macs", "params", "nbytes")]
    more = len(frame) - len(rows)
    rest = f"<div class='mli-more'>{more:,} more: narrow the search</div>" if more else ""
    body = table(("", *(head for _, head in columns), ""), rows, numbers=numbers)
    return f"<div class='mli-body'>{body}</div>{rest}" if rows else "<div class='mli-more'>nothing found</div>"


def _cell(column: str, value: Any) -> str:
    if column == "name":
        return code(value)
    if column == "shape":
        return shape_text(value)
    if column == "output_shapes":
        return ", ".join(map(shape_text, value))
    if column in ("macs", "params", "nbytes"):
        return "?" if pd.isna(value) else count_text(value)
    return "" if pd.isna(value) else escape(str(value))
