"""Which phase of training every layer of a MindSpore Lite file belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from mlinspect.ir import Layer, Network

LOSSES = {
    "BinaryCrossEntropy",
    "NLLLoss",
    "SigmoidCrossEntropyWithLogits",
    "SmoothL1Loss",
    "SoftmaxCrossEntropyWithLogits",
    "SoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropy",
}
OPTIMIZERS = {"Adam", "AdamWeightDecay", "ApplyMomentum", "Assign", "AssignAdd", "OptMomentum", "SGD", "Sgd"}
# gradients whose names do not end in Grad
_GRADIENTS = {
    "Conv2DBackpropFilterFusion",
    "Conv2DBackpropInputFusion",
    "Conv2DGradFilter",
    "Conv2DGradInput",
    "DeConv2DGradFilter",
    "GroupConv2DGradInput",
    "BNGradInput",
    "LSTMGradData",
    "LSTMGradWeight",
}


def is_gradient(layer: Layer) -> bool:
    """A layer that computes a gradient by its very operator."""
    return layer.op.endswith("Grad") or layer.op in _GRADIENTS or bool(layer.attrs.get("is_grad"))


def phases(network: Network) -> dict[int, str]:
    """The phase of each layer: ``"forward"``, ``"loss"``, ``"backward"`` or ``"optimizer"``.

    Training files hold the whole training step in one graph. Layers that lead to predictions are forward; a loss, and
    layers that reduce it, are loss; gradients, and all that follows from them, are backward; layers that change
    weights, or only prepare that, are optimizer. In files without gradients and optimizers every layer is forward.

    Parameters
    ----------
    network : Network

    Returns
    -------
    dict of int to str
        By layer index, for every layer.

    Examples
    --------
    >>> from mlinspect.ir import Graph, Port
    >>> layers = (
    ...     Layer(0, "", "MatMulFusion", "matmul", 0, {}, (0, 1), (2,)),
    ...     Layer(1, "", "SmoothL1Loss", "smooth_l1_loss", 0, {}, (2, 3), (4,)),
    ...     Layer(2, "", "SmoothL1LossGrad", "smooth_l1_loss_grad", 0, {}, (2, 3, 5), (6,)),
    ...     Layer(3, "", "SGD", "sgd", 0, {}, (1, 6), (7,)),
    ... )
    >>> graph = Graph(0, "", (Port("x", 0), Port("label", 3)), (Port("loss", 4),), layers)
    >>> phases(Network("mslite", "msl2_newest", "", (graph,), {}))
    {0: 'forward', 1: 'loss', 2: 'backward', 3: 'optimizer'}
    """
    layers = list(network.layers.values())
    if not any(is_gradient(layer) or layer.op in OPTIMIZERS for layer in layers):
        return dict.fromkeys(network.layers, "forward")
    found: dict[int, str] = {}
    users: dict[int, list[Layer]] = {}
    for layer in layers:
        for tensor in layer.inputs:
            users.setdefault(tensor, []).append(layer)
    grown: set[int] = set()  # tensors that a gradient led to
    for layer in layers:
        if layer.op in OPTIMIZERS:
            found[layer.index] = "optimizer"
        elif is_gradient(layer) or not grown.isdisjoint(layer.inputs):
            found[layer.index] = "backward"
            grown.update(layer.outputs)
        elif layer.op in LOSSES:
            found[layer.index] = "loss"
    _mark_what_serves_alone(layers, users, found)
    forward = [layer for layer in layers if layer.index not in found]
    judged = _labels(network, forward)
    for layer in layers:
        if found.get(layer.index) == "loss" or (layer.index not in found and not judged.isdisjoint(layer.inputs)):
            found[layer.index] = "loss"
            judged.update(layer.outputs)
    return {layer.index: found.get(layer.index, "forward") for layer in layers}


def _mark_what_serves_alone(layers: Iterable[Layer], users: dict[int, list[Layer]], found: dict[int, str]) -> None:
    """Layers that only serve backward or optimizer layers belong to them: running powers, sums of gradients."""
    for layer in reversed(list(layers)):
        takers = {found.get(user.index) for tensor in layer.outputs for user in users.get(tensor, ())}
        if layer.index not in found and takers and takers <= {"backward", "optimizer"}:
            found[layer.index] = "optimizer" if takers == {"optimizer"} else "backward"


def _labels(network: Network, forward: Iterable[Layer]) -> set[int]:
    """The model's inputs that no layer with weights comes after: what predictions are compared with."""
    inputs = {port.tensor for graph in network.graphs[:1] for port in graph.inputs}
    weighed: set[int] = set()  # tensors that lead to a layer with weights
    for layer in reversed(list(forward)):
        if layer.kind in _WEIGHTED or not weighed.isdisjoint(layer.outputs):
            weighed.update(layer.inputs)
    return inputs - weighed


_WEIGHTED = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "matmul", "fully_connected", "gather", "lstm", "gru")
