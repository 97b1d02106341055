"""Which format is this? Look at the bytes, choose reader and layout, or say what the file is instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import Schema
from mlinspect.formats import armnn, mslite
from mlinspect.ir import Network

_HELP = "mlinspect opens Arm NN .armnn and MindSpore Lite .ms files"

# where the mark stands, the mark, what the file is
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (4, b"ET1", "an ExecuTorch program"),
    (0, b"PK\x03\x04", "a zip archive (perhaps a PyTorch or Keras model, or a zipped .ms or .armnn): unpack it first"),
    (0, b"\x1f\x8b", "gzip-compressed: unpack it first"),
    (0, b"BZh", "bzip2-compressed: unpack it first"),
    (0, b"\xfd7zXZ\0", "xz-compressed: unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed: unpack it first"),
    (257, b"ustar", "a tar archive: unpack it first"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (perhaps a Keras model)"),
    (0, b"\x93NUMPY", "a numpy .npy array"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"IMOD", "an Ascend offline model (.om)"),
    (0, b"\x7fELF", "a program or shared library (ELF)"),
    (0, b"7767517\n", "an ncnn model description"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
)


def describe_foreign(buffer: np.ndarray) -> str | None:
    """What a file that is no model of ours is, as far as its first bytes tell; None if they tell nothing.

    Examples
    --------
    >>> describe_foreign(np.frombuffer(b"PK\\x03\\x04" + bytes(9), np.uint8))[:13]
    'a zip archive'
    """
    head = bytes(buffer[:512])
    for position, mark, what in _SIGNATURES:
        if head[position : position + len(mark)] == mark:
            return what
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "an HTML page (perhaps the web page about the file instead of the file)"
    if text.startswith(b"<?xml"):
        return "an XML document (perhaps an OpenVINO model description)"
    if text.startswith((b"{", b"[")):
        return "JSON text"
    return _protobuf(head)


def _protobuf(head: bytes) -> str | None:
    """ONNX and MindIR are protobuf messages whose first fields give them away."""
    if len(head) > 4 and head[0] == 0x08 and 1 <= head[1] <= 32 and head[2] in (0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x42):
        return "an ONNX model"
    if len(head) > 4 and head[0] == 0x0A and 1 <= head[1] <= 16:
        version = head[2 : 2 + head[1]]
        if version.replace(b".", b"").isdigit():
            return "a MindSpore .mindir model: convert it with MindSpore Lite's converter first"
    if len(head) > 4 and head[0] == 0x08 and head[1] >= 1 and head[2] == 0x12:
        return "a protobuf message (perhaps a TensorFlow SavedModel)"
    return None


def _looks_random(buffer: np.ndarray) -> bool:
    """Bytes without any pattern: encrypted, or compressed."""
    part = buffer[: 1 << 16]
    if len(part) < 4096:
        return False
    share = np.bincount(part, minlength=256) / len(part)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) > 7.9


def read(
    buffer: np.ndarray, folder: Path | None = None, schema: Schema | None = None, suffix: str = ""
) -> Network:
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
        The file name's ending; decides only between readers where the bytes do not.

    Returns
    -------
    Network

    Raises
    ------
    ModelFormatError
        Saying what the file is instead, or where it breaks.
    """
    if len(buffer) == 0:
        raise ModelFormatError("the file is empty", 0)
    if schema is not None:
        chosen = [(schema.name, schema)]
        if "layers" in {item.name for item in schema.tables[schema.root].fields}:
            return armnn.read(buffer, chosen)
        return mslite.read(buffer, chosen, folder)
    identifier = bytes(buffer[4:8])
    if identifier[:3] == b"MSL":
        return _complete(buffer, lambda: mslite.read(buffer, folder=folder))
    if identifier == b"ARMN":
        return _complete(buffer, lambda: armnn.read(buffer))
    if (what := describe_foreign(buffer)) is not None:
        raise ModelFormatError(f"this is {what}. {_HELP}", 0)
    return _by_structure(buffer, folder, suffix)


def _by_structure(buffer: np.ndarray, folder: Path | None, suffix: str) -> Network:
    """Neither format need carry an identifier: try both."""
    readers = {"armnn": lambda: armnn.read(buffer), "mslite": lambda: mslite.read(buffer, folder=folder)}
    names = ["mslite", "armnn"] if suffix == ".ms" else ["armnn", "mslite"]
    found, failures = [], []
    for name in names:
        try:
            network = readers[name]()
        except ModelFormatError as error:
            failures.append(error)
            continue
        if network.layers and not any("do not fit the layout" in note for note in network.notes):
            return network
        found.append(network)
    if found:
        best = max(found, key=lambda network: len(network.layers))
        if best.layers:
            return best
    deepest = max(failures, key=lambda error: len(error.path), default=None)
    if deepest is not None and deepest.path:
        raise _explained(buffer, deepest)
    what = "encrypted or compressed data" if _looks_random(buffer) else f"not a model ({_first_bytes(buffer)})"
    raise ModelFormatError(f"this is {what}. {_HELP}", 0)


def _first_bytes(buffer: np.ndarray) -> str:
    return f"{len(buffer)} bytes that begin with {bytes(buffer[:8]).hex(' ')}"


def _complete(buffer: np.ndarray, reader: object) -> Network:
    try:
        return reader()  # type: ignore[operator, no-any-return]
    except ModelFormatError as error:
        raise _explained(buffer, error) from None


def _explained(buffer: np.ndarray, error: ModelFormatError) -> ModelFormatError:
    message = f"{error.message}; the file has {len(buffer)} bytes and is cut off or damaged"
    return ModelFormatError(message, error.offset, error.path)
