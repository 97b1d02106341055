"""The command line: ``mlinspect info|layers|tensors|quant|edges|attrs|weights FILE``, and ``mlinspect demo``.

Exit codes: 0 all well, 1 not a model or otherwise not readable, 2 wrong usage. Errors are one line on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from mlinspect.model import Model

TABLES = {
    "layers": "one row a layer, in execution order",
    "tensors": "one row a tensor: type, shape, quantisation",
    "quant": "one row a tensor and channel: scale, zero point, range",
    "edges": "one row for each tensor that a layer reads",
    "attrs": "one row for each attribute of each layer",
    "weights": "one row a constant: its real values in numbers",
}
DEMO_MODEL = "digits_cnn_int8.ms"


class UsageError(Exception):
    """What was asked for makes no sense; exit code 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The process's own by default.

    Returns
    -------
    int
        The exit code: 0, 1 or 2.

    Examples
    --------
    >>> main(["info", "no_such_file.ms"])
    1
    """
    options = _parser().parse_args(arguments)
    from mlinspect.errors import MlinspectError

    try:
        options.run(options)
        sys.stdout.flush()
    except UsageError as error:
        return _fail(error, 2)
    except BrokenPipeError:  # the reader, `head` say, has seen enough; keep Python from flushing into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (MlinspectError, OSError) as error:
        return _fail(error, 1)
    return 0


def _fail(error: Exception, code: int) -> int:
    from mlinspect.card import printable

    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    print(f"mlinspect: {printable(reason)}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlinspect", description="Look into Arm NN (.armnn) and MindSpore Lite (.ms) models."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="the model at a glance")
    info.add_argument("file", metavar="FILE")
    info.add_argument("--json", metavar="OUT", help="write the facts as JSON instead; - for stdout")
    info.set_defaults(run=_info)
    for table, meaning in TABLES.items():
        command = commands.add_parser(table, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
        command.add_argument("file", metavar="FILE")
        command.add_argument("--query", metavar="EXPR", help="only rows for which this pandas expression is true")
        out = command.add_mutually_exclusive_group()
        for kind in WRITERS:
            out.add_argument(f"--{kind}", metavar="OUT", help=f"write {kind} to this file; - for stdout")
        command.set_defaults(run=_table, table=table)
    demo = commands.add_parser("demo", help="open the bundled sample models; write a card and a plot")
    demo.add_argument("directory", metavar="DIR", nargs="?", default=".", help="where to write (default: here)")
    demo.set_defaults(run=_demo)
    return parser


def _info(options: argparse.Namespace) -> None:
    model = _open(options.file)
    if options.json:
        _write(options.json, json.dumps(model.summary(), indent=2, ensure_ascii=False) + "\n")
    else:
        print(model)


def _table(options: argparse.Namespace) -> None:
    model = _open(options.file)
    frame = _weights(model) if options.table == "weights" else getattr(model, options.table)
    if options.query:
        try:
            frame = frame.query(options.query)
        except Exception as error:  # whatever pandas and Python find wrong with the expression
            raise UsageError(f"--query {options.query}: {error}") from None
    for kind, write in WRITERS.items():
        if out := getattr(options, kind):
            write(frame if frame.index.name is None else frame.reset_index(), out)
            return
    print(_text(frame))


def _open(path: str) -> Model:
    import mlinspect

    return mlinspect.open(path)


def _weights(model: Model) -> pd.DataFrame:
    """Constants, with their real (dequantised) values in numbers; zeros is the share of them that are 0."""
    import numpy as np

    columns = ["name", "dtype", "shape", "elements", "nbytes", "quantized", "compression"]
    frame = model.tensors.loc[model.tensors.role == "constant", columns].copy()
    facts = np.full((len(frame), 4), np.nan)
    for row, tensor in enumerate(frame.index):
        if model.weights[tensor].size and model.weights[tensor].dtype.kind in "iufb":
            real = np.asarray(model.dequantized[tensor], np.float64)
            facts[row] = real.min(), real.max(), real.mean(), (real == 0).mean()
    frame[["min", "max", "mean", "zeros"]] = facts
    return frame


def _text(frame: pd.DataFrame) -> str:
    """A table for people: without columns that are empty throughout, and without the dicts, which `attrs` lists."""
    from mlinspect.card import printable

    frame = frame.loc[:, [c for c in frame if c != "attrs" and (frame.empty or not frame[c].isna().all())]]
    text = frame.to_string(max_colwidth=40, na_rep="", index=frame.index.name is not None)
    return "\n".join(printable(line) for line in text.split("\n"))


def _json_cells(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Cells that are tuples or dicts as JSON text, which every reader of flat tables can take apart."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    return frame.assign(**{c: [json.dumps(v, default=plain) for v in frame[c]] for c in columns})


def _csv(frame: pd.DataFrame, out: str) -> None:
    nested = [str(c) for c in frame if frame[c].dtype == object and c != "name"]
    _write(out, _json_cells(frame, nested).to_csv(index=False))


def _json(frame: pd.DataFrame, out: str) -> None:
    _write(out, frame.to_json(orient="records", indent=1, default_handler=str, force_ascii=False) + "\n")


def _parquet(frame: pd.DataFrame, out: str) -> None:
    mixed = [c for c in ("attrs", "value") if c in frame]  # no Parquet type holds cells of several types
    try:
        data = _json_cells(frame, mixed).to_parquet(index=False)
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'mlinspect[parquet]'") from None
    _write(out, data)


WRITERS: dict[str, Any] = {"csv": _csv, "json": _json, "parquet": _parquet}


def _write(out: str, data: str | bytes) -> None:
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if out == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
    else:
        Path(out).write_bytes(raw)


def _demo(options: argparse.Namespace) -> None:
    """A first look at everything, on the bundled models; what it prints is also how to get there."""
    from html import escape

    from matplotlib.figure import Figure

    import mlinspect
    from mlinspect.plot.weights import weights

    folder = Path(options.directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in mlinspect.samples.names():
        print(_open(str(mlinspect.samples.path(name))), end="\n\n")
    model = _open(str(mlinspect.samples.path(DEMO_MODEL)))
    print(f">>> model = mlinspect.open(mlinspect.samples.path({DEMO_MODEL!r}))")
    constants = model.tensors.query("role == 'constant'")[["name", "dtype", "shape", "scheme", "nbytes"]]
    heaviest = int(constants.index[int(constants.nbytes.argmax())])
    for title, frame in (
        ("model.layers", model.layers[["name", "op", "dtype", "output_shapes", "quantized", "params", "macs"]]),
        ("model.tensors.query(\"role == 'constant'\")", constants),
        (f"model.quant.query('tensor == {heaviest}')", model.quant.query(f"tensor == {heaviest}").head(8)),
    ):
        print(f"\n>>> {title}\n{_text(frame)}")
    card, picture = folder / "mlinspect-demo-card.html", folder / "mlinspect-demo-weights.png"
    head = (
        f"<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'><title>{escape(DEMO_MODEL)}"
    )
    card.write_text(f"{head}</title><body>{model._repr_html_()}</body>\n", encoding="utf-8")
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    weights(model.network.tensors[heaviest], figure.subplots())
    figure.savefig(picture, dpi=120)
    print(f"\ncard: {card}\nplot: {picture}")


if __name__ == "__main__":
    sys.exit(main())
