"""Find out from the bytes which format and layout a file has, and read it; or say what it is instead."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

from mlinspect.errors import ModelFormatError, SchemaError
from mlinspect.flatbuffer import Schema
from mlinspect.formats import armnn, mslite
from mlinspect.formats.foreign import describe_foreign, looks_random
from mlinspect.formats.records import Reading
from mlinspect.ir import Network

_HELP = "mlinspect opens Arm NN .armnn and MindSpore Lite .ms files"
_MIN_BYTES = 32  # bytes; no file of either format with a layer in it has fewer
_MAX_ROOT = 1024  # bytes from the beginning; 40 is the most that was seen
_CONTENT = {"armnn": "layers", "mslite": "nodes"}  # the root's field that holds the layers


def read(buffer: np.ndarray, folder: Path | None = None, schema: Schema | None = None, suffix: str = "") -> Network:
    """Read a model of either format.

    Parameters
    ----------
    buffer : ndarray of uint8
        The whole file.
    folder : Path, optional
        The model's folder, where external weights may lie.
    schema : Schema, optional
        Read by this one instead of the known layouts: a vendor's fork of a format.
    suffix : str
        The file name's ending; used only where the bytes do not decide.

    Returns
    -------
    Network

    Raises
    ------
    ModelFormatError
        Saying what the file is instead, or where it breaks.
    SchemaError
        The given schema describes no model of either format.
    """
    if len(buffer) == 0:
        raise ModelFormatError("the file is empty", 0)
    buffer = buffer.view()
    buffer.flags.writeable = False  # so are all views of it
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of records, none of them garbage: collecting takes half as long again
    try:
        return _read(buffer, folder, schema, suffix)
    finally:
        if collecting:
            gc.enable()


def _read(buffer: np.ndarray, folder: Path | None, schema: Schema | None, suffix: str) -> Network:
    if schema is not None:
        return _read_by(schema, buffer, folder)
    identifier = bytes(buffer[4:8])
    if identifier[:3] == b"MSL":
        return _read_as("mslite", buffer, folder)
    if identifier == b"ARMN":
        return _read_as("armnn", buffer, folder)
    if (what := describe_foreign(buffer)) is not None:
        raise ModelFormatError(f"this is {what}. {_HELP}", 0)
    return _read_unmarked(buffer, folder, suffix)


def _find(name: str, buffer: np.ndarray, schema: Schema | None = None) -> Reading:
    return armnn.find_reading(buffer, schema) if name == "armnn" else mslite.find_reading(buffer, schema)


def _build(name: str, reading: Reading, folder: Path | None) -> Network:
    return armnn.read(reading) if name == "armnn" else mslite.read(reading, folder)


def _read_as(name: str, buffer: np.ndarray, folder: Path | None, schema: Schema | None = None) -> Network:
    try:
        return _build(name, _find(name, buffer, schema), folder)
    except ModelFormatError as error:
        raise _damaged(buffer, error) from None


def _read_by(schema: Schema, buffer: np.ndarray, folder: Path | None) -> Network:
    """The root table's fields tell which format the schema is a variant of."""
    fields = {item.name for item in schema.tables[schema.root].fields}
    name = next((name for name, field in _CONTENT.items() if field in fields), None)
    if name is None:
        raise SchemaError(f"schema {schema.name}: its root {schema.root} has neither layers nor nodes")
    try:
        return _read_as(name, buffer, folder, schema)
    except ModelFormatError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"schema {schema.name} lacks what a model needs: {error}") from error


def _read_unmarked(buffer: np.ndarray, folder: Path | None, suffix: str) -> Network:
    """A file without identifier: take the format under which all of it can be decoded."""
    best: tuple[str, Reading] | None = None
    failures = []
    for name in ("mslite", "armnn") if suffix == ".ms" else ("armnn", "mslite"):
        try:
            reading = _find(name, buffer)
        except ModelFormatError as error:
            failures.append(error)
            continue
        if not reading.root[_CONTENT[name]]:
            failures.append(ModelFormatError("a model without layers", reading.root.offset))
        elif best is None or reading.doubts < best[1].doubts:
            best = name, reading
            if reading.doubts == 0:
                break
    if best is not None:
        try:
            return _build(*best, folder)
        except ModelFormatError as error:
            raise _damaged(buffer, error) from None
    failure = max(failures, key=lambda error: error.path.count(".") + error.path.count("["))
    if len(buffer) < _MIN_BYTES:
        what = f"no model: it has only {len(buffer)} bytes, cut off perhaps"
    elif failure.path or _begins_like_a_model(buffer):
        raise _damaged(buffer, failure)
    elif looks_random(buffer):
        what = "encrypted or compressed data"
    else:
        what = f"no model: {len(buffer)} bytes that begin with {bytes(buffer[:8]).hex(' ')}"
    raise ModelFormatError(f"this is {what}. {_HELP}", 0)


def _begins_like_a_model(buffer: np.ndarray) -> bool:
    """A root table near the beginning, with a sound vtable or one behind the end, where Arm NN puts it and a cut is."""
    root = int(buffer[:4].view("<u4")[0])
    if root % 4 or not 0 < root <= _MAX_ROOT:
        return False
    if root + 4 > len(buffer):
        return True
    vtable = root - int(buffer[root : root + 4].view("<i4")[0])
    if vtable + 4 > len(buffer):
        return True
    if vtable < 4:
        return False
    length, object_size = buffer[vtable : vtable + 4].view("<u2").tolist()
    return length in range(4, 64, 2) and object_size in range(4, 256)


def _damaged(buffer: np.ndarray, error: ModelFormatError) -> ModelFormatError:
    message = f"{error.message}; the file has {len(buffer)} bytes and is cut off or damaged"
    return ModelFormatError(message, error.offset, error.path)
