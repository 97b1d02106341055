"""What is no model says what it is instead; what is cut off says so, wherever it is cut."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import tarfile
import zipfile

import numpy as np
import pytest

from mlinspect import formats, samples
from mlinspect.errors import ModelFormatError
from mlinspect.flatbuffer import encode
from mlinspect.formats.records import layout_schema

RANDOM = np.random.default_rng(0).bytes(20000)
SAMPLES = ["digits_cnn.armnn", "digits_cnn_u8.armnn", "digits_cnn.ms", "digits_cnn_int8.ms", "digits_cnn_wq4.ms"]


def as_buffer(data):
    return np.frombuffer(data, np.uint8)


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("model.ms", b"x" * 100)
    return out.getvalue()


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.ms"))
    return out.getvalue()


def saved(save, *what):
    out = io.BytesIO()
    save(out, *what)
    return out.getvalue()


FOREIGN = {
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n",
    "TensorFlow Lite": b"\x1c\0\0\0TFL3" + bytes(100),
    "ONNX Runtime": b"\x18\0\0\0ORTM" + bytes(100),
    "ExecuTorch": b"\x38\0\0\0ET12" + bytes(100),
    "ONNX model": b"\x08\x07\x12\x07pytorch\x1a\x051.8.0:" + bytes(100),
    "an ONNX model": b"\x08\x03\x3a\x80\x01" + bytes(100),
    "mindir": b"\n\x050.1.0\x12\tMindSpore\x1a\x051.2.0" + bytes(100),
    "TensorFlow graph": b"\n\x10\n\x01x\x12\x0bPlaceholder" + bytes(100),
    "zip archive": zipped(),
    "gzip": gzip.compress(b"x" * 100),
    "bzip2": bz2.compress(b"x" * 100),
    "xz-compressed": lzma.compress(b"x" * 100),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(100),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(100),
    "tar archive": tarred(),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "numpy .npy": saved(np.save, np.zeros(5)),
    "zip archive (perhaps": saved(lambda out, array: np.savez(out, x=array), np.zeros(5)),
    "pickle": pickle.dumps({"weights": list(range(100))}, protocol=4),
    "Python pickle": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + bytes(50),
    "safetensors": (120).to_bytes(8, "little") + json.dumps({"w": {"dtype": "F32"}}).encode().ljust(120),
    "GGUF": b"GGUF\x03\0\0\0" + bytes(100),
    "Ascend": b"IMOD" + bytes(100),
    "ELF": b"\x7fELF\x02\x01\x01" + bytes(100),
    "Windows": b"MZ\x90\0\x03\0\0\0" + bytes(100),
    "ncnn": b"7767517\n2 2\nInput data 0 1 data\n",
    "PDF": b"%PDF-1.7\n" + bytes(100),
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "JPEG": b"\xff\xd8\xff\xe0" + bytes(100),
    "HTML": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "an HTML page": b"\xef\xbb\xbf<HTML lang=en>" + b"x" * 100,
    "XML": b"<?xml version='1.0'?><net name='x'>" + b"x" * 100,
    "JSON": b'{"layers": []}' + b" " * 40,
    "text that begins with 'name: ": b'name: "LeNet"\nlayer { name: "data" }\n',
    "encrypted MindSpore": b"\xd8\x5e\x3a\x7f" + RANDOM,
    "an encrypted MindSpore": b"\xd9\x5e\x3a\x7f" + RANDOM,
    "encrypted or compressed": RANDOM,
    "no model": bytes(100),
    "100 bytes that begin with 01 02 03 04": bytes([1, 2, 3, 4]) * 25,
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("suffix", ["", ".ms", ".armnn"])
def test_foreign_files_are_named(kind, suffix):
    with pytest.raises(ModelFormatError) as caught:
        formats.read(as_buffer(FOREIGN[kind]), suffix=suffix)
    assert kind in str(caught.value)
    assert caught.value.message.startswith("this is ")
    assert "mlinspect opens" in caught.value.message


def test_the_empty_file():
    with pytest.raises(ModelFormatError, match="the file is empty"):
        formats.read(as_buffer(b""))


@pytest.mark.parametrize("size", range(1, 32))
def test_files_too_small_to_be_anything(size):
    with pytest.raises(ModelFormatError, match=f"this is no model: it has only {size} bytes, cut off perhaps"):
        formats.read(as_buffer(samples.path("digits_cnn.armnn").read_bytes()[:size]))


def cut(data, sizes):
    """Cuts that leave all that matters must give the same model; all others must say that the file is cut off."""
    whole = formats.read(as_buffer(data))
    end = max(t.file_offset + t.nbytes for t in whole.tensors.values() if t.file_offset is not None)
    for size in sizes:
        try:
            network = formats.read(as_buffer(data[:size]))
        except ModelFormatError as error:
            told = f"the file has {size} bytes and is cut off or damaged" in error.message
            assert told or (size < 32 and "cut off perhaps" in error.message), (size, str(error))
            assert error.offset is not None
            assert error.offset <= size
            continue
        assert size >= end, size
        assert [repr(layer) for layer in network.layers.values()] == [repr(layer) for layer in whole.layers.values()]
        assert all((t.array == whole.tensors[i].array).all() for i, t in network.tensors.items() if t.data is not None)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_cut_off_anywhere(name):
    data = samples.path(name).read_bytes()
    rng = random.Random(name)
    near_the_end = range(len(data) - 40, len(data))
    cut(data, [*range(1, 400, 7), *near_the_end, *(rng.randrange(1, len(data)) for _ in range(60))])


@pytest.mark.parametrize(
    "name",
    ["mobilefacenet0924.ms", "detect.ms", "ml_headpose_pb2tflite.ms", "face_landmark.armnn", "two_add_operators.ms"],
)
def test_real_files_cut_off_anywhere(name, models):
    data = (models / name).read_bytes()
    rng = random.Random(name)
    cut(data, [32, 33, 40, 64, 100, len(data) - 1, *(rng.randrange(32, len(data)) for _ in range(25))])


def test_ssd_cut_off_anywhere(models):
    """No older layout makes sense of what is left of the file."""
    data = (models / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn").read_bytes()
    rng = random.Random(1)
    cut(data, [100, 1000, len(data) - 1, *(rng.randrange(32, len(data)) for _ in range(12))])


@pytest.mark.parametrize("suffix", ["", ".ms", ".armnn"])
def test_the_name_does_not_matter(suffix):
    for name in SAMPLES:
        data = samples.path(name).read_bytes()
        assert formats.read(as_buffer(data), suffix=suffix).format == ("armnn" if "armnn" in name else "mslite")


def test_unmarked_mslite_files_are_told_from_armnn():
    schema = layout_schema("mslite", "ms_v0_r1_0")
    tensors = [{"dataType": 43, "dims": [1]}, {"dataType": 43, "dims": [1]}]
    node = {"name": "a", "primitive": {"value_type": "Abs", "value": {}}, "inputIndex": [0], "outputIndex": [1]}
    data = encode(schema, {"name": "g", "nodes": [node], "allTensors": tensors, "inputIndex": [0], "outputIndex": [1]})
    for suffix in ("", ".armnn", ".ms"):
        network = formats.read(as_buffer(data), suffix=suffix)
        assert (network.format, network.layout) == ("mslite", "ms_v0_r1_0")


def test_a_marked_file_of_garbage_is_damaged():
    for mark in (b"MSL2", b"MSL1", b"ARMN"):
        with pytest.raises(ModelFormatError, match="the file has 108 bytes and is cut off or damaged"):
            formats.read(as_buffer(b"\xff\0\0\0" + mark + bytes(100)))


def test_a_graph_without_layers_is_no_model():
    data = encode(layout_schema("armnn", "armnn_superset"), {"layers": [], "inputIds": [1]}, identifier=False)
    with pytest.raises(ModelFormatError, match="a model without layers; the file has 36 bytes"):
        formats.read(as_buffer(data))
