"""Errors as pictures: over depth, over channels, over the feature map, own against inherited, margins of decisions.

Every function takes a table of ``mlinspect.analysis``, draws it on ``ax=`` (by default in a new figure) and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mlinspect.plot.style import BLUE, GREY, ORANGE, axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 40  # names along an axis


def accumulated(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """SQNR over depth, of :func:`mlinspect.compare`; the first divergent layer and thresholds marked.

    Parameters
    ----------
    table : DataFrame
        Of ``compare``, in any order.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes(ax, 8, 3.5)
    table = table.sort_index()
    table = table[table.sqnr_db.notna()].reset_index(drop=True)
    values = table.sqnr_db.clip(*_ends(table.sqnr_db))
    ax.plot(table.index, values, color=BLUE, marker="o", markersize=4, linewidth=1.2)
    same = np.isinf(table.sqnr_db) & (table.sqnr_db > 0)
    if same.any():
        ax.plot(table.index[same], values[same], "o", color=BLUE, markerfacecolor="white", label="identical")
    if "threshold_db" in table:
        ax.step(table.index, table.threshold_db, color=GREY, linewidth=0.8, where="mid", label="threshold")
    if "first" in table and table["first"].any():
        first = int(table.index[table["first"]][0])
        name = plain(table.name_a[first])
        ax.plot(first, values[first], "s", color=ORANGE, markersize=9, label=f"first to diverge: {name}")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8)
    _names(ax, table.name_a)
    ax.set_ylabel("SQNR [dB]")
    return tidy(ax)


def own_and_inherited(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error of each layer against its signal, own and inherited, of :func:`mlinspect.blame`; higher is worse.

    Returns
    -------
    Axes
    """
    ax = axes(ax, 8, 3.5)
    place = np.arange(len(table))
    for column, shift, color, label in (
        ("own_db", -0.2, ORANGE, "own"),
        ("inherited_db", 0.2, BLUE, "inherited"),
    ):
        ax.bar(place + shift, 10 ** (-table[column] / 20), 0.4, color=color, label=label)
    _names(ax, table["name"])
    ax.set_ylabel("error / signal (rms)")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax)


def shares(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """What each layer's own error makes of the final error, of :func:`mlinspect.blame`; all bars add up to 100 %.

    Returns
    -------
    Axes
    """
    ax = axes(ax, 8, 3.5)
    share = 100 * table.share
    ax.bar(np.arange(len(table)), share, 0.7, color=np.where(share < 0, BLUE, ORANGE))
    ax.axhline(0, color=GREY, linewidth=0.8)
    _names(ax, table["name"])
    ax.set_ylabel("share of the final error [%]")
    return tidy(ax)


def channels(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error by channel, of ``error_channels``: its root mean square, and as a line its mean (a shift).

    Returns
    -------
    Axes
    """
    ax = axes(ax, 7, 3.2)
    ax.bar(table.index, np.sqrt(table.mse), 0.8, color=BLUE, label="root mean square")
    ax.plot(table.index, table.bias, ".", color=ORANGE, label="mean")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xlabel("channel")
    ax.set_ylabel("error")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax)


def picture(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error over the feature map, of ``error_picture``.

    Returns
    -------
    Axes
    """
    ax = axes(ax, 4.2, 3.6)
    shown = ax.imshow(table.to_numpy(), cmap="cividis", vmin=0, interpolation="nearest", aspect="auto")
    bar = ax.figure.colorbar(shown, ax=ax)
    bar.set_label("error (rms)")
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    return ax


def margins(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Margin of the reference's decision against the other's, of ``margins``; samples that changed class stand out.

    Where the other's output is quantised, its margin is in quantisation steps: below 2, one step decides.

    Returns
    -------
    Axes
    """
    ax = axes(ax, 5, 4)
    steps = table.steps_b.notna().all()
    y = table.steps_b if steps else table.margin_b
    agree = table.agree
    ax.plot(table.margin_a[agree], y[agree], ".", color=BLUE, label=f"same class ({agree.sum()})")
    ax.plot(table.margin_a[~agree], y[~agree], "s", color=ORANGE, label=f"other class ({(~agree).sum()})")
    if steps:
        ax.axhline(2, color=GREY, linewidth=0.8)
    ax.set_xlabel("margin of a")
    ax.set_ylabel("margin of b [steps]" if steps else "margin of b")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax)


def sensitivity(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The metric when one layer alone is as in the reference, of :func:`mlinspect.sensitivity`.

    Returns
    -------
    Axes
    """
    ax = axes(ax, 8, 3.5)
    place = np.arange(len(table))
    ax.plot(place, table.restored, "o", color=ORANGE, label="this layer alone restored")
    ax.plot(place, table.alone, "s", color=BLUE, markersize=4, label="this layer alone quantised")
    ax.axhline(table.model.iloc[0], color=ORANGE, linewidth=0.8, linestyle="--", label="model")
    ax.axhline(table.float.iloc[0], color=BLUE, linewidth=0.8, linestyle="--", label="reference")
    _names(ax, table["name"])
    ax.set_ylabel("metric")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax)


def _ends(decibels: pd.Series) -> tuple[float, float]:
    """Where to draw what is nothing but noise, and what is the same: below and above all else."""
    finite = decibels[np.isfinite(decibels)]
    return (float(finite.min()) - 5, float(finite.max()) + 10) if len(finite) else (0.0, 100.0)


def _names(ax: Axes, names: pd.Series) -> None:
    step = -(-len(names) // MOST_NAMES) or 1
    ax.set_xticks(range(0, len(names), step), [plain(name) for name in names[::step]], rotation=60, ha="right")
    ax.tick_params(axis="x", labelsize=8)
