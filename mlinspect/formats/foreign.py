"""Recognise files that are not models of either format."""

from __future__ import annotations

import re

import numpy as np

_PICKLE = "a Python pickle (perhaps a PyTorch checkpoint)"
_UNPACK = "unpack it first"
_ENCRYPTED = "an encrypted MindSpore model: decrypt it with the key that it was converted with"

# where the mark stands, the mark, what the file is
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"),
    (0, b"\xd8\x5e\x3a\x7f", _ENCRYPTED),
    (0, b"\xd9\x5e\x3a\x7f", _ENCRYPTED),
    (0, b"\xda\x5e\x3a\x7f", _ENCRYPTED),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (4, b"ET1", "an ExecuTorch program"),
    (0, b"PK\x03\x04", f"a zip archive (perhaps a PyTorch or Keras model, or a zipped .ms or .armnn): {_UNPACK}"),
    (0, b"\x1f\x8b", f"gzip-compressed: {_UNPACK}"),
    (0, b"BZh", f"bzip2-compressed: {_UNPACK}"),
    (0, b"\xfd7zXZ\0", f"xz-compressed: {_UNPACK}"),
    (0, b"\x28\xb5\x2f\xfd", f"zstd-compressed: {_UNPACK}"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {_UNPACK}"),
    (0, b"Rar!", f"a rar archive: {_UNPACK}"),
    (257, b"ustar", f"a tar archive: {_UNPACK}"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (perhaps a Keras model)"),
    (0, b"\x93NUMPY", "a numpy .npy array"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"IMOD", "an Ascend offline model (.om)"),
    (0, b"\x7fELF", "a program or shared library (ELF)"),
    (0, b"MZ", "a Windows program or library"),
    (0, b"7767517\n", "an ncnn model description"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (8, b'{"', "a safetensors file"),
    (0, b"\x80\x02\x8a", _PICKLE),
    (0, b"\x80\x04\x95", _PICKLE),
    (0, b"\x80\x05\x95", _PICKLE),
)

# how a text begins, in lower case
_TEXTS: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "an HTML page (perhaps the web page about the file instead of the file)"),
    (b"<html", "an HTML page (perhaps the web page about the file instead of the file)"),
    (b"<?xml", "an XML document (perhaps an OpenVINO model description)"),
    (b"{", "JSON text"),
    (b"[", "JSON text"),
)


def describe_foreign(buffer: np.ndarray) -> str | None:
    """What a file of another format is, as far as its first bytes tell; None if they tell nothing.

    Examples
    --------
    >>> describe_foreign(np.frombuffer(b"PK\\x03\\x04" + bytes(9), np.uint8))[:13]
    'a zip archive'
    """
    head = bytes(buffer[:512])
    for position, mark, what in _SIGNATURES:
        if head[position : position + len(mark)] == mark:
            return what
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for beginning, what in _TEXTS:
        if text.lower().startswith(beginning):
            return what
    return _protobuf(head) or _plain_text(head)


def _protobuf(head: bytes) -> str | None:
    """ONNX and MindIR are protobuf messages whose first fields give them away."""
    if re.match(rb"\x08[\x01-\x20][\x12\x1a\x22\x2a\x32\x3a\x42]", head):  # ir_version, then a field of ModelProto
        return "an ONNX model"
    if re.match(rb"\x0a[\x01-\x10][0-9.]+[\x12\x1a\x22\x2a]", head):  # ir_version as a string
        return "a MindSpore .mindir model: convert it with MindSpore Lite's converter first"
    if re.match(rb"\x0a[\x00-\xff]{1,3}\x0a[\x01-\xff]", head) and re.search(rb"Placeholder|Const|VarHandleOp", head):
        return "a TensorFlow graph"
    return None


def _plain_text(head: bytes) -> str | None:
    """Text, if all of the first bytes are printable."""
    if len(head) >= 16 and re.fullmatch(rb"[\t\n\r\x20-\x7e]+", head):
        return f"text that begins with {head[:24].decode('ascii')!r}"
    return None


def looks_random(buffer: np.ndarray) -> bool:
    """Bytes without any pattern: encrypted, or compressed.

    Examples
    --------
    >>> looks_random(np.zeros(5000, np.uint8))
    False
    >>> looks_random(np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8))
    True
    """
    part = buffer[: 1 << 16]
    if len(part) < 4096:
        return False
    share = np.bincount(part, minlength=256) / len(part)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) > 7.9
