"""Two runs of the same thing, layer by layer: where do they part?"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.analysis.columns_runs import frame
from mlinspect.analysis.dumps import Dump
from mlinspect.analysis.findings import Result, result
from mlinspect.analysis.layouts import Layout, best_layout
from mlinspect.analysis.match import Point, behind, match, unpaired, with_outputs
from mlinspect.analysis.operands import short
from mlinspect.analysis.samples import Sample, feeds, samples_for
from mlinspect.errors import InputError, MlinspectError
from mlinspect.execute.conditions import real_values
from mlinspect.execute.engine import advance
from mlinspect.execute.ports import Inputs, require_inputs
from mlinspect.execute.programs import MODES, Programs
from mlinspect.execute.trace import Trace
from mlinspect.kernels.agreement import Agreement, agreement

# dB that two healthy runs stay above: of floats; of numbers quantised alike; where the two are not quantised alike
FLOATS, ALIKE, UNLIKE = 60.0, 40.0, 20.0
SIZES = "sizes differ"


@dataclass(frozen=True)
class Operand:
    """One side of a comparison: a network, and what it gives for a sample."""

    network: ir.Network
    mode: str = "vendor"
    values: Mapping[int, np.ndarray] | None = None  # of a trace or dump: the same for any sample
    notes: Mapping[int, str] = field(default_factory=dict)
    unused: Sequence[str] = ()
    runs: Programs | None = None

    @cached_property
    def scheme(self) -> set[tuple[bool, str, int]]:
        """How the network's constants and activations are rounded: whether a constant, type and width."""
        if self.mode == "float":
            return set()
        found = [t for t in self.network.tensors.values() if t.quantized and t.dtype != "int32"]
        found += [t for t in self.network.tensors.values() if t.dtype in ("float16", "bfloat16")]
        return {(t.data is not None, t.dtype, t.quantization.bits if t.quantization else 16) for t in found}

    def run(self, sample: Sample, wanted: Sequence[int]) -> tuple[Mapping[int, Any], dict[int, str]]:
        """Tensor -> array for what was computed; for the outputs of a layer that failed, why."""
        if self.runs is None:
            return self.values or {}, {}
        program = self.runs.get(self.mode, wanted)
        program.check()
        fed = feeds(self.network, sample, self.mode)
        require_inputs(self.network, fed, set(program.needed))
        values = {**program.constants, **fed}
        with np.errstate(all="ignore"):
            for step in program.steps:
                try:
                    advance(program, values, step)
                except MlinspectError as error:
                    return values, dict.fromkeys(step.outputs, str(error))
                for tensor in step.free:
                    values.pop(tensor, None)
        return values, {}


def compare(
    a: Any,
    b: Any,
    inputs: Inputs | Sequence[Any] | None = None,
    *,
    modes: tuple[str, str] = ("vendor", "vendor"),
    threshold_db: float | None = None,
) -> Result:
    """Compare two runs layer by layer.

    Parameters
    ----------
    a, b : Model, Trace or Dump
        `a` is what `b` is measured against. `b` may also be ``"float"`` or ``"vendor"``: model `a` in that mode.
    inputs : array, mapping, sequence, optional
        As for ``model.run``, stored numbers or real values, in the layout of either model: each gets them in its own
        layout and type. Several samples (more along the first axis than the model takes, or a sequence) count
        together. Not needed between traces and dumps.
    modes : pair of {"vendor", "float"}
        How models are run.
    threshold_db : float, optional
        SQNR below which a layer counts as divergent. By default 20 between models that are not quantised alike (a
        float and an int8 one, 8-bit and 4-bit weights); otherwise 60 for floats and 40 for quantised numbers.

    Returns
    -------
    DataFrame
        One row a pair of layers, worst first, then what only one of the two has; see
        ``mlinspect.describe("compare")``. ``first`` marks the first divergent layer; a layer that fails is divergent.

    Raises
    ------
    InputError
        Nothing to run on, an input that does not fit, or a threshold that is no number.

    Warns
    -----
    UserWarning
        More than 1 % of an input's values lie outside the range of the scale that a model stores it in; an input holds
        NaN or infinite values.

    Examples
    --------
    >>> import mlinspect as mi
    >>> from mlinspect.analysis.compare import compare
    >>> a, b = (mi.open(mi.samples.path(name)) for name in ("digits_cnn.armnn", "digits_cnn.ms"))
    >>> images = mi.samples.digits().images[:2, ..., None] / 16
    >>> table = compare(a, b, images)
    >>> table.sort_index()[["name_a", "name_b"]].values.tolist()[1], bool(table.divergent.any())
    (['stem', '/stem/Conv'], False)
    """
    if threshold_db is not None and not isinstance(threshold_db, numbers.Real):
        raise InputError(f"threshold_db={short(threshold_db)} is no number of decibels")
    one, other = operands(a, b, modes)
    points = with_outputs(one.network, other.network, match(one.network, other.network, (one.mode, other.mode)))
    samples = [Sample()]
    if one.runs is not None or other.runs is not None:
        samples = samples_of(one, other, inputs)
    pairs = [Pair(one, other, point) for point in points]
    for sample in samples:
        got_a, failed_a = one.run(sample, [point.a for point in points])
        got_b, failed_b = other.run(sample, [point.b for point in points])
        for pair in pairs:
            pair.failed = pair.failed or failed_a.get(pair.point.a) or failed_b.get(pair.point.b) or ""
            pair.add(got_a.get(pair.point.a), got_b.get(pair.point.b))
    return _table(one, other, pairs, threshold_db)


