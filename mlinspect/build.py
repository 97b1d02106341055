"""Build models from nothing, one line per layer.

>>> import numpy as np
>>> import mlinspect as mi
>>> model = (
...     armnn()
...     .input("x", (1, 4))
...     .layer("FullyConnected", "dense", weights=np.ones((4, 2), np.float32), bias=np.zeros(2, np.float32))
...     .layer("Activation", "relu", activationFunction="ReLu")
...     .output("y")
...     .model()
... )
>>> model.run(np.ones((1, 4), np.float32))
{'y': array([[4., 4.]], dtype=float32)}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, MlinspectError, SchemaError, UnsupportedError, near
from mlinspect.execute.values import numpy_dtype
from mlinspect.extract import with_port_layers
from mlinspect.formats import write_armnn, write_mslite
from mlinspect.formats.armnn_tensors import DTYPES
from mlinspect.formats.attributes import attribute_table, check_attrs, checked_attrs, kind_with
from mlinspect.formats.packing import VENDOR_DTYPES
from mlinspect.formats.ports import with_ports
from mlinspect.formats.records import layout_schema
from mlinspect.infer import as_given, run_alone, sizes
from mlinspect.model import Model
from mlinspect.upgrade import NEWEST_FEATURES, WEIGHTS_AS_INPUTS, with_constant_layers

_QUANTIZED_ARMNN = {"uint8": "QAsymmU8", "int8": "QAsymmS8", "int16": "QSymmS16", "int32": "Signed32"}
# Arm NN layers whose output has another type than their input
_RESULTS = {
    "ArgMinMax": "int32",
    "Comparison": "bool",
    "Dequantize": "float32",
    "LogicalBinary": "bool",
    "Rank": "int32",
    "Shape": "int32",
}
_NEEDS_DTYPE = ("Cast", "Quantize")
_VERSION = "MindSpore Lite 2.0.0"  # the release whose rules models of that format follow


@dataclass(frozen=True)
class Quantized:
    """A constant's stored integers with their parameters; see :func:`quantized`."""

    array: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None


def quantized(
    array: np.ndarray, scale: float | Sequence[float] | np.ndarray, zero_point: int = 0, axis: int | None = None
) -> Quantized:
    """Stored integers with their scale, one or one per channel along ``axis``, and zero point.

    Examples
    --------
    >>> quantized(np.zeros((8, 3), np.int8), 0.1).scale
    array([0.1])
    """
    scales = np.atleast_1d(np.asarray(scale, np.float64))
    if (axis is not None or len(scales) > 1) and (axis is None or array.shape[axis] != len(scales)):
        raise InputError(f"{len(scales)} scales do not lie along axis {axis} of the shape {array.shape}")
    return Quantized(array, scales, np.full(len(scales), zero_point, np.int64), axis)


def armnn(name: str = "") -> Builder:
    """Begin an Arm NN model."""
    return Builder("armnn", name)


def mslite(name: str = "") -> Builder:
    """Begin a MindSpore Lite model."""
    return Builder("mslite", name)


