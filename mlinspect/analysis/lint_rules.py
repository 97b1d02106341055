"""Lint rules about numbers: quantisation parameters, and the values of constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlinspect.analysis.operands import grid, most_clipped, role
from mlinspect.analysis.rule import NARROW, SUMS, Finding, Look, narrow, rule, scale_of

FEW_LEVELS = 1 / 8
WIDE = 32  # widest channel / narrowest channel
HALF_MAX = 65504.0  # largest float16
TINY = float(np.finfo(np.float32).tiny)
_RELU = ("ReLu", "BoundedReLu", "RELU", "RELU6")
_NO_WEIGHT_FLAG = ("QUANT_NONE",)
_ALL_FLAGS = ("QUANT_ALL", "AwareTraining", "PostTraining")
_WEIGHT_FLAGS = ("QUANT_WEIGHT", "WeightQuant", "QUANT_DYNAMIC")

# ---- parameters ------------------------------------------------------------------------------------------------------


@rule(
    "bias-scale",
    "error",
    "quantise the bias with input scale x weight scale of each channel: kernels add it to the sum as it is stored",
)
def bias_scale(look: Look) -> Iterator[Finding]:
    """The bias' scale is not input scale x weight scale."""
    for layer, x, w, b in look.sums():
        if not (narrow(x) and narrow(w)) or b is None or b.dtype != "int32" or b.data is None:
            continue
        if b.quantization is None and look.network.format == "mslite":
            continue  # its kernels ask for no scale
        want, got = scale_of(x)[0] * scale_of(w), scale_of(b)
        if len({len(got), len(want), 1}) > 2 or not (want > 0).all():
            continue
        got, want = np.broadcast_arrays(got, want)
        worst = int(np.nan_to_num(np.abs(got / want - 1), nan=np.inf).argmax())
        if not abs(got[worst] / want[worst] - 1) <= 0.01:
            where = f" in channel {worst}" if len(want) > 1 else ""
            message = f"scale {got[worst]:.6g} where input x weights make {want[worst]:.6g}{where}"
            yield Finding(layer.index, b.index, f"{b.name}: {message}")


@rule("bias-type", "error", "store the bias as int32 with input scale x weight scale")
def bias_type(look: Look) -> Iterator[Finding]:
    """A bias beside 8-bit or 16-bit weights is not int32."""
    for layer, x, w, b in look.sums():
        if narrow(x) and narrow(w) and b is not None and b.dtype not in ("int32", "int64"):
            yield Finding(layer.index, b.index, f"{b.name}: {b.dtype} beside {w.dtype} weights")


@rule(
    "mixed-types",
    "error",
    "quantise both operands or neither; MindSpore Lite dequantises weights only where quantType says so",
)
def mixed_types(look: Look) -> Iterator[Finding]:
    """A layer multiplies types that do not go together."""
    for layer, x, w, _ in look.sums():
        by_flag = look.network.format == "mslite" and layer.meta.get("quantType") in _WEIGHT_FLAGS
        integers = x.dtype in NARROW, w.dtype in NARROW
        if integers[0] != integers[1]:
            wrong = integers[0] or not by_flag
            known = all("float" in t.dtype for t, integer in zip((x, w), integers, strict=True) if not integer)
        else:
            wrong = all(integers) and "int16" in (x.dtype, w.dtype) and x.dtype != w.dtype
            wrong |= look.network.format == "armnn" and not any(integers) and x.dtype != w.dtype
            known = not (x.dtype.startswith("unknown") or w.dtype.startswith("unknown"))
        if wrong and known:
            yield Finding(layer.index, w.index, f"{layer.name or layer.op}: {x.dtype} input with {w.dtype} weights")


