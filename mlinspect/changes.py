"""The methods of a model that return changed copies of it, and the one that saves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from mlinspect import edit, extract, ir, save


class Changes:
    """A network with a name, and methods that return changed copies.

    The network itself never changes; a copy shares all unchanged parts with it.
    """

    def __init__(self, network: ir.Network, name: str = "", nbytes: int | None = None) -> None:
        self.network = network
        self.name = name
        self.nbytes = nbytes

    def _changed(self, network: ir.Network) -> Self:
        return type(self)(network, self.name)

    def with_attrs(self, layer: int | str, **attrs: Any) -> Self:
        """A model with other attributes of a layer.

        Parameters
        ----------
        layer : int or str
            Index or name, as in ``model.layers``.
        **attrs
            New values, by the names in ``model.attrs``.

        Returns
        -------
        Model
            With the shapes and types after the layer computed anew.

        Raises
        ------
        InputError
            No such layer, or several of that name; values that contradict the layer's weights; or a later layer could
            no longer be computed.
        SchemaError
            No such attribute, or a value that does not fit it.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
        >>> changed = model.with_attrs("/stem/Conv", activation_type="RELU6")
        >>> changed.attrs.query("layer == 0 and attr == 'activation_type'").value.item()
        'RELU6'
        """
        return self._changed(edit.with_attrs(self.network, layer, **attrs))

    def with_constant(self, tensor: int | str, array: np.ndarray, *, quantize: bool = False) -> Self:
        """A model with other numbers in a constant.

        Parameters
        ----------
        tensor : int or str
            Id or name, as in ``model.tensors``.
        array : ndarray
            Of the constant's stored dtype; of another shape only if the layers that read it allow that.
        quantize : bool
            The array holds real values: quantise them with the constant's parameters, saturating at the ends of its
            range.

        Returns
        -------
        Model

        Raises
        ------
        InputError
            No such constant; another dtype, or numbers that do not fit its bit width; or a layer could no longer be
            computed.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
        >>> halved = model.with_constant("res.weight", model.dequantized["res.weight"] / 2, quantize=True)
        >>> int(abs(model.weights["res.weight"]).max()), int(abs(halved.weights["res.weight"]).max())
        (127, 64)
        """
        return self._changed(edit.with_constant(self.network, tensor, array, quantize=quantize))

    def with_quant(
        self,
        tensor: int | str,
        *,
        scale: float | Sequence[float] | np.ndarray | None = None,
        zero_point: int | Sequence[int] | np.ndarray | None = None,
        axis: int | None = None,
        bits: int | None = None,
    ) -> Self:
        """A model with other quantisation parameters of a tensor; the stored numbers of a constant stay.

        Parameters
        ----------
        tensor : int or str
            Id or name, as in ``model.tensors``.
        scale : float or array of float, optional
            Real values per step: one, or one per channel. What is not given stays as it is.
        zero_point : int or array of int, optional
            Stored number of real 0, likewise.
        axis : int, optional
            Axis that the channels lie along. With several scales, by default the old axis, or the one that the layer
            reading the tensor implies.
        bits : int, optional
            Width of the stored numbers (MindSpore Lite).

        Returns
        -------
        Model

        Raises
        ------
        InputError
            The tensor's type or format cannot have such parameters, or a constant stores numbers that do not fit
            `bits`; the message says what to do.

        See Also
        --------
        with_constant : with ``quantize=True``, stores a constant's real values by the new parameters.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn_u8.armnn"))
        >>> model.with_quant("stem", zero_point=3).quant.query("name == 'stem'").zero_point.item()
        3
        """
        changed = edit.with_quant(self.network, tensor, scale=scale, zero_point=zero_point, axis=axis, bits=bits)
        return self._changed(changed)

    def without(self, layer: int | str) -> Self:
        """A model without a layer: the readers of its output read its first input instead.

        Parameters
        ----------
        layer : int or str
            Index or name, as in ``model.layers``.

        Returns
        -------
        Model

        Raises
        ------
        InputError
            No such layer; it has several outputs, or only constants as inputs; or a later layer could no longer be
            computed.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
        >>> model.without("/Softmax").layers.name.iloc[-1]
        '/head/Gemm'
        """
        return self._changed(edit.without(self.network, layer))

    def rename(
        self, layers: Mapping[int | str, str] | None = None, tensors: Mapping[int | str, str] | None = None
    ) -> Self:
        """A model with other names of layers or tensors.

        Parameters
        ----------
        layers : mapping of int or str to str, optional
            Layer, by index or name -> its new name.
        tensors : mapping of int or str to str, optional
            Tensor, by id or name -> its new name. Arm NN's files do not name tensors: there they are called after the
            layers that produce them.

        Returns
        -------
        Model

        Raises
        ------
        InputError
            No such layer or tensor; or names for an Arm NN model's tensors.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
        >>> model.rename(layers={"/Add": "sum"}, tensors={"image": "x"}).inputs.name.tolist()
        ['x']
        """
        return self._changed(edit.rename(self.network, layers, tensors))

    def with_input_shape(self, shapes: edit.Shapes) -> Self:
        """A model for inputs of other shapes.

        Parameters
        ----------
        shapes : sequence of int, or mapping of int or str to sequence of int
            The new shape, if there is one input; else shapes by the inputs' positions or names.

        Returns
        -------
        Model
            With all following shapes computed anew.

        Raises
        ------
        InputError
            No such input, or a layer could no longer be computed: fixed sizes, as those of a fully connected layer, do
            not change with the input. The batch does: also in shapes that layers hold.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
        >>> model.with_input_shape((5, 8, 8, 1)).outputs["shape"].tolist()
        [(5, 10)]
        """
        return self._changed(edit.with_input_shape(self.network, shapes))

    def extract(self, inputs: Sequence[int | str] | None = None, outputs: Sequence[int | str] | None = None) -> Self:
        """The sub-graph between tensors as a model of its own.

        Parameters
        ----------
        inputs : sequence of int or str, optional
            Tensors, by id or name, where data enter; by default the inputs that the outputs need.
        outputs : sequence of int or str, optional
            Tensors where data leave; by default all outputs.

        Returns
        -------
        Model
            Layers, tensors and constants keep their names and ids.

        Raises
        ------
        InputError
            The outputs need more than the inputs; the message says what is missing.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.armnn"))
        >>> model.extract(inputs=["block/pool"], outputs=["flatten"]).layers.name.tolist()
        ['block/pool', 'residual/conv', 'residual/add', 'residual/relu', 'global_pool', 'flatten', 'flatten']
        """
        return self._changed(extract.extract(self.network, inputs, outputs))

    def save(self, path: str | Path, *, release: str = "newest", weights: str = "inline") -> None:
        """Write the model's file.

        The file appears whole or not at all, and may take the place of the one that the model was read from.

        Parameters
        ----------
        path : str or Path
        release : {"newest", "20.08", "unchanged"}
            Layout to write: ``"20.08"`` is what Arm NN 20.08 (Debian 12) can load, ``"unchanged"`` the layout of the
            file that the model was read from, for a device whose runtime is as old.
        weights : {"inline", "external"}
            MindSpore Lite: ``"external"`` puts the large constants into a file beside the model.

        Raises
        ------
        OSError
            The file cannot be written there.
        InputError
            The format has no such release, or no such place for weights.
        UnsupportedError
            The layout cannot express something in the model.
        SchemaError
            The file would be larger than a FlatBuffer can be.

        Examples
        --------
        >>> import tempfile
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.ms")).without("/Softmax")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/scores.ms")
        ...     len(mi.open(f"{folder}/scores.ms").layers)
        10
        """
        save.save(self.network, path, release=release, weights=weights)
