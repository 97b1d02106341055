"""The one in-memory form of a model, whatever file it came from: plain frozen data, no I/O, no pandas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Quantization:
    """``real = scale * (stored - zero_point)``, one entry per channel (one in all when per tensor).

    Attributes
    ----------
    scale : ndarray of float64, shape (channels,)
    zero_point : ndarray of int64, shape (channels,)
    axis : int or None
        Dimension that the channels lie along; None when per tensor.
    bits : int
        Width of the stored integers' grid.
    symmetric : bool
        The type has no zero point (Arm NN's QSymm types) or every zero point is 0.
    extra : mapping of str to ndarray
        What only MindSpore Lite has, by channel: min, max, narrow_range, inited, var_corr, mean_corr,
        dst_dtype, round_type, multiplier.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None
    bits: int = 8
    symmetric: bool = False
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def per_channel(self) -> bool:
        """The channels have parameters of their own."""
        return self.axis is not None

    @property
    def shared(self) -> tuple[float, int] | None:
        """Scale and zero point that all numbers share; None where the channels have their own, or nobody has any.

        Examples
        --------
        >>> Quantization(np.array([0.5]), np.array([3])).shared
        (0.5, 3)
        """
        if self.per_channel or not len(self.scale):
            return None
        return float(self.scale[0]), int(self.zero_point[0])


@dataclass(frozen=True)
class PackedData:
    """Constant bytes that need work before they are numbers: compressed, or outside the file.

    ``part(start, stop)`` gives a run of the numbers where they can be unpacked by themselves, else it is None.
    """

    raw: np.ndarray
    load: Callable[[], np.ndarray]
    part: Callable[[int, int], np.ndarray] | None = None

    @cached_property
    def array(self) -> np.ndarray:
        """The numbers, unpacked once and then kept."""
        return self.load()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value: a constant of the file, or one that flows between layers.

    Attributes
    ----------
    index : int
        Stable id; tables, traces and plots are keyed by it.
    name : str
        The name in the file, or one made from the layer that produces or reads it.
    role : {"input", "output", "constant", "activation"}
    dtype : str
        numpy's name for the stored numbers (``"int8"``), ``"bfloat16"``, ``"string"`` or ``"unknown(N)"``.
    vendor_dtype : str
        The format's own name for the type (``"QAsymmS8"``, ``"Int8"``).
    shape : tuple of int or None
        None: unknown rank; -1: unknown size.
    layout : str or None
        Order of the axes where the file or the layer says so: ``"NHWC"``, ``"OHWI"``, ``"MIHW"``, ...
    data : ndarray, PackedData or None
        The constant's numbers as stored (read-only view of the file), shaped; None when not a constant.
    quantized : bool
        The stored numbers are quantised values. (Files attach parameters to other tensors, too.)
    file_offset : int or None
        Where the constant's bytes start in the file.
    nbytes : int
        Bytes as stored (0 when not a constant).
    meta : mapping
        Further fields of the file's tensor record, in the schema's own names.
    """

    index: int
    name: str
    graph: int
    role: str
    dtype: str
    vendor_dtype: str
    shape: tuple[int, ...] | None
    layout: str | None = None
    data: np.ndarray | PackedData | None = field(default=None, repr=False)
    quantization: Quantization | None = None
    quantized: bool = False
    compression: str = "none"
    file_offset: int | None = None
    nbytes: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def array(self) -> np.ndarray | None:
        """The constant's stored numbers (unpacked once, then kept), or None."""
        return self.data.array if isinstance(self.data, PackedData) else self.data


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator.

    Attributes
    ----------
    index : int
        Stable id: Arm NN's ``LayerBase.index``, MindSpore Lite's position in ``nodes``.
    name, op : str
        ``op`` is the format's name of the operator (``Convolution2d``, ``Conv2DFusion``).
    kind : str
        Our common vocabulary (``conv2d``, ``depthwise_conv2d``, ``fully_connected``, ``add``, ...).
    attrs : dict
        The schema's own field names; enums by name; vectors as tuples.
    inputs, outputs : tuple of int
        Tensor ids. Arm NN's constants kept inside a layer follow its input slots.
    members : tuple of str
        Names of those trailing constants (``weights``, ``bias``, ``forgetGateBias``), in order.
    meta : mapping
        Fields of the node beside its operator (``quantType``, ``deviceType``).
    """

    index: int
    name: str
    op: str
    kind: str
    graph: int
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    members: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name, or one made from the operator and the index where the file has none."""
        return self.name or f"{self.op}_{self.index}"

    @property
    def slots(self) -> tuple[int, ...]:
        """Inputs that come from other layers: all but the constants kept inside the layer."""
        return self.inputs[: len(self.inputs) - len(self.members)]

    @property
    def held(self) -> dict[str, int]:
        """Constants kept inside the layer (Arm NN): their names, as in ``members``, and tensor ids.

        Examples
        --------
        >>> layer = Layer(0, "", "Convolution2d", "conv2d", 0, {}, (4, 7, 8), (5,), ("weights", "bias"))
        >>> layer.label, layer.slots, layer.held
        ('Convolution2d_0', (4,), {'weights': 7, 'bias': 8})
        """
        return dict(zip(self.members, self.inputs[len(self.inputs) - len(self.members) :], strict=True))


@dataclass(frozen=True, slots=True)
class Port:
    """A place where data enters or leaves a graph."""

    name: str
    tensor: int
    binding_id: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A main graph or a subgraph: ports, and the layers in execution order."""

    index: int
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Network:
    """A whole file.

    Attributes
    ----------
    format : {"armnn", "mslite"}
    layout : str
        Which schema file read it, as ``"msl2_newest"``.
    version : str
        What the file says of its writer, or ``""``.
    graphs : tuple of Graph
        The first is the main one.
    tensors : dict of int to Tensor
    notes : tuple of str
        What a user of this file should know (unknown operators, wrong flags, ...).
    meta : mapping
        Further fields of the file's root, in the schema's own names.
    """

    format: str
    layout: str
    version: str
    graphs: tuple[Graph, ...]
    tensors: Mapping[int, Tensor]
    notes: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def layers(self) -> dict[int, Layer]:
        """Every layer by index, in execution order, subgraph after subgraph."""
        return {layer.index: layer for graph in self.graphs for layer in graph.layers}
