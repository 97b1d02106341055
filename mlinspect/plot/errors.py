"""Pictures of errors: over depth, over channels, over the feature map, own against inherited, margins of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mlinspect.plot.style import BLUE, GREY, ORANGE, axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NAMES = 40  # names along an axis


def accumulated(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """SQNR of each layer in order of execution, with the thresholds and the first divergent layer.

    Parameters
    ----------
    table : DataFrame
        Of :func:`mlinspect.compare`, in any order.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"name_a": ["conv", "relu"], "sqnr_db": [40.0, 12.5]})
    >>> accumulated(table).get_ylabel()
    'SQNR (dB)'
    """
    ax = axes(ax, 8, 3.5)
    table = table.sort_index()
    table = table[table.sqnr_db.notna()].reset_index(drop=True)
    values = table.sqnr_db.clip(*_ends(table.sqnr_db))
    ax.plot(table.index, values, color=BLUE, marker="o", markersize=4, linewidth=1.2)
    same = np.isinf(table.sqnr_db) & (table.sqnr_db > 0)
    if same.any():
        ax.plot(table.index[same], values[same], "o", color=BLUE, markerfacecolor=ax.get_facecolor(), label="identical")
    if "threshold_db" in table:
        ax.step(table.index, table.threshold_db, color=GREY, linewidth=0.8, where="mid", label="threshold")
    if "first" in table and table["first"].any():
        first = int(table.index[table["first"]][0])
        name = plain(table.name_a[first])
        ax.plot(first, values[first], "s", color=ORANGE, markersize=9, label=f"first to diverge: {name}")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8)
    _names(ax, table.name_a)
    ax.set_ylabel("SQNR (dB)")
    return tidy(ax, "SQNR by layer")


def own_and_inherited(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error of each layer relative to its signal: its own, and what it inherits. Higher is worse.

    Parameters
    ----------
    table : DataFrame
        Of :func:`mlinspect.blame`.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"name": ["conv"], "own_db": [20.0], "inherited_db": [40.0]})
    >>> [round(float(bar.get_height()), 3) for bar in own_and_inherited(table).patches]
    [0.1, 0.01]
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
    return tidy(ax, "Own and inherited error")


def shares(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How much of the final error comes from each layer's own error; all bars add up to 100 %.

    A negative share (blue): the layer's error cancels part of the others'.

    Parameters
    ----------
    table : DataFrame
        Of :func:`mlinspect.blame`.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"name": ["conv", "relu"], "share": [1.2, -0.2]})
    >>> shares(table).get_ylabel()
    'share of the final error (%)'
    """
    ax = axes(ax, 8, 3.5)
    share = 100 * table.share
    ax.bar(np.arange(len(table)), share, 0.7, color=np.where(share < 0, BLUE, ORANGE))
    ax.axhline(0, color=GREY, linewidth=0.8)
    _names(ax, table["name"])
    ax.set_ylabel("share of the final error (%)")
    return tidy(ax, "Shares of the final error")


def channels(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error of each channel: root mean square as bars, mean (a shift) as points.

    Parameters
    ----------
    table : DataFrame
        Of ``error_channels``.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"mse": [4.0, 9.0], "bias": [1.0, -3.0]})
    >>> [float(bar.get_height()) for bar in channels(table).patches]
    [2.0, 3.0]
    """
    ax = axes(ax, 7, 3.2)
    ax.bar(table.index, np.sqrt(table.mse), 0.8, color=BLUE, label="root mean square")
    ax.plot(table.index, table.bias, ".", color=ORANGE, label="mean")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xlabel("channel")
    ax.set_ylabel("error")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax, "Error by channel")


def picture(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Error at each place of the feature map.

    Parameters
    ----------
    table : DataFrame
        Of ``error_picture``: rows and columns of the feature map.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> picture(pd.DataFrame(np.ones((2, 3)))).get_xlabel()
    'column'
    """
    ax = axes(ax, 4.2, 3.6)
    shown = ax.imshow(table.to_numpy(), cmap="cividis", vmin=0, interpolation="nearest", aspect="auto")
    bar = ax.figure.colorbar(shown, ax=ax)
    bar.set_label("error (rms)")
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    return tidy(ax, "Error over the feature map")


def margins(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Margins of a reference's decisions against those of another run; samples whose class changed stand out.

    Where the other's output is quantised, its margin is in quantisation steps: below 2, a single step can decide.

    Parameters
    ----------
    table : DataFrame
        Of ``margins``: `a` is the reference, `b` the other run.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"margin_a": [0.5], "margin_b": [0.4], "steps_b": [40.0], "agree": [True]})
    >>> margins(table).get_ylabel()
    'margin of b (steps)'
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
    ax.set_ylabel("margin of b (steps)" if steps else "margin of b")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax, "Margins of decisions")


def sensitivity(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The metric with one layer alone restored to the reference, and with one layer alone quantised.

    Parameters
    ----------
    table : DataFrame
        Of :func:`mlinspect.sensitivity`.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> table = pd.DataFrame({"name": ["conv"], "restored": 0.9, "alone": 0.8, "model": 0.7, "float": 0.95})
    >>> sensitivity(table).get_ylabel()
    'metric'
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
    return tidy(ax, "Metric with one layer exchanged")


def _ends(decibels: pd.Series) -> tuple[float, float]:
    """Where to draw what is nothing but noise, and what is the same: below and above all else."""
    finite = decibels[np.isfinite(decibels)]
    return (float(finite.min()) - 5, float(finite.max()) + 10) if len(finite) else (0.0, 100.0)


def _names(ax: Axes, names: pd.Series) -> None:
    step = -(-len(names) // MAX_NAMES) or 1
    ax.set_xticks(range(0, len(names), step), [plain(name) for name in names[::step]], rotation=60, ha="right")
    ax.tick_params(axis="x", labelsize=8)
