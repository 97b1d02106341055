"""What a model looks like at a glance: `summary` as data, `text` for a terminal, `html` for a notebook.

The HTML needs no JavaScript, follows the page's light or dark theme, and escapes everything that a file says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from mlinspect import ir
from mlinspect.macs import count_macs, count_params

FORMATS = {"armnn": "Arm NN", "mslite": "MindSpore Lite"}
MAX_ROWS = 100  # layers that the card lists; the table has them all
MAX_NAME = 60  # characters of a name that the card shows; the whole name is its tooltip


def summary(network: ir.Network, name: str = "", size: int | None = None) -> dict[str, Any]:
    """The model in numbers.

    Parameters
    ----------
    network : Network
    name : str
        File name, for the record.
    size : int, optional
        Bytes of the file.

    Returns
    -------
    dict
        name, format, layout, version, file_size (bytes), graphs, layers, tensors (counts), ops (layers by operator,
        most frequent first), dtypes (tensors by type), weight_dtypes (bytes of constants by type), weight_bytes,
        parameters (elements of the constants that layers compute with, each counted once), macs (multiply-adds of
        one run, of the layers where they are known), macs_unknown (layers where they are not), quantized_layers,
        quantized_weight_bytes, schemes (tensors by quantisation scheme, as far as they really are quantised), inputs
        and outputs (lists of dicts), notes (list of str).

    Examples
    --------
    >>> summary(ir.Network("armnn", "armnn_superset", "", (), {}), "net.armnn", 12)["format"]
    'armnn'
    """
    tensors, every = network.tensors, network.layers.values()
    constants = [t for t in tensors.values() if t.data is not None]
    learnt: dict[int, int] = {}
    macs: list[int | None] = []
    quantized = 0
    for layer in every:
        ins, outs = [tensors[i] for i in layer.inputs], [tensors[i] for i in layer.outputs]
        learnt |= {t.index: n for t in ins if t.data is not None and (n := count_params(layer.kind, [t]))}
        macs.append(count_macs(layer, ins, outs))
        quantized += any(t.quantized for t in ins + outs)
    weights: Counter[str] = Counter()
    for t in constants:
        weights[t.dtype] += t.nbytes
    schemes = Counter(_scheme(t) for t in tensors.values())
    main = network.graphs[0] if network.graphs else ir.Graph(0, "", (), (), ())
    return {
        "name": name,
        "format": network.format,
        "layout": network.layout,
        "version": network.version,
        "file_size": size,
        "graphs": len(network.graphs),
        "layers": len(every),
        "tensors": len(tensors),
        "ops": dict(Counter(layer.op for layer in every).most_common()),
        "dtypes": dict(Counter(t.dtype for t in tensors.values()).most_common()),
        "weight_dtypes": dict(weights.most_common()),
        "weight_bytes": sum(weights.values()),
        "parameters": sum(learnt.values()),
        "macs": sum(n for n in macs if n is not None),
        "macs_unknown": macs.count(None),
        "quantized_layers": quantized,
        "quantized_weight_bytes": sum(t.nbytes for t in constants if t.quantized),
        "schemes": {scheme: schemes[scheme] for scheme in ("none", "per_tensor", "per_channel")},
        "inputs": [_port(port, tensors[port.tensor]) for port in main.inputs],
        "outputs": [_port(port, tensors[port.tensor]) for port in main.outputs],
        "notes": list(network.notes),
    }


def text(network: ir.Network, name: str = "", size: int | None = None) -> str:
    """The card for a terminal: plain text, without characters that a terminal would obey.

    Examples
    --------
    >>> print(text(ir.Network("armnn", "armnn_superset", "", (), {}), "net.armnn", 12))
    net.armnn: Arm NN, layout armnn_superset, 12 B
      0 layers, 0 tensors, 0 parameters in 0 B, 0 multiply-adds
    """
    s = summary(network, name, size)
    lines = [f"{name or 'model'}: {', '.join(_origin(s))}", "  " + ", ".join(_figures(s))]
    ports = [("in", p) for p in s["inputs"]] + [("out", p) for p in s["outputs"]]
    cells = [[way, p["name"], p["dtype"], _shape(p["shape"]), _quant(p)] for way, p in ports]
    widths = [min(max(map(len, column)), MAX_NAME) for column in zip(*cells, strict=True)]
    lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    if s["ops"]:
        lines.append("  ops  " + ", ".join(f"{op} {count}" for op, count in s["ops"].items()))
    lines += [f"  note: {note}" for note in s["notes"]]
    return "\n".join(printable(line) for line in lines)


def html(network: ir.Network, name: str = "", size: int | None = None) -> str:
    """The card for a notebook.

    Parameters
    ----------
    network : Network
    name : str
        File name, shown as the title.
    size : int, optional
        Bytes of the file.

    Returns
    -------
    str
        One ``div`` with its style sheet; folds are ``<details>``; no scripts, nothing loaded from elsewhere.

    Examples
    --------
    >>> "&lt;b&gt;.ms" in html(ir.Network("mslite", "msl2_newest", "", (), {}), "<b>.ms")
    True
    """
    s = summary(network, name, size)
    title = escape(name or "model")
    badges = "".join(f"<span class='mli-badge'>{escape(part)}</span>" for part in _origin(s))
    parts = [
        f"<div class='mli-head'><span class='mli-title'>{title}</span>{badges}</div>",
        _tiles(s),
        _ports("Inputs", s["inputs"]),
        _ports("Outputs", s["outputs"]),
        _fold("Operators", f"{len(s['ops'])} kinds", _bars(s["ops"])),
        _fold("Types", ", ".join(f"{k} {v}" for k, v in s["dtypes"].items()), _types(s)),
        _fold("Layers", f"{s['layers']:,}", _layers(network)),
    ]
    if s["notes"]:
        notes = "".join(f"<li>{escape(note)}</li>" for note in s["notes"])
        parts.append(_fold("Notes", str(len(s["notes"])), f"<ul class='mli-notes'>{notes}</ul>", unfolded=True))
    return f"<div class='mli'><style>{_CSS}</style>{''.join(parts)}</div>"


def printable(line: str) -> str:
    """A line without control characters, which a model file could smuggle to a terminal.

    Examples
    --------
    >>> printable("a\\x1b[31mb")
    'a\\ufffd[31mb'
    """
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


# ---- words ----------------------------------------------------------------------------------------------------------


def _scheme(tensor: ir.Tensor) -> str:
    q = tensor.quantization if tensor.quantized else None
    return "none" if q is None else "per_channel" if q.per_channel else "per_tensor"


def _port(port: ir.Port, tensor: ir.Tensor) -> dict[str, Any]:
    q = tensor.quantization if tensor.quantized else None
    single = q if q is not None and not q.per_channel and len(q.scale) else None
    return {
        "name": port.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "layout": tensor.layout,
        "scale": None if single is None else float(single.scale[0]),
        "zero_point": None if single is None else int(single.zero_point[0]),
        "binding_id": port.binding_id,
    }


def _origin(s: Mapping[str, Any]) -> list[str]:
    """Format, layout, version, size: where the file comes from."""
    label = FORMATS.get(s["format"], s["format"])
    version = s["version"].removeprefix(label).strip()
    parts = [f"{label} {version}".strip(), f"layout {s['layout']}"]
    return parts + ([bytes_text(s["file_size"])] if s["file_size"] is not None else [])


def _figures(s: Mapping[str, Any]) -> list[str]:
    parts = [f"{s['layers']:,} layers", f"{s['tensors']:,} tensors"]
    parts += [f"{s['graphs']} graphs"] if s["graphs"] > 1 else []
    parts += [f"{s['parameters']:,} parameters in {bytes_text(s['weight_bytes'])}"]
    parts += [f"{count_text(s['macs'])} multiply-adds{_unknown(s)}"]
    if s["quantized_layers"]:
        parts.append(f"{s['quantized_layers']:,} layers and {_share(s)} of the weight bytes quantised")
    return parts


def _unknown(s: Mapping[str, Any]) -> str:
    return f" ({s['macs_unknown']:,} layers unknown)" if s["macs_unknown"] else ""


def _share(s: Mapping[str, Any]) -> str:
    return f"{s['quantized_weight_bytes'] / max(s['weight_bytes'], 1):.0%}"


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "unknown shape"
    return " × ".join("?" if n < 0 else str(n) for n in shape) or "scalar"


def _quant(port: Mapping[str, Any]) -> str:
    return "" if port["scale"] is None else f"scale {port['scale']:.6g}, zero point {port['zero_point']}"


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


# ---- HTML -----------------------------------------------------------------------------------------------------------


def _tiles(s: Mapping[str, Any]) -> str:
    tiles = [
        ("layers", f"{s['layers']:,}", f"in {s['graphs']} graphs" if s["graphs"] > 1 else ""),
        ("tensors", f"{s['tensors']:,}", ""),
        ("parameters", count_text(s["parameters"]), f"{s['parameters']:,}"),
        ("weights", bytes_text(s["weight_bytes"]), f"{s['weight_bytes']:,} bytes"),
        ("multiply-adds", count_text(s["macs"]), f"{s['macs']:,}{_unknown(s)}"),
        ("quantised", f"{s['quantized_layers']:,} of {s['layers']:,}", f"layers; {_share(s)} of the weight bytes"),
    ]
    cells = (
        f"<div class='mli-tile' title='{escape(hint)}'><b>{escape(value)}</b><span>{escape(label)}</span></div>"
        for label, value, hint in tiles
    )
    return f"<div class='mli-tiles'>{''.join(cells)}</div>"


def _ports(title: str, ports: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for p in ports:
        layout = p["layout"] or ""
        fits = len(layout) == len(p["shape"] or ())  # MindSpore Lite calls vectors NCHW too
        rows.append(
            [_name(p["name"]), escape(p["dtype"]), _shape(p["shape"]), escape(layout) if fits else "", _quant(p)]
        )
    return f"<div class='mli-label'>{title}</div>{_table((), rows)}"


def _bars(counts: Mapping[str, int]) -> str:
    top = max(counts.values(), default=1)
    rows = [
        [_name(op), f"{count:,}", f"<div class='mli-bar' style='width:{100 * count / top:.1f}%'></div>"]
        for op, count in counts.items()
    ]
    return _table(("operator", "layers", ""), rows, numbers=(1,))


def _types(s: Mapping[str, Any]) -> str:
    rows = [
        [escape(dtype), f"{count:,}", bytes_text(s["weight_dtypes"].get(dtype, 0)), ""]
        for dtype, count in s["dtypes"].items()
    ]
    schemes = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in s["schemes"].items())
    return _table(("type", "tensors", "weights", ""), rows, numbers=(1, 2)) + (
        f"<div class='mli-more'>quantisation of the tensors: {schemes}</div>"
    )


def _layers(network: ir.Network) -> str:
    tensors, rows = network.tensors, []
    for layer in list(network.layers.values())[:MAX_ROWS]:
        ins, outs = [tensors[i] for i in layer.inputs], [tensors[i] for i in layer.outputs]
        macs = count_macs(layer, ins, outs)
        rows.append(
            [
                str(layer.index),
                _name(layer.name),
                _name(layer.op),
                escape(outs[0].dtype) if outs else "",
                ", ".join(_shape(t.shape) for t in outs),
                f"{count_params(layer.kind, [t for t in ins if t.data is not None]):,}",
                "?" if macs is None else f"{macs:,}",
            ]
        )
    more = len(network.layers) - len(rows)
    rest = f"<div class='mli-more'>{more:,} more in <code class='mli-c'>model.layers</code></div>" if more else ""
    head = ("layer", "name", "operator", "type", "output shapes", "parameters", "multiply-adds")
    return _table(head, rows, numbers=(0, 5, 6)) + rest


def _name(name: str) -> str:
    """A name as HTML: escaped, shortened from the left, where names differ least."""
    if len(name) <= MAX_NAME:
        return f"<code class='mli-c'>{escape(name)}</code>"
    return f"<code class='mli-c' title='{escape(name)}'>…{escape(name[1 - MAX_NAME :])}</code>"


def _fold(title: str, hint: str, body: str, unfolded: bool = False) -> str:
    return (
        f"<details{' open' if unfolded else ''}><summary>{escape(title)} <span>{escape(hint)}</span></summary>"
        f"<div class='mli-body'>{body}</div></details>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells are HTML already; `numbers` are the columns to align right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = [" class='mli-n'" if i in numbers else "" for i in range(len(cells))]
        return f"<tr>{''.join(f'<{tag}{mark}>{cell}</{tag}>' for mark, cell in zip(marks, cells, strict=True))}</tr>"

    top = f"<thead>{line('th', head)}</thead>" if head else ""
    return f"<table class='mli-t'>{top}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


# JupyterLab's theme variables come first; without them the colours follow the page's or the system's theme.
_LIGHT = "--f:#1f2328;--d:#59636e;--b:#fff;--p:#f3f5f8;--l:#d5dae1;--a:#2166ac"
_DARK = "--f:#e6e9ee;--d:#9aa4b2;--b:#15181d;--p:#20242b;--l:#39404a;--a:#6cb0f0"
_CSS = (
    f".mli{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.mli{{{_DARK}}}}}"
    f"body[data-jp-theme-light=true] .mli,html[data-theme=light] .mli,.vscode-light .mli{{{_LIGHT}}}"
    f"body[data-jp-theme-light=false] .mli,html[data-theme=dark] .mli,.vscode-dark .mli{{{_DARK}}}"
    """
.mli{--fg:var(--jp-ui-font-color1,var(--f));--dim:var(--jp-ui-font-color2,var(--d));--bg:var(--jp-layout-color0,var(--b));
--panel:var(--jp-layout-color2,var(--p));--line:var(--jp-border-color2,var(--l));color:var(--fg);background:var(--bg);
border:1px solid var(--line);border-radius:8px;padding:12px 16px;max-width:760px;font:13px/1.5 system-ui,sans-serif}
.mli-head{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin-bottom:10px}
.mli-title{font-size:16px;font-weight:600;margin-right:6px;overflow-wrap:anywhere}
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
.mli code.mli-c{font:12px/1.5 ui-monospace,monospace;background:none;color:inherit;padding:0}
.mli-bar{height:10px;margin-top:4px;border-radius:3px;background:var(--a)}
.mli-more{color:var(--dim);font-size:12px;padding-top:4px}.mli-notes{margin:0;padding-left:18px}
"""
)
