"""What is computed, checked, freed and reported, whatever the format."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.execute import registry
from mlinspect.execute.engine import execute, plan
from mlinspect.execute.ports import output_names


@pytest.fixture
def model() -> mi.Model:
    return mi.open(mi.samples.path("digits_cnn.armnn"))


@pytest.fixture
def quantized() -> mi.Model:
    return mi.open(mi.samples.path("digits_cnn_u8.armnn"))


@pytest.fixture
def image() -> np.ndarray:
    return mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


def test_inputs_by_name_position_sequence_or_alone(model: mi.Model, image: np.ndarray) -> None:
    name = model.inputs.name.iloc[0]
    (want,) = model.run(image).values()
    for given in ({name: image}, {0: image}, [image]):
        (got,) = model.run(given).values()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"nobody": x}, "no input 'nobody'"),
        (lambda x: [x, x], "2 arrays were given, the model takes 1"),
        (lambda x: x[0], r"wants shape \[1, 8, 8, 1\], not \[8, 8, 1\]"),
        (lambda x: x.astype(np.float64), "wants dtype float32, not float64"),
        (lambda x: {}, "no array was given"),
        (lambda x: None, r"not None: the model takes 0: 'image' float32 \[1, 8, 8, 1\]"),
        (lambda x: "digits.npy", "a list of arrays or one array, not str"),
        (lambda x: 3, "a list of arrays or one array, not int"),
        (lambda x: {"image": None}, r"'image' wants float32 \[1, 8, 8, 1\], not None"),
        (lambda x: [[[1, 2], [3]]], "'image' is no array"),
        (lambda x: {"image": x, 0: x}, "given twice"),
        (lambda x: {"imagee": x}, "did you mean 'image'"),
    ],
)
def test_wrong_inputs_are_told_what_was_wanted(model: mi.Model, image: np.ndarray, change, message: str) -> None:
    with pytest.raises(mi.InputError, match=message):
        model.run(change(image))


def test_real_values_for_a_quantised_input_need_quantize(quantized: mi.Model, image: np.ndarray) -> None:
    with pytest.raises(mi.InputError, match="quantize=True"):
        quantized.run(image)
    tensor = quantized.network.tensors[quantized.network.graphs[0].inputs[0].tensor]
    assert tensor.quantization is not None
    stored = np.clip(
        np.round(image / np.float32(tensor.quantization.scale[0])) + tensor.quantization.zero_point[0], 0, 255
    )
    (a,), (b,) = quantized.run(image, quantize=True).values(), quantized.run(stored.astype(np.uint8)).values()
    np.testing.assert_array_equal(a, b)
    (real,) = quantized.run(image, quantize=True, dequantize=True).values()
    assert real.dtype == np.float32
    assert np.ptp(real) > 0


def test_real_values_may_have_any_precision(model: mi.Model, quantized: mi.Model, image: np.ndarray) -> None:
    for one in (model, quantized):
        want = one.run(image, quantize=True)["output"]
        for dtype in (np.float64, np.float16):  # sixteenths, which both hold
            np.testing.assert_array_equal(one.run(image.astype(dtype), quantize=True)["output"], want)
            np.testing.assert_array_equal(one.trace(image.astype(dtype), quantize=True).outputs["output"], want)
            np.testing.assert_array_equal(one.session(image.astype(dtype), quantize=True).finish()["output"], want)
    with pytest.raises(mi.InputError, match=r"wants dtype float32, not float64: .* or pass quantize=True"):
        model.session(image.astype(np.float64))


def test_only_what_is_asked_for_is_computed(
    model: mi.Model, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    monkeypatch.setitem(registry.OPS, "armnn", dict(registry.operators("armnn")))
    for name, entry in list(registry.operators("armnn").items()):

        def watched(call, *arrays, entry=entry):
            computed.append(call.layer.op)
            return entry.function(call, *arrays)

        registry.OPS["armnn"][name] = registry.Op(watched, entry.stored, entry.integers)
    first = model.layers.query("kind == 'conv2d'").index[0]
    tensor = model.layers.outputs[first][0]
    got = model.run(image, outputs=[tensor])
    assert computed == ["Convolution2d"]
    full = model.trace(image)
    np.testing.assert_array_equal(next(iter(got.values())), full[tensor])


def test_unknown_output_and_mode(model: mi.Model, image: np.ndarray) -> None:
    with pytest.raises(mi.InputError, match="no tensor is called 'nobody'"):
        model.run(image, outputs=["nobody"])
    with pytest.raises(mi.InputError, match="no tensor is called 'outputs'; did you mean 'output'"):
        model.run(image, outputs=["outputs"])
    for wrong in (1.5, None, 999):
        with pytest.raises(mi.InputError, match="no tensor has the id"):
            model.run(image, outputs=[wrong])
    with pytest.raises(ValueError, match="mode 'exact' is unknown"):
        model.run(image, mode="exact")
    with pytest.raises(ValueError, match="did you mean 'vendor'"):
        model.run(image, mode="vender")


def test_what_becomes_an_array_is_one(model: mi.Model, image: np.ndarray) -> None:
    class Elsewhere:
        """As a tensor of another library."""

        def __array__(self, dtype=None, copy=None):
            return image

    np.testing.assert_array_equal(model.run(Elsewhere())["output"], model.run(image)["output"])


def test_a_failing_layer_names_itself_and_keeps_its_cause(
    model: mi.Model, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LAYER_OPS", {})
    name = model.layers.query("kind == 'conv2d'").name.iloc[0]

    @mi.register_op("armnn", "Convolution2d", layer=name)
    def broken(call, *arrays):
        raise ZeroDivisionError("nothing to divide by")

    with pytest.raises(mi.ExecutionError, match=rf"{name}.*float32\[1, 8, 8, 1\].*nothing to divide by") as caught:
        model.run(image)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("name", ["digits_cnn.ms", "digits_cnn_int8.ms"])
@pytest.mark.parametrize("channels", [16, 7, 64])
def test_weights_for_other_channels_are_refused(name: str, channels: int) -> None:
    network = mi.open(mi.samples.path(name)).network
    layer = next(one for one in network.layers.values() if one.name == "/res/Conv")
    weights = network.tensors[layer.inputs[1]]
    shape = (32, 3, 3, channels)
    wrong = dataclasses.replace(weights, data=np.zeros(shape, weights.dtype), shape=shape)
    model = mi.Model(dataclasses.replace(network, tensors={**network.tensors, weights.index: wrong}))
    message = rf"'/res/Conv'.*32 input channels do not fit weights \[32, 3, 3, {channels}\] in 1 groups"
    with pytest.raises(mi.ExecutionError, match=message):
        model.run(mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16)


def chain(length: int) -> ir.Network:
    """x -> layer 0 -> layer 1 -> ... ; layer i adds 1."""
    tensors = {i: ir.Tensor(i, f"t{i}", 0, "activation", "float32", "Float32", (2,)) for i in range(length + 1)}
    layers = tuple(ir.Layer(i, f"layer{i}", "Inc", "inc", 0, {}, (i,), (i + 1,)) for i in range(length))
    graph = ir.Graph(0, "", (ir.Port("x", 0),), (ir.Port("y", length),), layers)
    return ir.Network("armnn", "", "", (graph,), tensors)


def test_tensors_are_freed_after_their_last_use() -> None:
    living: list[int] = []
    arrays: list[weakref.ref[np.ndarray]] = []

    def compute(x: np.ndarray) -> tuple[np.ndarray]:
        result = x + 1
        arrays.append(weakref.ref(result))
        living.append(sum(array() is not None for array in arrays))
        return (result,)

    program = plan(chain(6), [6], lambda layer: compute, lambda tensor: np.zeros(2))
    got = execute(program, {0: np.zeros(2, np.float32)})
    assert got[6].tolist() == [6, 6]
    assert living == [1, 2, 2, 2, 2, 2]  # a layer's operand and its result, nothing else


def test_layers_off_the_path_are_left_out() -> None:
    program = plan(chain(5), [2], lambda layer: lambda x: (x + 1,), lambda tensor: np.zeros(2))
    assert [step.layer.index for step in program.steps] == [0, 1]


def test_output_names_are_unique() -> None:
    ports = [ir.Port("a", 0), ir.Port("a", 1), ir.Port("a_1", 2), ir.Port("", 3), ir.Port("", 4)]
    names = output_names(ports)
    assert names[0] == "a"
    assert names[2] == "a_1"
    assert len(set(names)) == len(names)


def test_session_ends_where_run_ends(quantized: mi.Model, image: np.ndarray) -> None:
    session = quantized.session(image, quantize=True)
    trace = quantized.trace(image, quantize=True)
    layer = session.step()
    assert layer is not None
    assert session.position == 1
    np.testing.assert_array_equal(session.trace[layer.outputs[0]], trace[layer.outputs[0]])
    target = quantized.layers.query("kind == 'softmax'").index[0]
    assert session.run_to(target).index == target
    with pytest.raises(mi.InputError, match="no layer"):
        session.run_to(layer.index)
    outputs = session.finish()
    assert session.done
    assert session.step() is None
    for name, array in quantized.run(image, quantize=True).items():
        np.testing.assert_array_equal(outputs[name], array)
    session.reset()
    assert session.position == 0
    assert not session.outputs


def test_trace_statistics(quantized: mi.Model, image: np.ndarray, tmp_path) -> None:
    trace = quantized.trace(image, quantize=True)
    stats = trace.stats
    assert list(stats.index) == list(trace)
    for tensor_id, row in stats.iterrows():
        array = trace[tensor_id]
        q = trace.network.tensors[tensor_id].quantization
        assert q is not None
        real = (array.astype(np.float64) - q.zero_point[0]) * np.float32(q.scale[0])
        assert row["min"] == pytest.approx(real.min(), rel=1e-6)
        assert row["std"] == pytest.approx(real.std(), rel=1e-5)
        assert row["zeros"] == (array == q.zero_point[0]).sum()
        assert row["saturated_low"] == (array == 0).sum()
        assert row["saturated_high"] == (array == 255).sum()
        assert row["range_used"] == pytest.approx((int(array.max()) - int(array.min())) / 255)
    trace.to_npz(tmp_path / "trace.npz")
    saved = np.load(tmp_path / "trace.npz")
    for tensor_id in trace:
        np.testing.assert_array_equal(saved[f"t{tensor_id}"], trace[tensor_id])


def test_trace_counts_nan_and_inf(model: mi.Model, image: np.ndarray) -> None:
    image = image.copy()
    image[0, 0, 0, 0], image[0, 7, 7, 0] = np.nan, np.inf
    row = model.trace(image).stats.iloc[0]
    assert (row["nan"], row["inf"]) == (1, 1)
    assert np.isfinite(row["mean"])


def test_a_users_operator_for_a_layer_leaves_others_of_that_name_alone(
    model: mi.Model, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LAYER_OPS", {})
    name = model.layers.query("kind == 'conv2d'").name.iloc[0]

    @mi.register_op("armnn", "Softmax", layer=name)
    def never(call, *arrays):
        raise AssertionError("this layer is a convolution")

    assert model.run(image)


def test_a_session_reaches_the_layer_that_has_no_arithmetic() -> None:
    network = chain(2)
    model = mi.Model(network)
    session = model.session(np.zeros(2, np.float32))
    with pytest.raises(mi.UnsupportedError, match=r"layer 0 'layer0': there is no arithmetic for Inc.*register_op"):
        session.step()


def test_inputs_of_several_names() -> None:
    network = chain(1)
    graph = dataclasses.replace(network.graphs[0], inputs=(ir.Port("x", 0), ir.Port("x", 1), ir.Port("z", 1)))
    model = mi.Model(dataclasses.replace(network, graphs=(graph,)))
    with pytest.raises(mi.InputError, match=r"one array was given, the model takes 3 .*2: 'z' float32"):
        model.run(np.zeros(2, np.float32))
    with pytest.raises(mi.InputError, match="2 inputs are called 'x': use positions"):
        model.run({"x": np.zeros(2, np.float32)})


def test_one_output_may_be_asked_for_alone(model: mi.Model, image: np.ndarray) -> None:
    (want,) = model.run(image).values()
    for wanted in ("output", model.network.graphs[0].outputs[0].tensor):
        (got,) = model.run(image, outputs=wanted).values()
        np.testing.assert_array_equal(got, want)


def test_a_trace_says_what_it_holds(model: mi.Model, image: np.ndarray) -> None:
    trace = model.trace(image)
    size = sum(array.nbytes for array in trace.values()) / 1e6
    assert repr(trace) == f"<Trace of {len(trace)} tensors, {size:.1f} MB>"
    assert "<table" in trace._repr_html_()
    with pytest.raises(KeyError, match="tensor 9999 was not computed"):
        trace[9999]
    with pytest.raises(KeyError, match="no tensor 'stem/rel' was computed; did you mean 'stem/relu'"):
        trace["stem/rel"]


def test_positions_and_ids_may_be_numpys_integers(model: mi.Model, image: np.ndarray) -> None:
    (output,) = (port.tensor for port in model.network.graphs[0].outputs)
    found = model.run({np.int64(0): image}, outputs=np.int32(output))
    np.testing.assert_array_equal(*found.values(), *model.run(image).values())


@pytest.mark.parametrize(("outputs", "message"), [([[1]], r"the id \[1\]"), (5.5, "names or ids, not 5.5")])
def test_outputs_of_another_kind(model: mi.Model, image: np.ndarray, outputs, message: str) -> None:
    with pytest.raises(mi.InputError, match=message):
        model.run(image, outputs=outputs)


def test_a_constant_that_cannot_be_loaded_is_named(image: np.ndarray) -> None:
    network = mi.open(mi.samples.path("digits_cnn_wq8.ms")).network
    old = next(tensor for tensor in network.tensors.values() if tensor.name == "head.weight")
    wrong = dataclasses.replace(old.quantization, scale=np.ones(3), zero_point=np.zeros(3, np.int64))
    damaged = dataclasses.replace(old, quantization=wrong)
    model = mi.Model(dataclasses.replace(network, tensors={**network.tensors, old.index: damaged}))
    with pytest.raises(mi.ExecutionError, match=r"'head.weight' \(Int8\[10, 32\], 3 scales along axis 0\).*damaged"):
        model.run(image)
