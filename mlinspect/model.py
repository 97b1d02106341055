"""Model: what ``open`` returns. It calls the other modules and keeps their results."""

from __future__ import annotations

import contextlib
import gc
import io
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mlinspect import card, constants, extract, formats, tables
from mlinspect.changes import Changes
from mlinspect.errors import ModelFormatError
from mlinspect.execute import registry, trace
from mlinspect.execute.engine import STEP_LIMIT, Program, execute
from mlinspect.execute.names import find_layer
from mlinspect.execute.ports import Inputs, bind_inputs, require_inputs, wanted_tensors
from mlinspect.execute.programs import Programs, references
from mlinspect.execute.session import KEEP_BYTES, Session
from mlinspect.execute.values import dequantize_array
from mlinspect.flatbuffer import Schema, load_schema

if TYPE_CHECKING:
    from mlinspect.analysis.findings import Result
    from mlinspect.plot.accessor import PlotAccessor
    from mlinspect.widgets.explorer import Explorer
    from mlinspect.widgets.stepper import Stepper


def open(
    source: str | Path | bytes | bytearray | memoryview | IO[bytes], schema: str | Path | Schema | None = None
) -> Model:
    """Open an Arm NN ``.armnn`` or MindSpore Lite ``.ms`` file.

    Parameters
    ----------
    source : str, Path, bytes or binary file
        A path is memory-mapped: weights are read when they are used. The format is found from the content.
    schema : str, Path or Schema, optional
        A ``.fbs`` file (or parsed schema) to read by, for a vendor's fork of a format.

    Returns
    -------
    Model

    Raises
    ------
    ModelFormatError
        The file is no such model (the message says what it is instead), or is damaged.
    OSError
        The file cannot be read.
    TypeError
        The source is something else.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    >>> model.format, len(model.layers)
    ('mslite', 19)
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    folder, name = None, ""
    if isinstance(source, str | Path):
        path = Path(source)
        buffer = _mapped(path)
        folder, name = path.resolve().parent, path.name
    else:
        data = source if isinstance(source, bytes | bytearray | memoryview) else _read(source)
        buffer = np.frombuffer(data, np.uint8)
        name = Path(str(getattr(source, "name", ""))).name
    try:
        with _no_collection():
            network = formats.read(buffer, folder, schema, Path(name).suffix.lower())
    except ModelFormatError as error:
        if name:
            raise ModelFormatError(f"{name}: {error.message}", error.offset, error.path) from None
        raise
    return Model(network, name, len(buffer))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Many small objects that all stay: to look for garbage among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(source: Any) -> Any:
    data = source.read() if hasattr(source, "read") else None
    if not isinstance(data, bytes | bytearray | memoryview):
        what = (
            "a file opened for text" if isinstance(data, str) else "None" if source is None else type(source).__name__
        )
        raise TypeError(f"open takes a path, bytes, or a file opened with mode 'rb', not {what}")
    return data


def _mapped(path: Path) -> np.ndarray:
    with io.open(path, "rb") as file:  # noqa: UP020 (open is our own name here)
        try:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except ValueError:  # an empty file cannot be mapped
            return np.zeros(0, np.uint8)


class Trace(trace.Trace):
    """Every intermediate of one run of a model; see :class:`mlinspect.execute.trace.Trace`."""

    def extract(self, layer: int | str, path: str | Path, *, anonymize: bool = False) -> None:
        """Write one layer with the operands that it was given, for a bug report.

        See :func:`mlinspect.extract.save_layer`.
        """
        extract.save_layer(path, self.network, self.values_by_id, layer, anonymize)


class Model(Changes):
    """An opened model: tables, weights, numbers and pictures of it.

    Made by :func:`mlinspect.open`. Tables are pandas DataFrames, made when first asked for; see
    :func:`mlinspect.describe` for what their columns mean. Each access returns a copy, which may be changed.

    Attributes
    ----------
    name : str
        The file's name, or ``""``.
    nbytes : int or None
        Size of the file in bytes; None for a model that was changed or built, and has no file yet.
    network : mlinspect.ir.Network
        The model as plain data.
    """

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle keeps: the network; tables and programs are made anew."""
        return {"network": self.network, "name": self.name, "nbytes": self.nbytes}

    _registered = -1  # how many operators users had registered when the table of layers was made

    @property
    def format(self) -> str:
        """``"armnn"`` or ``"mslite"``."""
        return self.network.format

    @property
    def layout(self) -> str:
        """The schema that read the file, as ``"msl2_newest"``."""
        return self.network.layout

    @property
    def version(self) -> str:
        """What the file says of its writer."""
        return self.network.version

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user of this file should know: unknown operators, wrong flags, ..."""
        return self.network.notes

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {}

    def _table(self, name: str) -> pd.DataFrame:
        """A copy of a table that is computed once."""
        with _no_collection():
            if name == "layers" and self._registered != registry.changes():  # its column `reference` may differ
                self._registered = registry.changes()
                self._tables["layers"] = tables.layers(self.network, references(self.network))
            if name not in self._tables:
                self._tables[name] = getattr(tables, name)(self.network)
        return tables.lent(self._tables[name])

    @property
    def layers(self) -> pd.DataFrame:
        """One row per layer, in execution order.

        The cells of ``attrs`` are dicts, which not every table can hold: ``model.layers.drop(columns="attrs")`` goes
        into Parquet files, and ``model.attrs`` has the attributes one per row.
        """
        return self._table("layers")

    @property
    def tensors(self) -> pd.DataFrame:
        """One row per tensor: constants, inputs, outputs and what flows between layers."""
        return self._table("tensors")

    @property
    def quant(self) -> pd.DataFrame:
        """One row per tensor and channel with quantisation parameters."""
        return self._table("quant")

    @property
    def edges(self) -> pd.DataFrame:
        """One row per connection."""
        return self._table("edges")

    @property
    def inputs(self) -> pd.DataFrame:
        """Inputs of the model, in order."""
        return self._table("inputs")

    @property
    def outputs(self) -> pd.DataFrame:
        """Outputs of the model, in order."""
        return self._table("outputs")

    @property
    def attrs(self) -> pd.DataFrame:
        """Every attribute of every layer, one per row; values are of all kinds (``astype({"value": str})``: text)."""
        return self._table("attrs")

    @cached_property
    def weights(self) -> constants.Constants:
        """Constants as stored, by tensor id or name; read-only views of the file where they are plain."""
        return constants.Constants(self.network, constants.stored)

    @cached_property
    def dequantized(self) -> constants.Constants:
        """Constants as real values (float32), by tensor id or name."""
        return constants.Constants(self.network, lambda tensor: constants.real(tensor, self.format))

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self.network)

    def run(
        self,
        inputs: Inputs,
        *,
        outputs: Sequence[str | int] | None = None,
        until: str | int | None = None,
        mode: str = "vendor",
        quantize: bool = False,
        dequantize: bool = False,
        step_limit: int = STEP_LIMIT,
    ) -> dict[str, np.ndarray]:
        """Compute the outputs in numpy.

        Parameters
        ----------
        inputs : dict by name or position, sequence in the order of ``model.inputs``, or one array
            In the inputs' own shapes and stored dtypes.
        outputs : sequence of str or int, optional
            Tensors to compute, by output name, tensor name or tensor id; the model's outputs by default. Only the
            layers that they need are computed.
        until : str or int, optional
            Name or index of a layer whose outputs to compute (beside ``outputs``).
        mode : {"vendor", "float"}
            ``"vendor"`` reproduces the arithmetic of the vendor's runtime; ``"float"`` runs the same graph on real
            (dequantised) values without rounding: the difference is the price of quantisation.
        quantize : bool
            Float arrays are real values: quantised first for quantised inputs, rounded to float32 for float32 ones.
        dequantize : bool
            Return quantised outputs as real float32 values.
        step_limit : int
            How many subgraphs may run before a loop counts as endless (MindSpore Lite's control flow).

        Returns
        -------
        dict of str to ndarray
            By output name, in the order of ``model.outputs``; a repeated or empty name gets a suffix.

        Raises
        ------
        InputError
            An array is missing, or has the wrong dtype or shape.
        UnsupportedError
            A layer has no arithmetic; raised before anything is computed.
        ExecutionError
            A layer failed, or a loop did not end within `step_limit`.

        Examples
        --------
        >>> import mlinspect as mi
        >>> model = mi.open(mi.samples.path("digits_cnn.armnn"))
        >>> scores = model.run(mi.samples.digits().images[:1, ..., None].astype("float32") / 16)
        >>> [int(array.argmax()) for array in scores.values()], int(mi.samples.digits().labels[0])
        ([7], 7)
        """
        if until is not None:
            outputs = [*(outputs or ()), *find_layer(self.network, until).outputs]
        wanted, program, feeds = self._start(inputs, outputs, mode, quantize, step_limit, only_wanted=True)
        values = execute(program, feeds)
        found = {name: values[tensor] for name, tensor in wanted.items()}
        if dequantize:
            return {
                name: dequantize_array(array, self._programs.network.tensors[wanted[name]])
                for name, array in found.items()
            }
        return found

    def trace(
        self, inputs: Inputs, *, mode: str = "vendor", quantize: bool = False, step_limit: int = STEP_LIMIT
    ) -> Trace:
        """Compute the outputs and keep every intermediate.

        Parameters
        ----------
        inputs, mode, quantize, step_limit
            As for :meth:`run`, whose bits a trace never changes.

        Returns
        -------
        Trace
            Mapping from tensor id or name to array, with ``.stats`` and ``.outputs``.
        """
        _, program, feeds = self._start(inputs, None, mode, quantize, step_limit)
        return Trace(self._programs.network, execute(program, feeds, keep_all=True))

    def session(
        self,
        inputs: Inputs,
        *,
        mode: str = "vendor",
        quantize: bool = False,
        step_limit: int = STEP_LIMIT,
        keep_bytes: int = KEEP_BYTES,
    ) -> Session:
        """A run that goes layer by layer and back: the debugger.

        Parameters
        ----------
        inputs, mode, quantize, step_limit
            As for :meth:`run`.
        keep_bytes : int
            Memory in bytes for values that would otherwise be computed again when the session goes back.

        Returns
        -------
        Session
        """
        _, program, feeds = self._start(inputs, None, mode, quantize, step_limit)
        return Session(self._programs.network, program, feeds, mode, keep_bytes)

    def _start(
        self,
        inputs: Inputs,
        outputs: Sequence[str | int] | None,
        mode: str,
        quantize: bool,
        step_limit: int,
        only_wanted: bool = False,
    ) -> tuple[dict[str, int], Program, dict[int, np.ndarray]]:
        """Result names by tensor, the program that computes them, and the checked inputs."""
        network = self._programs.network
        wanted = wanted_tensors(network, outputs)
        program = self._programs.get(mode, wanted.values(), step_limit, only_wanted)
        feeds = bind_inputs(network, inputs, mode, quantize)
        require_inputs(network, feeds, set(program.needed))
        return wanted, program, feeds

    def stats(self, by: str = "tensor") -> pd.DataFrame:
        """Statistics of every constant; :func:`mlinspect.analysis.stats.stats` says how they are computed.

        Parameters
        ----------
        by : {"tensor", "channel"}
            One row per constant, or one per channel of it.

        Returns
        -------
        DataFrame
            ``mlinspect.describe("stats")`` tells the columns.

        Raises
        ------
        ValueError
            `by` is something else.

        Examples
        --------
        >>> import mlinspect as mi
        >>> mi.open(mi.samples.path("digits_cnn.ms")).stats().query("name == 'head.weight'").elements.item()
        320
        """
        from mlinspect.analysis.stats import stats

        return stats(self, by)

    def lint(self, rules: Iterable[str] | None = None) -> Result:
        """What is wrong, or looks wrong, with the model.

        Parameters
        ----------
        rules : iterable of str, optional
            Names of rules; all by default.

        Returns
        -------
        DataFrame
            One row per finding, the most severe first; ``mlinspect.describe("lint")`` tells the columns.

        Raises
        ------
        NotFoundError
            There is no such rule; :func:`mlinspect.analysis.lint.rules` lists them.

        Examples
        --------
        >>> import mlinspect as mi
        >>> mi.open(mi.samples.path("digits_cnn_int8.ms")).lint().rule.unique().tolist()
        ['float-island']
        """
        from mlinspect.analysis.lint import lint

        return lint(self, rules)

    def cost(self, shapes: Mapping[str | int, Sequence[int]] | None = None) -> pd.DataFrame:
        """Operations, bytes and memory of every layer; :func:`mlinspect.analysis.cost.cost` says how they are counted.

        Parameters
        ----------
        shapes : mapping of int or str to sequence of int, optional
            Shapes of inputs, by position or name, where they differ from the file's or are unknown there.

        Returns
        -------
        DataFrame
            One row per layer; ``mlinspect.describe("cost")`` tells the columns.

        Raises
        ------
        InputError
            No such input, or a shape that does not fit it.

        Examples
        --------
        >>> import mlinspect as mi
        >>> int(mi.open(mi.samples.path("digits_cnn.ms")).cost().macs.sum())
        198976
        """
        from mlinspect.analysis.cost import cost

        return cost(self, shapes)

    @cached_property
    def plot(self) -> PlotAccessor:
        """Pictures of the model: ``model.plot.weights("conv1")``, ``model.plot.graph()``, ... each returns its Axes."""
        from mlinspect.plot.accessor import PlotAccessor

        return PlotAccessor(self)

    def stepper(
        self, inputs: Inputs, reference: Any = None, *, mode: str = "vendor", quantize: bool = False
    ) -> Stepper:
        """A widget that runs the model layer by layer: see :func:`mlinspect.widgets.stepper.stepper`."""
        from mlinspect.widgets.stepper import stepper

        return stepper(self, inputs, reference, mode=mode, quantize=quantize)

    def explore(self, other: Model | None = None) -> Explorer:
        """A widget to search the model with: see :func:`mlinspect.widgets.explorer.explore`."""
        from mlinspect.widgets.explorer import explore

        return explore(self, other)

    def report(self, file: str | Path | None = None) -> str:
        """Everything about the model on one HTML page, and in a file: see :func:`mlinspect.report.report`."""
        from mlinspect.report import report

        return report(self, file)

    def summary(self) -> dict[str, Any]:
        """The facts that the card shows, as plain data."""
        return card.summary(self.network, self.name, self.nbytes)

    def __repr__(self) -> str:
        return card.text(self.network, self.name, self.nbytes)

    def _repr_html_(self) -> str:
        return card.html(self.network, self.name, self.nbytes)
