"""The model at a glance: `summary` as data, `text` for a terminal, `html` for a notebook.

The HTML needs no JavaScript, follows the page's light or dark theme, and escapes everything that a file says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mlinspect import ir
from mlinspect.html import MAX_NAME, bytes_text, code, count_text, fold, head, page, printable, shape_text, table, tiles
from mlinspect.macs import count_macs, count_params

FORMATS = {"armnn": "Arm NN", "mslite": "MindSpore Lite"}
MAX_ROWS = 100  # layers that the card lists; the table has them all


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
    """The card for a terminal: plain text without control characters.

    Examples
    --------
    >>> print(text(ir.Network("armnn", "armnn_superset", "", (), {}), "net.armnn", 12))
    net.armnn: Arm NN, layout armnn_superset, 12 B
      0 layers, 0 tensors, 0 parameters in 0 B, 0 multiply-adds
    """
    s = summary(network, name, size)
    lines = [f"{name or 'model'}: {', '.join(_origin(s))}", "  " + ", ".join(_figures(s))]
    ports = [("in", p) for p in s["inputs"]] + [("out", p) for p in s["outputs"]]
    cells = [[way, p["name"], p["dtype"], shape_text(p["shape"]), _quant(p)] for way, p in ports]
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
    parts = [
        head(name or "model", _origin(s)),
        _tiles(s),
        _ports("Inputs", s["inputs"]),
        _ports("Outputs", s["outputs"]),
        fold("Operators", f"{len(s['ops'])} kinds", _bars(s["ops"])),
        fold("Types", ", ".join(f"{k} {v}" for k, v in s["dtypes"].items()), _types(s)),
        fold("Layers", f"{s['layers']:,}", _layers(network)),
    ]
    if s["notes"]:
        notes = "".join(f"<li>{escape(note)}</li>" for note in s["notes"])
        parts.append(fold("Notes", str(len(s["notes"])), f"<ul class='mli-notes'>{notes}</ul>", unfolded=True))
    return page("".join(parts))


# ---- words ----------------------------------------------------------------------------------------------------------


def _scheme(tensor: ir.Tensor) -> str:
    q = tensor.quantization if tensor.quantized else None
    return "none" if q is None else "per_channel" if q.per_channel else "per_tensor"


def _port(port: ir.Port, tensor: ir.Tensor) -> dict[str, Any]:
    q = tensor.quantization if tensor.quantized else None
    scale, zero_point = (None if q is None else q.shared) or (None, None)
    return {
        "name": port.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "layout": tensor.layout,
        "scale": scale,
        "zero_point": zero_point,
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


def _quant(port: Mapping[str, Any]) -> str:
    return "" if port["scale"] is None else f"scale {port['scale']:.6g}, zero point {port['zero_point']}"


# ---- HTML -----------------------------------------------------------------------------------------------------------


def _tiles(s: Mapping[str, Any]) -> str:
    facts = [
        ("layers", f"{s['layers']:,}", f"in {s['graphs']} graphs" if s["graphs"] > 1 else ""),
        ("tensors", f"{s['tensors']:,}", ""),
        ("parameters", count_text(s["parameters"]), f"{s['parameters']:,}"),
        ("weights", bytes_text(s["weight_bytes"]), f"{s['weight_bytes']:,} bytes"),
        ("multiply-adds", count_text(s["macs"]), f"{s['macs']:,}{_unknown(s)}"),
        ("quantised", f"{s['quantized_layers']:,} of {s['layers']:,}", f"layers; {_share(s)} of the weight bytes"),
    ]
    return tiles(facts)


def _ports(title: str, ports: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for p in ports:
        layout = p["layout"] or ""
        fits = len(layout) == len(p["shape"] or ())  # MindSpore Lite calls vectors NCHW too
        rows.append(
            [code(p["name"]), escape(p["dtype"]), shape_text(p["shape"]), escape(layout) if fits else "", _quant(p)]
        )
    return f"<div class='mli-label'>{title}</div>{table((), rows)}"


def _bars(counts: Mapping[str, int]) -> str:
    top = max(counts.values(), default=1)
    rows = [
        [code(op), f"{count:,}", f"<div class='mli-bar' style='width:{100 * count / top:.1f}%'></div>"]
        for op, count in counts.items()
    ]
    return table(("operator", "layers", ""), rows, numbers=(1,))


def _types(s: Mapping[str, Any]) -> str:
    rows = [
        [escape(dtype), f"{count:,}", bytes_text(s["weight_dtypes"].get(dtype, 0)), ""]
        for dtype, count in s["dtypes"].items()
    ]
    schemes = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in s["schemes"].items())
    return table(("type", "tensors", "weights", ""), rows, numbers=(1, 2)) + (
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
                code(layer.name),
                code(layer.op),
                escape(outs[0].dtype) if outs else "",
                ", ".join(shape_text(t.shape) for t in outs),
                f"{count_params(layer.kind, [t for t in ins if t.data is not None]):,}",
                "?" if macs is None else f"{macs:,}",
            ]
        )
    more = len(network.layers) - len(rows)
    rest = f"<div class='mli-more'>{more:,} more in <code class='mli-c'>model.layers</code></div>" if more else ""
    columns = ("layer", "name", "operator", "type", "output shapes", "parameters", "multiply-adds")
    return table(columns, rows, numbers=(0, 5, 6)) + rest