class Builder:
    """Builds a model step by step; every method but :meth:`model` returns the builder itself."""

    def __init__(self, model_format: str, name: str = "") -> None:
        self._format = model_format
        self._name = name
        writer = write_armnn if model_format == "armnn" else write_mslite
        self._layout = writer.LAYOUT
        self._schema = layout_schema(model_format, writer.LAYOUT)
        self._tensors: dict[int, ir.Tensor] = {}
        self._layers: list[ir.Layer] = []
        self._ids: dict[str, int] = {}
        self._inputs: list[int] = []
        self._outputs: list[tuple[str, int]] = []
        self._last: int | None = None

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scale: float | None = None,
        zero_point: int = 0,
    ) -> Builder:
        """Add an input.

        Parameters
        ----------
        name : str
        shape : sequence of int
        dtype : str
            numpy's name, or the format's own (``"QSymmS8"``).
        scale, zero_point : float, int, optional
            For quantised data.
        """
        tensor = self._new(name, "input", dtype, tuple(shape), scale, zero_point)
        self._inputs.append(tensor.index)
        self._last = tensor.index
        return self

    def layer(
        self,
        op: str,
        name: str,
        *inputs: str | np.ndarray | Quantized,
        outputs: int = 1,
        dtype: str | None = None,
        scale: float | None = None,
        zero_point: int = 0,
        shape: Sequence[int] | None = None,
        **attrs: Any,
    ) -> Builder:
        """Add a layer.

        Parameters
        ----------
        op : str
            The format's name of the operator, as ``"Convolution2d"`` or ``"Conv2DFusion"``.
        name : str
            Also the name of its output; several outputs are called ``name:0``, ``name:1``, ...
        *inputs : str, ndarray or Quantized
            Names of tensors, and constants. If there is no name, the last layer's output comes first.
        outputs : int
            Number of outputs.
        dtype : str, optional
            Of the outputs; by default that of the first input, or the one that the operator always returns.
        scale, zero_point : float, int, optional
            Quantisation of the outputs; by default that of the first input.
        shape : sequence of int, optional
            Of the outputs, for operators without arithmetic here.
        **attrs
            Attributes by the schema's own names, and Arm NN's constants (``weights``, ``bias``, ``mean``, ...).

        Raises
        ------
        SchemaError
            No such operator or attribute, or a value that does not fit.
        InputError
            No such tensor, or operands that do not fit together.
        """
        with self._all_or_nothing():
            table = attribute_table(self._schema, self._format, op)
            constants = {key: attrs.pop(key) for key in list(attrs) if isinstance(attrs[key], np.ndarray | Quantized)}
            if self._format == "mslite" and constants:  # vectors among the attributes
                attrs |= {key: value.tolist() for key, value in constants.items() if isinstance(value, np.ndarray)}
                constants = {}
            operands: list[str | np.ndarray | Quantized] = list(inputs)
            if not any(isinstance(operand, str) for operand in operands) and op != "Constant":
                if self._last is None:
                    raise InputError(f"layer {name!r} has no input yet: begin with input(...)")
                operands.insert(0, self._tensors[self._last].name)
            members = self._members(op, name, constants)
            slots = [self._operand(operand, f"{name}/input_{i}") for i, operand in enumerate(operands)]
            slots += [self._constant(constant, f"{name}/{member}") for member, constant in members]
            if op == "FullyConnected" or op in WEIGHTS_AS_INPUTS:
                if any(item.name == "biasEnabled" for item in self._schema.tables[table or ""].fields):
                    attrs.setdefault("biasEnabled", len(slots) > 2)
                members = []
            if op == "Concat" and self._format == "armnn" and "viewOrigins" not in attrs:
                attrs |= self._joined([self._tensors[i].shape or () for i in slots], attrs.get("concatAxis", 0))
            checked = checked_attrs(self._schema, self._format, op, attrs)
            first = self._tensors[slots[0]]
            results = [
                self._result(op, name if outputs == 1 else f"{name}:{i}", first, dtype, scale, zero_point)
                for i in range(outputs)
            ]
            layer = ir.Layer(
                *(len(self._layers), name, op, op, 0, checked, tuple(slots), tuple(t.index for t in results)),
                members=tuple(member for member, _ in members),
                meta=self._meta(slots),
            )
            if self._format == "mslite":
                check_attrs(layer, self._tensors, attrs)
            self._settle(layer, results, dtype, shape)
            self._layers.append(replace(layer, kind=kind_with(self._format, layer, self._tensors)))
            self._last = results[0].index
        return self

    def output(self, name: str | None = None, tensor: str | None = None) -> Builder:
        """Add an output.

        Parameters
        ----------
        name : str, optional
            The output's name; by default the tensor's. In MindSpore Lite an output is named by its tensor, which is
            renamed.
        tensor : str, optional
            Which tensor; the last layer's output by default.
        """
        number = self._last if tensor is None else self._operand(tensor, "")
        if number is None:
            raise InputError("there is no tensor yet to be an output: begin with input(...)")
        found = self._tensors[number]
        if self._format == "mslite" and name is not None and name != found.name:
            found = replace(found, name=name)
            self._ids[name] = number
        role = "output" if found.role == "activation" else found.role
        self._tensors[number] = replace(found, role=role)
        self._outputs.append((name or found.name, number))
        return self

    def model(self) -> Model:
        """The model, as if opened from a file."""
        return Model(self._network(), self._name)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _network(self) -> ir.Network:
        if not self._outputs:
            raise InputError("the model has no output: add output(...)")
        given, wanted = self._inputs, [number for _, number in self._outputs]
        graph = ir.Graph(
            0,
            self._name,
            tuple(ir.Port(self._tensors[i].name, i) for i in given),
            tuple(ir.Port(name, i) for name, i in self._outputs),
            tuple(self._layers),
        )
        tensors = dict(self._tensors)
        if self._format == "mslite":
            meta: dict[str, Any] = {"name": self._name} if self._name else {}
            return ir.Network("mslite", self._layout, _VERSION, (graph,), tensors, (), meta)
        meta = {"featureVersions": NEWEST_FEATURES}
        bare = ir.Network("armnn", self._layout, "", (replace(graph, inputs=(), outputs=()),), tensors, (), meta)
        ends = replace(bare, graphs=(with_port_layers(bare, self._layers, given, wanted),))
        layers = list(ends.graphs[0].layers)
        for at, (name, _) in enumerate(self._outputs, len(layers) - len(self._outputs)):
            layers[at] = replace(layers[at], name=name)
        named = replace(ends, graphs=(replace(ends.graphs[0], layers=tuple(layers)),))
        whole = with_constant_layers(with_ports(ends, named))
        numbered = tuple(replace(layer, index=i) for i, layer in enumerate(whole.graphs[0].layers))
        return replace(whole, graphs=(replace(whole.graphs[0], layers=numbered),))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A layer that is refused leaves nothing behind, so that it can be tried again."""
        tensors, ids = dict(self._tensors), dict(self._ids)
        try:
            yield
        except Exception:
            self._tensors, self._ids = tensors, ids
            raise

    def _new(
        self,
        name: str,
        role: str,
        dtype: str,
        shape: tuple[int, ...] | None,
        scale: float | np.ndarray | None,
        zero_point: int | np.ndarray = 0,
        axis: int | None = None,
        data: np.ndarray | None = None,
    ) -> ir.Tensor:
        if name in self._ids:
            raise InputError(f"there are two tensors called {name!r}")
        kind, vendor = self._dtype(dtype, scale is not None, axis is not None)
        quantization = None
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float64))
            if self._format == "armnn":
                scales = scales.astype(np.float32).astype(np.float64)
            zeros = np.broadcast_to(np.asarray(zero_point, np.int64), scales.shape).copy()
            if self._format == "mslite" and len(scales) == 1:  # as the runtime reads one parameter
                axis = None
            bits = 8 * np.dtype(kind).itemsize
            quantization = ir.Quantization(scales, zeros, axis, bits, vendor.startswith("QSymm") or not zeros.any())
        mslite = self._format == "mslite"
        tensor = ir.Tensor(
            *(len(self._tensors), name, 0, role, kind, vendor, shape),
            layout="NHWC" if mslite else None,
            data=data,
            quantization=quantization,
            quantized=quantization is not None,
            nbytes=0 if data is None else data.nbytes,
            meta={"nodeType": 0 if role == "constant" else 2} if mslite else {},
        )
        self._tensors[tensor.index] = tensor
        self._ids[name] = tensor.index
        return tensor

    def _dtype(self, name: str, is_quantized: bool, per_channel: bool) -> tuple[str, str]:
        """numpy's name of a type and the format's."""
        if self._format == "armnn" and name in DTYPES:
            return DTYPES[name][0], name
        plain = VENDOR_DTYPES[self._format]
        if self._format == "armnn" and name in _QUANTIZED_ARMNN and (is_quantized or name not in plain):
            return name, "QSymmS8" if name == "int8" and per_channel else _QUANTIZED_ARMNN[name]
        if name not in plain:
            raise SchemaError(f"{self._format} has no type {name!r}; it has {', '.join(plain)}{near(name, plain)}")
        return name, plain[name]

    def _operand(self, operand: str | np.ndarray | Quantized, name: str) -> int:
        if not isinstance(operand, str):
            return self._constant(operand, name)
        if operand not in self._ids:
            raise InputError(
                f"no tensor is called {operand!r}; there are {', '.join(self._ids)}{near(operand, self._ids)}"
            )
        return self._ids[operand]

    def _constant(self, constant: np.ndarray | Quantized, name: str) -> int:
        if isinstance(constant, Quantized):
            array, scale, zeros, axis = constant.array, constant.scale, constant.zero_point, constant.axis
            return self._new(name, "constant", array.dtype.name, array.shape, scale, zeros, axis, np.array(array)).index
        array = np.array(constant)
        return self._new(name, "constant", array.dtype.name, array.shape, None, data=array).index

    def _members(
        self, op: str, name: str, constants: dict[str, np.ndarray | Quantized]
    ) -> list[tuple[str, np.ndarray | Quantized]]:
        """Arm NN's constants by name, in the order of the layer's fields."""
        if not constants:
            return []
        fields = list(self._schema.tables[f"{op}Layer"].fields)
        holder = next((item.type for item in fields if item.name == "inputParams"), None)
        fields += self._schema.tables[holder].fields if holder else ()
        known = ["bias" if item.name == "biases" else item.name for item in fields if item.type == "ConstTensor"]
        if stray := [key for key in constants if key not in known]:
            some = ", ".join(known) or "none"
            raise SchemaError(
                f"layer {name!r}: {op} has no constant {stray[0]!r}; it has {some}{near(stray[0], known)}"
            )
        return [(key, constants[key]) for key in known if key in constants]

    def _result(
        self, op: str, name: str, first: ir.Tensor, dtype: str | None, scale: float | None, zero_point: int
    ) -> ir.Tensor:
        armnn_type = _RESULTS.get(op) if self._format == "armnn" else None
        if dtype is None and self._format == "armnn" and op in _NEEDS_DTYPE:
            raise InputError(f"layer {name!r}: pass the dtype that {op} is to return")
        kind = dtype or armnn_type or (first.vendor_dtype if self._format == "armnn" else first.dtype)
        tensor = self._new(name, "activation", kind, None, scale, zero_point)
        if scale is None and first.quantization is not None and tensor.vendor_dtype == first.vendor_dtype:
            per_tensor = None if first.quantization.per_channel else first.quantization
            tensor = replace(tensor, quantization=per_tensor, quantized=per_tensor is not None)
            self._tensors[tensor.index] = tensor
        return tensor

    @staticmethod
    def _joined(shapes: Sequence[tuple[int, ...]], axis: int) -> dict[str, Any]:
        """Where each operand of a Concat begins in the result."""
        starts = np.cumsum([0, *(shape[axis] for shape in shapes[:-1])])
        origins = [[int(start) if i == axis else 0 for i in range(len(shapes[0]))] for start in starts]
        return {"numViews": len(shapes), "numDimensions": len(shapes[0]), "viewOrigins": origins}

    def _meta(self, slots: Sequence[int]) -> dict[str, Any]:
        if self._format == "armnn":
            return {}
        whole = all(self._tensors[i].quantized or self._tensors[i].dtype == "int32" for i in slots)
        return {"nodeType": 0, "quantType": "QUANT_ALL" if whole else "QUANT_NONE", "deviceType": -1}

    def _settle(
        self, layer: ir.Layer, results: list[ir.Tensor], dtype: str | None, shape: Sequence[int] | None
    ) -> None:
        """Find the shapes of a layer's outputs by running it on zeros."""
        graph = ir.Graph(0, "", (), (), (layer,))
        network = ir.Network(self._format, self._layout, _VERSION, (graph,), self._tensors)
        given = None if shape is None else tuple(shape)
        try:
            wanted = dict.fromkeys(layer.outputs, given) if given else sizes(network, layer)
            values = run_alone(network, layer, {}, wanted)
        except UnsupportedError:
            if given is None:
                raise InputError(
                    f"layer {layer.name!r}: there is no arithmetic for {layer.op}: pass the shape of its output"
                ) from None
            values = {t.index: np.zeros(given, numpy_dtype(t)) for t in results}
        except MlinspectError as error:
            raise InputError(str(error)) from error
        for tensor in results:
            found = as_given(tensor, values[tensor.index], self._format)
            if dtype is not None and found.dtype != tensor.dtype:
                raise InputError(f"layer {layer.name!r}: {layer.op} returns {found.dtype}, not {dtype}")
            self._tensors[tensor.index] = found