@rule("missing-parameters", "error", "store a scale and a zero point: without them the numbers have no real value")
def missing_parameters(look: Look) -> Iterator[Finding]:
    """8-bit values without quantisation parameters."""
    for layer in look.layers:
        if layer.kind not in SUMS or layer.meta.get("quantType") == "QUANT_DYNAMIC":
            continue
        for i in (*layer.inputs[:2], *layer.outputs):
            tensor = look.tensors[i]
            if tensor.dtype in ("int8", "uint8") and scale_of(tensor)[0] == 0 and "quantClusters" not in tensor.meta:
                yield Finding(layer.index, i, f"{tensor.name}: {tensor.dtype} without scale and zero point")


@rule("bad-scale", "error", "calibrate again with data that reach this tensor; a tensor that is always 0 gets scale 1")
def bad_scale(look: Look) -> Iterator[Finding]:
    """A scale is zero, negative, infinite, NaN, or too small for float32's normal range."""
    for tensor in look.tensors.values():
        q = tensor.quantization
        if q is None or not tensor.quantized or not len(q.scale):
            continue
        bad = ~(np.isfinite(q.scale) & (q.scale >= TINY))
        if bad.any():
            where = f" in {bad.sum()} of {len(bad)} channels" if len(bad) > 1 else ""
            yield look.at(tensor, f"scale {q.scale[bad][0]:g}{where}")


@rule(
    "zero-point-range",
    "error",
    "clamp the zero point to the type's range, and choose the scale so that real 0 can be stored",
)
def zero_point_range(look: Look) -> Iterator[Finding]:
    """A zero point lies outside the numbers of its type."""
    for tensor in look.tensors.values():
        limits, q = grid(tensor), tensor.quantization
        if limits is None or q is None:
            continue
        bad = (q.zero_point < limits[0]) | (q.zero_point > limits[1])
        if bad.any():
            yield look.at(tensor, f"zero point {q.zero_point[bad][0]} outside {limits[0]} to {limits[1]}")


@rule(
    "symmetric-zero-point",
    "error",
    "set the zero point to 0, or use the asymmetric type: kernels of symmetric types ignore it",
)
def symmetric_zero_point(look: Look) -> Iterator[Finding]:
    """A symmetric type has a zero point other than 0."""
    for tensor in look.tensors.values():
        q = tensor.quantization
        symmetric = "Symm" in tensor.vendor_dtype and "Asymm" not in tensor.vendor_dtype
        if q is not None and tensor.quantized and (symmetric or tensor.dtype == "int32") and q.zero_point.any():
            yield look.at(tensor, f"{tensor.vendor_dtype} with zero point {q.zero_point[q.zero_point != 0][0]}")


@rule("weight-zero-point", "warning", "quantise weights symmetrically: most kernels and accelerators expect it")
def weight_zero_point(look: Look) -> Iterator[Finding]:
    """8-bit weights with a scale a channel have zero points other than 0, in a layer that computes with integers."""
    for layer, x, w, _ in look.sums():
        q = w.quantization
        if narrow(x) and w.dtype == "int8" and w.quantized and w.data is not None and q is not None and q.per_channel:
            count = int((q.zero_point != 0).sum())
            if count:
                found = f"zero points from {q.zero_point.min()} to {q.zero_point.max()} in {count} channels"
                yield Finding(layer.index, w.index, f"{w.name}: {found}")


@rule("parameter-count", "error", "store one scale and one zero point a channel, or one for all")
def parameter_count(look: Look) -> Iterator[Finding]:
    """Not as many scales and zero points as channels."""
    for tensor in look.tensors.values():
        q = tensor.quantization
        if q is None or not tensor.quantized:
            continue
        want = 1
        if q.axis is not None:
            if tensor.shape is None or not 0 <= q.axis < len(tensor.shape):
                want = -1
            else:
                want = tensor.shape[0] * tensor.shape[1] if tensor.layout == "MIHW" else tensor.shape[q.axis]
        if (len(q.scale) != want and want != -1) or len(q.zero_point) != len(q.scale):
            found = f"{len(q.scale)} scales and {len(q.zero_point)} zero points"
            yield look.at(tensor, f"{found} for {want} channels")


