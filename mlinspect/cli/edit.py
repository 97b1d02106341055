"""The command line's part that writes models: ``mlinspect extract|upgrade|set-quant``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlinspect import ir


def add_commands(commands: Any) -> None:
    """Add the sub-parsers of ``extract``, ``upgrade`` and ``set-quant`` to what ``add_subparsers`` gave.

    Each sets ``run`` to a function of the parsed options that gives the exit code.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_commands(parser.add_subparsers())
    >>> parser.parse_args(["set-quant", "a.ms", "conv1", "b.ms", "--zero-point", "-3"]).zero_point
    [-3]
    """
    extract = commands.add_parser(
        "extract",
        help="cut the sub-graph between tensors out as a model of its own",
        description="Cut the sub-graph between tensors, or one layer, out as a model of its own.",
    )
    _add_files(extract)
    extract.add_argument("--input", metavar="TENSOR", action="append", help="where data shall enter (id or name)")
    extract.add_argument("--output", metavar="TENSOR", action="append", help="where data shall leave (id or name)")
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
    quant.add_argument("--scale", type=float, nargs="+", metavar="S", help="one, or one a channel")
    quant.add_argument("--zero-point", type=int, nargs="+", metavar="Z", help="one, or one a channel")
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


def _open(options: argparse.Namespace) -> ir.Network:
    import mlinspect

    return mlinspect.open(options.file).network


def key_of(text: str, names: set[str]) -> int | str:
    """What a word on the command line means: a name if there is one like it, else a number.

    Examples
    --------
    >>> key_of("7", {"conv1"}), key_of("7", {"7"}), key_of("conv1", {"conv1"})
    (7, '7', 'conv1')
    """
    return int(text) if text not in names and text.isdecimal() else text


def _tensor_names(network: ir.Network) -> set[str]:
    main = network.graphs[0]
    names = {tensor.name for tensor in network.tensors.values()}
    return names | {port.name for port in (*main.inputs, *main.outputs)}


def _extract(options: argparse.Namespace) -> int:
    from mlinspect import extract
    from mlinspect.errors import InputError

    network = _open(options)
    if options.layer is not None:
        if options.input or options.output:
            raise InputError("--layer says it all: leave out --input and --output")
        layer = key_of(options.layer, {one.name for one in network.layers.values()})
        piece = extract.extract_layer(network, layer)
    else:
        names = _tensor_names(network)
        inputs, outputs = (
            None if words is None else [key_of(word, names) for word in words]
            for words in (options.input, options.output)
        )
        piece = extract.extract(network, inputs, outputs)
    return _save(extract.anonymous(piece) if options.anonymize else piece, options)


def _upgrade(options: argparse.Namespace) -> int:
    return _save(_open(options), options)


def _set_quant(options: argparse.Namespace) -> int:
    from mlinspect import edit

    network = _open(options)
    changed = edit.with_quant(
        network,
        key_of(options.tensor, _tensor_names(network)),
        scale=options.scale,
        zero_point=options.zero_point,
        axis=options.axis,
        bits=options.bits,
    )
    return _save(changed, options)
