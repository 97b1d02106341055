"""Which layer is to blame: its own error against what it inherits, and what the result gains without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.bridge import Bridge, Run, equal
from mlinspect.analysis.columns_runs import frame
from mlinspect.analysis.compare import known_mode
from mlinspect.analysis.findings import Result, result
from mlinspect.analysis.operands import short
from mlinspect.analysis.samples import Sample, portable, samples_for, spread
from mlinspect.errors import InputError
from mlinspect.execute.conditions import real_values
from mlinspect.execute.ports import Inputs, output_names
from mlinspect.execute.programs import Programs
from mlinspect.execute.values import quantize_array
from mlinspect.kernels.agreement import Agreement, agreement, decibels, dot

Metric = Callable[[dict[str, np.ndarray]], float]


class _Setup:
    """What every piece of the work needs; sent to other processes without what can be made anew there."""

    def __init__(self, a: ir.Network, b: ir.Network, modes: tuple[str, str], sample: Sample, shares: bool) -> None:
        self.a, self.b, self.modes, self.sample, self.shares = portable(a), portable(b), modes, sample, shares

    @cached_property
    def bridge(self) -> Bridge:
        with np.errstate(all="ignore"):
            return Bridge(self.a, self.b, self.modes, self.sample)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "bridge"}


def is_quantized(network: ir.Network) -> bool:
    """Some of its tensors hold quantised values."""
    return any(tensor.quantized for tensor in network.tensors.values())


def _rounds(network: ir.Network) -> bool:
    """It stores some of what it computes in fewer bits than float32."""
    computed = (tensor for tensor in network.tensors.values() if tensor.data is None)
    return any(tensor.quantized or tensor.dtype in ("float16", "bfloat16") for tensor in computed)


def _setup(model: Any, reference: Any, inputs: Any, shares: bool) -> tuple[_Setup, list[Sample]]:
    mode, own_float = "vendor", isinstance(reference, str)
    if own_float:
        reference, mode = model, known_mode(reference)
    for one in (model, reference):
        if not hasattr(one, "network"):
            raise InputError(f"{short(one)} is no model: open it with mlinspect.open first")
    if not is_quantized(model.network) and is_quantized(reference.network):
        raise InputError("the first model is not quantised and the second is: blame(quantized, reference, inputs)")
    if own_float and not _rounds(model.network):
        warnings.warn(
            f"the reference {mode!r} computes with the same stored weights, and the model quantises no activation: "
            "the two can hardly differ. Give the float model that it was made from",
            stacklevel=3,
        )
    samples = samples_for([(model.network, "vendor"), (reference.network, mode)], inputs, depth=2)
    a, b = (Programs(one.network).network for one in (model, reference))  # as the runtimes see them
    return _Setup(a, b, ("vendor", mode), samples[0], shares), samples


def blame(
    quantized: Any,
    reference: Any,
    inputs: Inputs | Sequence[Any],
    *,
    shares: bool = True,
    executor: Executor | None = None,
    progress: bool = True,
) -> Result:
    """Separate each layer's own error from the one that it inherits.

    A layer's own error is what it makes of the reference's values (rounded as its operands are), less the reference's
    result; a layer that only moves numbers has none: the rounding is that of the layer whose result is stored. A layer
    that is stored in the range of the ReLU behind it is one row with it (``folded``). The inherited error is what the
    errors of its operands become in it. Their sum, element by element, is the layer's error in the quantised model.
    ``share`` follows each own error through the quantised layers behind it to the model's outputs: the layers are
    changed from reference to quantised one by one, last to first, so that the steps add up to the final error.

    Parameters
    ----------
    quantized : Model
    reference : Model, or "float"
        ``"float"``: the quantised model itself in float mode, which leaves out what rounding the weights cost.
    inputs : array, mapping, sequence
        As for :func:`mlinspect.compare`: real values, any number of samples.
    shares : bool
        Follow errors to the outputs. Takes time by the square of the number of layers.
    executor : concurrent.futures.Executor, optional
        Spreads the samples: a process pool, a cluster's executor. Functions that :func:`mlinspect.register_op` was
        given have to be registered where it runs.
    progress : bool
        Show a bar when it takes longer than a second.

    Returns
    -------
    DataFrame
        One row a layer, by index, in order of execution; see ``mlinspect.describe("blame")``.

    Warns
    -----
    UserWarning
        The reference is ``"float"``, but the model quantises weights alone; inputs as in :func:`mlinspect.compare`.

    Examples
    --------
    >>> import mlinspect as mi
    >>> from mlinspect.analysis.blame import blame
    >>> model, reference = (mi.open(mi.samples.path(name)) for name in ("digits_cnn_wq4.ms", "digits_cnn.ms"))
    >>> table = blame(model, reference, mi.samples.digits().calibration[:4, ..., None] / 16)
    >>> table.sort_values("own_db").name.iloc[0], float(round(table.share.sum(), 6))
    ('/pw/Conv', 1.0)
    """
    setup, samples = _setup(quantized, reference, inputs, shares)
    answers = spread(_blame, setup, samples, executor, "blame", progress)
    by_point = zip(*[answer[0] for answer in answers], strict=True)
    records = [[_sum(parts) for parts in zip(*point, strict=True)] for point in by_point]
    parts = np.sum([a[1] for a in answers], axis=0)
    final = sum(a[2] for a in answers)
    rows = []
    for i, (total, own, inherited) in enumerate(records):
        if setup.bridge.points[i].layer_a is None and not parts[i]:
            continue  # an input that both get alike
        count = max(total.elements, 1)
        rows.append(
            _place(setup.bridge, i)
            | {
                "sqnr_db": total.sqnr_db,
                "own_db": own.sqnr_db,
                "inherited_db": decibels(total.signal, inherited.noise),
                "mse": total.mse,
                "own_mse": own.mse,
                "inherited_mse": inherited.mse,
                "cross_mse": (total.noise - own.noise - inherited.noise) / count,
                "share": (parts[i] / final if final else 0.0) if shares else np.nan,
                "samples": len(samples),
                "folded": ", ".join(setup.bridge.sides[0].folded(i, setup.bridge.points[i].layer_a)),
            }
        )
    return result("blame", frame("blame", rows))


def _sum(parts: Sequence[Agreement]) -> Agreement:
    return sum(parts, Agreement())


def _place(bridge: Bridge, position: int) -> dict[str, Any]:
    """Which layer a row is about."""
    point, (a, b) = bridge.points[position], bridge.networks
    layer = None if point.layer_a is None else a.layers[point.layer_a]
    other = None if point.layer_b is None else b.layers[point.layer_b]
    return {
        "layer": point.layer_a,
        "name": layer.name if layer is not None else a.tensors[point.a].name,
        "kind": layer.kind if layer is not None else "input",
        "reference": other.name if other is not None else b.tensors[point.b].name,
    }


Answer = tuple[list[tuple[Agreement, Agreement, Agreement]], np.ndarray, float]


def _blame(setup: _Setup, samples: list[Sample]) -> list[Answer]:
    with np.errstate(all="ignore"):
        return [_blame_one(setup.bridge, sample, setup.shares) for sample in samples]


def _blame_one(bridge: Bridge, sample: Sample, shares: bool) -> Answer:
    """For each point the agreement in all, by itself, and between the two; its part in the final error; that error."""
    mixed, got = bridge.start(sample), bridge.start(sample)
    mixed.compute_all(1)
    got.compute_all(0)
    side = bridge.sides[0]
    records: list[tuple[Agreement, Agreement, Agreement]] = []
    finals = [_flat(mixed)]
    waiting: dict[int, set[int]] = {}  # point -> those behind it that only move what it gives
    for position in reversed(range(len(bridge.points))):
        # all points behind this one are the quantised model's by now, those before it the reference's
        mixed.values[0].update(side.program.constants)  # which training operators write to
        reference, rounded = mixed.real(1, position), mixed.stored(0, position)
        mixed.compute(0, position)
        alone, whole = mixed.real(0, position), got.real(0, position)
        changed = waiting.pop(position, set())
        moved = bridge.moved[position]
        if moved is not None and equal(alone, _rounded(reference, moved)):
            # what its operand loses by being stored is not its doing, but that of the layer that stores it
            alone = reference
            waiting.setdefault(max(side.stretches[position].reads), set()).update(changed, [position])
            finals.append(finals[-1])
        elif shares:
            changed |= set() if equal(rounded, mixed.stored(0, position)) else {position}
            mixed.compute_changed(0, changed)
            # an output may be the same as stored here, but not the same real value
            finals.append(_flat(mixed) if changed or position in bridge.outputs else finals[-1])
        records.append((agreement(reference, whole), agreement(reference, alone), agreement(alone, whole)))
    if not shares:
        return records[::-1], np.zeros(len(records)), 0.0
    error = finals[-1] - finals[0]
    # what each layer more in the quantised model adds to the outputs, as far as it goes the way of the whole error
    steps = np.diff(np.stack(finals), axis=0)[::-1]
    return records[::-1], np.array([dot(step, error) for step in steps]), dot(error, error)


def _rounded(values: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Real values that are left of some when they are stored as a tensor stores them."""
    return real_values(quantize_array(values.astype(np.float32, copy=False), tensor), tensor)


