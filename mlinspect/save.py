"""A network -> a file: always the same bytes for the same network, and never half written."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlinspect import ir, upgrade
from mlinspect.errors import InputError, near
from mlinspect.flatbuffer import Schema
from mlinspect.flatbuffer.encode import encode_parts
from mlinspect.formats import write_armnn, write_mslite
from mlinspect.formats.records import layout_schema

_RELEASES = {"armnn": ("newest", "20.08", "unchanged"), "mslite": ("newest", "unchanged")}
_WEIGHTS = ("inline", "external")
_SUFFIXES = {"armnn": ".armnn", "mslite": ".ms"}


def to_bytes(network: ir.Network, release: str = "newest", schema: Schema | None = None) -> bytes:
    """The file that :func:`save` writes, with all weights inside.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    >>> again = mi.open(to_bytes(model.network))
    >>> bool((model.weights["dw.weight"] == again.weights["dw.weight"]).all())
    True
    """
    schema, root, carried = _records(network, release, schema, None)
    parts = encode_parts(schema, root, network.format == "mslite", carried)
    return b"".join(np.ascontiguousarray(part).data for part in parts)


def save(
    network: ir.Network,
    path: str | Path,
    *,
    release: str = "newest",
    weights: str = "inline",
    schema: Schema | None = None,
) -> None:
    """Write a model's file.

    The file appears whole: it is written under another name in the same folder, flushed to the disk, and then takes the
    place of what was there, which may be the very file that the network was read from. Constants are written from where
    they are, so little memory is needed however large they are.

    Operators, and attributes of operators, that the schema does not know are carried over with the bytes that hold them
    as long as the file's layout is the newest; such fields of other records (tensors, the file itself) are not.

    Parameters
    ----------
    network : Network
    path : str or Path
    release : {"newest", "20.08", "unchanged"}
        ``"20.08"``: what Arm NN 20.08 (August 2020; Debian 12 ships it) can load, with weights inside their layers.
        ``"unchanged"``: the layout of the file that the network was read from, for a device whose runtime is as old.
    weights : {"inline", "external"}
        MindSpore Lite: ``"external"`` puts the large constants into a file beside the model, which may then be larger
        than the 2 GB of a FlatBuffer. Its name ends in a digest of its content, so that the old model keeps its own.
    schema : Schema, optional
        Write by this one: a vendor's fork of a format, that the model was read by.

    Raises
    ------
    OSError
        The file cannot be written: no such folder, a folder itself, no permission, no space.
    InputError
        The format has no such release, or no such place for weights; or the path ends as the other format's files do.
    UnsupportedError
        The layout cannot express something in the network.
    SchemaError
        The file would be larger than a FlatBuffer can be.
    """
    given, path = path, Path(path).resolve()
    if weights not in _WEIGHTS:
        some = f"use one of {', '.join(map(repr, _WEIGHTS))}{near(weights, _WEIGHTS)}"
        raise InputError(f"weights={weights!r} is unknown: {some}")
    if weights == "external" and network.format != "mslite":
        raise InputError("only MindSpore Lite models can have their weights in a file of their own")
    suffix = _SUFFIXES[network.format]
    if path.suffix in _SUFFIXES.values() and path.suffix != suffix:
        raise InputError(f"{path.name}: the model's format is that of {suffix} files; saving does not convert")
    if path.is_dir():  # before anything is written
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(given))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no folder for the file", str(given))
    external = write_mslite.External() if weights == "external" else None
    schema, root, carried = _records(network, release, schema, external)
    if external is not None:
        beside = path.with_name(external.named(path.stem))
    parts = encode_parts(schema, root, network.format == "mslite", carried)
    try:
        if external is not None and external.parts:
            _write(beside, external.parts)
        _write(path, parts)
    except OSError as error:  # it may name the temporary file, which the user does not know
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(given)) from None


def _records(
    network: ir.Network, release: str, schema: Schema | None, external: write_mslite.External | None
) -> tuple[Schema, dict[str, Any], np.ndarray | None]:
    if release not in _RELEASES[network.format]:
        known = _RELEASES[network.format]
        some = f"use one of {', '.join(map(repr, known))}{near(release, known)}"
        raise InputError(f"release={release!r} is unknown for {network.format}: {some}")
    if schema is None and release == "unchanged":
        schema = layout_schema(network.format, network.layout)
    elif release == "20.08":
        network = upgrade.armnn_2008(network)
    elif schema is None:
        network = upgrade.newest(network)
    if network.format == "armnn":
        return write_armnn.write(network, schema)
    return write_mslite.write(network, schema, external)


def _write(path: Path, parts: Sequence[np.ndarray]) -> None:
    """Write a file so that at every moment there is either the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(np.ascontiguousarray(part).data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