@rule(
    "concat-scales",
    "warning",
    "give all inputs and the output of a concatenation the same parameters in calibration: else they are rounded again",
)
def concat_scales(look: Look) -> Iterator[Finding]:
    """What is concatenated has differing scales or zero points."""
    for layer in look.layers:
        ends = [look.tensors[i] for i in (*layer.inputs, *layer.outputs)]
        if layer.kind != "concat" or not all(narrow(t) and len(scale_of(t)) == 1 for t in ends):
            continue
        scales = [scale_of(t)[0] for t in ends]
        zeros = [int(t.quantization.zero_point[0]) for t in ends if t.quantization is not None]
        if max(scales) > min(scales) * (1 + 1e-5) or len(set(zeros)) > 1:
            message = (
                f"scales from {min(scales):.4g} to {max(scales):.4g}, zero points from {min(zeros)} to {max(zeros)}"
            )
            yield Finding(layer.index, layer.outputs[0], f"{layer.name or layer.op}: {message}")


@rule(
    "softmax-scale",
    "warning",
    "use scale 1/256 and the smallest number as zero point: MindSpore Lite's kernel assumes them, and no value is lost",
)
def softmax_scale(look: Look) -> Iterator[Finding]:
    """The 8-bit output of a softmax is not stored in steps of 1/256 from 0."""
    for layer in look.layers:
        if layer.kind != "softmax" or not layer.outputs:
            continue
        tensor = look.tensors[layer.outputs[0]]
        q, limits = tensor.quantization, grid(tensor)
        if q is None or limits is None or not narrow(tensor) or q.bits != 8 or not len(q.scale):
            continue
        if look.network.format == "armnn" and tensor.dtype == "uint8":  # see softmax-replaced
            continue
        if abs(q.scale[0] * 256 - 1) > 0.02 or q.zero_point[0] != limits[0]:
            yield look.at(tensor, f"scale {q.scale[0]:.6g}, zero point {q.zero_point[0]}")


@rule(
    "softmax-replaced",
    "warning",
    "store scale 1/256 and zero point 0, or read the parameters from the loaded network: the file's are not used",
)
def softmax_replaced(look: Look) -> Iterator[Finding]:
    """Arm NN sets other parameters than the file's for the unsigned 8-bit output of a softmax."""
    for layer in look.layers:
        if look.network.format != "armnn" or layer.op != "Softmax" or not layer.outputs:
            continue
        tensor = look.tensors[layer.outputs[0]]
        q = tensor.quantization
        if tensor.dtype != "uint8" or q is None or len(q.scale) != 1:
            continue
        if abs(q.scale[0] * 256 - 1) > 0.01 or q.zero_point[0] != 0:  # 1/255 makes one step at the most
            yield look.at(tensor, f"scale {q.scale[0]:.6g}, zero point {q.zero_point[0]}: Arm NN takes 1/256 and 0")


@rule(
    "constant-dequantize",
    "error",
    "store the constant in Float32 and leave the layer out; Float16, QAsymmS8, or QSymmS8 with one scale also come out",
)
def constant_dequantize(look: Look) -> Iterator[Finding]:
    """Arm NN dequantises a constant wrongly, when it loads the model."""
    # Source: ConvertConstDequantisationLayersToConstLayers of Arm NN 22.11, and files that it ran
    for layer in look.layers:
        if look.network.format != "armnn" or layer.op != "Dequantize" or not layer.inputs or not layer.outputs:
            continue
        tensor, given = look.tensors[layer.inputs[0]], look.tensors[layer.outputs[0]]
        kept = tensor.vendor_dtype in ("Float16", "QAsymmS8", "QSymmS8") and given.dtype == "float32"
        if tensor.data is not None and not kept:
            yield Finding(layer.index, tensor.index, f"{tensor.name}: {tensor.vendor_dtype} becomes zeros")
        elif tensor.data is not None and len(scale_of(tensor)) > 1:
            message = f"{tensor.name}: the first of its {len(scale_of(tensor))} scales is taken for all"
            yield Finding(layer.index, tensor.index, message)


