"""Conditions on what a layer gives, for a session to stop at."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, near
from mlinspect.execute.names import layer_among
from mlinspect.execute.values import dequantize_array
from mlinspect.kernels.agreement import sqnr_db


@dataclass(frozen=True)
class Result:
    """One tensor that a layer has just given.

    Attributes
    ----------
    layer : ir.Layer
    tensor : ir.Tensor
    array : ndarray
        As stored. (A subgraph, where a layer gives one.)
    """

    layer: ir.Layer
    tensor: ir.Tensor
    array: Any

    @cached_property
    def real(self) -> np.ndarray:
        """The numbers as real values."""
        return real_values(self.array, self.tensor)

    @property
    def where(self) -> str:
        """Layer and tensor, for messages."""
        return f"layer {self.layer.index} {self.layer.name!r}, tensor {self.tensor.name!r}"


# gives why to stop, or "" to go on
Condition = Callable[[Result], str]


def real_values(array: np.ndarray, tensor: ir.Tensor) -> np.ndarray:
    """Real values of a tensor that a run gave: dequantised if it holds quantised numbers."""
    return dequantize_array(array, tensor) if tensor.quantized and array.dtype.kind in "iu" else array


def conditions(
    function: Callable[[np.ndarray], Any] | None = None,
    *,
    layer: int | str | None = None,
    kind: str | None = None,
    nan: bool = False,
    inf: bool = False,
    clipped: float | None = None,
    below: float | None = None,
    above: float | None = None,
    sqnr: float | None = None,
    reference: Mapping[Any, np.ndarray] | None = None,
) -> list[Condition]:
    """The conditions that are asked for, each of which suffices.

    Parameters
    ----------
    function : callable, optional
        Given a tensor's real values; stops where it gives something true.
    layer : int or str, optional
        Index or name of a layer.
    kind : str, optional
        Kind or operator of a layer, as in the table of layers.
    nan, inf : bool
        Stop at NaN, at infinity.
    clipped : float, optional
        Stop where more than this share of a quantised tensor lies at the ends of its type's range.
    below, above : float, optional
        Stop where a real value is smaller, larger.
    sqnr : float, optional
        Stop where the signal to noise ratio against `reference` is less than this, in dB.
    reference : mapping, optional
        Trace or other mapping from tensor id or name to array (real, or stored in the same type).

    Raises
    ------
    InputError
        Nothing was asked for, a limit is no number, or ``sqnr`` and ``reference`` are not given together.
    """
    if (sqnr is None) != (reference is None):
        raise InputError("sqnr= and reference= belong together")
    if function is not None and not callable(function):
        raise InputError(f"a condition is a function of a tensor's real values, not {function!r}")
    for name, limit in {"clipped": clipped, "below": below, "above": above, "sqnr": sqnr}.items():
        if limit is not None and not isinstance(limit, numbers.Real):
            raise InputError(f"{name}={limit!r} is no number")
    layers: list[Condition] = []
    arrays: list[Condition] = []
    if layer is not None:
        layers.append(lambda result: "this layer" if layer in (result.layer.index, result.layer.name) else "")
    if kind is not None:
        layers.append(lambda result: f"a layer of kind {kind}" if kind in (result.layer.kind, result.layer.op) else "")
    if function is not None:
        arrays.append(_when(function))
    if nan:
        arrays.append(lambda result: _counted(np.isnan(result.real), "NaN") if result.real.dtype.kind == "f" else "")
    if inf:
        arrays.append(lambda result: _counted(np.isinf(result.real), "Inf") if result.real.dtype.kind == "f" else "")
    if clipped is not None:
        arrays.append(_clipped(clipped))
    if below is not None:
        arrays.append(lambda result: _counted(result.real < below, f"values below {below}"))
    if above is not None:
        arrays.append(lambda result: _counted(result.real > above, f"values above {above}"))
    if sqnr is not None and reference is not None:
        arrays.append(_sqnr(sqnr, reference))
    found = layers + [_of_arrays(test) for test in arrays]
    if not found:
        raise InputError("no condition was given")
    return found


def with_known_names(ready: Mapping[str, Any], computed: Collection[ir.Layer]) -> dict[str, Any]:
    """The arguments of :func:`conditions`, for some layers: the one that is called ``layer=`` by its index.

    Raises
    ------
    InputError
        There is no such condition; no layer is called so, or several are; none is of that kind.
    """
    known = list(conditions.__kwdefaults__ or {})
    if strays := [name for name in ready if name not in known]:
        raise InputError(f"no condition {strays[0]!r}: use one of {', '.join(known)}{near(strays[0], known)}")
    found = dict(ready)
    if found.get("layer") is not None:
        found["layer"] = layer_among(computed, found["layer"]).index
    kinds = {name for layer in computed for name in (layer.kind, layer.op)}
    if (kind := found.get("kind")) is not None and kind not in kinds:
        raise InputError(f"no layer is of kind {kind!r}{near(kind, kinds)}")
    return found


def _of_arrays(test: Condition) -> Condition:
    return lambda result: test(result) if isinstance(result.array, np.ndarray) else ""


def _counted(marks: np.ndarray, what: str) -> str:
    count = np.count_nonzero(marks)
    return f"{count} {what}" if count else ""


def _when(function: Callable[[np.ndarray], Any]) -> Condition:
    name = getattr(function, "__name__", repr(function))
    return lambda result: f"{name} is true" if np.any(function(result.real)) else ""


def _clipped(limit: float) -> Condition:
    def test(result: Result) -> str:
        if not result.tensor.quantized or result.array.dtype.kind not in "iu" or result.array.itemsize > 2:
            return ""
        ends = np.iinfo(result.array.dtype)
        share = float(np.mean((result.array == ends.min) | (result.array == ends.max))) if result.array.size else 0.0
        return f"{share:.2%} of the values are clipped" if share > limit else ""

    return test


def _sqnr(limit: float, reference: Mapping[Any, np.ndarray]) -> Condition:
    def test(result: Result) -> str:
        wanted = _reference(reference, result.tensor)
        if wanted is None:
            return ""
        if wanted.shape != result.real.shape:
            return f"shape {list(result.real.shape)}, not {list(wanted.shape)} as in the reference"
        found = sqnr_db(wanted, result.real)
        return f"SQNR {found:.1f} dB against the reference" if found < limit else ""

    return test


def _reference(reference: Mapping[Any, np.ndarray], tensor: ir.Tensor) -> np.ndarray | None:
    """Real values that the reference has for a tensor; a trace knows how its own tensors are quantised."""
    network = getattr(reference, "network", None)
    if network is None:
        key = tensor.name if tensor.name in reference else tensor.index
        return real_values(np.asarray(reference[key]), tensor) if key in reference else None
    found = [i for i in reference if network.tensors[i].name == tensor.name]
    if len(found) > 1:
        found = [i for i in found if i == tensor.index]
    return real_values(reference[found[0]], network.tensors[found[0]]) if found else None