def _flat(run: Run) -> np.ndarray:
    return np.concatenate([array.astype(np.float64).ravel() for array in run.outputs().values()])


def sensitivity(
    model: Any,
    data: Inputs | Sequence[Any],
    metric: Metric | np.ndarray,
    *,
    reference: Any = "float",
    executor: Executor | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Rank layers by what the final metric gains when that layer alone is computed as in the reference.

    Parameters
    ----------
    model : Model
    data : array, mapping, sequence
        Inputs as for :func:`mlinspect.compare`.
    metric : callable, or ndarray of int, shape (samples,)
        ``metric(outputs) -> float``, larger is better; outputs by name, real values, stacked over the samples. An array
        of labels stands for the share of samples whose first output is largest for the label.
    reference : Model, or "float"
        ``"float"``: the model itself in float mode. Weights that are stored in few bits are only undone by a model that
        still has them in float.
    executor, progress
        As for :func:`blame`.

    Returns
    -------
    DataFrame
        One row a layer, by index, largest gain first; see ``mlinspect.describe("sensitivity")``.

    Raises
    ------
    InputError
        The metric is neither a function nor labels, or returns no number; or an input does not fit.

    Examples
    --------
    >>> import mlinspect as mi
    >>> from mlinspect.analysis.blame import sensitivity
    >>> model, reference = (mi.open(mi.samples.path(name)) for name in ("digits_cnn_wq4.ms", "digits_cnn.ms"))
    >>> digits = mi.samples.digits()
    >>> table = sensitivity(model, digits.images[:20, ..., None] / 16, digits.labels[:20], reference=reference)
    >>> list(table.columns[:5])
    ['name', 'kind', 'reference', 'restored', 'gain']
    """
    setup, samples = _setup(model, reference, data, False)
    score = metric if callable(metric) else _accuracy(np.asarray(metric), len(samples))
    answers = spread(_variants, setup, samples, executor, "sensitivity", progress)
    bridge = setup.bridge
    named = dict(zip(output_names(model.network.graphs[0].outputs), model.network.graphs[0].outputs, strict=True))
    names = {bridge.sides[0].tensors[i]: i for i in bridge.outputs}
    places = {name: names[port.tensor] for name, port in named.items() if port.tensor in names}

    def scored(variant: tuple[str, int]) -> float:
        stacked = {name: np.concatenate([a[variant][i] for a in answers]) for name, i in places.items()}
        value = score(stacked)
        try:
            return float(value)
        except (TypeError, ValueError):
            kind = f"an array of shape {list(value.shape)}" if isinstance(value, np.ndarray) else short(value)
            raise InputError(f"the metric must return one number, larger is better, not {kind}") from None

    whole, real = scored(("model", 0)), scored(("float", 0))
    rows = []
    for position, point in enumerate(bridge.points):
        if point.layer_a is not None:
            restored, alone = scored(("restored", position)), scored(("alone", position))
            gains = {"restored": restored, "gain": restored - whole, "alone": alone, "loss": real - alone}
            rows.append(_place(bridge, position) | gains | {"model": whole, "float": real})
    rows.sort(key=lambda row: (-row["gain"], -row["loss"]))
    return frame("sensitivity", rows)


def _accuracy(labels: np.ndarray, samples: int) -> Metric:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError("the metric is a function of the outputs, or an array of labels, integers")
    if labels.shape != (samples,):
        raise InputError(f"{samples} samples want as many labels, not {list(labels.shape)}")
    return lambda outputs: float((next(iter(outputs.values())).reshape(samples, -1).argmax(1) == labels).mean())


def _variants(setup: _Setup, samples: list[Sample]) -> list[dict[tuple[str, int], dict[int, np.ndarray]]]:
    """Outputs of the model, of the reference, and of each with one layer computed as in the other."""
    bridge, found = setup.bridge, []
    with np.errstate(all="ignore"):
        for sample in samples:
            bases = bridge.start(sample), bridge.start(sample)
            bases[0].compute_all(0)
            bases[1].compute_all(1)
            outputs = {("model", 0): bases[0].outputs(), ("float", 0): bases[1].outputs()}
            for position, point in enumerate(bridge.points):
                if point.layer_a is None:
                    continue
                for side, name in ((0, "restored"), (1, "alone")):
                    run = bases[side].fork()
                    run.compute(1 - side, position)
                    if position in bridge.outputs or not equal(
                        run.stored(side, position), bases[side].stored(side, position)
                    ):
                        run.compute_changed(side, {position})
                    else:
                        run = bases[side]
                    outputs[name, position] = run.outputs()
            found.append(outputs)
    return found
