"""Building blocks of all HTML output: small pure functions from strings to strings, and one style sheet.

No JavaScript, nothing loaded from elsewhere; follows the page's light or dark theme. Whatever a file says is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MAX_ROWS = 100  # rows that a table shows; the DataFrame has them all
MAX_NAME = 60  # characters of a name that are shown; the whole name is its tooltip
# shown only where styles are dropped, as on GitHub: commas instead of boxes
_BETWEEN = "<span class='mli-plain'>, </span>"


def printable(line: str) -> str:
    """A line without control characters, by which a model file could command a terminal.

    Examples
    --------
    >>> printable("a\\x1b[31mb")
    'a\\ufffd[31mb'
    """
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def shape_text(shape: tuple[int, ...] | None) -> str:
    """A shape for people.

    Examples
    --------
    >>> shape_text((1, -1, 8)), shape_text(()), shape_text(None)
    ('1 × ? × 8', 'scalar', 'unknown shape')
    """
    if shape is None:
        return "unknown shape"
    return " × ".join("?" if n < 0 else str(n) for n in shape) or "scalar"


def bytes_text(count: int) -> str:
    """A number of bytes for people, in powers of 1000.

    Examples
    --------
    >>> bytes_text(999), bytes_text(45456), bytes_text(3663720)
    ('999 B', '45.5 kB', '3.66 MB')
    """
    return count_text(count, ("B", "kB", "MB", "GB", "TB"))


def count_text(count: int, units: Sequence[str] = ("", "k", "M", "G", "T")) -> str:
    """A count for people, to three digits, with k, M, G, T for powers of 1000.

    Examples
    --------
    >>> count_text(512), count_text(27648), count_text(59_000_000)
    ('512', '27.6 k', '59.0 M')
    """
    value, step = float(count), 0
    while value >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    digits = f"{value:.0f}" if step == 0 or value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    return f"{digits} {units[step]}".strip()


def code(name: str) -> str:
    """A name as HTML: escaped, shortened from the left, where names differ least.

    Examples
    --------
    >>> code("a<b")
    "<code class='mli-c'>a&lt;b</code>"
    """
    if len(name) <= MAX_NAME:
        return f"<code class='mli-c'>{escape(name)}</code>"
    return f"<code class='mli-c' title='{escape(name)}'>…{escape(name[1 - MAX_NAME :])}</code>"


def fold(title: str, hint: str, body: str, unfolded: bool = False) -> str:
    """A part that the reader folds out; `body` is HTML already.

    Examples
    --------
    >>> fold("Layers", "19", "...").startswith("<details><summary>Layers <span>19</span>")
    True
    """
    return (
        f"<details{' open' if unfolded else ''}><summary>{escape(title)} <span>{escape(hint)}</span></summary>"
        f"<div class='mli-body'>{body}</div></details>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table; cells are HTML already, `numbers` are the columns to align right.

    Examples
    --------
    >>> table(("n",), [["1"]], numbers=(0,))
    "<table class='mli-t'><thead><tr><th class='mli-n'>n</th></tr></thead><tbody><tr><td class='mli-n'>1</td></tr></tbody></table>"
    """  # noqa: E501

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = [" class='mli-n'" if i in numbers else "" for i in range(len(cells))]
        return f"<tr>{''.join(f'<{tag}{mark}>{cell}</{tag}>' for mark, cell in zip(marks, cells, strict=True))}</tr>"

    top = f"<thead>{line('th', head)}</thead>" if head else ""
    return f"<table class='mli-t'>{top}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


def head(title: str, badges: Iterable[str] = ()) -> str:
    """The first line: a title, and short facts beside it; plain text.

    Examples
    --------
    >>> head("a&b")
    "<div class='mli-head'><b class='mli-title'>a&amp;b</b></div>"
    """
    marks = "".join(f"{_BETWEEN}<span class='mli-badge'>{escape(badge)}</span>" for badge in badges)
    return f"<div class='mli-head'><b class='mli-title'>{escape(title)}</b>{marks}</div>"


def tiles(facts: Iterable[tuple[str, str, str]]) -> str:
    """Figures side by side: (label, value, hint) each, plain text.

    Examples
    --------
    >>> tiles([("layers", "19", "")]).count("mli-tile'")
    1
    """
    cells = (
        f"<div class='mli-tile' title='{escape(hint)}'><b>{escape(value)}</b> <span>{escape(label)}</span></div>"
        for label, value, hint in facts
    )
    return f"<div class='mli-tiles'>{''.join(cells)}</div>"


def page(body: str) -> str:
    """A body in the frame that all outputs share, with the style sheet.

    Examples
    --------
    >>> page("<b>x</b>").startswith("<div class='mli'><style>")
    True
    """
    return f"<div class='mli'><style>{CSS}</style>{body}</div>"


def number(value: Any) -> str:
    """A figure of a table, to four digits; empty where it is missing.

    Examples
    --------
    >>> number(0.123456), number(7), number(float("nan")), number(None)
    ('0.1235', '7', '', '')
    """
    missing = value is None or value != value or str(value) == "<NA>"
    return "" if missing else f"{value:.4g}" if isinstance(value, float) else str(value)


