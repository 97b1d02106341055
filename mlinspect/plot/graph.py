"""The graph of a model, layered from top to bottom."""

from __future__ import annotations

import numbers
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mlinspect import ir, tables
from mlinspect.analysis.operands import network_of
from mlinspect.analysis.rule import SUMS
from mlinspect.errors import InputError
from mlinspect.plot.style import CYCLE, FAMILY_COLOURS, GREY, PALE, axes, family, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NODES = 100
_HEIGHT, _WIDTH = 0.36, 1.75  # inches from one rank to the next, from one column to the next


@dataclass
class Node:
    """A layer, a block of layers, or an end of the graph.

    Attributes
    ----------
    name : str
    kind : str
    layers : list of int
        Empty for an end that is no layer.
    """

    name: str
    kind: str
    layers: list[int] = field(default_factory=list)


def graph(
    model: Any, color: str | Mapping[int, Any] | pd.Series = "kind", ax: Axes | None = None, max_nodes: int = MAX_NODES
) -> Axes:
    """Draw the main graph, layered from top to bottom.

    Parameters
    ----------
    model : Model or Network
    color : str, mapping or Series
        ``"kind"``; another column of ``model.layers`` or ``model.cost()`` (as ``"dtype"``, ``"macs"``); or a value a
        layer, by layer id (as a column of a comparison). Numbers get a colour scale; a block has the sum of its layers.
    ax : Axes, optional
        Where to draw; a new figure by default, as large as the graph wants it.
    max_nodes : int
        A graph with more layers is drawn in blocks: each convolution or matrix product with the layers that follow from
        it alone; if that is still too many, several such groups per block, and at worst any layers in a row.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        There is no such column, the values do not go by layer id, or `max_nodes` is no number.

    Examples
    --------
    >>> import mlinspect as mi
    >>> len(graph(mi.open(mi.samples.path("digits_cnn.ms"))).texts) >= 11
    True
    """
    network = network_of(model)
    if not isinstance(max_nodes, numbers.Real):
        raise InputError(f"max_nodes={max_nodes!r} is no number of layers")
    nodes, edges = blocks(network, max_nodes)
    places, routes = layout(len(nodes), edges)
    points = np.concatenate([places, *routes, np.zeros((0 if nodes else 1, 2))])
    low, high = points.min(axis=0), points.max(axis=0)
    ax = axes(ax, 2.0 + _WIDTH * (high[0] - low[0] + 1), 1.0 + _HEIGHT * (high[1] - low[1] + 1))
    ax.set_xlim(low[0] - 0.6, high[0] + 0.6)
    ax.set_ylim(low[1] - 0.7, high[1] + 0.7)
    _draw_edges(ax, routes)
    colours, what = _colours(ax, network, nodes, color)
    _draw_nodes(ax, nodes, places, colours)
    count = sum(len(node.layers) for node in nodes)
    sub = f"{count} layers" + (f" in {len(nodes)} blocks" if any(len(n.layers) > 1 for n in nodes) else "")
    tidy(ax, plain(network.graphs[0].name) if network.graphs else "", f"{sub}, coloured by {what}")
    ax.spines[:].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def blocks(network: ir.Network, max_nodes: int = MAX_NODES) -> tuple[list[Node], list[tuple[int, int]]]:
    """Nodes to draw and the edges between them: one per layer, or blocks where there are more than `max_nodes` layers.

    A layer joins the block that all its inputs come from, as long as the block holds no more than so many convolutions
    and products. Data enter a block at its first layer only, so blocks never depend on each other in a circle.

    Examples
    --------
    >>> blocks(ir.Network("mslite", "", "", (), {}))
    ([], [])
    """
    if not network.graphs:
        return [], []
    main = network.graphs[0]
    layers = _on_the_way(main)
    if len(layers) <= max_nodes:
        return _contracted(network, main, layers)
    for heaviest in (1, 2, 3, 4, 8, 16):
        found = _contracted(network, main, layers, heaviest)
        if len(found[0]) <= max_nodes:
            return found
    ends = len(main.inputs) + len(main.outputs)
    return _contracted(network, main, layers, run=-(-len(layers) // max(max_nodes - ends, 10)))


def _on_the_way(main: ir.Graph) -> list[ir.Layer]:
    """Layers that depend on an input; what only reshapes constants is left out, as constants are."""
    flowing = {port.tensor for port in main.inputs}
    if not flowing:
        return [layer for layer in main.layers if layer.kind != "constant"]
    found = []
    for layer in main.layers:
        if layer.kind == "input" or flowing.intersection(layer.inputs):
            flowing.update(layer.outputs)
            found.append(layer)
    return found


def _contracted(
    network: ir.Network, main: ir.Graph, layers: list[ir.Layer], heaviest: int = 0, run: int = 0
) -> tuple[list[Node], list[tuple[int, int]]]:
    """Blocks of at most so many convolutions and products, or of so many layers in a row; else one node per layer."""
    nodes: list[Node] = []
    source: dict[int, int] = {}  # tensor -> node that produces it
    heavy: list[int] = []
    edges: dict[tuple[int, int], None] = {}

    def add(name: str, kind: str, weight: int) -> int:
        nodes.append(Node(name, kind))
        heavy.append(weight)
        return len(nodes) - 1

    ends = {layer.kind for layer in layers} & {"input", "output"}  # Arm NN has layers for them
    if "input" not in ends:
        for port in main.inputs:
            source[port.tensor] = add(port.name, "input", 0)
    for layer in layers:
        before = dict.fromkeys(source[i] for i in layer.inputs if i in source)
        weight = int(layer.kind in SUMS)
        mine = next(iter(before)) if len(before) == 1 else -1
        if run:
            mine = len(nodes) - 1
            fits = mine >= 0 and 0 < len(nodes[mine].layers) < run
        else:
            fits = mine >= 0 and nodes[mine].kind != "input" and heavy[mine] + weight <= heaviest > 0
        if fits and layer.kind not in ("input", "output"):
            heavy[mine] += weight
        else:
            mine = add(layer.name or layer.op, layer.kind, weight)
        edges |= {(other, mine): None for other in before if other != mine}
        nodes[mine].layers.append(layer.index)
        source |= dict.fromkeys(layer.outputs, mine)
    if "output" not in ends:
        for port in main.outputs:
            if port.tensor in source:
                edges[source[port.tensor], add(port.name, "output", 0)] = None
    for node in nodes:
        if len(node.layers) > 1:
            _name_block(network, node)
    return nodes, list(edges)


def _name_block(network: ir.Network, node: Node) -> None:
    """A block is called by its first convolution or product, or its first layer."""
    inner = [network.layers[i] for i in node.layers]
    head = next((layer for layer in inner if layer.kind in SUMS), inner[0])
    node.kind = head.kind
    node.name = f"{head.name or head.op} +{len(inner) - 1}"


def layout(count: int, edges: list[tuple[int, int]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Places of nodes in columns and ranks, and the routes of edges round them.

    Parameters
    ----------
    count : int
        Number of nodes.
    edges : list of (int, int)
        Without circles.

    Returns
    -------
    places : ndarray, shape (count, 2)
        x in columns; y in ranks, falling from source to target.
    routes : list of ndarray, shape (points, 2)
        One per edge, from its source to its target; between them one point per rank that it passes.

    Notes
    -----
    Layers are ranked by their longest way from a source, edges over several ranks get a place in each of them, and
    ``fast_sugiyama`` orders the ranks and sets the columns.

    Examples
    --------
    >>> layout(2, [(0, 1)])[0][:, 1].tolist()
    [1.0, 0.0]
    """
    from fast_sugiyama import from_edges

    rank = _ranks(count, edges)
    chains: list[list[int]] = []
    short: list[tuple[int, int]] = []
    number = count
    for a, b in edges:
        chain = [a, *range(number, number + rank[b] - rank[a] - 1), b]
        number += len(chain) - 2
        chains.append(chain)
        short += pairwise(chain)
    where: dict[int, tuple[float, float]] = {}
    shift = 0.0
    for positions, width, _, _ in from_edges(short, vertex_spacing=1.0) if short else ():
        top = max(y for _, (_, y) in positions)
        where |= {int(node): (x + shift, y - top) for node, (x, y) in positions}
        shift += width + 1
    for node in range(count):  # what nothing is connected to
        if node not in where:
            where[node] = (shift, 0.0)
            shift += 1
    points = np.array([where[i] for i in range(number)]).reshape(-1, 2)
    if len(points):
        points[:, 1] -= points[:, 1].min()
    return points[:count], [points[chain] for chain in chains]


def _ranks(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The longest way from a source; edges come in the order of execution, so one pass will do."""
    after = defaultdict(list)
    for a, b in edges:
        after[a].append(b)
    rank = [0] * count
    for a in range(count):
        for b in after[a]:
            if b <= a:
                raise InputError("layers are not in order of execution")
            rank[b] = max(rank[b], rank[a] + 1)
    return rank


# ---- drawing ---------------------------------------------------------------------------------------------------------


def _draw_edges(ax: Axes, routes: list[np.ndarray]) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    paths = []
    for route in routes:
        points, codes = [route[0]], [Path.MOVETO]
        for (x0, y0), (x1, y1) in pairwise(route):
            middle = (y0 + y1) / 2
            points += [np.array([x0, middle]), np.array([x1, middle]), np.array([x1, y1])]
            codes += [Path.CURVE4] * 3
        paths.append(Path(np.array(points), codes))
    ax.add_collection(PathCollection(paths, facecolors="none", edgecolors=GREY, linewidths=0.9, zorder=1))


def _draw_nodes(ax: Axes, nodes: list[Node], places: np.ndarray, colours: list[Any]) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import FancyBboxPatch

    if not nodes:
        return
    ax.figure.canvas.figure.draw_without_rendering()  # the axes get the size that the legend leaves them
    size = _font_size(ax)
    letters = max(int(0.84 * _column_points(ax) / (0.62 * size)), 4)
    for node, (x, y), colour in zip(nodes, places, colours, strict=True):
        round_end = 0.17 if node.kind in ("input", "output") else 0.06
        box = FancyBboxPatch(
            (x - 0.44, y - 0.28), 0.88, 0.56, f"round,pad=0,rounding_size={round_end}", facecolor=colour,
            edgecolor="#404040", linewidth=0.6, zorder=2, mutation_aspect=1.6,
        )  # fmt: skip
        ax.add_patch(box)
        red, green, blue = to_rgb(colour)
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        if size >= 2.5:
            text = plain(_label(node, letters), letters)
            ax.text(x, y, text, ha="center", va="center", fontsize=size, color="white" if dark else "black", zorder=3)


def _label(node: Node, letters: int) -> str:
    """Name, and kind where both fit."""
    both = f"{node.name}: {node.kind}"
    return both if len(both) <= letters and node.kind not in node.name else node.name


def _column_points(ax: Axes) -> float:
    """Width of a column in points."""
    box = ax.get_window_extent()
    low, high = ax.get_xlim()
    return float(box.width / ax.figure.dpi * 72 / (high - low))


def _font_size(ax: Axes) -> float:
    box = ax.get_window_extent()
    low, high = ax.get_ylim()
    return float(min(0.36 * box.height / ax.figure.dpi * 72 / (high - low), 9))


def _colours(ax: Axes, network: ir.Network, nodes: list[Node], color: Any) -> tuple[list[Any], str]:
    """A colour a node, and what it stands for; with a legend or a colour bar."""
    if isinstance(color, str) and color == "kind":
        families = ["" if not node.layers else family(node.kind) for node in nodes]
        _legend(ax, {f: FAMILY_COLOURS[f] for f in FAMILY_COLOURS if f in families})
        return [FAMILY_COLOURS.get(f, PALE) if f != "other" else PALE for f in families], "kind"
    values, what = _values(network, color)
    found = [[values[i] for i in node.layers if i in values and not pd.isna(values[i])] for node in nodes]
    if all(
        isinstance(v, int | float | np.number) and not isinstance(v, bool | np.bool_) for each in found for v in each
    ):
        return _scaled(ax, [float(sum(each)) if each else None for each in found], what), what
    common = ["" if not each else str(Counter(map(str, each)).most_common(1)[0][0]) for each in found]
    names = sorted(set(common) - {""}, key=lambda name: -common.count(name))
    colours = {name: CYCLE[min(i, len(CYCLE) - 1)] for i, name in enumerate(names)}
    _legend(ax, {name: colours[name] for name in names[: len(CYCLE)]})
    return [colours.get(name, PALE) for name in common], what


def _values(network: ir.Network, color: Any) -> tuple[dict[int, Any], str]:
    if not isinstance(color, str):
        return _by_layer(color), str(getattr(color, "name", None) or "value")
    for make in (tables.layers, _cost):
        table = make(network)
        if color in table:
            return dict(zip(table.index.tolist(), table[color].tolist(), strict=True)), color
    raise InputError(f"neither the layers nor their costs have a column {color!r}")


def _by_layer(color: Any) -> dict[int, Any]:
    """A user's values; those of no layer, as comparisons have some, are left out."""
    if not isinstance(color, Mapping | pd.Series):
        raise InputError(f"color is a column's name, or values by layer id (a dict or Series), not {color!r}")
    found = {i: value for i, value in dict[Any, Any](color).items() if not pd.isna(i)}
    wrong = [i for i in found if not isinstance(i, numbers.Real) or i % 1]
    if wrong:
        raise InputError(f"the values of color go by layer id, not by {wrong[0]!r}: see the index of model.layers")
    return {int(i): value for i, value in found.items()}


def _cost(network: ir.Network) -> pd.DataFrame:
    from mlinspect.analysis.cost import cost

    return cost(network)


def _scaled(ax: Axes, values: list[float | None], what: str) -> list[Any]:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    known = [v for v in values if v is not None and np.isfinite(v)]
    scale = Normalize(min(known, default=0.0), max(known, default=1.0) or 1.0)
    mapped = ScalarMappable(scale, colormaps["cividis"])
    bar = ax.figure.colorbar(mapped, ax=ax, shrink=0.5, aspect=40, pad=0.01)
    bar.set_label(what)
    return [PALE if v is None or not np.isfinite(v) else mapped.cmap(float(scale(v))) for v in values]


def _legend(ax: Axes, colours: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=PALE if name == "other" else colour, label=plain(name)) for name, colour in colours.items()]
    if handles:
        ax.legend(handles=handles, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
