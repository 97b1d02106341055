"""Dumps from a device: what its runtime says that the layers gave, laid beside the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.analysis.dump_files import Entry, Shapes, read_files
from mlinspect.analysis.operands import network_of
from mlinspect.errors import NotFoundError
from mlinspect.execute.values import numpy_dtype
from mlinspect.macs import count_elements


def read_dump(path: str | Path, *, shape: Shapes = None, dtype: str | None = None) -> Dump:
    """Read what a runtime wrote of a run.

    Parameters
    ----------
    path : str or Path
        A file or a folder, recognised by names and content:

        - text with the tensors that Arm NN's ExecuteNetwork prints (``--print-intermediate-layers``), among other
          lines or alone, and the folder of ``.numpy`` files that it writes instead;
        - a dump folder of MindSpore Lite's benchmark (``MINDSPORE_DUMP_CONFIG``);
        - ``.csv`` tables of MindSpore Lite's converter (``debug_info_save_path``);
        - ``.npz`` and ``.npy``: a saved trace, or ONNX Runtime or LiteRT intermediates by tensor name;
        - raw numbers: ``.f32 .f16 .i8 .u8 .i16 .i32``, and ``.bin .raw .input .output`` of `dtype`.
    shape : tuple of int, or mapping of str to tuple, optional
        Of raw files; by file name without suffix where there are several. Otherwise the model's tensors give it.
    dtype : str, optional
        Of raw files whose name does not say it; otherwise their size against the model's tensor gives it.

    Returns
    -------
    Dump

    Raises
    ------
    InputError
        Nothing in it is known, or sizes contradict each other.
    OSError
        It cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "conv1_output_0_shape_1_2_2_1_Float32_NHWC.bin")
    ...     _ = file.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    ...     read_dump(folder)["conv1"].shape
    (1, 2, 2, 1)
    """
    path = Path(path)
    path.stat()  # OSError where there is nothing
    return Dump(*read_files(path, shape, dtype))


@dataclass(frozen=True)
class Aligned:
    """A dump laid beside a model.

    Attributes
    ----------
    values : dict of int to ndarray
        By tensor id: stored numbers where the dump holds integers, real ones otherwise.
    notes : dict of int to str
        By tensor id: what is to be said.
    unused : list of str
        Entries of the dump that belong to no tensor.
    """

    values: dict[int, np.ndarray]
    notes: dict[int, str]
    unused: list[str]


class Dump(Mapping[str, np.ndarray]):
    """Tensors by name, as a runtime wrote them.

    Attributes
    ----------
    entries : list of Entry
        In the order of the files; a name may occur several times.
    quant, stats, outputs : DataFrame or None
        The converter's tables: parameters by tensor, distributions before and after, agreement of the outputs.
    notes : list of str
        Files that were left out, and why.
    """

    def __init__(self, entries: list[Entry], tables: Mapping[str, pd.DataFrame], notes: list[str]) -> None:
        self.entries = entries
        self.quant, self.stats, self.outputs = (tables.get(kind) for kind in ("quant", "stats", "outputs"))
        self.notes = notes

    def __getitem__(self, name: str) -> np.ndarray:
        found = [entry.array for entry in self.entries if entry.name == name]
        if not found:
            raise NotFoundError(f"no tensor {name!r} in the dump")
        return found[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(entry.name for entry in self.entries))

    def __len__(self) -> int:
        return len({entry.name for entry in self.entries})

    def __repr__(self) -> str:
        tables = [kind for kind in ("quant", "stats", "outputs") if getattr(self, kind) is not None]
        return f"<Dump of {len(self.entries)} tensors" + (f", tables {', '.join(tables)}>" if tables else ">")

    @property
    def table(self) -> pd.DataFrame:
        """One row an entry: name, side, slot, dtype, shape, source."""
        rows = [(e.name, e.side, e.slot, e.array.dtype.name, e.array.shape, e.source) for e in self.entries]
        return pd.DataFrame(rows, columns=["name", "side", "slot", "dtype", "shape", "source"])

    @property
    def network(self) -> ir.Network:
        """The entries as layers without arithmetic, for comparing two dumps."""
        tensors = {i: _tensor(i, entry) for i, entry in enumerate(self.entries)}
        layers = tuple(ir.Layer(i, entry.name, "Dump", "dump", 0, {}, (), (i,)) for i, entry in enumerate(self.entries))
        return ir.Network("dump", "", "", (ir.Graph(0, "", (), (), layers),), tensors)

    def align(self, model: Any) -> Aligned:
        """Find the model's tensor for each entry, by name and size.

        Parameters
        ----------
        model : Model or Network

        Returns
        -------
        Aligned
            Stored integers keep the tensor's type, so that they are read with the model's own parameters.
        """
        network = network_of(model)
        if network.format == "dump":
            return Aligned({i: entry.array for i, entry in enumerate(self.entries)}, {}, [])
        values: dict[int, np.ndarray] = {}
        notes: dict[int, str] = {}
        unused: list[str] = []
        for name, entries in self._by_name().items():
            targets = _targets(network, name, entries[0])
            if not targets:
                unused += [f"{entry.name} ({entry.source})" for entry in entries]
                continue
            # of layers with one name the last overwrites the file; in a printed text each has its turn
            lost = targets[: max(0, len(targets) - len(entries))]
            for tensor in lost:
                notes[tensor] = f"overwritten in the dump: {len(targets)} layers are called {name[0]!r}"
            for tensor, entry in zip(targets[len(lost) :], entries[-len(targets) :], strict=True):
                value, note = _fitted(entry, network.tensors[tensor])
                if value is not None and (entry.side == "output" or tensor not in values):
                    values[tensor] = value
                if note:
                    notes[tensor] = note
        for layer in network.graphs[0].layers:
            for tensor in layer.outputs:
                if tensor not in values:
                    notes.setdefault(tensor, "missing in the dump")
        return Aligned(values, notes, unused)

    def _by_name(self) -> dict[tuple[str, str, int], list[Entry]]:
        found: dict[tuple[str, str, int], list[Entry]] = {}
        for entry in self.entries:
            found.setdefault((entry.name, entry.side, entry.slot), []).append(entry)
        return found


def _tensor(index: int, entry: Entry) -> ir.Tensor:
    dtype = entry.array.dtype.name
    return ir.Tensor(index, entry.name, 0, "activation", dtype, dtype, entry.array.shape)


def _targets(network: ir.Network, key: tuple[str, str, int], entry: Entry) -> list[int]:
    """Tensors that an entry may be, in order of execution."""
    name, side, slot = key
    layers = network.graphs[0].layers

    def matching(plain: bool) -> list[int]:
        def same(other: str) -> bool:
            other = other.replace("/", ".") if entry.dotted else other
            return other == name if plain else _plain(other) == _plain(name)

        found = []
        for layer in layers:
            ids = layer.outputs if side == "output" else layer.inputs
            if same(layer.name) and slot < len(ids):
                found.append(ids[slot])
        if not found:
            made = dict.fromkeys(t for layer in layers for t in (*layer.inputs, *layer.outputs))
            found = [t for t in made if same(network.tensors[t].name)]
        return found

    return matching(plain=True) or matching(plain=False)


def _plain(name: str) -> str:
    """A name without what tools add to it: output numbers, copies made for subgraphs, the leading slash."""
    name = re.sub(r"_duplicate$|:0$|_output_0$|/output-0$", "", name)
    return name.strip("/.")


def _fitted(entry: Entry, tensor: ir.Tensor) -> tuple[np.ndarray | None, str]:
    """An entry's numbers as the tensor's, and what is to be said."""
    array, stored = entry.array, numpy_dtype(tensor)
    elements = count_elements(tensor.shape)
    if not entry.typed:
        for dtype in (stored, np.dtype(np.float32)):
            if elements is not None and array.nbytes == elements * dtype.itemsize:
                array = array.view(dtype)
                break
        else:
            return None, f"{array.nbytes} bytes in the dump fit neither {stored} nor float32{list(tensor.shape or ())}"
    if elements is not None and array.size != elements:
        return None, f"{array.size} elements in the dump, {elements} in the model"
    if not entry.shaped and tensor.shape is not None and elements is not None:
        array = array.reshape(tensor.shape)
    if entry.printed and tensor.quantized and stored.kind in "iu":
        limits = np.iinfo(stored)
        if not ((array == np.rint(array)) & (array >= limits.min) & (array <= limits.max)).all():
            return array.astype(np.float32), "numbers in the dump are none of the stored type: taken as real values"
        return array.astype(stored), ""
    return array.astype(np.float32) if array.dtype.kind == "f" else array, ""
