"""Arm NN's recurrent cells and detection post-processing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.execute.registry import Call, op
from mlinspect.execute.values import dequantize_array
from mlinspect.kernels import detection, recurrent, recurrent_int
from mlinspect.kernels.recurrent import BIASES, weights_name

armnn = partial(op, "armnn")
_GATES = tuple(BIASES)
_QUANTIZED_LSTM = [weights_name(source, gate) for source in ("input", "recurrent") for gate in _GATES]


def _held(call: Call, items: tuple[Any, ...], needed: Iterable[str]) -> dict[str, Any]:
    """What belongs to the constants that the layer holds, which come last among its operands, by the schema's names."""
    if missing := [name for name in needed if name not in call.layer.members]:
        raise ValueError(f"operands are missing: {', '.join(missing)}")
    return dict(zip(call.layer.members, items[len(items) - len(call.layer.members) :], strict=True))


def _real(call: Call, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """The constants that the layer holds, decoded."""
    needed = _needed(call.attrs)
    tensors = _held(call, call.inputs, needed)
    return {name: dequantize_array(array, tensors[name]) for name, array in _held(call, arrays, needed).items()}


def _needed(a: dict) -> list[str]:
    """Constants that a cell with these attributes cannot do without."""
    gates = _GATES[1:] if a["cifgEnabled"] else _GATES
    names = [weights_name(source, gate) for source in ("input", "recurrent") for gate in gates]
    names += [BIASES[gate] for gate in gates]
    if a.get("layerNormEnabled"):
        names += [f"{gate}LayerNormWeights" for gate in gates]
    if a["peepholeEnabled"]:
        names += [weights_name("cell", gate) for gate in gates if gate != "cell"]
    return [*names, "projectionWeights"] if a["projectionEnabled"] else names


def _options(a: dict) -> dict[str, Any]:
    """What the attributes of all three cells say alike; QLstm has other names for the limits."""
    return {
        "cifg": a["cifgEnabled"],
        "peephole": a["peepholeEnabled"],
        "projection": a["projectionEnabled"],
        "clip_cell": a["cellClip" if "cellClip" in a else "clippingThresCell"],
        "clip_projection": a["projectionClip" if "projectionClip" in a else "clippingThresProj"],
    }


def _float_options(a: dict) -> dict[str, Any]:
    """Those, and what only the cells in float32 let a file choose."""
    return _options(a) | {"activation": a["activationFunc"], "layer_norm": a.get("layerNormEnabled", False)}


@armnn("Lstm", stored=True)
def lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """int16 states are decoded with the quantisation of the input, whatever their own says."""
    own = call.inputs[0]
    x, output_state, cell_state = (dequantize_array(array, own) for array in arrays[:3])
    buffers = call.outputs[0]
    scale = None
    if call.mode == "vendor" and buffers.dtype == "int16" and buffers.quantization is not None:
        scale = float(buffers.quantization.scale[0])
    options = _float_options(call.attrs)
    results = recurrent.lstm(x, output_state, cell_state, _real(call, arrays), scale=scale, **options)
    if call.mode == "vendor" and buffers.dtype == "float16":
        return tuple(result.astype(np.float16) for result in results)
    return results


@armnn("UnidirectionalSequenceLstm")
def unidirectional_sequence_lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    x, output_state, cell_state = arrays[:3]
    options = _float_options(call.attrs)
    return recurrent.unidirectional_sequence_lstm(
        x, output_state, cell_state, _real(call, arrays), time_major=call.attrs["timeMajor"], **options
    )


@armnn("QLstm", stored=True)
def qlstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    a = call.attrs
    x, output_state, cell_state = (
        dequantize_array(array, tensor) for array, tensor in zip(arrays[:3], call.inputs[:3], strict=True)
    )
    params = _real(call, arrays)
    if call.mode == "float":
        layer_norm = a["layerNormEnabled"]
        _, *results = recurrent.lstm(x, output_state, cell_state, params, layer_norm=layer_norm, **_options(a))
        return tuple(results)
    tensors, stored = _held(call, call.inputs, ()), _held(call, arrays, ())
    params |= {name: stored[name] for name in BIASES.values() if name in stored}
    norms = {gate: tensors.get(f"{gate}LayerNormWeights") for gate in _GATES}
    scales = {gate: _affine(tensor)[0] for gate, tensor in norms.items() if tensor is not None}
    return recurrent.qlstm(
        x,
        output_state,
        cell_state,
        params,
        input_scale=_affine(call.inputs[0])[0],
        intermediate_scales={gate: a[f"{gate}IntermediateScale"] for gate in _GATES},
        hidden_quantization=(a["hiddenStateScale"], a["hiddenStateZeroPoint"]),
        cell_scale=_affine(call.outputs[1])[0],
        output_quantization=_affine(call.outputs[2]),
        output_state_quantization=_affine(call.outputs[0]),
        layer_norm_scales=scales if a["layerNormEnabled"] else None,
        **_options(a),
    )


def _affine(tensor: ir.Tensor) -> tuple[float, int]:
    """A tensor's scale and zero point."""
    q = tensor.quantization
    if q is None:
        raise ValueError(f"tensor {tensor.name!r} has no quantisation parameters")
    return float(q.scale[0]), int(q.zero_point[0])


@armnn("QuantizedLstm", stored=True, reference="published definition")
def quantized_lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The reference backend has no arithmetic for it; this is Android NN's QUANTIZED_16BIT_LSTM."""
    params = _held(call, arrays, _QUANTIZED_LSTM)
    scale, zero_point = _affine(_held(call, call.inputs, _QUANTIZED_LSTM)["inputToForgetWeights"])
    x, cell_state, output_state = arrays[:3]
    return recurrent_int.quantized_lstm(
        x, cell_state, output_state, params, weights_zero_point=zero_point, bias_scale=scale / 128
    )


@armnn("DetectionPostProcess")
def detection_post_process(
    call: Call, boxes: np.ndarray, scores: np.ndarray, anchors: np.ndarray
) -> tuple[np.ndarray, ...]:
    a, shape = call.attrs, call.outputs[0].shape
    # the fast way has room for each class of a box
    rows = a["maxDetections"] * (1 if a["useRegularNms"] else a["maxClassesPerDetection"])
    return detection.detection_post_process(
        boxes,
        scores,
        anchors,
        scales=(a["scaleY"], a["scaleX"], a["scaleH"], a["scaleW"]),
        classes=a["numClasses"],
        max_detections=a["maxDetections"],
        max_classes_per_detection=a["maxClassesPerDetection"],
        detections_per_class=a["detectionsPerClass"],
        score_threshold=a["nmsScoreThreshold"],
        iou_threshold=a["nmsIouThreshold"],
        regular=a["useRegularNms"],
        rows=shape[1] if shape is not None and len(shape) == 3 and shape[1] >= 0 else rows,
    )
