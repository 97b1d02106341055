"""Layers and tensors by name: the one that is meant, or an error that says why there is not just one."""

from __future__ import annotations

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute.names import tensor_among

IMAGE = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


def opened() -> mi.Model:
    return mi.open(mi.samples.path("digits_cnn.ms"))


def test_a_name_that_several_layers_have_is_refused_with_their_indices() -> None:
    model = opened().rename({2: "twin", 4: "twin"})
    session = model.session(IMAGE)
    session.go_to(3)
    for act in (
        lambda: session.run_to("twin"),
        lambda: session.back_to("twin"),
        lambda: session.run_until(layer="twin"),
        lambda: session.break_when(layer="twin"),
        lambda: session.replace("twin", np.add),
        lambda: model.run(IMAGE, until="twin"),
        lambda: model.with_attrs("twin", group=1),
        lambda: model.without("twin"),
    ):
        with pytest.raises(mi.InputError, match=r"layers \[2, 4\] are all called 'twin': use an index"):
            act()
    assert session.run_to(4).index == 4


def test_unknown_names_come_with_what_was_perhaps_meant() -> None:
    session = opened().session(IMAGE)
    for act, hint in (
        (lambda: session.run_to("res/conv"), "'/res/Conv'"),
        (lambda: session.run_until(layer="/Softmx"), "'/Softmax'"),
        (lambda: session.run_until(kind="max_pool"), "'max_pool2d'"),
        (lambda: session.replace("Add", np.add), "'/Add'"),
        (lambda: session.watch("probabilty"), "'probability'"),
    ):
        with pytest.raises(mi.InputError, match=f"did you mean {hint}"):
            act()
    with pytest.raises(mi.InputError, match=r"no tensor 3\.5"):
        session[3.5]
    with pytest.raises(KeyError, match="did you mean 'probability'"):
        opened().trace(IMAGE)["probabilty"]


def test_tensors_by_name_are_those_of_the_part_that_is_looked_at() -> None:
    tensors = {i: ir.Tensor(i, "twin" if i < 2 else "other", 0, "activation", "float32", "", None) for i in range(3)}
    assert tensor_among(tensors, "twin", parts=(1, 2)) == 1
    assert tensor_among(tensors, "other") == tensor_among(tensors, 2) == 2
    for parts in ((), (0, 1)):
        with pytest.raises(mi.InputError, match=r"tensors \[0, 1\] are all called 'twin': use an id"):
            tensor_among(tensors, "twin", parts)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda session: session.run_until(5), "a condition is a function of a tensor's real values, not 5"),
        (lambda session: session.run_until(abov=1), "no condition 'abov': use one of .*; did you mean 'above'"),
        (lambda session: session.break_when(above="a"), "above='a' is no number"),
        (lambda session: session.watch("image", 5), "a function of the tensor's real values, not 5"),
        (lambda session: session.run_to(np.array([1, 2])), "a layer goes by index or name, not by ndarray"),
        (lambda session: session[np.array([1, 2])], "a tensor goes by id or name, not by ndarray"),
    ],
)
def test_arguments_of_another_kind_are_refused_in_words(act, message: str) -> None:
    with pytest.raises(mi.InputError, match=message):
        act(opened().session(IMAGE))
