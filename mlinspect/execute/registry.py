"""Which function computes which operator: a table by format and operator name, open to users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, UnsupportedError, near

Result = np.ndarray | tuple[Any, ...]
Function = Callable[..., Result]
F = TypeVar("F", bound=Function)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Call:
    """What an operator's function is told of the layer that it computes.

    Attributes
    ----------
    layer : ir.Layer
    inputs, outputs : tuple of ir.Tensor
        The operands as declared: shape, dtype, quantisation, layout.
    mode : {"vendor", "float"}
    memo : dict
        What the function wants to keep between runs, such as constants that it has prepared.
    """

    layer: ir.Layer
    inputs: tuple[ir.Tensor, ...]
    outputs: tuple[ir.Tensor, ...]
    mode: str = "vendor"
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.layer.name

    @property
    def attrs(self) -> dict[str, Any]:
        """The layer's attributes, by the schema's own names."""
        return self.layer.attrs  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Op:
    """A registered function.

    Attributes
    ----------
    function : callable
        ``function(call, *arrays) -> array or tuple of arrays``.
    stored : bool
        It takes its operands and gives its results as stored numbers; otherwise they are real float32 values.
    integers : bool
        Without `stored`: it takes int32 operands as they are stored nevertheless.
    reference : {"vendor", "published definition", "user"}
        Whose arithmetic it follows.
    """

    function: Function
    stored: bool = False
    integers: bool = False
    reference: str = "vendor"


# "mslite:int8" holds what MindSpore Lite computes otherwise when a layer's first operand is int8
OPS: dict[str, dict[str, Op]] = {"armnn": {}, "mslite": {}, "mslite:int8": {}}
# the modules that fill it, when somebody asks: nobody waits for the operators of a format that they do not open
_FILLED_BY = {"armnn": "bind_armnn", "mslite": "bind_mslite", "mslite:int8": "bind_mslite"}
# by (format, operator, layer name): a user's function for one layer
LAYER_OPS: dict[tuple[str, str, str], Op] = {}
_user_ops: list[Op] = []


def operators(kind: str) -> dict[str, Op]:
    """By name, the operators of ``"armnn"``, ``"mslite"`` or ``"mslite:int8"``."""
    import_module(f"mlinspect.execute.{_FILLED_BY[kind]}")
    return OPS[kind]


def changes() -> int:
    """How often users have registered operators: programs made before are out of date."""
    return len(_user_ops)


def op(
    model_format: str,
    *names: str,
    stored: bool = False,
    integers: bool = False,
    reference: str = "vendor",
) -> Callable[[F], F]:
    """Register a function for operators of a format, for this package's own ``ops_*`` modules; options as of `Op`."""

    def register(function: F) -> F:
        for name in names:
            OPS[model_format][name] = Op(function, stored, integers, reference)
        return function

    return register


def register_op(
    model_format: str, name: str, *, layer: str | None = None, stored: bool = False
) -> Callable[[Function], Function]:
    """Supply or replace the arithmetic of an operator.

    Parameters
    ----------
    model_format : {"armnn", "mslite"}
    name : str
        The operator's name as in ``model.layers.op``, for instance ``"StandIn"``.
    layer : str, optional
        Only for the layer of this name.
    stored : bool
        Operands and results are the stored numbers; otherwise real values as float32, which are quantised as the
        output tensor wants. Integers and booleans that stand for themselves (indices, masks) stay what they are.

    Returns
    -------
    callable
        A decorator for ``function(call, *arrays) -> array or tuple of arrays``, where ``call`` is a
        :class:`~mlinspect.execute.registry.Call` (``call.name``, ``call.attrs``, ``call.outputs[0].shape``). Results of
        another number, shape or (if stored) type than the layer declares are an :class:`~mlinspect.ExecutionError`.

    Raises
    ------
    InputError
        No such format, or what is registered is not callable.

    Examples
    --------
    >>> import numpy as np
    >>> import mlinspect as mi
    >>> @mi.register_op("armnn", "StandIn", layer="my_prelu")
    ... def prelu(call, x, slope):
    ...     return np.where(x < 0, x * slope, x)
    """
    formats = ("armnn", "mslite")
    if model_format not in formats:
        raise InputError(
            f"unknown format {model_format!r}: use one of {', '.join(formats)}{near(model_format, formats)}"
        )

    def register(function: Function) -> Function:
        if not callable(function):
            raise InputError(f"the arithmetic of {name} is a function(call, *arrays), not {type(function).__name__}")
        entry = Op(function, stored, reference="user")
        _user_ops.append(entry)
        if layer is None:
            operators(model_format)[name] = entry
        else:
            LAYER_OPS[model_format, name, layer] = entry
        return function

    return register


def find_op(model_format: str, layer: ir.Layer) -> Op | None:
    """The function that computes a layer, or None."""
    return LAYER_OPS.get((model_format, layer.op, layer.name)) or operators(model_format).get(layer.op)


def choice(table: Mapping[str, V], name: str, what: str) -> V:
    """What a table has for the name that an attribute gives.

    Raises
    ------
    UnsupportedError
        The table does not have it: the file is younger than the table, or means nothing.

    Examples
    --------
    >>> choice({"MEAN": "mean"}, "MEAN", "reduction")
    'mean'
    """
    if name not in table:
        raise UnsupportedError(f"{what} {name} has no arithmetic here; known are {', '.join(table)}")
    return table[name]
