"""MindSpore Lite models in numpy against onnxruntime and ONNX's reference evaluator on the same networks.

Run: ``python tests/benchmarks/bench_mslite.py``. Needs ``pip install onnx onnxruntime``; the text classifier also
``rapidocr-onnxruntime`` (whose ONNX file it was made from) and ``../shared/models``. One thread each.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import time
from pathlib import Path

import numpy as np

import mlinspect as mi
from mlinspect import ir

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"


def milliseconds(*functions, seconds: float = 5) -> np.ndarray:
    """Processor time of each function, one row a round: the fastest of five runs in a row.

    Rounds take turns, so that a slow moment of the machine hits all; runs in a row find the caches their own.
    """
    rounds, end = [], time.perf_counter() + seconds
    while not rounds or time.perf_counter() < end:
        rounds.append([min(_timed(function) for _ in range(5)) for function in functions])
    return 1e3 * np.array(rounds)


def _timed(function) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def ratio(times: np.ndarray, one: int, other: int) -> float:
    """How much longer one function takes than another: the median of all rounds."""
    return float(np.median(times[:, one] / times[:, other]))


# --- the digit classifier as ONNX: its own layers, one to one ---------------------------------------------------------


def digits_as_onnx(model: mi.Model):
    """An ONNX model of the bundled float classifier."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def pooled(layer: ir.Layer) -> dict:
        return {"kernel_shape": layer.attrs["kernel_size"], "strides": layer.attrs["strides"]}

    for layer in model.network.graphs[0].layers:
        names, (result,) = [f"t{i}" for i in layer.inputs], [f"t{i}" for i in layer.outputs]
        arrays = [model.network.tensors[i].array for i in layer.inputs]
        activation = layer.attrs.get("activation_type", "NO_ACTIVATION")
        plain = result if activation == "NO_ACTIVATION" else f"{result}_plain"
        if layer.op == "Conv2DFusion":
            groups = layer.attrs["group"]
            weights = constant(names[1], arrays[1].transpose(0, 3, 1, 2))
            up, down, left, right = layer.attrs["pad_list"]
            options = {"group": groups, "pads": [up, left, down, right], "strides": layer.attrs["stride"]}
            nodes.append(
                helper.make_node("Conv", [names[0], weights, constant(names[2], arrays[2])], [plain], **options)
            )
        elif layer.op == "MatMulFusion":
            operands = [names[0], constant(names[1], arrays[1]), constant(names[2], arrays[2])]
            nodes.append(helper.make_node("Gemm", operands, [plain], transB=1))
        elif layer.op == "Transpose":  # images are NCHW here already
            nodes.append(helper.make_node("Identity", names[:1], [plain]))
        else:
            kind = {"MaxPoolFusion": "MaxPool", "AvgPoolFusion": "AveragePool", "AddFusion": "Add"}.get(
                layer.op, layer.op
            )
            options = pooled(layer) if "Pool" in kind else {"axis": 1} if kind in ("Flatten", "Softmax") else {}
            nodes.append(helper.make_node(kind, names, [plain], **options))
        if activation == "RELU":
            nodes.append(helper.make_node("Relu", [plain], [result]))
        elif activation == "RELU6":
            bounds = [constant(f"{result}_low", np.float32(0)), constant(f"{result}_high", np.float32(6))]
            nodes.append(helper.make_node("Clip", [plain, *bounds], [result]))
    ((source,), (target,)) = (
        [port.tensor for port in ports] for ports in (model.network.graphs[0].inputs, model.network.graphs[0].outputs)
    )
    inputs = [helper.make_tensor_value_info(f"t{source}", TensorProto.FLOAT, [1, 1, 8, 8])]
    outputs = [helper.make_tensor_value_info(f"t{target}", TensorProto.FLOAT, [1, 10])]
    graph = helper.make_graph(nodes, "digits", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def classifier_as_onnx(path: Path):
    """The text classifier's ONNX original, with the one thing that MindSpore's converter changed: HardSigmoid's slope
    of 0.2, which its HSIGMOID (1/6) does not have.
    """
    import onnx

    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "HardSigmoid":
            (slope,) = (attribute for attribute in node.attribute if attribute.name == "alpha")
            slope.f = 1 / 6
    return model


def session_of(model):
    """onnxruntime on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare(name: str, model: mi.Model, image: np.ndarray, onnx_model) -> None:
    """Agreement, then times of all three."""
    from onnx.reference import ReferenceEvaluator

    session, reference = session_of(onnx_model.SerializeToString()), ReferenceEvaluator(onnx_model)
    feed = {session.get_inputs()[0].name: np.ascontiguousarray(image.transpose(0, 3, 1, 2))}
    ours, theirs = next(iter(model.run(image).values())), session.run(None, feed)[0]
    times = milliseconds(lambda: model.run(image), lambda: session.run(None, feed), lambda: reference.run(None, feed))
    ours_ms, ort_ms, reference_ms = times.min(axis=0)
    print(
        f"{name:16s} largest difference {np.abs(ours - theirs).max():.1e}: ours {ours_ms:.2f} ms, "
        f"onnxruntime {ort_ms:.2f} ({ratio(times, 0, 1):.1f} x), "
        f"ReferenceEvaluator {reference_ms:.1f} ({ratio(times, 2, 0):.1f} x slower)"
    )


def node_overhead(nodes: int = 2000) -> float:
    """Microseconds a node beyond its kernel: a chain of the smallest layers."""
    layers = tuple(ir.Layer(i, f"n{i}", "Neg", "neg", 0, {}, (i,), (i + 1,)) for i in range(nodes))
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "Float32", (4,)) for i in range(nodes + 1)}
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", nodes),), layers)
    chain, x = mi.Model(ir.Network("mslite", "msl2_newest", "", (graph,), tensors)), np.ones(4, np.float32)

    def kernels() -> None:
        y = x
        for _ in range(nodes):
            y = np.negative(y)

    whole, alone = milliseconds(lambda: chain.run(x), kernels).min(axis=0)
    return 1e3 * (whole - alone) / nodes


def main() -> None:
    print(f"engine: {node_overhead():.1f} us a node beyond its kernel")
    digits = mi.open(mi.samples.path("digits_cnn.ms"))
    image = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16
    compare("digits_cnn", digits, image, digits_as_onnx(digits))
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or not MODELS.is_dir():
        print("ppocr_cls: rapidocr-onnxruntime or the models are not here")
        return
    source = Path(found.submodule_search_locations[0]) / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    with np.load(MODELS / "ppocr_cls_fp32.npz") as data:
        image = data["in_0"]
    real = mi.open(MODELS / "ppocr_cls_fp32.ms")
    compare("ppocr_cls_fp32", real, image, classifier_as_onnx(source))
    stored = mi.open(MODELS / "ppocr_cls_int8.ms")
    times = milliseconds(lambda: real.run(image), lambda: stored.run(image), seconds=10)
    real_ms, stored_ms = times.min(axis=0)
    print(f"ppocr_cls_int8   {stored_ms:.2f} ms, float {real_ms:.2f}: {ratio(times, 1, 0):.2f} x")


if __name__ == "__main__":
    main()
