"""MindSpore Lite's losses, gradients and optimisers, as its training kernels (1.5) compute them.

Optimisers and assignments write to their operands: they give an ``Update``, after which the engine holds new weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mlinspect.errors import UnsupportedError
from mlinspect.execute.control import Update
from mlinspect.execute.ops_mslite import last_two, padding_of
from mlinspect.execute.ops_mslite_shape import integers, masks_of
from mlinspect.execute.registry import Call, choice, op
from mlinspect.kernels import elementwise, gradient, slice, softmax

train = partial(op, "mslite")
_F = np.float32

# --- losses ----------------------------------------------------------------------------------------------------------


@train("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(call: Call, logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Loss by row, and its gradient by the logits."""
    share = softmax.softmax(logits)
    loss = (labels * -np.log(np.where(share <= 0, _F(1e-6), share))).sum(-1, keepdims=True)
    return (loss.astype(_F), share - labels)[: len(call.outputs)]


@train("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(call: Call, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean loss; or with ``is_grad`` its gradient by the logits."""
    share = softmax.softmax(logits)
    rows, wanted = np.arange(len(share)), labels.reshape(-1)
    if not call.attrs["is_grad"]:
        return np.array([-np.log(share[rows, wanted]).mean()], _F)
    share[rows, wanted] -= _F(1)
    return share / _F(len(share))


def reduced(call: Call, loss: np.ndarray) -> np.ndarray:
    """A loss by element, summed or averaged as the layer says."""
    how = call.attrs["reduction"]
    if how == "NONE":
        return loss
    return np.array([loss.mean() if how == "MEAN" else loss.sum()], _F)


def share_of(call: Call, size: int) -> np.float32:
    """What one element counts in a reduced loss."""
    return _F(1 / size) if call.attrs["reduction"] == "MEAN" else _F(1)


@train("BinaryCrossEntropy")
def binary_cross_entropy(call: Call, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    tiny = _F(1e-12)
    loss = -(y * np.log(x + tiny) + (1 - y) * np.log(1 - x + tiny))
    return reduced(call, loss if weight is None else loss * weight)


@train("BinaryCrossEntropyGrad")
def binary_cross_entropy_grad(
    call: Call, x: np.ndarray, y: np.ndarray, dloss: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    dx = (x - y) / np.maximum(x * (1 - x), _F(1e-12)) * (dloss * share_of(call, x.size))
    return dx if weight is None else dx * weight


@train("SigmoidCrossEntropyWithLogits")
def sigmoid_cross_entropy(call: Call, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits)))


@train("SigmoidCrossEntropyWithLogitsGrad")
def sigmoid_cross_entropy_grad(call: Call, logits: np.ndarray, labels: np.ndarray, dloss: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-logits)) - labels) * dloss


@train("SmoothL1Loss")
def smooth_l1(call: Call, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    far, beta = np.abs(x - y), _F(call.attrs["beta"])
    return np.where(far < beta, _F(0.5) * far * far / beta, far - _F(0.5) * beta)


@train("SmoothL1LossGrad")
def smooth_l1_grad(call: Call, x: np.ndarray, y: np.ndarray, dloss: np.ndarray) -> np.ndarray:
    beta = _F(call.attrs["beta"])
    return np.clip(x - y, -beta, beta) / beta * dloss


# --- gradients element by element ------------------------------------------------------------------------------------

# by (dy, what the gradient's second operand is: the output for most, the input for others, alpha)
_ACTIVATION_GRADS: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "RELU": lambda dy, y, alpha: np.where(y > 0, dy, _F(0)),
    "RELU6": lambda dy, y, alpha: np.where((y > 0) & (y <= 6), dy, _F(0)),
    "LEAKY_RELU": lambda dy, y, alpha: np.where(y > 0, dy, _F(alpha) * dy),
    "SIGMOID": lambda dy, y, alpha: dy * (y * (1 - y)),
    "TANH": lambda dy, y, alpha: (1 - y * y) * dy,
    "HSWISH": lambda dy, x, alpha: np.where(x > 3, _F(1), np.where(x < -3, _F(0), (2 * x + 3) / 6)) * dy,
    "HSIGMOID": lambda dy, x, alpha: np.where(np.abs(x) > 3, _F(0), _F(1 / 6)) * dy,
    "ELU": lambda dy, x, alpha: np.where(x > 0, dy, _F(alpha) * np.exp(x) * dy),
    "GELU": lambda dy, x, alpha: (
        dy * (_F(0.5) * (1 + elementwise.erf(x / _F(2**0.5))) + x * np.exp(_F(-0.5) * x * x) / _F((2 * np.pi) ** 0.5))
    ),
    "SOFTPLUS": lambda dy, x, alpha: dy / (1 + np.exp(-x)),
}