@rule(
    "raw-bytes",
    "warning",
    "check that the model was calibrated with the preprocessing it was trained with, as x / 127.5 - 1",
)
def raw_bytes(look: Look) -> Iterator[Finding]:
    """An input or output has scale 1: its real values are raw bytes of 0 to 255."""
    for i in sorted(look.ports_in | look.ports_out):
        tensor = look.tensors[i]
        q, limits = tensor.quantization, grid(tensor)
        if q is None or limits is None or q.bits != 8 or not narrow(tensor) or len(q.scale) != 1:
            continue
        if abs(q.scale[0] - 1) < 0.01 and abs(int(q.zero_point[0]) - limits[0]) <= 1:
            yield look.at(tensor, f"scale {q.scale[0]:g}, zero point {q.zero_point[0]}: real values 0 to 255")


@rule(
    "relu-range",
    "warning",
    "put the zero point of a ReLU's output at the smallest number: half the steps are lost otherwise",
)
def relu_range(look: Look) -> Iterator[Finding]:
    """Numbers below the zero point are never used: what a ReLU gives is not negative."""
    for layer in look.layers:
        function = layer.attrs.get("activationFunction") or layer.attrs.get("activation_type")
        if function not in _RELU or (function == "BoundedReLu" and layer.attrs.get("b", 0.0) < 0) or not layer.outputs:
            continue
        tensor = look.tensors[layer.outputs[0]]
        q, limits = tensor.quantization, grid(tensor)
        if q is None or limits is None or tensor.dtype not in ("int8", "uint8") or len(q.zero_point) != 1:
            continue
        if tensor.vendor_dtype == "QSymmS8":  # has no other zero point than 0
            continue
        unused = (int(q.zero_point[0]) - limits[0]) / (limits[1] - limits[0])
        if 0.25 < unused <= 1:
            yield look.at(
                tensor, f"zero point {q.zero_point[0]}: {unused:.0%} of the numbers stand for negative values"
            )


@rule(
    "quant-flags",
    "warning",
    "convert again, or set the node's quantType to what its tensors are: the runtime chooses kernels by it",
)
def quant_flags(look: Look) -> Iterator[Finding]:
    """QuantType contradicts the data."""
    for layer in look.layers:
        flag = layer.meta.get("quantType")
        if look.network.format != "mslite" or layer.kind not in SUMS or flag is None:
            continue
        ends = [look.tensors[i] for i in (*layer.inputs, *layer.outputs)]
        packed = any(
            t.quantized or t.compression != "none" or "quantClusters" in t.meta for t in ends if t.data is not None
        )
        flowing = any(narrow(t) for t in ends if t.data is None)
        problem = None
        if flag in _ALL_FLAGS and not packed and not flowing:
            problem = "but nothing it reads or gives is quantised"
        elif flag in _WEIGHT_FLAGS and not packed:
            problem = "but none of its constants is quantised"
        elif flag in _NO_WEIGHT_FLAG and (packed or flowing):
            problem = "but it reads or gives quantised values"
        if problem:
            yield Finding(layer.index, None, f"{layer.name or layer.op}: quantType is {flag}, {problem}")


# ---- values ----------------------------------------------------------------------------------------------------------


@rule("nan", "error", "train or convert again: one NaN spreads to every output")
def nan(look: Look) -> Iterator[Finding]:
    """Constants hold NaN."""
    for tensor in look.constants:
        row = look.stats[tensor.index]
        if row["nan"]:
            yield look.at(tensor, f"{row['nan']} of {row['elements']} values are NaN")


@rule("inf", "warning", "use the largest finite number: inf - inf and 0 * inf are NaN")
def inf(look: Look) -> Iterator[Finding]:
    """Constants hold infinite values."""
    for tensor in look.constants:
        row = look.stats[tensor.index]
        if row["inf"]:
            yield look.at(tensor, f"{row['inf']} of {row['elements']} values are infinite")


