"""Pictures of quantisation: ranges of channels, parameters over depth, use of the grid, errors of a pair."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mlinspect import constants
from mlinspect.analysis.operands import grid, network_of, uses
from mlinspect.analysis.pairs import compare_weights
from mlinspect.analysis.stats import stats
from mlinspect.errors import InputError
from mlinspect.plot.style import BLUE, GREEN, GREY, MAX_BARS, ORANGE, PURPLE, SKY, VERMILION, axes, bars, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def channel_ranges(model: Any, tensor: int | str, ax: Axes | None = None) -> Axes:
    """Range of values in each output channel, against the range of the whole tensor.

    Blue bars: smallest to largest value of each channel. Grey band: the same of all channels, which a single scale
    would have to cover. Orange ticks, if the tensor is quantised: the values that each channel
    could store at most and at least.

    Parameters
    ----------
    model : Model or Network
    tensor : int or str
        Id or name of a constant.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import mlinspect as mi
    >>> channel_ranges(mi.open(mi.samples.path("digits_cnn.ms")), "res.weight").get_xlabel()
    'output channel'
    """
    network = network_of(model)
    found = constants.find_tensor(network, tensor)
    if found.data is None:
        raise InputError(f"tensor {found.name!r} is not a constant")
    table = stats(replace(network, tensors={found.index: found}), by="channel")
    low, high = table["min"].to_numpy(float), table["max"].to_numpy(float)
    if np.isnan(low).all():
        raise InputError(f"tensor {found.name!r} holds no numbers")
    ax = axes(ax, 7, 3.2)
    place = np.arange(len(low))
    ax.axhspan(np.nanmin(low), np.nanmax(high), color=GREY, alpha=0.2, linewidth=0, zorder=0)
    ax.bar(place, high - low, bottom=low, width=0.8 if len(low) < 200 else 1.0, color=BLUE, linewidth=0)
    limits, q = grid(found), found.quantization
    if limits is not None and q is not None and limits[1] - limits[0] < 1 << 16:
        ends = [np.broadcast_to(q.scale * (end - q.zero_point), len(low)) for end in limits]
        for end in ends:
            ax.scatter(place, end, marker="_", s=28, color=ORANGE, linewidth=1.2, zorder=3)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xlim(-0.6, len(low) - 0.4)
    ax.set_xlabel("output channel")
    ax.set_ylabel("real value")
    reach = table["absmax"][table["absmax"] > 0]
    sub = f"{len(low)} channels" + (
        f", widest {reach.max() / reach.min():.1f} x the narrowest" if len(reach) > 1 else ""
    )
    return tidy(ax, plain(found.name), sub + (", ticks: what can be stored" if limits is not None else ""))


def scales(model: Any, ax: Axes | None = None) -> Axes:
    """Quantisation steps over the depth of the network, on a logarithmic axis.

    Circles: outputs of layers. Squares: weights, with a line from the smallest to the largest scale of their channels.
    An output with a much larger step than its neighbours loses detail that no later layer can restore.

    Parameters
    ----------
    model : Model or Network
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import mlinspect as mi
    >>> scales(mi.open(mi.samples.path("digits_cnn_u8.armnn"))).get_yscale()
    'log'
    """
    ax = axes(ax, 7, 3.2)
    points: _Points = {False: [], True: []}
    for place, tensor, constant in _over_depth(network_of(model)):
        s = tensor.quantization.scale
        s = s[np.isfinite(s) & (s > 0)]
        if len(s):
            ax.plot([place, place], [s.min(), s.max()], color=_GROUPS[constant][1], linewidth=1.2)
            points[constant].append((place, float(np.exp(np.log(s).mean()))))
    ax.set_yscale("log")
    ax.set_ylabel("scale (real / step)")
    return _drawn(ax, points, "Scales over depth")


def zero_points(model: Any, ax: Axes | None = None) -> Axes:
    """Where real 0 lies in the grid of each quantised tensor, over the depth of the network.

    At the bottom no negative value can be stored (right after a ReLU), at the top no positive value (rarely right).

    Parameters
    ----------
    model : Model or Network
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import mlinspect as mi
    >>> zero_points(mi.open(mi.samples.path("digits_cnn_u8.armnn"))).get_xlabel()
    'layer, in order of execution'
    """
    ax = axes(ax, 7, 2.6)
    for end in (0, 0.5, 1):
        ax.axhline(end, color=GREY, alpha=0.4, linewidth=0.8, zorder=0)
    points: _Points = {False: [], True: []}
    for place, tensor, constant in _over_depth(network_of(model)):
        limits = grid(tensor)
        if limits is not None:
            shares = (tensor.quantization.zero_point - limits[0]) / (limits[1] - limits[0])
            points[constant] += [(place, share) for share in shares.tolist()]
    ax.set_ylim(-0.05, 1.05)
    ax.set_yticks([0, 0.5, 1], ["smallest", "middle", "largest"])
    return _drawn(ax, points, "Zero points in their grids")


def levels(model: Any, ax: Axes | None = None) -> Axes:
    """How much of its grid each quantised constant uses.

    Pale: share of the range between the smallest and the largest number that occurs. Dark: share of the levels that
    occur. The dotted line is 1/8, below which bits are wasted; small constants cannot use all levels.

    Parameters
    ----------
    model : Model or Network
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import mlinspect as mi
    >>> len(levels(mi.open(mi.samples.path("digits_cnn_wq4.ms"))).get_yticks())
    3
    """
    table = stats(model)
    table = table[table["levels_share"].notna()]
    hidden = max(len(table) - MAX_BARS, 0)
    table = table.sort_values("levels_share").head(MAX_BARS).sort_index() if hidden else table
    ax = axes(ax, 7, 0.9 + 0.24 * max(len(table), 1))
    texts = [f"{n} of {2**b}" for n, b in zip(table["levels"], table["bits"], strict=True)]
    ranges = table[["range_used", "levels_share"]].max(axis=1).tolist()  # texts stand behind the longer bar
    bars(ax, [plain(n, 34) for n in table["name"]], ranges, [SKY] * len(table), texts)
    ax.barh(range(len(table)), table["levels_share"], color=BLUE, height=0.75, linewidth=0)
    ax.axvline(1 / 8, color=GREY, linestyle=":", linewidth=1)
    ax.set_xlim(0, 1.2)
    ax.set_xticks([0, 1 / 8, 0.5, 1], ["0", "1/8", "1/2", "1"])
    ax.set_xlabel("share of the grid")
    sub = "nothing is quantised" if table.empty else "dark: levels that occur; pale: range between them"
    return tidy(ax, "Levels used" + (f" ({hidden} constants that use more not shown)" if hidden else ""), sub)


def sqnr(a: Any, b: Any = None, ax: Axes | None = None, good: float = 40, bad: float = 20) -> Axes:
    """Signal to quantisation noise of the weights of a pair of models, worst first.

    Parameters
    ----------
    a : Model, Network or DataFrame
        The reference; or a table of :func:`mlinspect.compare_weights`, and no `b`.
    b : Model or Network
        The model to judge.
    ax : Axes, optional
    good, bad : float
        dB from which on a bar is green, and below which it is red and marked with an exclamation mark.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        A limit is no number, or what is given is no model.

    Examples
    --------
    >>> import mlinspect as mi
    >>> a, b = (mi.open(mi.samples.path(name)) for name in ("digits_cnn.ms", "digits_cnn_wq4.ms"))
    >>> sqnr(a, b).get_xlabel()
    'SQNR (dB)'
    """
    if not isinstance(good, numbers.Real) or not isinstance(bad, numbers.Real):
        raise InputError(f"good={good!r} and bad={bad!r} are to be numbers of decibels")
    table = a if isinstance(a, pd.DataFrame) else compare_weights(a, b)
    table = table[table["sqnr_db"].notna()]
    equal = int(np.isinf(table["sqnr_db"]).sum())
    table = table[np.isfinite(table["sqnr_db"])].sort_values("sqnr_db")
    hidden = max(len(table) - MAX_BARS, 0)
    table = table.head(MAX_BARS)
    values = table["sqnr_db"].clip(lower=0).tolist()
    ax = axes(ax, 7, 0.9 + 0.24 * max(len(table), 1))
    colours = [VERMILION if v < bad else GREEN if v >= good else ORANGE for v in table["sqnr_db"]]
    texts = [f"{v:.1f}" + (" !" if v < bad else "") for v in table["sqnr_db"]]
    column = "name_a" if "name_a" in table else "name"
    bars(ax, [plain(n, 34) for n in table[column]], values, colours, texts)
    for line in (bad, good):
        ax.axvline(line, color=GREY, linestyle=":", linewidth=1)
    ax.set_xlim(0, max([*values, good]) * 1.15)
    ax.set_xlabel("SQNR (dB)")
    notes = [f"{equal} equal ones not shown"] if equal else []
    notes += [f"{hidden} better ones not shown"] if hidden else []
    return tidy(ax, "Weights against the reference", "; ".join([f"dotted: {bad:g} and {good:g} dB", *notes]))


def what_if(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """SQNR against bytes of each way to quantise, all weights of the table together.

    Parameters
    ----------
    table : DataFrame
        Of :func:`mlinspect.what_if`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Notes
    -----
    A way's SQNR is that of all layers together, their relative noise powers added up, as for :func:`mlinspect.plan`.

    Examples
    --------
    >>> import mlinspect as mi
    >>> what_if(mi.what_if(mi.open(mi.samples.path("digits_cnn.ms")))).get_xlabel()
    'bytes of the weights'
    """
    ax = axes(ax, 7, 3.6)
    noise = table.assign(noise=10 ** (-table["sqnr_db"] / 10))
    ways = noise.groupby(["per_channel", "clip", "bits"], observed=True)[["noise", "bytes"]].sum().reset_index()
    clips = list(dict.fromkeys(ways["clip"]))
    colours = dict(zip(clips, (BLUE, ORANGE, PURPLE, GREEN), strict=False))
    for (each, clip), part in ways.groupby(["per_channel", "clip"], observed=True):
        style, marker = ("-", "o") if each else ("--", "s")
        label = f"{clip}, {'per channel' if each else 'per tensor'}"
        db = -10 * np.log10(part["noise"])
        ax.plot(part["bytes"], db, style, marker=marker, markersize=5, color=colours[clip], label=label)
    for bits, part in ways.groupby("bits"):
        best = part.sort_values("noise").iloc[0]
        place = (float(best["bytes"]), float(-10 * np.log10(best["noise"])))
        ax.annotate(f"{bits} bits", place, (0, 7), textcoords="offset points", ha="center", fontsize=8)
    ax.margins(y=0.15)
    ax.set_xlabel("bytes of the weights")
    ax.set_ylabel("SQNR (dB)")
    ax.legend(frameon=False, fontsize=8)
    return tidy(ax, "What quantising would cost", f"{table['tensor'].nunique()} weights together")


# whether a tensor is a constant -> what it is called, its colour and its marker
_GROUPS = {False: ("outputs", BLUE, "o"), True: ("weights", ORANGE, "s")}
_Points = dict[bool, list[tuple[int, float]]]


def _drawn(ax: Axes, points: _Points, title: str) -> Axes:
    """Points of outputs and of weights over the layers, with a legend."""
    for constant, (label, colour, marker) in _GROUPS.items():
        if points[constant]:
            places, values = zip(*points[constant], strict=True)
            ax.scatter(places, values, s=18, color=colour, marker=marker, zorder=3, label=label)
    ax.set_xlabel("layer, in order of execution")
    drawn = any(points.values())
    if drawn:
        ax.legend(frameon=False, fontsize=8)
    return tidy(ax, title, "" if drawn else "nothing is quantised")


def _over_depth(network: Any) -> list[tuple[int, Any, bool]]:
    """Place in the order of execution, quantised tensor (no bias or accumulator), whether it is a constant."""
    order = {layer.index: i for i, layer in enumerate(network.layers.values())}
    readers, found = uses(network), []
    for layer in network.layers.values():
        ends = [(i, False) for i in layer.outputs]
        ends += [(i, True) for i in layer.inputs if readers[i].layer is layer and network.tensors[i].data is not None]
        for i, constant in ends:
            tensor = network.tensors[i]
            if tensor.quantized and tensor.quantization is not None and tensor.dtype not in ("int32", "int64"):
                found.append((order[layer.index], tensor, constant))
    return found
