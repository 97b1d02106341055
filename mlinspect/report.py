"""One page about a model: card, findings, tables and plots, self-contained and without scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mlinspect import card, tables
from mlinspect.analysis import columns
from mlinspect.analysis.cost import cost
from mlinspect.analysis.findings import LOOKS
from mlinspect.analysis.lint import lint
from mlinspect.analysis.stats import stats
from mlinspect.html import printable
from mlinspect.plot.accessor import PlotAccessor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 1000  # rows of a table that the page shows
_HISTOGRAMS = 3  # constants, the largest first, whose values are drawn
# columns that a page has no room for
_LEFT_OUT = {
    "layers": ("graph", "inputs", "outputs", "attrs"),
    "stats": ("stored_absmax", "stored_mean", "stored_kurtosis", "stored_zeros", "at_qmin", "at_qmax"),
    "cost": ("graph", "op"),
    "lint": (),
    "tensors": ("graph", "vendor_dtype", "consumers", "file_offset"),
}


def report(model: Any, file: str | Path | None = None) -> str:
    """Everything about a model file on one HTML page.

    Parameters
    ----------
    model : Model
    file : str or Path, optional
        Where to write the page.

    Returns
    -------
    str
        The page: card, findings of lint, plots of cost, memory and quantisation, the graph, and the tables of layers,
        constants, costs and tensors. It loads nothing, runs no script, and escapes what the file says.

    Examples
    --------
    >>> import mlinspect as mi
    >>> page = report(mi.open(mi.samples.path("digits_cnn_wq4.ms")))
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    network, name = model.network, model.name
    findings, costs, constants = lint(network), cost(network), stats(network)
    pictures = PlotAccessor(model)
    parts = [
        card.html(network, name, model.nbytes),
        _section("Findings", _findings(findings)),
        _section("Graph", _picture(pictures.graph)),
        _section("Cost", _picture(pictures.cost) + _picture(pictures.memory)),
        _section("Quantisation", _quantisation(pictures, constants)),
        _fold("Layers", tables.layers(network).reset_index(), "layers", tables.COLUMNS["layers"]),
        _fold("Cost by layer", pd.DataFrame(costs).reset_index(), "cost", columns.COLUMNS["cost"]),
        _fold("Constants", constants.reset_index(), "stats", columns.COLUMNS["stats"]),
        _fold("Tensors", tables.tensors(network).reset_index(), "tensors", tables.COLUMNS["tensors"]),
    ]
    title = escape(name or "model")
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    head += f"<meta name='color-scheme' content='light dark'><title>{title}</title><style>{_CSS}</style>"
    page = f"<!doctype html>\n<html lang='en'><head>{head}</head><body>\n{chr(10).join(parts)}\n</body></html>\n"
    if file is not None:
        Path(file).write_text(page, "utf-8", "replace")
    return page


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _findings(table: pd.DataFrame) -> str:
    said = f"<p>{escape(LOOKS['lint'].heading(table).capitalize())}.</p>"
    return said if table.empty else said + _table(table, "lint", columns.COLUMNS["lint"])


def _quantisation(pictures: PlotAccessor, constants: pd.DataFrame) -> str:
    body = ""
    if (constants["scheme"] != "none").any():
        body += _picture(pictures.levels) + _picture(pictures.scales) + _picture(pictures.zero_points)
    shown = constants[constants["min"].notna() & (constants["elements"] > 1)]
    for tensor in shown.sort_values("elements", ascending=False).head(_HISTOGRAMS).index:
        body += _picture(partial(pictures.weights, tensor)) + _picture(partial(pictures.channel_ranges, tensor))
    return body


def _picture(draw: Callable[[], Axes]) -> str:
    """A plot as an inline image."""
    import matplotlib.pyplot as plt

    figure = draw().figure.canvas.figure
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=96, facecolor="white")
    plt.close(figure)
    return f"<img alt='' src='data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}'>"


def _fold(title: str, table: pd.DataFrame, name: str, meanings: Sequence[tuple[str, str, str, str]]) -> str:
    body = _table(table, name, meanings)
    return f"<details><summary>{escape(title)} <span>{len(table):,}</span></summary>{body}</details>"


def _table(table: pd.DataFrame, name: str, meanings: Sequence[tuple[str, str, str, str]]) -> str:
    """A table whose column heads tell what they mean; columns without any value are left out."""
    about = {column: f"{meaning} [{unit}]" if unit else meaning for column, _, unit, meaning in meanings}
    shown = [c for c in table.columns.tolist() if c not in _LEFT_OUT[name] and not table[c].isna().all()]
    head = "".join(f"<th title='{escape(about.get(c, ''))}'>{escape(c)}</th>" for c in shown)
    cells = [[_cell(value) for value in table[c].head(MAX_ROWS)] for c in shown]
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    more = f"<p>{len(table) - MAX_ROWS:,} more rows</p>" if len(table) > MAX_ROWS else ""
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"<td class='n'>{'' if np.isnan(value) else f'{value:.4g}'}</td>"
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        return f"<td class='n'>{value}</td>"
    if value is None or value is pd.NA:
        return "<td></td>"
    return f"<td>{escape(printable(str(value)))}</td>"


_CSS = """
body{font:14px/1.5 system-ui,sans-serif;margin:24px auto;max-width:1100px;padding:0 16px}
h2{font-size:17px;margin:28px 0 8px}
img{max-width:100%;height:auto;display:block;margin:8px 0;border-radius:6px}
details{margin:10px 0;border-top:1px solid #8884;padding-top:8px}
summary{cursor:pointer;font-weight:600}summary span{font-weight:400;opacity:.65}
.wide{overflow:auto;max-height:70vh}
section table,body>details table{border-collapse:collapse;font-size:12px}
section th,section td,body>details th,body>details td{text-align:left;padding:2px 12px 2px 0;vertical-align:top;
max-width:360px;overflow-wrap:anywhere}
section th,body>details th{position:sticky;top:0;background:Canvas;font-weight:600;white-space:nowrap;cursor:help}
td.n{text-align:right!important;white-space:nowrap;font-variant-numeric:tabular-nums}
"""
