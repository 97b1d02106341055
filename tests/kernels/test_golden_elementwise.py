"""Layers of Arm NN 22.11 that are one kernel between decoding and encoding: the vendor's outputs, to the bit."""

import io
import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mlinspect.kernels.activation import FAST, PRECISE, activate, prelu
from mlinspect.kernels.elementwise import BINARY, UNARY
from mlinspect.kernels.quantize import cast, dequantize, lookup, quantize, table_of

ARCHIVE = Path(__file__).parents[1] / "data" / "armnn-22.11.zip"
DTYPES = {
    "Float32": np.float32,
    "Float16": np.float16,
    "Signed32": np.int32,
    "Boolean": np.bool_,
    "QAsymmU8": np.uint8,
    "QAsymmS8": np.int8,
    "QSymmS8": np.int8,
    "QSymmS16": np.int16,
}
ACTIVATIONS = {
    "hardswish": "hard_swish",
    "leakyrelu": "leaky_relu",
    "relu1": "bounded_relu",
    "relu6": "bounded_relu",
    "softrelu": "sigmoid",  # the file format loses SoftReLu: what it holds, and the runtime computes, is Sigmoid
    "tanh11": "tanh",
}
BINARIES = {"Addition": "add", "Subtraction": "sub", "Multiplication": "mul", "Division": "div"}
BINARIES |= {"Maximum": "maximum", "Minimum": "minimum", "LogicalBinary": "logical_"}
COMPARISONS = {"equal": "equal", "greater": "greater", "greaterorequal": "greater_equal", "less": "less"}
COMPARISONS |= {"lessorequal": "less_equal", "notequal": "not_equal"}


@cache
def archive():
    return zipfile.ZipFile(ARCHIVE)


def cases(*layers):
    return [
        pytest.param(case, id=case["name"])
        for case in json.loads(archive().read("manifest.json"))["cases"]
        if case["layer"] in layers
    ]


def operands(case):
    with np.load(io.BytesIO(archive().read(case["npz"]))) as arrays:
        inputs = [arrays[f"in_{t['binding_id']}"] for t in case["inputs"]]
        return inputs, arrays[f"out_{case['outputs'][0]['binding_id']}"]


def decode(array, tensor):
    if tensor["dtype"].startswith("Q"):
        return dequantize(array, tensor["scale"], tensor["offset"])
    return array.astype(np.float32)


def encode(values, tensor, scale=None, offset=None):
    if tensor["dtype"].startswith("Q"):
        return quantize(
            values, scale or tensor["scale"], tensor["offset"] if offset is None else offset, DTYPES[tensor["dtype"]]
        )
    return cast(values, DTYPES[tensor["dtype"]])


def check(got, want, ulps=0):
    assert got.dtype == want.dtype
    if got.dtype == np.float32 and ulps:
        np.testing.assert_array_max_ulp(got, want, ulps)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", [c for c in cases("Activation") if "a=" in c.values[0]["config"]])
def test_activation(case):
    (x,), want = operands(case)
    source, target = case["inputs"][0], case["outputs"][0]
    settings = dict(pair.split("=") for pair in case["config"].split())
    name, a, b = settings["function"], float(settings["a"]), float(settings["b"])

    def whole(stored):
        elementary = FAST if target["dtype"] == "Float32" else PRECISE
        return encode(activate(decode(stored, source), ACTIVATIONS.get(name, name), a, b, elementary), target)

    check(lookup(x, table_of(whole, x.dtype)) if x.itemsize == 1 else whole(x), want, ulps=4)


@pytest.mark.parametrize("case", cases("ElementwiseUnary", "Floor", "Quantize", "Dequantize", "Cast", "Prelu"))
def test_unary_and_conversions(case):
    inputs, want = operands(case)
    source, target = case["inputs"][0], case["outputs"][0]
    x = decode(inputs[0], source)
    name = case["config"].partition("operation=")[2].split(" ")[0]
    if name == "logicalnot":
        check(UNARY["logical_not"](inputs[0]), want)
    elif case["layer"] == "ElementwiseUnary":
        check(encode(UNARY[name](x), target), want, ulps=2)
    elif case["layer"] == "Floor":
        check(encode(UNARY["floor"](x), target), want)
    elif case["layer"] == "Prelu":
        check(encode(prelu(x, decode(inputs[1], case["inputs"][1])), target), want)
    elif case["layer"] == "Cast":  # quantisation does not count: scale 1, offset 0
        check(encode(inputs[0].astype(np.float32), target, 1, 0), want)
    else:
        check(encode(x, target), want)


@pytest.mark.parametrize("case", cases(*BINARIES, "Comparison"))
def test_binary(case):
    inputs, want = operands(case)
    real = [decode(x, t) for x, t in zip(inputs, case["inputs"], strict=True)]
    if case["layer"] == "Comparison":
        operation = case["config"].partition("operation=")[2].split()[0].strip(",")
        check(BINARY[COMPARISONS[operation]](*real), want)
    elif case["layer"] == "LogicalBinary":
        check(BINARY["logical_and" if "and" in case["name"] else "logical_or"](*inputs), want)
    elif inputs[0].dtype == np.int32:
        check(BINARY[BINARIES[case["layer"]]](*inputs), want)
    else:
        check(encode(BINARY[BINARIES[case["layer"]]](*real), case["outputs"][0]), want)