def samples_of(one: Operand, other: Operand, inputs: Inputs | Sequence[Any] | None) -> list[Sample]:
    """What the models among two operands are to be run on."""
    if inputs is None:
        raise InputError("a model has to be run: give inputs")
    return samples_for([(side.network, side.mode) for side in (one, other) if side.runs is not None], inputs, depth=2)


def operands(a: Any, b: Any, modes: tuple[str, str]) -> tuple[Operand, Operand]:
    """What stands on either side; a mode's name in b's place is model `a` in that mode."""
    if isinstance(modes, str) or len(modes) != 2 or not set(modes) <= set(MODES):
        raise InputError(f"modes={short(modes)} is no pair of {' and '.join(map(repr, MODES))}, one for each side")
    if isinstance(b, str):
        b, modes = a, (modes[0], known_mode(b))
    if isinstance(a, Dump) or isinstance(b, Dump):
        one, other = (None if isinstance(x, Dump) else _operand(x, mode) for x, mode in zip((a, b), modes, strict=True))
        if one is None and other is None:
            return _of_dump(a, a.network), _of_dump(b, b.network)
        if one is None:
            assert other is not None
            return _of_dump(a, other.network), other
        return one, _of_dump(b, one.network)
    return _operand(a, modes[0]), _operand(b, modes[1])


def known_mode(name: str) -> str:
    """A mode's name in a model's place, checked."""
    if name not in MODES:
        raise InputError(
            f"{name!r} is no mode: use one of {', '.join(map(repr, MODES))}, or what mlinspect.open gives for a file"
        )
    return name


def _operand(source: Any, mode: str) -> Operand:
    if isinstance(source, Trace):
        tensors = source.network.tensors
        real = any(tensors[i].quantized and array.dtype.kind == "f" for i, array in source.values_by_id.items())
        return Operand(source.network, "float" if real else "vendor", source.values_by_id)
    if not hasattr(source, "network"):
        raise InputError(f"{short(source)} is no model, trace or dump: open a file with mlinspect.open first")
    runs = Programs(source.network)
    return Operand(runs.network, mode, runs=runs)


def _of_dump(dump: Dump, network: ir.Network) -> Operand:
    aligned = dump.align(network)
    # stored integers mean nothing to a model that has no scale for them
    bare = [
        i for i, a in aligned.values.items() if a.dtype.kind in "iu" and network.tensors[i].dtype.startswith("float")
    ]
    notes = dict.fromkeys(bare, "the dump holds stored integers: give the quantised model that it came from")
    values = {i: array for i, array in aligned.values.items() if i not in notes}
    return Operand(network, "vendor", values, aligned.notes | notes, aligned.unused)


class Pair:
    """A pair of tensors and the sums of how well they agree."""

    def __init__(self, a: Operand, b: Operand, point: Point) -> None:
        self.point = point
        self.tensor_a, self.tensor_b = a.network.tensors[point.a], b.network.tensors[point.b]
        self.sums = Agreement()
        self.layout: Layout | None = None
        self.shapes: tuple[Any, Any] = (self.tensor_a.shape, self.tensor_b.shape)
        stored = self.tensor_a.quantized and a.mode != "float", self.tensor_b.quantized and b.mode != "float"
        unlike = a.scheme != b.scheme or stored[0] != stored[1]
        self.threshold = UNLIKE if unlike else ALIKE if any(stored) else FLOATS
        self.missing = self.failed = ""
        self.notes = [note for note in (a.notes.get(point.a), b.notes.get(point.b)) if note]
        folded = [side.network.layers[i].name for side, ids in zip((a, b), point.folded, strict=True) for i in ids]
        if folded:
            self.notes.append(f"behind {', '.join(map(repr, dict.fromkeys(folded)))}")

    def add(self, a: np.ndarray | None, b: np.ndarray | None) -> None:
        """Compare the values of one sample."""
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            self.missing = "not computed in " + ("a" if not isinstance(a, np.ndarray) else "b")
            return
        if a.dtype.kind not in "iufb" or b.dtype.kind not in "iufb":
            self.missing = "no numbers"
            return
        self.shapes = (a.shape, b.shape)
        a, b = real_values(a, self.tensor_a), real_values(b, self.tensor_b)
        if self.layout is None:
            self.layout = best_layout(b, a)
        if self.layout is None or a.size != b.size:
            self.missing = SIZES
            return
        self.sums += agreement(a, self.layout.apply(b))

    @property
    def note(self) -> str:
        """All that there is to say."""
        layout = f"layout: {self.layout.note}" if self.layout is not None and self.layout.note else ""
        return "; ".join(filter(None, [self.failed, self.missing, layout, *self.notes]))


