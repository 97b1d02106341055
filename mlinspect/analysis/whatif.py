"""What quantising a float model's weights would cost in accuracy and save in bytes, without doing it to the file."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.columns import frame
from mlinspect.analysis.operands import is_weight, network_of
from mlinspect.analysis.pairs import Constant, real_constants, real_matrix
from mlinspect.errors import InputError, near
from mlinspect.kernels.agreement import decibels

CLIPS = ("minmax", "percentile", "mse")
_PERCENT = 99.9  # share of the values that "percentile" keeps unclipped
_RATIOS = np.linspace(1, 0.3, 36)  # of the whole range, that "mse" tries
_SAMPLE = 1 << 14  # values of a row that "mse" judges a range by
_BLOCK = 1 << 18
_STEPS = 20_000  # parts of the budget that `plan` counts in
# bytes of a scale and its zero point: measured on files of the real converters
PARAMETER_BYTES = {"mslite": 36, "armnn": 4}


def what_if(
    model: Any,
    bits: int | Sequence[int] = (4, 6, 8),
    per_channel: bool | Sequence[bool] = (False, True),
    clip: str | Sequence[str] = CLIPS,
) -> pd.DataFrame:
    """Quantise float weights in memory, in every way asked for.

    Parameters
    ----------
    model : Model or Network
    bits : int or sequence of int
        Widths of the stored integers, 2 to 16.
    per_channel : bool or sequence of bool
        One scale for all, or one an output channel.
    clip : {"minmax", "percentile", "mse"} or sequence of them
        The range that the grid covers: all values; all but the outermost 0.1 %; the one of least squared error.

    Returns
    -------
    DataFrame
        One row a float weight and way, in order of execution; columns as ``mlinspect.describe("what_if")`` says.

    Raises
    ------
    InputError
        There is no such way, or the model has no float weights.

    Notes
    -----
    The grid is that of each format's own converter: MindSpore Lite's has a zero point, and so has Arm NN's with one
    scale for all (``QAsymmS8``), but not with one a channel (``QSymmS8``). ``real = scale * (stored - zero_point)``,
    rounded to the nearest.

    Examples
    --------
    >>> import mlinspect as mi
    >>> table = what_if(mi.open(mi.samples.path("digits_cnn.ms")), (4, 8), True, "minmax")
    >>> table.query("name == 'res.weight'")[["bits", "sqnr_db", "bytes"]].round(1).values.tolist()
    [[4, 19.3, 5760], [8, 43.8, 10368]]
    """
    network = network_of(model)
    ways = _ways(bits, per_channel, clip)
    rows = []
    for c in _float_weights(network):
        matrix = real_matrix(c, network.format)
        rows += [_subject(c) | figures for figures in _tried(matrix, ways, network.format)]
    return frame("what_if", rows)


@dataclass(frozen=True)
class Plan:
    """A way for each weight that keeps the most accuracy in a budget.

    Attributes
    ----------
    table : DataFrame
        One row a weight, in order of execution; columns as ``mlinspect.describe("plan")`` says.
    bytes : int
        All constants of the model under the plan.
    budget_bytes : int
    sqnr_db : float
        Of all layers together: their relative noise powers added up.
    config : str
        Lines of a configuration file for MindSpore Lite's converter; empty for a model of Arm NN, which has none.
    """

    table: pd.DataFrame
    bytes: int
    budget_bytes: int
    sqnr_db: float
    config: str

    def _repr_html_(self) -> str:
        return self.table._repr_html_()  # type: ignore[operator, no-any-return]


def plan(
    model: Any,
    budget_bytes: int,
    bits: int | Sequence[int] = (4, 6, 8),
    per_channel: bool | Sequence[bool] = True,
    clip: str | Sequence[str] = "minmax",
    one_width: bool = False,
) -> Plan:
    """Choose a width for every weight, so that all constants fit the budget and the least accuracy is lost.

    Parameters
    ----------
    model : Model or Network
        A float model.
    budget_bytes : int
        For all constants of the model, those that stay as they are included.
    bits, per_channel, clip
        The ways to choose from, as for :func:`what_if`; to leave a weight as it is, is always one of them. The defaults
        are what MindSpore Lite's converter does.
    one_width : bool
        All quantised weights get the same width, which is all that one run of the converter can do.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        There is no such way, or the model has no float weights, or the budget is too small; the message says what the
        least is.

    Notes
    -----
    Maximises ``-10 log10(sum over layers of 10^(-sqnr_db / 10))``: the relative noise of layers that follow each other
    adds up (Lin, Talathi, Annapureddy, "Fixed point quantization of deep convolutional networks", 2016). The choice is
    exact but for bytes being counted in 1/20000 of the budget, rounded up.

    Examples
    --------
    >>> import mlinspect as mi
    >>> found = plan(mi.open(mi.samples.path("digits_cnn.ms")), 12_000)
    >>> found.bytes <= 12_000, int(found.table.set_index("name").bits["res.weight"])
    (True, 6)
    """
    if not isinstance(budget_bytes, numbers.Real) or isinstance(budget_bytes, bool) or not np.isfinite(budget_bytes):
        raise InputError(f"budget_bytes={budget_bytes!r} is no number of bytes")
    budget_bytes = int(budget_bytes)
    network = network_of(model)
    weights = _float_weights(network)
    ways = _ways(bits, per_channel, clip)
    options = [_options(c, network.format, ways) for c in weights]
    fixed = sum(t.nbytes for t in network.tensors.values() if t.data is not None) - sum(
        c.tensor.nbytes for c in weights
    )
    choices = [options]
    if one_width:
        choices = [
            [[o for o in each if o["bits"] in (width, None)] for each in options] for width in {way[0] for way in ways}
        ]
    found = [picked for each in choices if (picked := _choose(each, budget_bytes - fixed)) is not None]
    if not found:
        least = fixed + sum(min(o["bytes"] for o in each) for each in options)
        raise InputError(f"{budget_bytes} bytes are too few: these ways need at least {least}")
    best = min(found, key=_noise)
    rows = [_subject(c) | o for c, o in zip(weights, best, strict=True)]
    noise = _noise(best)
    return Plan(
        frame("plan", rows),
        fixed + sum(o["bytes"] for o in best),
        budget_bytes,
        decibels(1.0, float(noise)),
        config(weights, [o["bits"] for o in best]) if network.format == "mslite" else "",
    )


def config(weights: Sequence[Constant], bits: Sequence[int | None]) -> str:
    """Lines for the ``configFile`` of MindSpore Lite's converter.

    One run of the converter has one width, the one that most weights have here, and may skip layers. Where the plan has
    more widths, comments say so. Source: MindSpore Lite's documentation of quantisation after training, from 2.0 on.
    """
    sizes: dict[int, int] = {}
    for c, width in zip(weights, bits, strict=True):
        if width is not None:
            sizes[width] = sizes.get(width, 0) + c.tensor.nbytes
    if not sizes:
        return "# the plan quantises nothing: convert without a configuration\n"
    main = max(sizes, key=lambda width: (sizes[width], width))
    names = [c.use.layer.name if c.use is not None else c.tensor.name for c in weights]
    lines = ["[common_quant_param]", "quant_type=WEIGHT_QUANT", f"bit_num={main}"]
    lines += ["min_quant_weight_size=0", "min_quant_weight_channel=0"]
    kept = [_line(name) for name, width in zip(names, bits, strict=True) if width is None]
    lines += [f"skip_quant_node={','.join(kept)}"] if kept else []
    for width in sorted(set(sizes) - {main}):
        others = ", ".join(_line(name) for name, w in zip(names, bits, strict=True) if w == width)
        lines.append(f"# {width} bits in the plan, {main} by this file: {others}")
    return "\n".join(lines) + "\n"


def _line(name: str) -> str:
    """A name that cannot begin another line of the file."""
    return " ".join(name.split())


# ---- ways ------------------------------------------------------------------------------------------------------------


def _float_weights(network: ir.Network) -> list[Constant]:
    found = [c for c in real_constants(network) if is_weight(c.tensor, c.use) and not c.tensor.quantized]
    if not found:
        raise InputError("the model has no float weights to quantise: give the float model that it was made from")
    return found


Way = tuple[int, bool, str]


def _ways(bits: Any, per_channel: Any, clip: Any) -> list[Way]:
    """All that are asked for; each of the three is one value or several."""
    widths, channels, clips = (
        (each,) if isinstance(each, str) or not isinstance(each, Iterable) else tuple(each)
        for each in (bits, per_channel, clip)
    )
    for name, values, known, listed in (
        ("bits", widths, range(2, 17), "2 to 16"),
        ("per_channel", channels, (False, True), "False, True"),
        ("clip", clips, CLIPS, ", ".join(map(repr, CLIPS))),
    ):
        wrong = [value for value in values if value not in known]
        if not values:
            raise InputError(f"{name} is empty: use one or some of {listed}")
        if wrong:
            raise InputError(f"{name}={wrong[0]!r} is unknown: use one or some of {listed}{near(wrong[0], CLIPS)}")
    return list(product(widths, channels, clips))


def _subject(c: Constant) -> dict[str, Any]:
    layer = c.use.layer if c.use is not None else None
    return {
        "tensor": c.tensor.index,
        "name": c.tensor.name,
        "layer": None if layer is None else layer.index,
        "kind": None if layer is None else layer.kind,
        "elements": c.shape[0] * c.shape[1],
        "bytes_before": c.tensor.nbytes,
    }


def _tried(matrix: np.ndarray, ways: Iterable[Way], model_format: str) -> Iterable[dict[str, Any]]:
    for width, each, how in ways:
        w = matrix if each else matrix.reshape(1, -1)
        symmetric = model_format == "armnn" and each
        noise, signal, outside = _quantise(w, width, symmetric, how)
        size = -(-w.size * width // 8) + len(w) * PARAMETER_BYTES[model_format]
        yield {
            "bits": width,
            "per_channel": each,
            "clip": how,
            "sqnr_db": decibels(float(signal), float(noise)),
            "bytes": size,
            "clipped": outside / w.size,
        }


def _options(c: Constant, model_format: str, ways: Iterable[Way]) -> list[dict[str, Any]]:
    """All ways for one weight, and to leave it as it is."""
    kept = {
        "bits": None,
        "per_channel": None,
        "clip": None,
        "sqnr_db": np.inf,
        "bytes": c.tensor.nbytes,
        "clipped": 0.0,
    }
    return [kept, *_tried(real_matrix(c, model_format), ways, model_format)]


def _quantise(w: np.ndarray, bits: int, symmetric: bool, clip: str) -> tuple[float, float, int]:
    """Noise power, signal power, and values outside the range, of rows that have one scale each."""
    low, high = _range(w, bits, symmetric, clip)
    noise = signal = 0.0
    outside = 0
    for rows, columns in _blocks(w):
        part = w[rows, columns].astype(np.float64)
        a, b = low[rows, None], high[rows, None]
        error = _rounded(part, a, b, bits, symmetric) - part
        noise += float(np.vdot(error, error))
        signal += float(np.vdot(part, part))
        step = (b - a) / (2**bits - 1)
        outside += int(((part < a - step / 2) | (part > b + step / 2)).sum())
    return noise, signal, outside


def _blocks(w: np.ndarray) -> Iterable[tuple[slice, slice]]:
    wide = max(1, min(w.shape[1], _BLOCK))
    some = max(1, _BLOCK // wide)
    for i in range(0, w.shape[0], some):
        for j in range(0, w.shape[1], wide):
            yield slice(i, i + some), slice(j, j + wide)


def _range(w: np.ndarray, bits: int, symmetric: bool, clip: str) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest real value of the grid of each row; 0 lies between them."""
    if clip == "percentile":
        tail = (100 - _PERCENT) / 2
        low, high = np.percentile(w, [tail, 100 - tail], axis=1).astype(np.float64)
    else:
        low, high = w.min(axis=1).astype(np.float64), w.max(axis=1).astype(np.float64)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    if clip != "mse":
        return low, high
    stride = max(1, w.shape[1] // _SAMPLE)
    some = w[:, ::stride].astype(np.float64)
    best, error = np.ones(len(w)), np.full(len(w), np.inf)
    for ratio in _RATIOS:
        found = _rounded(some, ratio * low[:, None], ratio * high[:, None], bits, symmetric) - some
        power = np.vecdot(found, found)
        best, error = np.where(power < error, ratio, best), np.minimum(power, error)
    return best * low, best * high


def _rounded(w: np.ndarray, low: np.ndarray, high: np.ndarray, bits: int, symmetric: bool) -> np.ndarray:
    """The values that are left of `w` when it is stored in so many bits."""
    if symmetric:  # the smallest number is not used, so that the range is the same on both sides
        top = 2 ** (bits - 1) - 1
        scale = np.maximum(-low, high) / top
        scale = np.where(scale > 0, scale, 1.0)
        return scale * np.clip(np.rint(w / scale), -top, top)
    scale = (high - low) / (2**bits - 1)
    scale = np.where(scale > 0, scale, 1.0)
    zero = np.rint(-low / scale)
    return scale * (np.clip(np.rint(w / scale) + zero, 0, 2**bits - 1) - zero)


# ---- choice ----------------------------------------------------------------------------------------------------------


def _noise(picked: Sequence[dict[str, Any]]) -> float:
    """Relative noise powers added up."""
    return sum(10 ** (-o["sqnr_db"] / 10) for o in picked)


def _choose(options: Sequence[Sequence[dict[str, Any]]], budget: int) -> list[dict[str, Any]] | None:
    """One option each, of least noise together, that fit the budget; None where none do.

    The knapsack with choices, by dynamic programming over the bytes that may be spent.
    """
    unit = max(1, budget // _STEPS)
    slots = budget // unit
    if slots < 0:
        return None
    best = np.zeros(slots + 1)
    taken = []
    for each in options:
        sizes = [-(-o["bytes"] // unit) for o in each]
        noises = [10 ** (-o["sqnr_db"] / 10) for o in each]
        table = np.full((len(each), slots + 1), np.inf)
        for k, (size, noise) in enumerate(zip(sizes, noises, strict=True)):
            if size <= slots:
                table[k, size:] = best[: slots + 1 - size] + noise
        taken.append((table.argmin(axis=0).astype(np.int16), sizes))
        best = table.min(axis=0)
    if not np.isfinite(best[slots]):
        return None
    picked, left = [], slots
    for each, (choice, sizes) in zip(reversed(options), reversed(taken), strict=True):
        k = int(choice[left])
        picked.append(each[k])
        left -= sizes[k]
    return picked[::-1]
