"""Phases of training: on the real training files, and on a graph small enough to see."""

import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.phases import phases


def layer(index, op, kind, inputs, outputs, **attrs):
    return ir.Layer(index, "", op, kind, 0, attrs, inputs, outputs)


def network(*layers, inputs=(0, 1)):
    ports = tuple(ir.Port(f"in{i}", i) for i in inputs)
    return ir.Network("mslite", "msl2_newest", "", (ir.Graph(0, "", ports, (), layers),), {})


def test_a_loss_in_plain_operators_is_found_by_the_labels():
    """Tensor 0 is the image, 1 the label, 10 the weights."""
    found = phases(
        network(
            layer(0, "MulFusion", "mul", (20, 21), (22,)),  # a running power for the optimiser
            layer(1, "MatMulFusion", "matmul", (0, 10), (2,)),
            layer(2, "SubFusion", "sub", (2, 1), (3,)),
            layer(3, "AbsGrad", "abs_grad", (3, 11), (4,)),
            layer(4, "Abs", "abs", (3,), (5,)),
            layer(5, "ReduceFusion", "reduce_mean", (5,), (6,)),
            layer(6, "MatMulFusion", "matmul", (0, 4), (7,)),
            layer(7, "Adam", "adam", (10, 22, 7), (8,)),
        )
    )
    assert list(found.values()) == [
        "optimizer",
        "forward",
        "loss",
        "backward",
        "loss",
        "loss",
        "backward",
        "optimizer",
    ]


def test_inference_is_forward_throughout():
    """Even where it computes what would be a loss in training."""
    found = phases(network(layer(0, "SmoothL1Loss", "smooth_l1_loss", (0, 1), (2,))))
    assert set(found.values()) == {"forward"}


@pytest.mark.parametrize(
    ("name", "loss", "optimizers"),
    [
        ("lenet_train", {"SubFusion", "Abs", "MulFusion", "ReduceFusion"}, {"Adam", "MulFusion"}),
        ("conv_train_model", {"SoftmaxCrossEntropyWithLogits", "MulFusion", "ReduceFusion"}, {"ApplyMomentum"}),
        ("mix_lenet_tod", {"SparseSoftmaxCrossEntropyWithLogits"}, {"Adam", "Assign", "MulFusion"}),
        ("xiaoyi_train_codegen", {"BinaryCrossEntropy"}, {"Adam", "Assign", "MulFusion"}),
    ],
)
def test_real_training_files(models, name, loss, optimizers):
    opened = mi.open(models / f"{name}.ms").network
    found = phases(opened)
    ops = {phase: {opened.layers[i].op for i, p in found.items() if p == phase} for phase in set(found.values())}
    assert ops["loss"] == loss
    assert optimizers - {"MulFusion"} <= ops["optimizer"] <= optimizers
    assert not {op for op in ops["forward"] if op.endswith("Grad")}