def _table(a: Operand, b: Operand, pairs: list[Pair], threshold_db: float | None) -> Result:
    rows = [_row(a, b, pair, threshold_db) for pair in pairs]
    lone_a = {layer.index: _lone(a, layer, "a") for layer in unpaired(a.network, [pair.point for pair in pairs], 0)}
    lone_b = {layer.index: _lone(b, layer, "b") for layer in unpaired(b.network, [pair.point for pair in pairs], 1)}
    _suspect(a.network, pairs, rows, lone_a, 0)
    _suspect(b.network, pairs, rows, lone_b, 1)
    # in the order of a; what only b has stands before the first pair behind it
    order_a, order_b = _order(a.network), _order(b.network)
    for row in [*rows, *lone_a.values()]:
        row["order"] = order_a.get(row["layer_a"], -1)
    for row in lone_b.values():
        behind = [r["order"] for r in rows if order_b.get(r["layer_b"], -1) > order_b[row["layer_b"]]]
        row["order"] = min(behind, default=len(order_a)) - 0.5
    everything = sorted([*rows, *lone_a.values(), *lone_b.values()], key=lambda row: row["order"])
    everything += [_unused(name, side) for side, operand in (("a", a), ("b", b)) for name in operand.unused]
    for order, row in enumerate(everything):
        row["order"] = order
    first = next((row for row in everything if row["divergent"]), None)
    for row in everything:
        row["first"] = row is first
    # NaN, where there is nothing to compare, goes to the end
    everything.sort(key=lambda row: (np.isnan(row["sqnr_db"]) and not row["divergent"], row["sqnr_db"], row["order"]))
    return result("compare", frame("compare", everything))


def _order(network: ir.Network) -> dict[int | None, int]:
    return {layer.index: i for i, layer in enumerate(network.graphs[0].layers)}


def _row(a: Operand, b: Operand, pair: Pair, threshold_db: float | None) -> dict[str, Any]:
    point, sums = pair.point, pair.sums
    known = sums.elements > 0 or (pair.layout is not None and not pair.missing)
    threshold = pair.threshold if threshold_db is None else threshold_db
    layer_a, layer_b = (None if i is None else x.network.layers[i] for x, i in ((a, point.layer_a), (b, point.layer_b)))
    return {
        "layer_a": point.layer_a,
        "layer_b": point.layer_b,
        "name_a": layer_a.name if layer_a is not None else pair.tensor_a.name,
        "name_b": layer_b.name if layer_b is not None else pair.tensor_b.name,
        "kind": next((layer.kind for layer in (layer_a, layer_b) if layer is not None), "input"),
        "tensor_a": point.a,
        "tensor_b": point.b,
        "shape_a": pair.shapes[0],
        "shape_b": pair.shapes[1],
        "matched": point.matched,
        "sqnr_db": sums.sqnr_db if known else np.nan,
        "cosine": sums.cosine if known else np.nan,
        "mse": sums.mse if known else np.nan,
        "max_abs": sums.max_abs if known else np.nan,
        "equal": sums.equal_share if known else np.nan,
        "threshold_db": threshold,
        "divergent": bool(pair.failed) or pair.missing == SIZES or (known and sums.sqnr_db < threshold),
        "note": pair.note,
    }


def _lone(operand: Operand, layer: ir.Layer, side: str) -> dict[str, Any]:
    tensor = layer.outputs[0]
    other = "b" if side == "a" else "a"
    return {
        f"layer_{side}": layer.index,
        f"layer_{other}": None,
        f"name_{side}": layer.name,
        f"name_{other}": "",
        "kind": layer.kind,
        f"tensor_{side}": tensor,
        f"shape_{side}": operand.network.tensors[tensor].shape,
        "matched": f"only in {side}",
        "sqnr_db": np.nan,
        "divergent": False,
        "note": operand.notes.get(tensor, ""),
    }


def _unused(name: str, side: str) -> dict[str, Any]:
    note = "in the dump, but not in the model"
    return {f"name_{side}": name, "matched": f"only in {side}", "sqnr_db": np.nan, "divergent": False, "note": note}


def _suspect(
    network: ir.Network, pairs: list[Pair], rows: list[dict[str, Any]], lone: dict[int, dict[str, Any]], side: int
) -> None:
    """A layer that only one side has is divergent if its operands still agree, but what comes of it does not."""
    tensors = [(pair.point.a, pair.point.b)[side] for pair in pairs]
    good = {tensor for tensor, row in zip(tensors, rows, strict=True) if not row["divergent"]}
    for tensor, row in zip(tensors, rows, strict=True):
        if not row["divergent"] or not lone:
            continue
        between, reached = behind(network, tensor, set(tensors) - {tensor})
        found = [lone[layer] for layer in between if layer in lone]
        names = ", ".join(f"{one['name_' + 'ab'[side]]!r}" for one in found)
        if names:
            row["note"] = "; ".join(filter(None, [row["note"], f"behind {names}, only in {'ab'[side]}"]))
        if reached <= good:
            for one in found:
                one["divergent"] = True
