"""``mlinspect info|layers|tensors|quant|edges|attrs|weights|stats|cost FILE``, and ``mlinspect demo``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlinspect.cli.output import UsageError, add_file, add_out, as_text, open_model, write, written

if TYPE_CHECKING:
    import pandas as pd

    from mlinspect.model import Model

TABLES = {
    "layers": "one row per layer, in execution order",
    "tensors": "one row per tensor: type, shape, quantisation",
    "quant": "one row per tensor and channel: scale, zero point, range",
    "edges": "one row for each tensor that a layer reads",
    "attrs": "one row for each attribute of each layer",
    "weights": "one row per constant: how it is stored, and the range, mean and zeros of its real values",
    "stats": "one row per constant: its distribution, and how well it is quantised",
    "cost": "one row per layer: operations, bytes and memory",
}
DEMO_MODEL = "digits_cnn_int8.ms"


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``info``, of every table, and of ``demo``."""
    info = commands.add_parser("info", help="the model at a glance")
    add_file(info)
    info.add_argument("--json", metavar="OUT", help="write the facts as JSON instead; - for stdout")
    info.set_defaults(run=_info)
    for table, meaning in TABLES.items():
        command = commands.add_parser(table, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
        add_file(command)
        command.add_argument("--query", metavar="EXPR", help="only rows for which this pandas expression is true")
        add_out(command)
        command.set_defaults(run=_table, table=table)
        if table == "stats":
            command.add_argument("--by", choices=("tensor", "channel"), default="tensor", help="default: tensor")
        elif table == "cost":
            command.add_argument(
                "--shape",
                metavar="[INPUT=]SIZES",
                action="append",
                default=[],
                help="shape of an input whose sizes the file leaves open, as 1,224,224,3; repeat it for more inputs",
            )
    demo = commands.add_parser("demo", help="open the bundled sample models; write a card and a plot")
    demo.add_argument("directory", metavar="DIR", nargs="?", default=".", help="where to write (default: here)")
    demo.set_defaults(run=_demo)


def _info(options: argparse.Namespace) -> None:
    model = open_model(options.file, options.schema)
    if options.json:
        write(options.json, json.dumps(model.summary(), indent=2, ensure_ascii=False) + "\n")
    else:
        print(model)


def _table(options: argparse.Namespace) -> None:
    model = open_model(options.file, options.schema)
    if options.table == "weights":
        frame = _weights(model)
    elif options.table == "stats":
        frame = model.stats(options.by)
    elif options.table == "cost":
        frame = model.cost(_shapes(options.shape))
    else:
        frame = getattr(model, options.table)
    if options.query:
        try:
            frame = frame.query(f"({options.query}) == True")
        except Exception as error:  # whatever pandas and Python find wrong with the expression
            names = ", ".join(map(str, frame))
            raise UsageError(f"--query {options.query}: {error}; the columns are {names}") from None
    if not written(frame if frame.index.name is None else frame.reset_index(), options):
        print(as_text(frame))


def _shapes(given: list[str]) -> dict[str | int, list[int]]:
    """Shapes by input name (``NAME=1,8,8,1``) or position (``1,8,8,1``, in the order given)."""
    found: dict[str | int, list[int]] = {}
    for number, text in enumerate(given):
        name, equals, sizes = text.rpartition("=")
        try:
            found[name if equals else number] = [int(size) for size in sizes.split(",")]
        except ValueError:
            raise UsageError(f"--shape {text}: write whole numbers with commas between them, as 1,224,224,3") from None
    return found


def _weights(model: Model) -> pd.DataFrame:
    """How constants are stored, and what real values they hold."""
    values = model.stats()[["min", "max", "mean", "zeros"]]
    stored = ["name", "dtype", "shape", "elements", "nbytes", "quantized", "compression"]
    return model.tensors.loc[values.index, stored].join(values)


def _demo(options: argparse.Namespace) -> None:
    """A first look at everything, on the bundled models; what it prints is also how to get there."""
    from html import escape

    from matplotlib.figure import Figure

    import mlinspect
    from mlinspect.plot.weights import weights

    folder = Path(options.directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in mlinspect.samples.names():
        print(open_model(str(mlinspect.samples.path(name))), end="\n\n")
    model = open_model(str(mlinspect.samples.path(DEMO_MODEL)))
    print(f">>> model = mlinspect.open(mlinspect.samples.path({DEMO_MODEL!r}))")
    constants = model.tensors.query("role == 'constant'")[["name", "dtype", "shape", "scheme", "nbytes"]]
    heaviest = int(constants.index[int(constants.nbytes.argmax())])
    for title, frame in (
        ("model.layers", model.layers[["name", "op", "dtype", "output_shapes", "quantized", "params", "macs"]]),
        ("model.tensors.query(\"role == 'constant'\")", constants),
        (f"model.quant.query('tensor == {heaviest}')", model.quant.query(f"tensor == {heaviest}").head(8)),
    ):
        print(f"\n>>> {title}\n{as_text(frame)}")
    card, picture = folder / "mlinspect-demo-card.html", folder / "mlinspect-demo-weights.png"
    head = (
        f"<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'><title>{escape(DEMO_MODEL)}"
    )
    card.write_text(f"{head}</title><body>{model._repr_html_()}</body>\n", encoding="utf-8")
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    weights(model.network.tensors[heaviest], figure.subplots())
    figure.savefig(picture, dpi=120)
    print(f"\ncard: {card}\nplot: {picture}")
