"""Where the error sits: in which channels, where in the picture, at which depth, and how close a class decision was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.columns_runs import frame
from mlinspect.analysis.compare import Operand, compare, operands, samples_of
from mlinspect.analysis.layouts import best_layout
from mlinspect.analysis.match import Point, match, paired_ports
from mlinspect.analysis.samples import Sample
from mlinspect.errors import InputError, near
from mlinspect.execute.conditions import real_values
from mlinspect.execute.ports import Inputs, output_names
from mlinspect.kernels.agreement import Agreement, agreement

CHANNELS_FIRST = ("NCHW", "NCDHW", "NCW", "CHW")


def error_channels(
    a: Any,
    b: Any,
    layer: int | str,
    inputs: Inputs | Sequence[Any] | None = None,
    *,
    modes: tuple[str, str] = ("vendor", "vendor"),
) -> pd.DataFrame:
    """In which channels of a layer's output the error sits.

    Parameters
    ----------
    a, b, inputs, modes
        As for :func:`mlinspect.compare`.
    layer : int or str
        Index or name of a layer of `a` that has a partner in `b`.

    Returns
    -------
    DataFrame
        One row a channel, in order; see ``mlinspect.describe("error_channels")``.

    Raises
    ------
    InputError
        No such layer, or nothing to compare it with.

    Examples
    --------
    >>> import mlinspect as mi
    >>> from mlinspect.analysis.errormaps import error_channels
    >>> model, reference = (mi.open(mi.samples.path(name)) for name in ("digits_cnn_wq4.ms", "digits_cnn.ms"))
    >>> table = error_channels(reference, model, "/pw/Conv", mi.samples.digits().images[:2, ..., None] / 16)
    >>> len(table), float(round(table.share.sum(), 6))
    (32, 1.0)
    """
    sums: list[Agreement] = []
    for want, got in _values(a, b, layer, inputs, modes):
        found = [agreement(x, y) for x, y in zip(_by_channel(want), _by_channel(got), strict=True)]
        sums = [one + other for one, other in zip(sums, found, strict=True)] if sums else found
    total = sum(one.noise for one in sums)
    return frame(
        "error_channels",
        [
            {
                "channel": channel,
                "mse": one.mse,
                "share": one.noise / total if total else 0.0,
                "bias": one.mean_error,
                "max_abs": one.max_abs,
                "sqnr_db": one.sqnr_db,
                "gain": one.product / one.signal if one.signal else np.nan,
            }
            for channel, one in enumerate(sums)
        ],
    )


def error_picture(
    a: Any,
    b: Any,
    layer: int | str,
    inputs: Inputs | Sequence[Any] | None = None,
    *,
    modes: tuple[str, str] = ("vendor", "vendor"),
) -> pd.DataFrame:
    """Where in the feature map of a layer the error sits.

    Parameters
    ----------
    a, b, layer, inputs, modes
        As for :func:`error_channels`.

    Returns
    -------
    DataFrame of float64
        Root mean squared error over samples and channels: one row a row of the picture, one column a column of it.
        What has no picture (vectors) becomes one row.
    """
    pictures = []
    for want, got in _values(a, b, layer, inputs, modes):
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values show as NaN
            squares = (got.astype(np.float64) - want) ** 2
        # batch and channels away; of what is left, the last axis is the width
        picture = squares.mean(axis=(0, -1)) if squares.ndim > 2 else squares.reshape(-1, squares.shape[-1]).mean(0)
        pictures.append(picture.reshape(-1, picture.shape[-1]))
    found = np.sqrt(np.mean(pictures, axis=0))
    index, header = pd.RangeIndex(found.shape[0], name="row"), pd.RangeIndex(found.shape[1], name="column")
    return pd.DataFrame(found, index, header)


def accumulated_error(
    a: Any,
    b: Any,
    inputs: Inputs | Sequence[Any] | None = None,
    *,
    modes: tuple[str, str] = ("vendor", "vendor"),
) -> pd.DataFrame:
    """How the error grows with depth: the rows of :func:`mlinspect.compare` that have figures, in order of execution.

    Returns
    -------
    DataFrame
        layer_a, name_a, kind, sqnr_db and ``relative``, the root mean squared error over that of the signal.
    """
    table = compare(a, b, inputs, modes=modes).sort_index()
    table = table.loc[table.sqnr_db.notna(), ["layer_a", "name_a", "kind", "sqnr_db"]]
    return table.assign(relative=10 ** (-table.sqnr_db / 20))


def margins(
    a: Any,
    b: Any,
    inputs: Inputs | Sequence[Any],
    *,
    k: int = 5,
    output: str | None = None,
    modes: tuple[str, str] = ("vendor", "vendor"),
) -> pd.DataFrame:
    """How close a classifier's decisions are, sample by sample.

    Parameters
    ----------
    a, b, inputs, modes
        As for :func:`mlinspect.compare`; both are models.
    k : int
        How many likely classes count for ``overlap``.
    output : str, optional
        Name of the output of `a` that holds the scores, class by class along its last axis; the first by default.

    Returns
    -------
    DataFrame
        One row a sample; see ``mlinspect.describe("margins")``. ``pandas.crosstab(table.top_a, table.top_b)`` is the
        table of confusions.

    Examples
    --------
    >>> import mlinspect as mi
    >>> from mlinspect.analysis.errormaps import margins
    >>> a, b = (mi.open(mi.samples.path(name)) for name in ("digits_cnn.armnn", "digits_cnn_u8.armnn"))
    >>> table = margins(a, b, mi.samples.digits().images[:20, ..., None] / 16)
    >>> bool(table.agree.all()), int(table.rank_b.max())
    (True, 1)
    """
    if k < 1:
        raise InputError(f"k={k}: at least one class is compared")
    one, other = operands(a, b, modes)
    ports = one.network.graphs[0].outputs
    names = output_names(ports)
    if output is not None and output not in names:
        raise InputError(
            f"there is no output {output!r}; the outputs are {', '.join(map(repr, names))}{near(output, names)}"
        )
    position = 0 if output is None else names.index(output)
    pairs = paired_ports(ports, other.network.graphs[0].outputs)
    if position >= len(pairs):
        raise InputError(f"the two models have no output {position} in common")
    tensors = [port.tensor for port in pairs[position]]
    steps = [_step(side, tensor) for side, tensor in zip((one, other), tensors, strict=True)]
    rows = []
    for number, sample in enumerate(samples_of(one, other, inputs)):
        scores = []
        for side, tensor in zip((one, other), tensors, strict=True):
            values, failed = side.run(sample, [tensor])
            if tensor not in values:
                raise InputError("; ".join(["the scores were not computed", *dict.fromkeys(failed.values())]))
            scores.append(real_values(values[tensor], side.network.tensors[tensor]).reshape(-1).astype(np.float64))
        if scores[0].shape != scores[1].shape:
            raise InputError(f"{scores[0].size} and {scores[1].size} scores cannot be compared")
        rows.append({"sample": number, **_decision(scores[0], scores[1], steps[0], steps[1], k)})
    return frame("margins", rows)


def _step(side: Operand, tensor: int) -> float:
    """Size of a quantisation step of a tensor, NaN when it is not quantised."""
    q = side.network.tensors[tensor].quantization
    quantized = q is not None and side.network.tensors[tensor].quantized and side.mode != "float"
    return float(q.scale[0]) if quantized and q is not None else np.nan


def _decision(a: np.ndarray, b: np.ndarray, step_a: float, step_b: float, k: int) -> dict[str, Any]:
    order_a, order_b = np.argsort(-a, kind="stable"), np.argsort(-b, kind="stable")
    with np.errstate(invalid="ignore"):  # of infinite scores the margin is NaN
        margin_a, margin_b = (float(x[o[0]] - x[o[min(1, len(o) - 1)]]) for x, o in ((a, order_a), (b, order_b)))
    common = len(set(order_a[:k].tolist()) & set(order_b[:k].tolist()))
    return {
        "top_a": order_a[0],
        "top_b": order_b[0],
        "agree": order_a[0] == order_b[0],
        "rank_b": int(np.flatnonzero(order_b == order_a[0])[0]) + 1,
        "overlap": common / min(k, len(a)),
        "margin_a": margin_a,
        "margin_b": margin_b,
        "steps_a": margin_a / step_a,
        "steps_b": margin_b / step_b,
    }


def _values(
    a: Any, b: Any, layer: int | str, inputs: Inputs | Sequence[Any] | None, modes: tuple[str, str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Real values of both sides for each sample, channels last."""
    one, other = operands(a, b, modes)
    point = _point(one.network, match(one.network, other.network, (one.mode, other.mode)), layer)
    samples = [Sample()]
    if one.runs is not None or other.runs is not None:
        samples = samples_of(one, other, inputs)
    last: Callable[[np.ndarray], np.ndarray] = _channels_last(one.network, point.a)
    for sample in samples:
        sides = []
        for side, tensor in ((one, point.a), (other, point.b)):
            found = side.run(sample, [tensor])[0].get(tensor)
            if not isinstance(found, np.ndarray):
                raise InputError(f"layer {layer!r} was not computed on both sides")
            sides.append(real_values(found, side.network.tensors[tensor]))
        layout = best_layout(sides[1], sides[0])
        if layout is None:
            raise InputError(f"shapes {list(sides[0].shape)} and {list(sides[1].shape)} cannot be compared")
        yield last(sides[0]), last(layout.apply(sides[1]))


def _point(network: ir.Network, points: list[Point], layer: int | str) -> Point:
    # a layer, or one behind it that is judged with it
    known = [(p, i) for p in points if p.layer_a is not None for i in (p.layer_a, *p.folded[0])]
    found = [p for p, i in known if layer in (i, network.layers[i].name)]
    if not found:
        names = [network.layers[i].name for _, i in known]
        raise InputError(f"no layer {layer!r} that both sides have{near(layer, names)}")
    return found[0]


def _channels_last(network: ir.Network, tensor: int) -> Callable[[np.ndarray], np.ndarray]:
    """Moves the channels to the end where the tensor, or the layer that gives it, says that they come first."""
    made = next((layer for layer in network.graphs[0].layers if tensor in layer.outputs), None)
    layout = network.tensors[tensor].layout or (made.attrs.get("dataLayout") if made is not None else None)
    first = layout in CHANNELS_FIRST
    return lambda array: np.moveaxis(array, 1, -1) if first and array.ndim > 2 else array


def _by_channel(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(array, -1, 0) if array.ndim > 1 else array.reshape(-1, 1)
