"""The constants of two models against each other: matched by name or structure, across both formats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mlinspect import constants, ir
from mlinspect.analysis.columns import frame
from mlinspect.analysis.findings import Result, result
from mlinspect.analysis.operands import Use, by_channel, matrix, matrix_shape, network_of, parameters_fit, role, uses
from mlinspect.errors import InputError
from mlinspect.kernels.agreement import decibels, dot, sqnr_db
from mlinspect.macs import MACS

_SKETCH = 2048  # numbers of a constant that its correlation with others is judged by
_ALIKE = 0.5  # correlation from which on two constants are taken for the same whatever their order
_PRODUCTS = ("conv2d", "fully_connected", "matmul")  # one can stand for another


class Constant(NamedTuple):
    """A constant that stands for real numbers, and what it is for."""

    tensor: ir.Tensor
    use: Use | None
    role: str
    shape: tuple[int, int]  # as a matrix of output channels


def compare_weights(a: Any, b: Any, by: str = "tensor") -> Result:
    """How far the weights of one model are from those of another.

    Parameters
    ----------
    a, b : Model or Network
        The reference (usually the float model), and the model to judge. They may be of different formats: weights are
        compared in one order of axes, as real values.
    by : {"tensor", "channel"}
        One row a pair of constants, or one a pair and output channel.

    Returns
    -------
    DataFrame
        Worst first, then those that have no SQNR, then the constants of `a` and of `b` without a partner. Columns as
        ``mlinspect.describe("weight_pairs")`` says. Integers that are no quantised values (shapes, axes) are left out.

    Notes
    -----
    Constants of one name, purpose and size are partners. Others are matched by what reads them, purpose and size: first
    those that correlate, whatever their order, then, where as many are left on both sides, in order of execution.

    Quantised values are taken as ``scale * (stored - zero_point)``. MindSpore Lite's loader corrects them further,
    channel by channel, where the converter stored ``var_corr`` and ``mean_corr``: ``corrected_db`` is the SQNR of that.

    Examples
    --------
    >>> import mlinspect as mi
    >>> a, b = (mi.open(mi.samples.path(name)) for name in ("digits_cnn.ms", "digits_cnn_wq4.ms"))
    >>> compare_weights(a, b)[["name_a", "sqnr_db"]].round(1).values.tolist()[:3]
    [['res.weight', 19.3], ['head.weight', 22.7], ['pw.weight', 23.5]]
    """
    if by not in ("tensor", "channel"):
        raise InputError(f"by={by!r} is unknown: use 'tensor' or 'channel'")
    a, b = network_of(a), network_of(b)
    ours, theirs = real_constants(a), real_constants(b)
    pairs, how = _matches(ours, theirs, a.format, b.format)
    partner = dict(pairs)
    rows: list[dict[str, Any]] = []
    for i, j in sorted(pairs):
        subject = _subject(ours[i], theirs[j]) | {"matched": how[i]}
        rows += [subject | figures for figures in _figures(ours[i], theirs[j], a.format, b.format, by == "channel")]
    rows.sort(key=lambda row: (np.isnan(row["sqnr_db"]), row["sqnr_db"], -row["max_abs_error"]))
    rows += [_subject(one, None) | {"matched": "a only"} for i, one in enumerate(ours) if i not in partner]
    taken = set(partner.values())
    rows += [_subject(None, one) | {"matched": "b only"} for j, one in enumerate(theirs) if j not in taken]
    table = "weight_pairs" if by == "tensor" else "weight_pair_channels"
    return result(table, frame(table, rows))


def real_constants(network: ir.Network) -> list[Constant]:
    """Constants that stand for real numbers, in order of their first readers."""
    readers = uses(network)
    order = {layer.index: i for i, layer in enumerate(network.layers.values())}
    found = []
    for tensor in network.tensors.values():
        use = readers.get(tensor.index)
        if tensor.data is None or not _is_real(tensor, use):
            continue
        shape = matrix_shape(tensor, use)
        if shape is not None:
            found.append(Constant(tensor, use, role(use), shape))
    return sorted(
        found, key=lambda c: (order[c.use.layer.index], c.use.slot) if c.use else (len(order), c.tensor.index)
    )


def matched_constants(a: ir.Network, b: ir.Network) -> list[tuple[Constant, Constant]]:
    """The constants of two networks that are partners, as :func:`compare_weights` finds them."""
    ours, theirs = real_constants(a), real_constants(b)
    pairs, _ = _matches(ours, theirs, a.format, b.format)
    return [(ours[i], theirs[j]) for i, j in sorted(pairs)]


def _is_real(tensor: ir.Tensor, use: Use | None) -> bool:
    learnt = tensor.quantized or "float" in tensor.dtype or bool(len(tensor.meta.get("quantClusters", ())))
    return learnt or (use is not None and use.slot > 0 and use.layer.kind in MACS and tensor.dtype == "int32")


# ---- matching --------------------------------------------------------------------------------------------------------


def _matches(
    ours: list[Constant], theirs: list[Constant], format_a: str, format_b: str
) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """Pairs of positions, and how each of the first was matched."""
    counts = Counter(c.tensor.name for c in ours), Counter(c.tensor.name for c in theirs)
    named = {c.tensor.name: j for j, c in enumerate(theirs) if counts[1][c.tensor.name] == 1}
    pairs: dict[int, int] = {}
    for i, one in enumerate(ours):
        j = named.get(one.tensor.name)
        if j is not None and counts[0][one.tensor.name] == 1 and _signature(one) == _signature(theirs[j]):
            pairs[i] = j
    how = dict.fromkeys(pairs, "name")
    taken = set(pairs.values())
    groups: dict[Any, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, one in enumerate(ours):
        if i not in pairs:
            groups[_signature(one)][0].append(i)
    for j, one in enumerate(theirs):
        if j not in taken:
            groups[_signature(one)][1].append(j)
    for left, right in groups.values():
        for i, j in _by_correlation(ours, theirs, left, right, format_a, format_b):
            pairs[i], how[i] = j, "structure"
    return list(pairs.items()), how


def _signature(c: Constant) -> tuple[Any, ...]:
    kind = "" if c.use is None else c.use.layer.kind
    return ("product" if kind in _PRODUCTS else kind), c.role, c.shape


def _by_correlation(
    ours: list[Constant], theirs: list[Constant], left: list[int], right: list[int], format_a: str, format_b: str
) -> Iterable[tuple[int, int]]:
    """Partners among constants of one purpose and size: those that correlate, then the others in order."""
    if len(left) > 1 or len(right) > 1:
        x = np.array([_sketch(ours[i], format_a) for i in left])
        y = np.array([_sketch(theirs[j], format_b) for j in right])
        alike = x @ y.T if left and right else np.zeros((len(left), len(right)))
        # of those that correlate equally well, the ones at the same place
        place = np.abs(np.arange(len(left))[:, None] - np.arange(len(right)))
        for _, _, i, j in sorted((-round(float(v), 6), place[p], *p) for p, v in np.ndenumerate(alike) if v > _ALIKE):
            if left[i] >= 0 and right[j] >= 0:
                yield left[i], right[j]
                left[i] = right[j] = -1
    rest_left, rest_right = [i for i in left if i >= 0], [j for j in right if j >= 0]
    if len(rest_left) == len(rest_right):
        yield from zip(rest_left, rest_right, strict=True)


def _sketch(c: Constant, model_format: str) -> np.ndarray:
    """Some of a constant's values, evenly spread over its matrix; without mean, and of length 1."""
    values = real_matrix(c, model_format).ravel()
    some = values[np.linspace(0, values.size - 1, min(values.size, _SKETCH)).astype(np.intp)].astype(np.float64)
    some -= some.mean()
    length = np.sqrt((some * some).sum())
    return some / length if length > 0 else some


