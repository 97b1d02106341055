"""A model's constants as numpy arrays, by tensor id or name: as stored, and as real values."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from mlinspect import ir
from mlinspect.errors import MlinspectError, ModelFormatError, NotFoundError, near
from mlinspect.execute.values import dequantize_array, real_weights


class Constants(Mapping[int | str, np.ndarray]):
    """Read-only mapping from tensor id or name to array; iterates over ids.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
    >>> name = model.tensors.query("role == 'constant'").name.iloc[0]
    >>> bool((model.weights[name] == model.dequantized[name]).all())
    True
    """

    def __init__(self, network: ir.Network, convert: Callable[[ir.Tensor], np.ndarray]) -> None:
        self._network = network
        self._convert = convert
        self._ids = [tensor.index for tensor in network.tensors.values() if tensor.data is not None]

    def __getitem__(self, key: int | str) -> np.ndarray:
        tensor = find_tensor(self._network, key)
        if tensor.data is None:
            raise NotFoundError(f"tensor {tensor.index} ({tensor.name!r}) is not a constant: its role is {tensor.role}")
        try:
            return self._convert(tensor)
        except (ValueError, IndexError) as error:
            if isinstance(error, ModelFormatError):
                raise
            raise ModelFormatError(f"constant {tensor.name}: parameters do not fit its numbers ({error})") from error

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"<{len(self)} constants by tensor id or name>"


def find_tensor(network: ir.Network, key: int | str) -> ir.Tensor:
    """A tensor by id or by name.

    Raises
    ------
    NotFoundError
        No such tensor, or several of that name (use the id then).
    """
    if isinstance(key, str):
        found = [tensor for tensor in network.tensors.values() if tensor.name == key]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(str(tensor.index) for tensor in found)
            raise NotFoundError(f"{len(found)} tensors are called {key!r}: use one of the ids {ids}")
        hint = near(key, (tensor.name for tensor in network.tensors.values()))
        raise NotFoundError(f"no tensor is called {key!r}{hint}")
    if not isinstance(key, numbers.Real):
        raise NotFoundError(f"a tensor goes by id or name, not by {'None' if key is None else type(key).__name__}")
    if key not in network.tensors:
        raise NotFoundError(f"no tensor has the id {key!r}")
    return network.tensors[int(key)]


def stored(tensor: ir.Tensor) -> np.ndarray:
    """The constant's numbers as stored, unpacked where they were packed."""
    array = tensor.array
    assert array is not None
    return array


def real(tensor: ir.Tensor, model_format: str) -> np.ndarray:
    """The constant's real values as the vendor's runtime reads them.

    Parameters
    ----------
    tensor : ir.Tensor
        With data.
    model_format : {"armnn", "mslite"}
        Whose arithmetic: Arm NN multiplies in float32; MindSpore Lite's loader works in double and applies
        ``var_corr`` and ``mean_corr`` by channel.

    Returns
    -------
    ndarray of float32
        In the tensor's own shape.
    """
    values = stored(tensor)
    if tensor.dtype == "bfloat16":
        return dequantize_array(values, tensor)
    clusters = tensor.meta.get("quantClusters")
    if clusters is not None and len(clusters):
        return np.asarray(clusters, np.float32)[values.astype(np.int64) + 128]
    if values.dtype.kind not in "iufb":
        raise MlinspectError(f"tensor {tensor.name!r} of type {tensor.vendor_dtype} does not stand for real numbers")
    q = tensor.quantization
    if q is None or not tensor.quantized:
        return values.astype(np.float32)
    if model_format == "mslite":
        return real_weights(values, q)
    return dequantize_array(values, tensor)