def trace(stats: Any, nbytes: int) -> str:
    """A trace: every tensor that was computed, with its range and what is suspicious in it.

    Parameters
    ----------
    stats : DataFrame
        ``Trace.stats``.
    nbytes : int
        Of all arrays together.
    """
    shown = stats.head(MAX_ROWS)
    rows = [
        [str(tensor), code(row["name"]), escape(str(row["dtype"])), shape_text(row["shape"])]
        + [number(row[name]) for name in ("min", "max", "mean")]
        + [", ".join(_suspicious(row)) or "", ""]
        for tensor, row in zip(shown.index, shown.to_dict("records"), strict=True)
    ]
    more = len(stats) - len(rows)
    rest = f"<div class='mli-more'>{more:,} more in <code class='mli-c'>.stats</code></div>" if more else ""
    columns = ("tensor", "name", "type", "shape", "min", "max", "mean", "", "")
    body = f"<div class='mli-body'>{table(columns, rows, numbers=(0, 4, 5, 6))}</div>{rest}"
    return page(head("Trace", [f"{len(stats):,} tensors", bytes_text(nbytes)]) + body)


def _suspicious(row: dict[str, Any]) -> list[str]:
    found = [
        f"<b>{number(row[name])} {word}</b>"
        for name, word in (("nan", "NaN"), ("inf", "Inf"))
        if number(row[name]) not in ("", "0")
    ]
    if number(row["range_used"]) and row["range_used"] < 1 / 8:
        found.append(f"{row['range_used']:.0%} of the range used")
    return found


def _layer(row: dict[str, Any]) -> list[str]:
    return [str(row["layer"]), code(row["name"]), escape(str(row["op"])), shape_text(row["shape"])]


def session(facts: Sequence[str], history: Any, length: int) -> str:
    """A session: where it stands, and the layers that it computed last.

    Parameters
    ----------
    facts : sequence of str
        Lines of plain text.
    history : DataFrame
        ``Session.history``.
    length : int
        Layers in all.
    """
    shown = history.tail(10)
    rows = [
        [str(position), *_layer(row), f"{row['seconds'] * 1e3:.3g}", ""]
        for position, row in zip(shown.index, shown.to_dict("records"), strict=True)
    ]
    lines = "".join(f"<div>{escape(fact)}</div>" for fact in facts)
    columns = ("position", "layer", "name", "operator", "shape", "ms", "")
    last = table(columns, rows, numbers=(0, 1, 5)) if rows else ""
    return page(head("Session", [f"{len(history)} of {length} layers computed"]) + lines + last)


# JupyterLab's theme variables come first; without them the colours follow the page's or the system's theme.
_LIGHT = "--f:#1f2328;--d:#59636e;--b:#fff;--p:#f3f5f8;--l:#d5dae1;--a:#2166ac"
_DARK = "--f:#e6e9ee;--d:#9aa4b2;--b:#15181d;--p:#20242b;--l:#39404a;--a:#6cb0f0"
CSS = (
    f".mli{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.mli{{{_DARK}}}}}"
    f"body[data-jp-theme-light=true] .mli,html[data-theme=light] .mli,.vscode-light .mli{{{_LIGHT}}}"
    f"body[data-jp-theme-light=false] .mli,html[data-theme=dark] .mli,.vscode-dark .mli{{{_DARK}}}"
    """
.mli{--fg:var(--jp-ui-font-color1,var(--f));--dim:var(--jp-ui-font-color2,var(--d));--bg:var(--jp-layout-color0,var(--b));
--panel:var(--jp-layout-color2,var(--p));--line:var(--jp-border-color2,var(--l));color:var(--fg);background:var(--bg);
border:1px solid var(--line);border-radius:8px;padding:12px 16px;max-width:760px;font:13px/1.5 system-ui,sans-serif}
.mli-head{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin-bottom:10px}
.mli-title{font-size:16px;font-weight:600;margin-right:6px;overflow-wrap:anywhere}
.mli-plain{display:none}
.mli-badge{background:var(--panel);color:var(--dim);border-radius:10px;padding:1px 9px;font-size:12px}
.mli-tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:8px;margin-bottom:10px}
.mli-tile{background:var(--panel);border-radius:6px;padding:6px 10px}
.mli-tile b{display:block;font-size:15px;font-weight:600;white-space:nowrap}
.mli-tile span{color:var(--dim);font-size:12px}
.mli-label{color:var(--dim);font-size:12px;margin-top:6px}
.mli details{border-top:1px solid var(--line);margin-top:6px;padding-top:6px}
.mli summary{cursor:pointer;font-weight:600}
.mli summary span{color:var(--dim);font-weight:400;font-size:12px;margin-left:4px}
.mli-body{max-height:320px;overflow:auto;padding-top:4px}
.mli table.mli-t{border-collapse:collapse;margin:0;width:100%;font-size:12px;color:var(--fg);border:none;
table-layout:auto}
.mli table.mli-t thead,.mli table.mli-t thead tr,.mli table.mli-t tbody tr{background:none;border:none}
.mli table.mli-t th,.mli table.mli-t td{text-align:left;padding:2px 14px 2px 0;border:none;white-space:nowrap;
vertical-align:baseline;line-height:1.5;max-width:none;background:none;color:var(--fg)}
.mli table.mli-t th{color:var(--dim);font-weight:400}
.mli table.mli-t .mli-n{text-align:right;font-variant-numeric:tabular-nums}
.mli table.mli-t td:last-child{width:100%}.mli table.mli-t td.mli-n:last-child{width:auto}
.mli.mli code.mli-c{font:12px/1.5 ui-monospace,monospace;background:none;color:inherit;padding:0}
.mli-bar{height:10px;margin-top:4px;border-radius:3px;background:var(--a)}
.mli-more{color:var(--dim);font-size:12px;padding-top:4px}.mli-notes{margin:0;padding-left:18px}
"""
)