# ---- figures ---------------------------------------------------------------------------------------------------------


def real_matrix(c: Constant, model_format: str, corrected: bool = False) -> np.ndarray:
    """A constant's real values as (output channels, the rest); NaN where its parameters do not fit it."""
    tensor, q = c.tensor, c.tensor.quantization
    channels = by_channel(constants.stored(tensor), tensor, c.use).shape[1]
    if not parameters_fit(tensor, channels):
        return np.full(c.shape, np.nan, np.float32)
    if q is not None and not corrected:
        tensor = replace(tensor, quantization=replace(q, extra={}))
    return matrix(constants.real(tensor, model_format), tensor, c.use)


def _is_corrected(c: Constant, model_format: str) -> bool:
    """Whether MindSpore Lite's loader does more than scale the stored numbers."""
    q = c.tensor.quantization
    return (
        model_format == "mslite"
        and q is not None
        and q.per_channel
        and {"var_corr", "mean_corr"} & set(q.extra) != set()
    )


def _subject(one: Constant | None, other: Constant | None) -> dict[str, Any]:
    c = one or other
    assert c is not None
    row: dict[str, Any] = {
        "role": c.role,
        "kind": None if c.use is None else c.use.layer.kind,
        "elements": c.shape[0] * c.shape[1],
    }
    for side, found in (("a", one), ("b", other)):
        if found is not None:
            tensor = found.tensor
            layer = None if found.use is None else found.use.layer.index
            row |= {f"tensor_{side}": tensor.index, f"name_{side}": tensor.name, f"layer_{side}": layer}
            row |= {f"dtype_{side}": tensor.dtype, f"shape_{side}": tensor.shape}
    return row


