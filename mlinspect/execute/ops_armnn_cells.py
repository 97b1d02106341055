"""Arm NN's recurrent cells and detection post-processing."""

from __future__ import annotations

from functools import partial

import numpy as np

from mlinspect.execute.registry import Call, op
from mlinspect.execute.values import dequantize_array
from mlinspect.kernels import detection, recurrent, recurrent_int

armnn = partial(op, "armnn")
_GATES = ("input", "forget", "cell", "output")
_QUANTIZED_LSTM = [f"{source}To{gate.title()}Weights" for source in ("input", "recurrent") for gate in _GATES]
_BIASES = {"input": "inputGateBias", "forget": "forgetGateBias", "cell": "cellBias", "output": "outputGateBias"}


def _members(call: Call, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """The constants held by the layer, by the schema's names, decoded."""
    if missing := [name for name in _needed(call.attrs) if name not in call.layer.members]:
        raise ValueError(f"operands are missing: {', '.join(missing)}")
    first = len(call.inputs) - len(call.layer.members)
    return {
        name: dequantize_array(arrays[first + i], call.inputs[first + i]) for i, name in enumerate(call.layer.members)
    }


def _needed(a: dict) -> list[str]:
    """Constants that a cell with these attributes cannot do without."""
    gates = _GATES[1:] if a["cifgEnabled"] else _GATES
    names = [f"{source}To{gate.title()}Weights" for source in ("input", "recurrent") for gate in gates]
    names += [_BIASES[gate] for gate in gates]
    if a.get("layerNormEnabled"):
        names += [f"{gate}LayerNormWeights" for gate in gates]
    if a["peepholeEnabled"]:
        names += [f"cellTo{gate.title()}Weights" for gate in gates if gate != "cell"]
    return [*names, "projectionWeights"] if a["projectionEnabled"] else names


def _options(call: Call) -> dict[str, bool | int | float]:
    a = call.attrs
    return {
        "activation": a["activationFunc"],
        "cifg": a["cifgEnabled"],
        "peephole": a["peepholeEnabled"],
        "projection": a["projectionEnabled"],
        "layer_norm": a.get("layerNormEnabled", False),
        "clip_cell": a["clippingThresCell"],
        "clip_projection": a["clippingThresProj"],
    }


@armnn("Lstm", stored=True)
def lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """int16 states are decoded with the quantisation of the input, whatever their own says."""
    own = call.inputs[0]
    x, output_state, cell_state = (
        array if array.dtype == np.float32 else dequantize_array(array, own) for array in arrays[:3]
    )
    buffers = call.outputs[0]
    scale = None
    if call.mode == "vendor" and buffers.dtype == "int16" and buffers.quantization is not None:
        scale = float(buffers.quantization.scale[0])
    results = recurrent.lstm(x, output_state, cell_state, _members(call, arrays), scale=scale, **_options(call))  # type: ignore[arg-type]
    if call.mode == "vendor" and buffers.dtype == "float16":
        return tuple(result.astype(np.float16) for result in results)
    return results


@armnn("UnidirectionalSequenceLstm")
def unidirectional_sequence_lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    x, output_state, cell_state = arrays[:3]
    return recurrent.unidirectional_sequence_lstm(
        x,
        output_state,
        cell_state,
        _members(call, arrays),
        time_major=call.attrs["timeMajor"],
        **_options(call),  # type: ignore[arg-type]
    )


@armnn("QLstm", stored=True)
def qlstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    a = call.attrs
    x, output_state, cell_state = (
        dequantize_array(array, tensor) for array, tensor in zip(arrays[:3], call.inputs[:3], strict=True)
    )
    members = _members(call, arrays)
    if call.mode == "float":
        _, out, cell, y = recurrent.lstm(
            x,
            output_state,
            cell_state,
            members,
            cifg=a["cifgEnabled"],
            peephole=a["peepholeEnabled"],
            projection=a["projectionEnabled"],
            layer_norm=a["layerNormEnabled"],
            clip_cell=a["cellClip"],
            clip_projection=a["projectionClip"],
        )
        return out, cell, y
    tensors = dict(zip(call.layer.members, call.inputs[len(call.inputs) - len(call.layer.members) :], strict=True))
    stored = dict(zip(call.layer.members, arrays[len(arrays) - len(call.layer.members) :], strict=True))
    members |= {name: stored[name] for name in _BIASES.values() if name in stored}
    norms = {gate: tensors.get(f"{gate}LayerNormWeights") for gate in _GATES}

    def pair(tensor: object) -> tuple[float, int]:
        q = tensor.quantization  # type: ignore[attr-defined]
        if q is None:
            raise ValueError(f"tensor {tensor.name} is not quantised")  # type: ignore[attr-defined]
        return float(q.scale[0]), int(q.zero_point[0])

    return recurrent.qlstm(
        x,
        output_state,
        cell_state,
        members,
        input_scale=pair(call.inputs[0])[0],
        intermediate_scales={gate: a[f"{gate}IntermediateScale"] for gate in _GATES},
        hidden_quantization=(a["hiddenStateScale"], a["hiddenStateZeroPoint"]),
        cell_scale=pair(call.outputs[1])[0],
        output_quantization=pair(call.outputs[2]),
        output_state_quantization=pair(call.outputs[0]),
        layer_norm_scales={gate: pair(tensor)[0] for gate, tensor in norms.items() if tensor is not None}
        if a["layerNormEnabled"]
        else None,
        cifg=a["cifgEnabled"],
        peephole=a["peepholeEnabled"],
        projection=a["projectionEnabled"],
        clip_cell=a["cellClip"],
        clip_projection=a["projectionClip"],
    )


@armnn("QuantizedLstm", stored=True, reference="published definition")
def quantized_lstm(call: Call, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The reference backend has no arithmetic for it; this is Android NN's QUANTIZED_16BIT_LSTM."""
    first = len(call.inputs) - len(call.layer.members)
    stored = dict(zip(call.layer.members, arrays[first:], strict=True))
    tensors = dict(zip(call.layer.members, call.inputs[first:], strict=True))
    if missing := [name for name in _QUANTIZED_LSTM if name not in tensors]:
        raise ValueError(f"operands are missing: {', '.join(missing)}")
    weights = tensors["inputToForgetWeights"].quantization
    if weights is None:
        raise ValueError("the weights are not quantised")
    return recurrent_int.quantized_lstm(
        arrays[0],
        arrays[1],
        arrays[2],
        stored,
        weights_zero_point=int(weights.zero_point[0]),
        bias_scale=float(weights.scale[0]) / 128,
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
