"""Trace: every intermediate of one run, by tensor id or name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import html, ir
from mlinspect.errors import NotFoundError, near
from mlinspect.execute.ports import output_names
from mlinspect.execute.values import dequantize_array


class Trace(Mapping[int | str, np.ndarray]):
    """Read-only mapping from tensor id or name to what the run gave for it; iterates over ids in order of execution.

    Attributes
    ----------
    network : ir.Network
    values_by_id : dict of int to ndarray

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
    >>> x = mi.samples.digits().images[:1, ..., None].astype("float32") / 16
    >>> trace = model.trace(x)
    >>> trace.outputs.keys() == model.run(x).keys()
    True
    """

    def __init__(self, network: ir.Network, values: dict[int, np.ndarray]) -> None:
        self.network = network
        # not subgraph handles and tensor lists, which are no numbers
        self.values_by_id = {i: value for i, value in values.items() if isinstance(value, np.ndarray)}

    def __getitem__(self, key: int | str) -> np.ndarray:
        if isinstance(key, str):
            found = [i for i in self.values_by_id if self.network.tensors[i].name == key]
            if len(found) != 1:
                hint = near(key, (self.network.tensors[i].name for i in self.values_by_id))
                raise NotFoundError(
                    f"tensors {found} are all called {key!r}: use an id"
                    if found
                    else f"no tensor {key!r} was computed{hint}"
                )
            key = found[0]
        if key not in self.values_by_id:
            raise NotFoundError(f"tensor {key!r} was not computed")
        return self.values_by_id[key]

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter(self.values_by_id)

    def __len__(self) -> int:
        return len(self.values_by_id)

    def __repr__(self) -> str:
        size = sum(array.nbytes for array in self.values_by_id.values())
        return f"<Trace of {len(self)} tensors, {size / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        return html.trace(self.stats, sum(array.nbytes for array in self.values_by_id.values()))

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """The model's outputs by name, as ``model.run`` gives them."""
        ports = self.network.graphs[0].outputs
        return {name: self[port.tensor] for name, port in zip(output_names(ports), ports, strict=True)}

    @property
    def stats(self) -> pd.DataFrame:
        """One row a tensor: range, moments, zeros, NaN and Inf, saturation, use of the quantised range.

        ``min max mean std`` are of real values; ``saturated_low`` and ``saturated_high`` count stored numbers at the
        ends of their type; ``range_used`` is the share of the type's range between the smallest and largest of them.
        """
        return self._stats.copy()

    @cached_property
    def _stats(self) -> pd.DataFrame:
        rows = {i: tensor_stats(array, self.network.tensors[i]) for i, array in self.values_by_id.items()}
        table = pd.DataFrame.from_dict(rows, orient="index")
        table.index.name = "tensor"
        for column in ("elements", "zeros", "nan", "inf", "saturated_low", "saturated_high"):
            table[column] = table[column].astype("Int64")
        return table

    def to_npz(self, path: str | Path) -> None:
        """Write every tensor as ``t<id>`` into an ``.npz`` file, with their names as ``names``."""
        arrays = {f"t{i}": array for i, array in self.values_by_id.items()}
        names = np.array([f"t{i}\t{self.network.tensors[i].name}" for i in self.values_by_id])
        np.savez_compressed(path, names=names, **arrays)  # type: ignore[arg-type]


def tensor_stats(array: np.ndarray, tensor: ir.Tensor) -> dict[str, Any]:
    """The numbers of one row of :attr:`Trace.stats`."""
    row: dict[str, Any] = {
        "name": tensor.name,
        "role": tensor.role,
        "dtype": str(array.dtype),
        "shape": tuple(array.shape),
        "elements": array.size,
        "min": np.nan,
        "max": np.nan,
        "mean": np.nan,
        "std": np.nan,
        "zeros": None,
        "nan": None,
        "inf": None,
        "saturated_low": None,
        "saturated_high": None,
        "range_used": np.nan,
    }
    if array.dtype.kind not in "iufb" or not array.size:
        return row
    quantized = tensor.quantized and array.dtype.kind in "iu"
    real = dequantize_array(array, tensor) if quantized else array
    finite = np.isfinite(real)
    row["nan"], row["inf"] = int(np.isnan(real).sum()), int(np.isinf(real).sum())
    row["zeros"] = int((real == 0).sum())
    good = real if finite.all() else real[finite]
    if good.size:
        row["min"], row["max"] = float(good.min()), float(good.max())
        row["mean"], row["std"] = float(good.mean(dtype=np.float64)), float(good.std(dtype=np.float64))
    if quantized and array.itemsize <= 2:
        limits = np.iinfo(array.dtype)
        row["saturated_low"] = int((array == limits.min).sum())
        row["saturated_high"] = int((array == limits.max).sum())
        row["range_used"] = (int(array.max()) - int(array.min())) / (limits.max - limits.min)
    return row