def _figures(a: Constant, b: Constant, format_a: str, format_b: str, each: bool) -> list[dict[str, Any]]:
    """One dict for the pair, or one a channel."""
    x, y = real_matrix(a, format_a), real_matrix(b, format_b)
    runtime = real_matrix(b, format_b, corrected=True) if _is_corrected(b, format_b) else y
    if not each:
        x, y, runtime = x.reshape(1, -1), y.reshape(1, -1), runtime.reshape(1, -1)
    most = min(
        [256, *(2**t.quantization.bits for t in (a.tensor, b.tensor) if t.quantization is not None and t.quantized)]
    )
    rows = []
    for channel, (reference, values, final) in enumerate(zip(x, y, runtime, strict=True)):
        r, v = reference.astype(np.float64), values.astype(np.float64)
        error = v - r
        silent = not r.any() and v.any()  # to an error there is no signal that it could be measured by
        signal, noise, power = dot(r, r), dot(error, error), dot(v, v)
        rows.append(
            {
                "channel": channel,
                "elements": r.size,
                "sqnr_db": np.nan if silent else decibels(signal, noise),
                "corrected_db": np.nan if silent else sqnr_db(reference, final),
                "cosine": dot(r, v) / np.sqrt(signal * power) if signal * power > 0 else np.nan,
                "max_abs_error": np.abs(error).max(),
                "bias": error.mean(),
                "kl": _divergence(r, v, most),
            }
        )
    return rows


def _divergence(reference: np.ndarray, values: np.ndarray, most: int) -> float:
    """Kullback-Leibler divergence of two distributions, from histograms over their common range.

    As many bins as the root of the number of values, at least 4, at most one a level of the grid and 256. Half a count
    is added to each, so that none is empty.
    """
    low, high = np.minimum(reference.min(), values.min()), np.maximum(reference.max(), values.max())
    if not np.isfinite([low, high]).all():
        return np.nan
    bins = int(np.clip(np.sqrt(reference.size), 4, max(most, 4)))
    p, q = (np.histogram(x, bins, (low, high))[0] + 0.5 for x in (reference, values))
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())
