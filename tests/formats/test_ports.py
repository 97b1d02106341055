"""Ports follow the layers that they belong to, also where several lead to one tensor."""

import pytest

import mlinspect as mi
from mlinspect import build, extract, save


@pytest.fixture
def twins():
    """An Arm NN model with two outputs that give the same tensor."""
    builder = build.armnn().input("x", (1, 4)).layer("Activation", "relu", activationFunction="ReLu")
    return builder.output("y").output("z", tensor="relu").model()


def outputs(model):
    return model.outputs[["name", "binding_id", "tensor"]].values.tolist()


def test_outputs_of_one_tensor_keep_their_names_and_ids(twins):
    assert outputs(twins) == [["y", 0, 1], ["z", 1, 1]]
    assert outputs(mi.open(save.to_bytes(twins.network))) == outputs(twins)


def test_an_edit_of_one_leaves_the_other(twins):
    changed = twins.with_attrs("y", layerBindingId=7).rename(layers={"z": "again"})
    assert outputs(changed) == [["y", 7, 1], ["again", 1, 1]]
    assert outputs(mi.open(save.to_bytes(changed.network))) == outputs(changed)


def test_anonymous_ports_can_still_be_told_apart(twins):
    hidden = extract.anonymous(twins.network)
    assert [port.name for port in hidden.graphs[0].outputs] == ["layer_2", "layer_3"]
    assert [port.binding_id for port in mi.open(save.to_bytes(hidden)).network.graphs[0].outputs] == [0, 1]