@rule(
    "negative-variance",
    "error",
    "quantise the variance with its smallest number as zero point, or fold the layer into the one before it",
)
def negative_variance(look: Look) -> Iterator[Finding]:
    """A batch normalisation has a negative variance."""
    for tensor in look.constants:
        use, low = look.uses.get(tensor.index), look.stats[tensor.index]["min"]
        if use is not None and use.layer.kind == "batch_norm" and role(use) == "variance" and (low or 0) < 0:
            yield look.at(tensor, f"variance of {low:.4g}")


@rule("dead-channel", "warning", "prune it, or look for what went wrong in training: it does not depend on its input")
def dead_channel(look: Look) -> Iterator[Finding]:
    """All weights of a channel are 0, or all are equal."""
    for tensor, _ in look.weights():
        rows = look.flat_channels.get(tensor.index)
        if rows is not None:
            dead = int((rows["absmax"] == 0).sum())
            what = [f"{dead} channels are all 0"] if dead else []
            what += [f"{len(rows) - dead} channels are all one value"] if dead < len(rows) else []
            listed = ", ".join(map(str, rows["channel"][:8])) + (", ..." if len(rows) > 8 else "")
            yield look.at(tensor, f"{' and '.join(what)} (channels {listed})")


@rule(
    "clipped",
    "warning",
    "widen the range: quantise with the largest magnitude, or with the range of least squared error",
)
def clipped(look: Look) -> Iterator[Finding]:
    """Many values lie at the ends of the grid."""
    for tensor in look.constants:
        row = look.stats[tensor.index]
        if row["clipped"] is not None and row["elements"] >= 100 and row["clipped"] > most_clipped(row["bits"]):
            yield look.at(tensor, f"{row['clipped']:.1%} of the values are clipped to the ends of {row['bits']} bits")


@rule("few-levels", "warning", "choose the scale from the values' own range, one a channel; or store fewer bits")
def few_levels(look: Look) -> Iterator[Finding]:
    """Less than 1/8 of the grid is used."""
    for tensor in look.constants:
        row = look.stats[tensor.index]
        share, used = row["levels_share"], row["range_used"]
        if share is not None and row["elements"] >= 2 ** row["bits"] and share < FEW_LEVELS:
            yield look.at(tensor, f"{row['levels']} of {2 ** row['bits']} levels occur")
        elif used is not None and row["elements"] >= 16 and 0 < used < FEW_LEVELS:
            yield look.at(tensor, f"values span {used:.1%} of the range that can be stored")


@rule("channel-range", "warning", "quantise per channel, or equalise the ranges of neighbouring layers")
def channel_range(look: Look) -> Iterator[Finding]:
    """One scale for channels of very different ranges: the narrow ones get few levels."""
    for tensor, use in look.weights():
        row = look.stats[tensor.index]
        ratio = row["channel_range_ratio"]
        if row["scheme"] == "per_tensor" and (ratio or 0) > WIDE:
            kind = "depthwise weights" if use.layer.kind == "depthwise_conv2d" else "weights"
            levels = f"{2 ** row['bits'] / ratio:.1f} of {2 ** row['bits']} levels"
            yield look.at(tensor, f"{kind} whose widest channel is {ratio:.0f} x the narrowest, which gets {levels}")


@rule("float16-range", "warning", "scale the layer down, or keep it in float32: 65504 is the largest float16")
def float16_range(look: Look) -> Iterator[Finding]:
    """Values beyond float16's range in a float16 model."""
    if any(t.dtype == "float16" for t in look.tensors.values()):
        for tensor in look.constants:
            reach = look.stats[tensor.index]["absmax"]
            if tensor.dtype in ("float32", "float64") and (reach or 0) > HALF_MAX:
                yield look.at(tensor, f"magnitude {reach:.4g}")
