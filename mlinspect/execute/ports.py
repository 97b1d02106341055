"""What a caller passes in and gets back: names and positions -> tensors, checked."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, near
from mlinspect.execute.values import dequantize_array, numpy_dtype, quantize_array, shape_fits

Inputs = Mapping[str | int, Any] | Sequence[Any] | np.ndarray


def bind_inputs(network: ir.Network, inputs: Inputs, mode: str, quantize: bool) -> dict[int, np.ndarray]:
    """Tensor id -> array for every input given, checked against what the model wants.

    Parameters
    ----------
    network : ir.Network
    inputs : mapping by name or position, sequence in order, or one array
    mode : {"vendor", "float"}
        In ``"float"`` quantised inputs become real values.
    quantize : bool
        Float arrays are real values: they are quantised for quantised inputs, and rounded to float inputs' precision.

    Raises
    ------
    InputError
        An unknown name, a wrong number, dtype or shape.
    """
    ports = network.graphs[0].inputs
    feeds: dict[int, np.ndarray] = {}
    for position, value in _pairs(network, inputs):
        tensor = network.tensors[ports[position].tensor]
        if network.format == "mslite" and tensor.dtype == "float16":
            tensor = replace(tensor, dtype="float32")  # what its runtime takes while fp16 is off
            value = value.astype(np.float32) if getattr(value, "dtype", None) == np.float16 else value
        feeds[tensor.index] = _checked(tensor, ports[position].name, value, mode, quantize)
    return feeds


def require_inputs(network: ir.Network, feeds: Mapping[int, np.ndarray], needed: set[int]) -> None:
    """Raise InputError if an input that the computation needs was not given."""
    missing = [port.name for port in network.graphs[0].inputs if port.tensor in needed and port.tensor not in feeds]
    if missing:
        raise InputError(f"no array was given for {', '.join(map(repr, missing))}")


def _wanted(network: ir.Network) -> str:
    """The inputs in words, for errors."""
    return "; ".join(
        f"{i}: {port.name!r} {network.tensors[port.tensor].dtype} {_shape(network.tensors[port.tensor])}"
        for i, port in enumerate(network.graphs[0].inputs)
    )


def _pairs(network: ir.Network, inputs: Inputs) -> list[tuple[int, Any]]:
    ports = network.graphs[0].inputs
    if hasattr(inputs, "__array__"):
        if len(ports) != 1:
            raise InputError(f"one array was given, the model takes {len(ports)} ({_wanted(network)})")
        return [(0, inputs)]
    if isinstance(inputs, str) or not isinstance(inputs, Mapping | Sequence):
        raise InputError(
            f"inputs are a dict by name or position, a list of arrays or one array, not {_kind(inputs)}: the model "
            f"takes {_wanted(network) or 'none, so {}'}"
        )
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(ports):
            raise InputError(f"{len(inputs)} arrays were given, the model takes {len(ports)} ({_wanted(network)})")
        return list(enumerate(inputs))
    names = [port.name for port in ports]
    found: list[tuple[int, Any]] = []
    for key, value in inputs.items():
        if isinstance(key, str) and names.count(key) > 1:
            raise InputError(f"{names.count(key)} inputs are called {key!r}: use positions ({_wanted(network)})")
        position = names.index(key) if key in names else key
        if not isinstance(position, int | np.integer) or not 0 <= position < len(ports):
            raise InputError(f"the model has no input {key!r}; it takes {_wanted(network)}{near(key, names)}")
        if position in (given for given, _ in found):
            raise InputError(f"input {names[position]!r} is given twice, by name and by position")
        found.append((int(position), value))
    return found


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _shape(tensor: ir.Tensor) -> str:
    return "of any shape" if tensor.shape is None else "[" + ", ".join(map(str, tensor.shape)).replace("-1", "?") + "]"


def _checked(tensor: ir.Tensor, name: str, value: Any, mode: str, quantize: bool) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unlike lengths
        raise InputError(f"input {name!r} is no array: {error}") from None
    if tensor.dtype == "string" and array.dtype.kind in "US":
        array = array.astype(object)
    if tensor.dtype != "string" and array.dtype.kind not in "biufcV":
        raise InputError(f"input {name!r} wants {tensor.dtype} {_shape(tensor)}, not {_kind(value)}")
    if tensor.shape is not None and not shape_fits(array.shape, tensor.shape):
        raise InputError(f"input {name!r} wants shape {_shape(tensor)}, not {list(array.shape)}")
    dtype = numpy_dtype(tensor)
    if tensor.quantized and array.dtype.kind == "f":
        if mode == "float":
            return array.astype(np.float32, copy=False)
        if quantize:
            return quantize_array(array.astype(np.float32, copy=False), tensor)
        raise InputError(
            f"input {name!r} wants {dtype} as stored, not {array.dtype}: pass quantize=True to give real values"
        )
    if mode == "float" and tensor.dtype == "float16" and array.dtype == np.float32:
        return array
    if quantize and array.dtype.kind == dtype.kind == "f":  # real values, in whatever precision they were computed
        array = array.astype(dtype, copy=False)
    if array.dtype != dtype:
        hint = ", or pass quantize=True to give real values" if array.dtype.kind == dtype.kind == "f" else ""
        raise InputError(f"input {name!r} wants dtype {dtype}, not {array.dtype}: use .astype(np.{dtype}){hint}")
    return dequantize_array(array, tensor) if mode == "float" and tensor.quantized else array


def output_names(ports: Sequence[ir.Port]) -> list[str]:
    """Names of the outputs, made unique: a repeated or empty name gets its position as suffix.

    Examples
    --------
    >>> output_names([ir.Port("a", 1), ir.Port("a", 2), ir.Port("", 3)])
    ['a', 'a_1', 'output_2']
    """
    names: list[str] = []
    taken = {port.name for port in ports}
    for i, port in enumerate(ports):
        name = port.name or f"output_{i}"
        if name in names or not port.name:
            base = port.name or "output"
            name, number = f"{base}_{i}", i
            while name in names or name in taken:
                number += 1
                name = f"{base}_{number}"
        names.append(name)
    return names


def wanted_tensors(network: ir.Network, outputs: Sequence[str | int] | None) -> dict[str, int]:
    """Result name -> tensor id; all the model's outputs, or those asked for by tensor id or name."""
    ports = network.graphs[0].outputs
    named = dict(zip(output_names(ports), (port.tensor for port in ports), strict=True))
    if outputs is None:
        return named
    if isinstance(outputs, str | int | np.integer):
        outputs = [outputs]
    if not isinstance(outputs, Iterable):
        raise InputError(f"outputs are tensors' names or ids, not {outputs!r}")
    by_name: dict[str, list[int]] = {}
    for tensor in network.tensors.values():
        by_name.setdefault(tensor.name, []).append(tensor.index)
    found: dict[str, int] = {}
    for key in outputs:
        if isinstance(key, str) and key in named:
            found[key] = named[key]
        elif isinstance(key, str):
            ids = by_name.get(key, [])
            if len(ids) != 1:
                hint = near(key, [*named, *by_name])
                raise InputError(
                    f"tensors {ids} are all called {key!r}: use an id" if ids else f"no tensor is called {key!r}{hint}"
                )
            found[key] = ids[0]
        elif isinstance(key, numbers.Real) and key in network.tensors:
            tensor = network.tensors[key]
            found[tensor.name if tensor.name not in found else f"{tensor.name}_{key}"] = tensor.index
        else:
            raise InputError(f"no tensor has the id {key!r}")
    return found
