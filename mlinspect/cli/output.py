"""What the commands share: opening a model, reading its names, writing a table in the chosen form."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from mlinspect import ir
    from mlinspect.analysis.findings import Result
    from mlinspect.model import Model


class UsageError(Exception):
    """The command line was used wrongly: exit code 2."""


def add_file(parser: argparse.ArgumentParser, meaning: str | None = None) -> None:
    """Add ``FILE`` and ``--schema``."""
    parser.add_argument("file", metavar="FILE", help=meaning)
    parser.add_argument("--schema", metavar="FBS", help="read FILE by this schema: a vendor's fork of a format")


def open_model(path: str, schema: str | None = None) -> Model:
    """The model of a file."""
    import mlinspect

    return mlinspect.open(path, schema)


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add ``--csv``, ``--json``, ``--markdown`` and ``--parquet``."""
    out = parser.add_mutually_exclusive_group()
    for kind in WRITERS:
        out.add_argument(f"--{kind}", metavar="OUT", help=f"write {kind} to this file; - for stdout")


def written(table: pd.DataFrame, options: argparse.Namespace) -> bool:
    """Write a table in the form that the options name; False if they name none."""
    for kind, convert in WRITERS.items():
        if out := getattr(options, kind):
            write(out, convert(table))
            return True
    return False


def write(out: str, data: str | bytes) -> None:
    """Write to a file, or to stdout for ``-``."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if out == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
    else:
        Path(out).write_bytes(raw)


def layer_key(network: ir.Network, word: str) -> int | str:
    """What a word on the command line means where a layer is wanted: its name, or else its index."""
    return _key(word, {layer.name for layer in network.layers.values()})


def tensor_key(network: ir.Network, word: str) -> int | str:
    """What a word on the command line means where a tensor is wanted: its name or a port's, or else its id."""
    main = network.graphs[0]
    names = {tensor.name for tensor in network.tensors.values()}
    return _key(word, names | {port.name for port in (*main.inputs, *main.outputs)})


def _key(word: str, names: set[str]) -> int | str:
    """A name if there is one like the word, else a number if it is one.

    Examples
    --------
    >>> _key("7", {"conv1"}), _key("7", {"7"}), _key("conv1", {"conv1"})
    (7, '7', 'conv1')
    """
    return int(word) if word not in names and word.isdecimal() else word


def as_text(frame: pd.DataFrame) -> str:
    """A table for people: without columns that are empty throughout, and without the dicts, which `attrs` lists."""
    from mlinspect.card import printable

    frame = frame.loc[:, [c for c in frame if c != "attrs" and (frame.empty or not frame[c].isna().all())]]
    named = frame.index.name is not None
    text = frame.to_string(max_colwidth=48, na_rep="", index=named, float_format=lambda x: f"{x:.6g}")
    return "\n".join(printable(line) for line in text.split("\n"))


def show(table: Result) -> None:
    """Print what was found and all rows that tell it."""
    import pandas as pd

    with pd.option_context("display.max_rows", None):
        print(table)


def _json_cells(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with nested cells (tuples, dicts) as JSON text, which flat formats can hold."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    return frame.assign(**{c: [json.dumps(v, default=plain) for v in frame[c]] for c in columns})


def _csv(frame: pd.DataFrame) -> str:
    nested = [str(c) for c in frame if frame[c].map(type).isin([list, tuple, dict]).any() or c in ("attrs", "value")]
    return _json_cells(frame, nested).to_csv(index=False)


def _json(frame: pd.DataFrame) -> str:
    """Records; infinite numbers, which JSON does not have, become text."""
    names = {math.inf: "inf", -math.inf: "-inf"}
    named = {str(c): frame[c].astype(object).replace(names) for c in frame.select_dtypes("float")}
    plain = frame.assign(**named)
    return plain.to_json(orient="records", indent=1, default_handler=str, double_precision=15, force_ascii=False) + "\n"


def _markdown(table: pd.DataFrame) -> str:
    def cell(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    rows = [[str(c) for c in table], ["---"] * len(table.columns), *table.astype(object).fillna("").values.tolist()]
    return "".join("| " + " | ".join(map(cell, row)) + " |\n" for row in rows)


def _parquet(frame: pd.DataFrame) -> bytes:
    mixed = [c for c in ("attrs", "value") if c in frame]  # no Parquet type holds cells of several types
    try:
        return _json_cells(frame, mixed).to_parquet(index=False)
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow") from None


WRITERS: dict[str, Callable[[pd.DataFrame], str | bytes]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "parquet": _parquet,
}
