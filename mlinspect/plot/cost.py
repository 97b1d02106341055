"""Pictures of what a model costs: bars by layer, memory over the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlinspect.analysis.cost import Cost
from mlinspect.analysis.cost import cost as make
from mlinspect.errors import InputError
from mlinspect.plot.style import BLUE, FAMILY_COLOURS, GREY, MAX_BARS, SKY, VERMILION, axes, bars, family, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNITS = {"macs": "multiply-adds", "other_ops": "operations", "params": "parameters", "intensity": "operations / byte"}


def cost(model: Any, column: str = "macs", ax: Axes | None = None) -> Axes:
    """One column of the cost table as bars, in order of execution, coloured by what the layers are.

    Parameters
    ----------
    model : Model, Network or Cost
    column : str
        ``"macs"``, ``"other_ops"``, ``"params"``, ``"weight_bytes"``, ``"bytes_in"``, ``"bytes_out"``, ``"intensity"``.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        The 40 largest layers at most.

    Examples
    --------
    >>> import mlinspect as mi
    >>> cost(mi.open(mi.samples.path("digits_cnn.ms"))).get_xlabel()
    'multiply-adds'
    """
    table = model if isinstance(model, Cost) else make(model)
    if column not in table or table[column].dtype.kind not in "iufI":
        raise InputError(f"the cost table has no numbers called {column!r}")
    values = table[column].astype("float64").fillna(0)
    total, unknown = values.sum(), int(table[column].isna().sum())
    shown = values[values > 0]
    hidden = max(len(shown) - MAX_BARS, 0)
    shown = shown.sort_values(ascending=False).head(MAX_BARS)
    rows = table.loc[table.index.isin(shown.index)]
    values = values.loc[rows.index]
    ax = axes(ax, 7, 0.9 + 0.24 * max(len(rows), 1))
    families = [family(str(kind)) for kind in rows["kind"]]
    names = [plain(name or op, 34) for name, op in zip(rows["name"], rows["op"], strict=True)]
    texts = [f"{v / total:.0%}" if column != "intensity" else f"{v:.1f}" for v in values] if total else []
    bars(ax, names, values.tolist(), [FAMILY_COLOURS[f] for f in families], texts)
    _legend(ax, families)
    ax.set_xlabel(_UNITS.get(column, "bytes"))
    ax.xaxis.set_major_formatter(_engineering("B" if "bytes" in column else ""))
    notes = [] if column == "intensity" else [f"{total:,.0f} in all"]
    notes += [f"{hidden} smaller layers not shown"] if hidden else []
    notes += [f"{unknown} layers unknown"] if unknown else []
    return tidy(ax, f"Cost by layer: {column}", "; ".join(notes))


def memory(model: Any, ax: Axes | None = None) -> Axes:
    """Bytes of activations in memory while each layer runs, and what makes the peak.

    Parameters
    ----------
    model : Model, Network or Cost
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import mlinspect as mi
    >>> memory(mi.open(mi.samples.path("digits_cnn.ms"))).get_ylabel()
    'bytes of activations'
    """
    table = model if isinstance(model, Cost) else make(model)
    steps = table.liveness
    live = steps["live_bytes"].astype("float64").to_numpy()
    ax = axes(ax, 7, 3.2)
    ax.set_xlabel("layer, in order of execution")
    ax.set_ylabel("bytes of activations")
    if not live.size or np.isnan(live).all():
        return tidy(ax, "Memory over the layers", "sizes are not known: pass a table of cost(shapes=...)")
    places = np.arange(len(live))
    edges = np.arange(len(live) + 1) - 0.5
    ax.stairs(np.nan_to_num(live), edges, fill=True, color=SKY, linewidth=0)
    ax.stairs(np.nan_to_num(live), edges, baseline=None, color=BLUE, linewidth=1.2)
    ax.set_xlim(-0.5, len(live) - 0.5)
    ax.set_ylim(0, float(np.nanmax(live)) * 1.3)
    ax.yaxis.set_major_formatter(_engineering("B"))
    if table.peak is not None and not np.isnan(live).any():
        at = int(live.argmax())
        ax.bar([places[at]], [live[at]], width=1.0, color=VERMILION, linewidth=0)
        held = ", ".join(plain(n, 24) for n in table.peak_tensors["name"][:3])
        text = f"{plain(steps['name'].iloc[at], 30)}: {table.peak:,}\n{held}"
        side = "left" if at < len(live) / 2 else "right"
        ax.annotate(text, (at, live[at]), (0, 4), textcoords="offset points", fontsize=8, ha=side, va="bottom")
    else:
        ax.text(0.99, 0.97, "grey: not known", transform=ax.transAxes, ha="right", va="top", fontsize=8, color=GREY)
        ax.vlines(places[np.isnan(live)], 0, 1, GREY, transform=ax.get_xaxis_transform(), linewidth=0.8)
    return tidy(ax, "Memory over the layers", f"{len(live)} layers, each tensor in a buffer of its own")


def _engineering(unit: str) -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(unit=unit)


def _legend(ax: Axes, families: list[str]) -> None:
    from matplotlib.patches import Patch

    present = [f for f in FAMILY_COLOURS if f in families]
    if len(present) > 1:
        handles = [Patch(color=FAMILY_COLOURS[f], label=f) for f in present]
        ax.legend(handles=handles, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
