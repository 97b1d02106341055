"""Commands that run models: ``mlinspect run|trace|compare|blame``.

``compare`` exits with 1 when a layer falls below ``--min-sqnr``, so that a CI job can refuse a model.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlinspect.cli.output import add_file, add_out, as_text, layer_key, open_model, show, written

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from mlinspect.analysis.findings import Result
    from mlinspect.model import Model


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``run``, ``trace``, ``compare`` and ``blame`` to the result of ``add_subparsers``.

    Each sets ``run`` to a function from the parsed options to the exit code.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_commands(parser.add_subparsers())
    >>> parser.parse_args(["compare", "a.ms", "b.ms", "--input", "x.npy", "--min-sqnr", "20"]).min_sqnr
    20.0
    """
    run = commands.add_parser("run", help="compute a model's outputs in numpy")
    _add_model(run)
    run.add_argument("--until", metavar="LAYER", help="stop after this layer (name or index) and show what it returns")
    run.add_argument("--npz", metavar="OUT", help="write the outputs as arrays by name")
    run.set_defaults(run=_run)
    trace = commands.add_parser("trace", help="statistics of every tensor of a run")
    _add_model(trace)
    trace.add_argument("--npz", metavar="OUT", help="write every tensor as t<id>, with their names")
    trace.set_defaults(run=_trace)
    compare = commands.add_parser(
        "compare",
        help="compare two models, or a model and a dump, layer by layer",
        description="Compare layer by layer; exit code 1 when a layer falls below --min-sqnr.",
    )
    compare.add_argument("a", metavar="A", help="model file, or dump (a file or folder): the reference")
    compare.add_argument("b", metavar="B", help="model file or dump, or float or vendor: model A in that mode")
    _add_input(compare)
    compare.add_argument("--mode-a", choices=("vendor", "float"), default="vendor", help="arithmetic of A")
    compare.add_argument("--mode-b", choices=("vendor", "float"), default="vendor", help="arithmetic of B")
    compare.add_argument("--min-sqnr", type=float, metavar="DB", help="exit with 1 when a layer has less")
    add_out(compare)
    compare.set_defaults(run=_compare)
    blame = commands.add_parser(
        "blame",
        help="how much each layer's own error adds to the error of a quantised model's outputs",
        description="Separate each layer's own error from the error that it inherits, over all given inputs.",
    )
    add_file(blame, "the quantised model")
    blame.add_argument(
        "reference", metavar="REFERENCE", help="the model it was made from, or float: FILE itself on real values"
    )
    _add_input(blame)
    blame.add_argument("--no-shares", action="store_true", help="skip the effect of each layer on the outputs: faster")
    add_out(blame)
    blame.set_defaults(run=_blame)


