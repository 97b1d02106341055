"""Runs use tables where a number follows from one 8-bit number; sessions and traces compute layer by layer."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute import registry
from mlinspect.execute.ops_mslite_elementwise import ACTIVATIONS

X = np.random.default_rng(3).integers(-128, 128, (2, 3, 5, 4)).astype(np.int8)


def island(activation="HSWISH", into=(0.1, 3), out=(0.07, -20), dtype="int8"):
    """8-bit input -> float32 -> activation -> 8-bit, as MindSpore Lite's converter leaves it."""

    def tensor(i, kind, parameters=None):
        q = None if parameters is None else ir.Quantization(np.array([parameters[0]]), np.array([parameters[1]]))
        return ir.Tensor(i, f"t{i}", 0, "activation", kind, kind, (2, 3, 5, 4), quantization=q, quantized=q is not None)

    def layer(i, op, kind, **attrs):
        return ir.Layer(i, f"n{i}", op, kind, 0, attrs, (i,), (i + 1,))

    layers = (
        layer(0, "QuantDTypeCast", "dequantize", src_t=32, dst_t=43),
        layer(1, "Activation", "activation", activation_type=activation, min_val=-1.0, max_val=1.0, alpha=0.1),
        layer(2, "QuantDTypeCast", "quantize", src_t=43, dst_t=32),
    )
    tensors = dict(
        enumerate([tensor(0, dtype, into), tensor(1, "float32"), tensor(2, "float32"), tensor(3, dtype, out)])
    )
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", 3),), layers)
    return ir.Network("mslite", "msl2_newest", "", (graph,), tensors)


def steps(model, outputs=None):
    """How many steps a run takes."""
    wanted, *_ = model._start(X, outputs, "vendor", False, 1)
    return len(model._programs.get("vendor", wanted.values(), only_wanted=True).steps)


@given(
    st.sampled_from(sorted(ACTIVATIONS)),
    st.tuples(st.floats(1e-3, 1), st.integers(-128, 127)),
    st.tuples(st.floats(1e-3, 1), st.integers(-128, 127)),
)
def test_a_table_gives_the_bits_of_the_layers(activation, into, out):
    model = mi.Model(island(activation, into, out))
    assert steps(model) == 1
    np.testing.assert_array_equal(model.run(X)["y"], model.trace(X)["t3"])


def test_results_in_float32_and_of_other_memory_orders():
    model = mi.Model(island())
    assert steps(model, ["t2"]) == 1
    for x in (X, X[::-1].swapaxes(1, 2).copy().swapaxes(1, 2), X[:, ::-1]):
        np.testing.assert_array_equal(model.run(x, outputs=["t2"])["t2"], model.trace(x)["t2"])
        np.testing.assert_array_equal(model.run(x)["y"], model.trace(x)["t3"])


def test_arrays_of_no_axes_stay_arrays():
    network = island()
    scalars = mi.Model(replace(network, tensors={i: replace(t, shape=()) for i, t in network.tensors.items()}))
    for name in ("t2", "t3"):
        (got,) = scalars.run(np.array(5, np.int8), outputs=[name]).values()
        assert isinstance(got, np.ndarray)
        assert got.shape == ()


def test_what_is_wanted_inside_is_computed():
    model = mi.Model(island())
    assert steps(model, ["y", "t1"]) == 3
    got = model.run(X, outputs=["y", "t1", "t2"])
    for name, tensor in (("y", "t3"), ("t1", "t1"), ("t2", "t2")):
        np.testing.assert_array_equal(got[name], model.trace(X)[tensor])


def test_what_others_read_inside_is_computed():
    network = island()
    (graph,) = network.graphs
    other = ir.Layer(3, "n3", "AddFusion", "add", 0, {"activation_type": "NO_ACTIVATION"}, (1, 2), (4,))
    graph = replace(graph, layers=(*graph.layers, other), outputs=(ir.Port("y", 3), ir.Port("z", 4)))
    tensors = network.tensors | {4: replace(network.tensors[2], index=4, name="t4")}
    model = mi.Model(replace(network, graphs=(graph,), tensors=tensors))
    assert steps(model) == 4
    for name, tensor in (("y", "t3"), ("z", "t4")):
        np.testing.assert_array_equal(model.run(X)[name], model.trace(X)[tensor])


def test_the_source_may_be_read_and_freed_before_the_chain_ends():
    network = island()
    (graph,) = network.graphs
    first, *rest = graph.layers
    other = ir.Layer(3, "n3", "Transpose", "transpose", 0, {}, (0, 5), (4,))
    graph = replace(graph, layers=(first, other, *rest), outputs=(ir.Port("y", 3), ir.Port("z", 4)))
    order = replace(network.tensors[1], index=5, name="t5", role="constant", dtype="int32", shape=(4,))
    tensors = network.tensors | {
        4: replace(network.tensors[0], index=4, name="t4", shape=None),
        5: replace(order, data=np.int32([0, 2, 1, 3])),
    }
    model = mi.Model(replace(network, graphs=(graph,), tensors=tensors))
    assert steps(model) == 2
    got = model.run(X)
    np.testing.assert_array_equal(got["z"], X.transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(got["y"], model.trace(X)["t3"])


def test_parameters_by_channel_and_float_mode_have_no_tables():
    network = island()
    q = ir.Quantization(np.array([0.1, 0.2, 0.3, 0.4]), np.zeros(4, int), axis=3)
    by_channel = mi.Model(replace(network, tensors=network.tensors | {0: replace(network.tensors[0], quantization=q)}))
    assert steps(by_channel) == 3
    np.testing.assert_array_equal(by_channel.run(X)["y"], by_channel.trace(X)["t3"])
    model = mi.Model(network)
    np.testing.assert_array_equal(model.run(X, mode="float")["y"], model.trace(X, mode="float")["t3"])


def test_a_users_function_sees_the_whole_array(monkeypatch):
    seen = []
    monkeypatch.setitem(registry.OPS, "mslite", dict(registry.operators("mslite")))

    @mi.register_op("mslite", "Activation")
    def activation(call, x):
        seen.append(x.shape)
        return np.cumsum(x, axis=-1)

    model = mi.Model(island())
    np.testing.assert_array_equal(model.run(X)["y"], model.trace(X)["t3"])
    assert seen == [X.shape] * 2


def test_errors_name_the_layer_inside():
    with pytest.raises(mi.UnsupportedError, match="layer 1 'n1'"):
        mi.Model(island("NOT_THERE")).run(X)