@train("ActivationGrad")
def activation_grad(call: Call, dy: np.ndarray, known: np.ndarray) -> np.ndarray:
    name = call.attrs["activation_type"]
    gradient_of = choice(_ACTIVATION_GRADS, name, "the gradient of activation")
    alpha = call.attrs.get("alpha") or 0.0
    if name == "ELU" and call.mode == "vendor":  # the runtime takes expm1 for exp
        return np.where(known > 0, dy, _F(alpha) * np.expm1(known) * dy)
    return gradient_of(dy, known, alpha)


_UNARY_GRADS: dict[str, Callable[..., np.ndarray]] = {
    "AbsGrad": lambda x, dy: np.sign(x) * dy,
    "LogGrad": lambda dy, x: dy / x,
    "SqrtGrad": lambda y, dy: _F(0.5) * dy / y,
    "RsqrtGrad": lambda y, dy: _F(-0.5) * dy * y * y * y,
    "NegGrad": lambda dy, *rest: -dy,
}


@train(*_UNARY_GRADS)
def unary_grad(call: Call, *operands: np.ndarray) -> np.ndarray:
    return _UNARY_GRADS[call.layer.op](*operands)


@train("PowerGrad")
def power_grad(call: Call, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    a = call.attrs
    return dy * _F(a["power"] * a["scale"]) * elementwise.power(x, np.array(a["power"] - 1, _F), a["scale"], a["shift"])


def summed_to(dx: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient summed over the axes that its operand was broadcast along."""
    dx = dx.sum(tuple(range(dx.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and dx.shape[i] > 1)
    return dx.sum(axes, keepdims=True) if axes else dx


# of (dy, a, b)
_BINARY_GRADS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "AddGrad": lambda dy, a, b: (dy, dy),
    "SubGrad": lambda dy, a, b: (dy, -dy),
    "MulGrad": lambda dy, a, b: (dy * b, dy * a),
    "DivGrad": lambda dy, a, b: (dy / b, -dy * a / (b * b)),
}


@train(*_BINARY_GRADS)
def binary_grad(call: Call, dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    da, db = _BINARY_GRADS[call.layer.op](dy, a, b)
    return summed_to(da, a.shape), summed_to(db, b.shape)


@train("MaximumGrad", "MinimumGrad")
def extreme_grad(call: Call, a: np.ndarray, b: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, ...]:
    first = a > b if call.layer.op == "MaximumGrad" else a < b
    return summed_to(np.where(first, dy, _F(0)), a.shape), summed_to(np.where(first, _F(0), dy), b.shape)


@train("BiasAddGrad")
def bias_add_grad(call: Call, dy: np.ndarray) -> np.ndarray:
    return dy.sum(tuple(range(dy.ndim - 1)), keepdims=True)


@train("DropoutGrad")
def dropout_grad(call: Call, dy: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return dy * mask * _F(1 / (call.attrs["keep_prob"] or 1))


# --- gradients of windows and slices ---------------------------------------------------------------------------------


@train("Conv2DBackpropInputFusion")
def conv2d_backprop_input(call: Call, dy: np.ndarray, weights: np.ndarray, shape: np.ndarray) -> np.ndarray:
    a = call.attrs
    if (a.get("group") or 1) > 1:
        raise UnsupportedError("the gradient of a grouped convolution by its input is not known here")
    declared = call.outputs[0].shape
    # the operand is NCHW
    height, width = declared[1:3] if declared is not None and len(declared) == 4 else integers(shape)[2:4]
    stride, dilation, kernel = last_two(a["stride"]), last_two(a["dilation"]), weights.shape[1:3]
    padding = padding_of(a["pad_mode"], a["pad_list"], (height, width), kernel, stride, dilation)
    return gradient.conv2d_input(dy, weights, (height, width), stride=stride, padding=padding, dilation=dilation)


@train("Conv2DBackpropFilterFusion")
def conv2d_backprop_filter(call: Call, dy: np.ndarray, x: np.ndarray, shape: np.ndarray | None = None) -> np.ndarray:
    a = call.attrs
    stride, dilation, kernel = last_two(a["stride"]), last_two(a["dilation"]), last_two(a["kernel_size"])
    padding = padding_of(a["pad_mode"], a["pad_list"], x.shape[1:3], kernel, stride, dilation)
    groups = max(int(a.get("group") or 1), 1)
    return gradient.conv2d_filter(dy, x, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)


@train("MaxPoolGrad", "AvgPoolGrad")
def pool_grad(call: Call, x: np.ndarray, y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    a = call.attrs
    window, stride = last_two(a["kernel_size"]), last_two(a["strides"])
    padding = padding_of(a["pad_mode"], a.get("pad_list"), x.shape[1:3], window, stride)
    if call.layer.op == "MaxPoolGrad":
        return gradient.max_pool(x, dy, window, stride, padding)
    return gradient.average_pool(x.shape[1:3], dy, window, stride, padding)


@train("StridedSliceGrad")
def strided_slice_grad(
    call: Call, dy: np.ndarray, shape: np.ndarray, begin: np.ndarray, end: np.ndarray, stride: np.ndarray
) -> np.ndarray:
    dx = np.zeros(integers(shape), dy.dtype)
    slice.strided_slice(dx, integers(begin), integers(end), integers(stride), **masks_of(call))[...] = dy
    return dx


@train("LayerNormGrad")
def layer_norm_grad(
    call: Call, x: np.ndarray, dy: np.ndarray, variance: np.ndarray, mean: np.ndarray, gamma: np.ndarray
) -> tuple[np.ndarray, ...]:
    axes = tuple(range(call.attrs["begin_norm_axis"] % x.ndim, x.ndim))
    lead = tuple(range(call.attrs["begin_params_axis"] % x.ndim))
    shape = [n if i not in axes else 1 for i, n in enumerate(x.shape)]
    inverse = 1 / np.sqrt(variance.reshape(shape) + _F(1e-12))
    normal = (x - mean.reshape(shape)) * inverse
    scaled = dy * gamma
    dx = inverse * (scaled - scaled.mean(axes, keepdims=True) - normal * (scaled * normal).mean(axes, keepdims=True))
    return dx, (dy * normal).sum(lead), dy.sum(lead)


# --- optimisers ------------------------------------------------------------------------------------------------------


def done(call: Call) -> tuple[np.ndarray, ...]:
    """An optimiser's own result, which nobody reads."""
    return tuple(np.zeros(1, _F) for _ in call.outputs)


def number(value: np.ndarray) -> np.float32:
    """A scalar operand."""
    return _F(value.reshape(-1)[0])


@train("Adam", "AdamWeightDecay")
def adam(call: Call, weight: np.ndarray, m: np.ndarray, v: np.ndarray, *rest: np.ndarray) -> Update:
    *scalars, gradient_ = rest
    if call.layer.op == "Adam":
        power1, power2, rate, beta1, beta2, epsilon = map(number, scalars)
        rate, decay = rate * np.sqrt(1 - power2) / (1 - power1), _F(0)
    else:
        rate, beta1, beta2, epsilon, decay = map(number, scalars)
    step = gradient_.reshape(weight.shape)
    m = m + (step.reshape(m.shape) - m) * (1 - beta1)
    v = v + (step.reshape(v.shape) ** 2 - v) * (1 - beta2)
    ahead = m * beta1 + (1 - beta1) * step.reshape(m.shape) if call.attrs.get("use_nesterov") else m
    change = (ahead / (np.sqrt(v) + epsilon)).reshape(weight.shape)
    return Update(done(call), {0: weight - rate * (change + decay * weight), 1: m, 2: v})


@train("ApplyMomentum")
def apply_momentum(
    call: Call, weight: np.ndarray, sums: np.ndarray, rate: np.ndarray, gradient_: np.ndarray, momentum: np.ndarray
) -> Update:
    step, decay = gradient_.reshape(sums.shape), number(momentum)
    sums = sums * decay + step
    change = sums * decay + step if call.attrs.get("use_nesterov") else sums
    return Update(done(call), {0: weight - change.reshape(weight.shape) * number(rate), 1: sums})


@train("SGD")
def stochastic_gradient_descent(
    call: Call,
    weight: np.ndarray,
    gradient_: np.ndarray,
    rate: np.ndarray,
    sums: np.ndarray,
    momentum: np.ndarray,
    state: np.ndarray,
) -> Update:
    a, decay = call.attrs, number(momentum)
    step = gradient_.reshape(weight.shape) + weight * _F(a["weight_decay"])
    if decay > 0:
        first = number(state) > 0  # the first step takes the gradient itself
        sums = step if first else sums * decay + (1 - _F(a["dampening"])) * step
        step = sums * decay + step if a["nesterov"] else sums
    return Update(done(call), {0: weight - number(rate) * step, 3: sums, 5: np.zeros_like(state)})


@train("Assign", "AssignAdd")
def assign(call: Call, variable: np.ndarray, value: np.ndarray) -> Update:
    new = variable + value if call.layer.op == "AssignAdd" else value
    new = np.asarray(new, variable.dtype).reshape(variable.shape)
    return Update((new,)[: len(call.outputs)] + done(call)[1:], {0: new})