def _add_model(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    _add_input(parser)
    parser.add_argument("--mode", choices=("vendor", "float"), default="vendor", help="arithmetic (default: vendor)")
    add_out(parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        metavar="[NAME=]FILE",
        action="append",
        default=[],
        help="values of an input: .npy, .npz (arrays by name) or raw numbers; real values are quantised where "
        "the model takes integers; repeat it for more inputs",
    )


def _run(options: argparse.Namespace) -> int:
    import pandas as pd

    model = open_model(options.file, options.schema)
    inputs = _inputs(options.input, model)
    wanted = None
    if options.until is not None:
        from mlinspect.execute.names import find_layer

        wanted = find_layer(model.network, layer_key(model.network, options.until)).outputs
    found = model.run(inputs, outputs=wanted, mode=options.mode, quantize=True)
    if options.npz:
        _save(options.npz, found)
    rows = [{"name": name, "dtype": str(a.dtype), "shape": a.shape, "values": a.tolist()} for name, a in found.items()]
    _give(pd.DataFrame(rows), options, lambda table: table.assign(values=[_brief(a) for a in found.values()]))
    return 0


def _brief(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    text = ", ".join(f"{x:.6g}" if array.dtype.kind == "f" else str(x) for x in flat[:12])
    return text + (", ..." if flat.size > 12 else "")


def _trace(options: argparse.Namespace) -> int:
    model = open_model(options.file, options.schema)
    trace = model.trace(_inputs(options.input, model), mode=options.mode, quantize=True)
    if options.npz:
        trace.to_npz(options.npz)
    _give(trace.stats.reset_index(), options, lambda table: table)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from mlinspect.analysis.compare import compare

    a = _operand(options.a)
    b = options.b if options.b in ("float", "vendor") else _operand(options.b)
    modes = (options.mode_a, options.mode_b)
    model = next((one for one in (a, b) if hasattr(one, "layers")), None)
    inputs = _inputs(options.input, model) if model is not None else None
    table = compare(a, b, inputs, modes=modes, threshold_db=options.min_sqnr)
    _tell(table, options)
    compared = table.sqnr_db.notna().any()
    if not compared:
        print("no layer could be compared: do the names of the two agree?", file=sys.stderr)
    return int(options.min_sqnr is not None and (not compared or table["first"].any()))


def _blame(options: argparse.Namespace) -> int:
    from mlinspect.analysis.blame import blame

    model = open_model(options.file, options.schema)
    reference = options.reference if options.reference in ("float", "vendor") else open_model(options.reference)
    inputs, shown = _inputs(options.input, model), sys.stderr.isatty()
    _tell(blame(model, reference, inputs, shares=not options.no_shares, progress=shown), options)
    return 0


def _operand(path: str) -> Any:
    """A model, or a dump where the path is a folder or a kind of file that dumps come in."""
    from mlinspect.analysis.dump_files import ARMNN_SUFFIXES, RAW
    from mlinspect.analysis.dumps import read_dump

    dumped = Path(path).is_dir() or Path(path).suffix in (*ARMNN_SUFFIXES, *RAW, ".npz", ".npy", ".csv")
    return read_dump(path) if dumped else open_model(path)


def _inputs(given: list[str], model: Model) -> dict[str | int, np.ndarray]:
    """Files by input name or position; raw numbers in the input's own shape and type."""
    import numpy as np

    from mlinspect.analysis.dumps import read_dump
    from mlinspect.errors import InputError
    from mlinspect.execute.values import numpy_dtype

    found: dict[str | int, Any] = {}
    ports = model.network.graphs[0].inputs
    names = [port.name for port in ports]
    for number, text in enumerate(given):
        name, equals, path = text.rpartition("=")
        key: str | int = name if equals else number
        file = Path(path)
        if file.suffix in (".npz", ".npy"):
            try:
                stored = np.load(file, allow_pickle=False)
                found |= {key: stored[key] for key in stored.files} if file.suffix == ".npz" else {key: stored}
            except (ValueError, EOFError, zipfile.BadZipFile):
                raise InputError(f"{path} is no {file.suffix} file of plain numbers") from None
        else:
            position = names.index(name) if name in names else number
            if position >= len(ports):
                raise InputError(f"{path}: the model has only {len(ports)} inputs")
            tensor = model.network.tensors[ports[position].tensor]
            array = read_dump(file, shape=tensor.shape)[file.stem]
            one_byte = array.itemsize == numpy_dtype(tensor).itemsize == 1
            found[key] = array.view(numpy_dtype(tensor)) if one_byte else array
    return found


def _save(path: str, arrays: dict[str, np.ndarray]) -> None:
    import numpy as np

    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _tell(table: Result, options: argparse.Namespace) -> None:
    """Write a table in the form that was asked for and say what was found, or show people both."""
    if written(table.telling if options.markdown else table.reset_index(), options):
        print(table.finding, file=sys.stderr)
    else:
        show(table)


def _give(table: pd.DataFrame, options: argparse.Namespace, shown: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Write a table in the form that was asked for, or show people the part of it that tells."""
    kind = getattr(options, "markdown", None)
    if written(shown(table) if kind else table, options):
        return
    print(as_text(shown(table)))
