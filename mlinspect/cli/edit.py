"""Commands that write models: ``mlinspect extract|upgrade|set-quant``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mlinspect.cli.output import layer_key, open_model, tensor_key

if TYPE_CHECKING:
    from mlinspect import ir


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``extract``, ``upgrade`` and ``set-quant`` to the result of ``add_subparsers``.

    Each sets ``run`` to a function from the parsed options to the exit code.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_commands(parser.add_subparsers())
    >>> parser.parse_args(["set-quant", "a.ms", "conv1", "b.ms", "--zero-point", "-3"]).zero_point
    [-3]
    """
    extract = commands.add_parser(
        "extract",
        help="write a part of a model, between tensors or one layer, as a model of its own",
        description="Write the layers between some tensors, or one layer, as a model of its own.",
    )
    _add_files(extract)
    extract.add_argument(
        "--input", metavar="TENSOR", action="append", help="tensor where data enter (id or name); repeat it for more"
    )
    extract.add_argument(
        "--output", metavar="TENSOR", action="append", help="tensor where data leave (id or name); repeat it for more"
    )
    extract.add_argument("--layer", metavar="LAYER", help="cut out this layer alone (index or name)")
    extract.add_argument("--anonymize", action="store_true", help="replace names, and weights by random ones like them")
    extract.set_defaults(run=_extract)
    upgrade = commands.add_parser(
        "upgrade",
        help="write a model in its format's newest layout",
        description="Write a model in its format's newest layout. OUT may be FILE itself.",
    )
    _add_files(upgrade)
    upgrade.set_defaults(run=_upgrade)
    quant = commands.add_parser(
        "set-quant",
        help="change a tensor's quantisation parameters",
        description="Change a tensor's quantisation parameters; the stored numbers of a constant stay.",
    )
    quant.add_argument("file", metavar="FILE")
    quant.add_argument("tensor", metavar="TENSOR", help="id or name")
    quant.add_argument("out", metavar="OUT", help="where to write the model")
    quant.add_argument("--scale", type=float, nargs="+", metavar="S", help="one, or one per channel")
    quant.add_argument("--zero-point", type=int, nargs="+", metavar="Z", help="one, or one per channel")
    quant.add_argument("--axis", type=int, metavar="A", help="axis that the channels lie along")
    quant.add_argument("--bits", type=int, metavar="B", help="width of the numbers (MindSpore Lite)")
    _add_save(quant)
    quant.set_defaults(run=_set_quant)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("out", metavar="OUT", help="where to write the model")
    _add_save(parser)


def _add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--release",
        choices=("newest", "20.08", "unchanged"),
        default="newest",
        help="layout: the newest, what Arm NN 20.08 can load, or the one that FILE has (default: newest)",
    )
    parser.add_argument(
        "--weights",
        choices=("inline", "external"),
        default="inline",
        help="external: large constants in a file beside OUT (MindSpore Lite)",
    )


def _save(network: ir.Network, options: argparse.Namespace) -> int:
    from mlinspect.save import save

    save(network, options.out, release=options.release, weights=options.weights)
    return 0


def _extract(options: argparse.Namespace) -> int:
    from mlinspect import extract
    from mlinspect.errors import InputError

    network = open_model(options.file).network
    if options.layer is not None:
        if options.input or options.output:
            raise InputError("--layer cannot be combined with --input and --output")
        piece = extract.extract_layer(network, layer_key(network, options.layer))
    else:
        inputs, outputs = (
            None if words is None else [tensor_key(network, word) for word in words]
            for words in (options.input, options.output)
        )
        piece = extract.extract(network, inputs, outputs)
    return _save(extract.anonymous(piece) if options.anonymize else piece, options)


def _upgrade(options: argparse.Namespace) -> int:
    return _save(open_model(options.file).network, options)


def _set_quant(options: argparse.Namespace) -> int:
    from mlinspect import edit

    network = open_model(options.file).network
    changed = edit.with_quant(
        network,
        tensor_key(network, options.tensor),
        scale=options.scale,
        zero_point=options.zero_point,
        axis=options.axis,
        bits=options.bits,
    )
    return _save(changed, options)
