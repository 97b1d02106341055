"""The debugger: forwards, backwards, stopped and changed, it computes what a plain run computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlinspect as mi
from mlinspect.execute import registry
from mlinspect.execute.conditions import conditions
from mlinspect.execute.names import find_layer
from mlinspect.execute.ports import bind_inputs
from mlinspect.execute.programs import Programs
from mlinspect.execute.session import KEEP_BYTES, Session
from mlinspect.execute.trace import Trace

SAMPLES = ["digits_cnn.armnn", "digits_cnn_u8.armnn", "digits_cnn.ms", "digits_cnn_int8.ms", "digits_cnn_wq4.ms"]
IMAGE = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16


@cache
def opened(name: str) -> mi.Model:
    return mi.open(mi.samples.path(name))


@cache
def traced(name: str, mode: str = "vendor") -> Trace:
    return opened(name).trace(IMAGE, mode=mode, quantize=True)


def session_of(model: mi.Model, keep_bytes: int = KEEP_BYTES, mode: str = "vendor") -> Session:
    program = Programs(model.network).get(mode, [port.tensor for port in model.network.graphs[0].outputs])
    return Session(model.network, program, bind_inputs(model.network, IMAGE, mode, True), mode, keep_bytes)


def check_same(got: Trace, want: Trace) -> None:
    assert set(got) == set(want)
    for key in want:
        assert got[key].dtype == want[key].dtype
        np.testing.assert_array_equal(got[key], want[key])


def activations(session: Session, depth: int) -> list[int]:
    return [tensor for layer in session.layers[:depth] for tensor in layer.outputs]


far_moves = st.sampled_from(["back", "run_to", "go_to", "back_to", "look"])
moves = st.lists(st.one_of(st.just(("step", 0)), st.tuples(far_moves, st.integers(0, 20))), max_size=12)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("keep_bytes", [0, 20_000, KEEP_BYTES])
@given(moves)
@settings(derandomize=True, deadline=None, max_examples=12)
def test_any_way_through_ends_in_the_tensors_of_a_trace(name: str, keep_bytes: int, way: list[tuple[str, int]]) -> None:
    session, want = session_of(opened(name), keep_bytes), traced(name)
    for move, to in way:
        position = min(to, len(session))
        if move == "step":
            session.step()
        elif move == "back":
            session.back(min(to, session.position))
        elif move == "go_to":
            session.go_to(position)
        elif move == "run_to" and position > session.position:
            session.run_to(session.layers[position - 1].index)
            assert session.position == position
        elif move == "back_to" and position < session.position:
            session.back_to(session.layers[position].index)
            assert session.position == position
        elif move == "look" and session.position:
            tensor = activations(session, session.position)[to % session.position]
            np.testing.assert_array_equal(session[tensor], want[tensor])
        assert set(activations(session, session.position)) <= set(session.trace)
        assert (session.next_layer is None) == session.done
    check_same(session.trace, Trace(want.network, {i: want[i] for i in session.trace}))
    outputs = session.finish()
    check_same(session.trace, want)
    assert outputs.keys() == want.outputs.keys()
    assert all(np.array_equal(outputs[key], want.outputs[key]) for key in outputs)


def test_going_back_computes_nothing_within_the_limit_and_little_beyond() -> None:
    model = opened("digits_cnn_u8.armnn")

    def back_and_forth(keep_bytes: int) -> Session:
        session = session_of(model, keep_bytes)
        session.finish()
        for position in reversed(range(len(session))):
            session.go_to(position)
        session.finish()
        return session

    assert (back_and_forth(KEEP_BYTES).history.computed == 1).all()
    size = sum(array.nbytes for array in traced("digits_cnn_u8.armnn").values())
    half, nothing = back_and_forth(size // 3), back_and_forth(0)
    assert half._timeline._bytes <= size // 3
    steps = len(nothing)
    assert steps < half.history.computed.sum() < nothing.history.computed.sum() <= steps * (steps + 3) / 2


def test_kept_points_lie_evenly_spread() -> None:
    session = session_of(opened("digits_cnn_u8.armnn"), 8_000)
    session.finish()
    kept = sorted(session._timeline.states)
    assert len(session) // 3 < len(kept) <= len(session)
    assert max(np.diff(kept)) <= 4


@pytest.mark.parametrize("name", SAMPLES)
def test_float_mode(name: str) -> None:
    session = session_of(opened(name), mode="float")
    session.go_to(5)
    session.back(2)
    session.finish()
    check_same(session.trace, traced(name, "float"))


# --- change -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=8)
def test_patched_constant_equals_a_model_with_that_constant(name: str, data: st.DataObject) -> None:
    model = opened(name)
    session = session_of(model, data.draw(st.sampled_from([0, KEEP_BYTES])))
    reads = [(position, tensor) for position, layer in enumerate(session.layers) for tensor in layer.inputs]
    steps = [(position, tensor) for position, tensor in reads if model.network.tensors[tensor].data is not None]
    position, tensor = data.draw(st.sampled_from(steps))
    old = model.network.tensors[tensor].array
    assert old is not None
    if model.network.tensors[tensor].dtype == "int32" and old.size == 4:
        return  # the permutation of a transpose
    new = np.roll(old.reshape(-1), 1).reshape(old.shape) if old.size > 1 else old + old.dtype.type(1)
    session.go_to(data.draw(st.integers(0, position)))
    session.patch(tensor, new)
    changed = replace(model.network.tensors[tensor], data=new)
    network = replace(model.network, tensors={**model.network.tensors, tensor: changed})
    got, want = session.finish(), mi.Model(network).run(IMAGE, quantize=True)
    assert all(np.array_equal(got[key], want[key]) for key in want)
    session.go_to(position)
    session.go_to(len(session))
    assert all(np.array_equal(session.outputs[key], want[key]) for key in want)
    session.reset()
    plain = traced(name).outputs
    assert all(np.array_equal(session.finish()[key], plain[key]) for key in plain)


@pytest.mark.parametrize("keep_bytes", [0, KEEP_BYTES])
def test_patched_activation_is_what_later_layers_read(keep_bytes: int) -> None:
    model, want = opened("digits_cnn.ms"), traced("digits_cnn.ms")
    session = session_of(model, keep_bytes)
    first, second = session.layers[:2]
    other = opened("digits_cnn.ms").trace(IMAGE[:, ::-1])
    session.patch(first.outputs[0], other[first.outputs[0]])  # before the layer that gives it
    session.finish()
    np.testing.assert_array_equal(session[first.outputs[0]], other[first.outputs[0]])
    np.testing.assert_array_equal(session[second.outputs[0]], other[second.outputs[0]])
    assert all(np.array_equal(session.outputs[key], array) for key, array in other.outputs.items())
    session.reset()
    session.run_to(first.index)
    session.patch(first.outputs[0], other[first.outputs[0]])  # after it
    assert all(np.array_equal(session.finish()[key], array) for key, array in other.outputs.items())
    session.back(len(session))  # to before the patch
    session.finish()
    check_same(session.trace, want)


def test_patched_input_equals_another_input() -> None:
    session = session_of(opened("digits_cnn.armnn"))
    session.patch("image", IMAGE[:, ::-1])
    want = opened("digits_cnn.armnn").run(np.ascontiguousarray(IMAGE[:, ::-1]))
    assert all(np.array_equal(session.finish()[key], want[key]) for key in want)


def test_a_patch_takes_a_copy_and_what_is_handed_out_is_read_only() -> None:
    session = session_of(opened("digits_cnn.armnn"))
    session.run_to("stem")
    array = session["stem"].copy()
    session.patch("stem", array)
    array[:] = np.nan
    assert np.isfinite(session["stem"]).all()
    with pytest.raises(ValueError, match="read-only"):
        session["stem"][:] = 0
    with pytest.raises(ValueError, match="read-only"):
        session.trace["stem"][:] = 0
    with pytest.raises(ValueError, match="read-only"):
        next(iter(session.finish().values()))[:] = 0


def test_patches_that_make_no_sense_are_refused() -> None:
    session = session_of(opened("digits_cnn_u8.armnn"))
    session.run_to("stem/relu")
    with pytest.raises(mi.InputError, match=r"wants uint8\[1, 8, 8, 16\], not float32\[1, 8, 8, 16\]"):
        session.patch("stem/relu", np.zeros((1, 8, 8, 16), np.float32))
    with pytest.raises(mi.InputError, match=r"not uint8\[8, 8, 16\]"):
        session.patch("stem/relu", np.zeros((8, 8, 16), np.uint8))
    with pytest.raises(mi.InputError, match=r"no layer ahead of position 3 reads tensor 'stem': go back first"):
        session.patch("stem", session["stem"])
    with pytest.raises(mi.InputError, match="no tensor 'nobody'"):
        session.patch("nobody", np.zeros(1))


def test_replaced_layer() -> None:
    model = opened("digits_cnn.armnn")
    session = session_of(model)
    session.run_to("stem/bn")
    calls = []

    def leaky(call, x):
        calls.append(call.layer.name)
        return np.where(x < 0, x / 4, x)

    session.replace("stem/relu", leaky)
    session.finish()
    x = session["stem/bn"]
    np.testing.assert_array_equal(session["stem/relu"], np.where(x < 0, x / 4, x))
    assert calls == ["stem/relu"]
    assert not np.array_equal(session.outputs["output"], traced("digits_cnn.armnn").outputs["output"])
    session.back_to("stem/bn")  # undoes the replacement
    session.finish()
    check_same(session.trace, traced("digits_cnn.armnn"))
    with pytest.raises(mi.InputError, match="no layer 'stem/relu' lies ahead of position 15: go back first"):
        session.replace("stem/relu", leaky)


def test_replacement_of_a_quantised_layer_works_on_real_or_stored_numbers() -> None:
    model = opened("digits_cnn_u8.armnn")
    relu = find_layer(model.network, "stem/relu")
    zero = int(model.network.tensors[relu.inputs[0]].quantization.zero_point[0])
    want = traced("digits_cnn_u8.armnn")
    for stored, function in ((False, lambda call, x: np.maximum(x, 0)), (True, None)):
        session = session_of(model)
        session.replace(relu.index, function or (lambda call, x: np.maximum(x, zero)), stored=stored)
        got = session.run_to("stem/relu")
        assert session[got.outputs[0]].dtype == np.uint8
        if not stored:
            np.testing.assert_array_equal(session["stem/relu"], want["stem/relu"])
        else:
            np.testing.assert_array_equal(session["stem/relu"], np.maximum(want["stem/bn"], zero))


# --- stop ---------------------------------------------------------------------------------------------------------


def first_layer(name: str, test: Callable[[np.ndarray], bool]) -> str:
    """The first layer of a trace whose real output passes a test."""
    model, trace = opened(name), traced(name)
    for layer in session_of(model).layers:
        if test(trace.stats.loc[layer.outputs[0]]):
            return layer.name
    raise AssertionError("no such layer")


def test_ready_conditions_stop_after_the_first_layer_that_meets_them() -> None:
    name = "digits_cnn_u8.armnn"
    cases = [
        ({"above": 3.0}, lambda row: row["max"] > 3),
        ({"below": -1.0}, lambda row: row["min"] < -1),
        ({"clipped": 0.5}, lambda row: (row["saturated_low"] + row["saturated_high"]) / row["elements"] > 0.5),
        ({"function": lambda x: x.std() < 0.3}, lambda row: row["std"] < 0.3),
    ]
    for ready, test in cases:
        session = session_of(opened(name))
        layer = session.run_until(**ready)
        assert layer is not None
        assert layer.name == first_layer(name, test)
        assert session.layer == layer
        assert layer.name in session.stopped
    session = session_of(opened(name))
    assert session.run_until(kind="max_pool2d") == session.layer == find_layer(session.network, "block/pool")
    assert session.run_until(layer="head").name == "head"
    assert session.run_until(above=1e9) is None
    assert session.done
    assert session.stopped == ""


def test_first_nan_and_infinity() -> None:
    session = session_of(opened("digits_cnn.ms"))
    session.break_when(nan=True)
    session.break_when(inf=True)
    session.replace("/pw/Conv", lambda call, *arrays: np.full(call.outputs[0].shape, np.nan, np.float32))
    assert session.resume().name == "/pw/Conv"
    assert "2048 NaN" in session.stopped
    assert session.resume().name == "/res/Conv"  # the largest of a window is never NaN
    session.clear_breaks()
    assert session.resume() is None
    session.reset()
    session.replace("/pw/Conv", lambda call, *arrays: np.full(call.outputs[0].shape, -np.inf, np.float32))
    session.break_when(inf=True)
    session.resume()
    assert "2048 Inf" in session.stopped


@pytest.mark.parametrize("as_trace", [True, False])
def test_sqnr_against_a_reference(as_trace: bool) -> None:
    reference = traced("digits_cnn.armnn")
    session = session_of(opened("digits_cnn_u8.armnn"))
    names = {reference.network.tensors[i].name: reference[i] for i in reference}
    layer = session.run_until(sqnr=35.0, reference=reference if as_trace else names)
    want = None
    got = traced("digits_cnn_u8.armnn")
    for one in session.layers:
        tensor = got.network.tensors[one.outputs[0]]
        real = (got[tensor.index].astype(float) - tensor.quantization.zero_point[0]) * tensor.quantization.scale[0]
        noise = ((real - reference[tensor.name].astype(float)) ** 2).sum()
        if 10 * np.log10((reference[tensor.name].astype(float) ** 2).sum() / noise) < 35:
            want = one.name
            break
    assert layer is not None
    assert layer.name == want
    assert "dB against the reference" in session.stopped


def test_a_reference_of_another_shape_stops_and_one_without_the_tensor_does_not() -> None:
    session = session_of(opened("digits_cnn.ms"))
    first, second = (session.network.tensors[layer.outputs[0]] for layer in session.layers[:2])
    layer = session.run_until(sqnr=35.0, reference={second.name: np.zeros(3, np.float32)})
    assert layer is session.layers[1]
    assert session.stopped.endswith("as in the reference")
    session.reset()
    ones = np.ones_like(traced("digits_cnn.ms")[first.index])
    assert session.run_until(sqnr=35.0, reference={first.index: ones}) is session.layers[0]


def test_only_quantised_tensors_are_clipped() -> None:
    assert session_of(opened("digits_cnn.ms")).run_until(clipped=0.0) is None


def test_conditions_need_something_to_test() -> None:
    with pytest.raises(mi.InputError, match="no condition"):
        conditions()
    with pytest.raises(mi.InputError, match="belong together"):
        conditions(sqnr=20.0)


def test_places_that_do_not_exist() -> None:
    session = session_of(opened("digits_cnn.ms"))
    session.run_to("/dw/Conv")
    with pytest.raises(mi.InputError, match="no layer '/stem/Conv' lies ahead of position 2: it lies behind"):
        session.run_to("/stem/Conv")
    with pytest.raises(mi.InputError, match="no layer '/Softmax' lies behind"):
        session.back_to("/Softmax")
    with pytest.raises(mi.InputError, match="position -1 lies outside 0 to 11"):
        session.back(3)
    with pytest.raises(mi.InputError, match="calls no subgraph"):
        session.step_into()
    with pytest.raises(KeyError, match="has not been computed at position 2"):
        session[session.layers[3].outputs[0]]


def test_run_until_computes_nothing_that_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LAYER_OPS", {})
    model = mi.open(mi.samples.path("digits_cnn.armnn"))

    @mi.register_op("armnn", "Addition", layer="residual/add")
    def never(call, *arrays):
        raise AssertionError("this layer was not asked for")

    got = model.run(IMAGE, until="residual/conv")
    np.testing.assert_array_equal(got["residual/conv"], traced("digits_cnn.armnn")["residual/conv"])
    with pytest.raises(mi.ExecutionError, match="not asked for"):
        model.run(IMAGE)
    with pytest.raises(mi.InputError, match="no layer 'nobody'"):
        model.run(IMAGE, until="nobody")


# --- look ---------------------------------------------------------------------------------------------------------


def test_watches_and_history() -> None:
    session = session_of(opened("digits_cnn_int8.ms"), keep_bytes=0)
    tensor = session.layers[2].outputs[0]
    session.watch(tensor, lambda x: int((x == 0).sum()), name="zeros")
    assert session.watches["shape"].tolist() == [None]
    session.finish()
    stats = traced("digits_cnn_int8.ms").stats.loc[tensor]
    row = session.watches.iloc[0]
    assert (row["watch"], row["tensor"], row["value"]) == ("zeros", tensor, stats["zeros"])
    assert (row["min"], row["max"]) == pytest.approx((stats["min"], stats["max"]))
    session.watch(tensor, lambda x: 1 // 0)
    assert session.watches["value"].iloc[1] == "ZeroDivisionError: integer division or modulo by zero"
    history = session.history
    assert history.layer.tolist() == [layer.index for layer in session.layers]
    assert history.index.tolist() == list(range(1, 20))
    assert (history.seconds > 0).all()
    assert history["shape"].iloc[1] == (1, 8, 8, 16)
    session.back(4)
    assert len(session.history) == 15


# --- control flow -------------------------------------------------------------------------------------------------

CONTROL = ["cf_while", "cf_if_else", "cf_if_nontail_post", "cf_if_nontail_callout", "cf_if_tail_callout"]


@pytest.fixture(params=CONTROL)
def branching(request, golden) -> tuple[mi.Model, dict[int, np.ndarray]]:
    archive = golden("mslite-ops.zip")
    arrays = archive.arrays(f"{request.param}.npz")
    model = mi.open(archive.model(f"{request.param}.ms"))
    return model, {i: arrays[f"in_{i}"] for i in range(len(model.inputs))}


def test_calls_are_one_step_and_going_back_works(branching) -> None:
    model, inputs = branching
    session, want = model.session(inputs), model.trace(inputs)
    for _ in range(2):
        got = session.finish()
        assert all(np.array_equal(got[key], array) for key, array in want.outputs.items())
        session.go_to(len(session) // 2)
    assert set(session.history.op) <= {layer.op for layer in model.network.graphs[0].layers}


def into_all(session: Session) -> int:
    """Step into every call there is; gives how many there were."""
    count = 0
    while not session.done:
        if session.next_layer.op == "Call":
            count += 1 + into_all(session.step_into())
        session.step()
    return count


def test_stepping_into_calls_gives_the_same(branching) -> None:
    model, inputs = branching
    session, want = model.session(inputs), model.trace(inputs)
    assert into_all(session) >= 1
    got = session.outputs
    assert got.keys() == want.outputs.keys()
    assert all(np.array_equal(got[key], array) for key, array in want.outputs.items())


def test_a_patch_within_a_called_subgraph_reaches_the_caller(golden) -> None:
    archive = golden("mslite-ops.zip")
    model = mi.open(archive.model("cf_if_nontail_post.ms"))
    arrays = archive.arrays("cf_if_nontail_post.npz")
    session = model.session({i: arrays[f"in_{i}"] for i in range(len(model.inputs))})
    session.finish()  # what was computed before does not stand in the way
    session.reset()
    assert session.run_until(kind="Switch").op == "Switch"
    session.step()
    session.back()
    assert session.next_layer.op == "Call"
    inner = session.step_into()
    inner.finish()
    (tensor,) = inner._start.wanted
    inner.patch(tensor, np.full_like(inner[tensor], 7))
    call = session.step()
    np.testing.assert_array_equal(session[call.outputs[0]], np.full_like(inner[tensor], 7))


# --- names and numbers that are not meant -------------------------------------------------------------------------


def test_iterating_computes_what_remains() -> None:
    session = session_of(opened("digits_cnn.ms"))
    session.run_to("/res/Conv")
    assert [layer.name for layer in session] == [layer.name for layer in session.layers[5:]]
    assert session.done
    assert list(session) == []
    check_same(session.trace, traced("digits_cnn.ms"))


def test_whether_a_tensor_can_be_had_computes_nothing() -> None:
    session = session_of(opened("digits_cnn.ms"))
    assert "image" in session
    assert "probability" not in session
    assert "nobody" not in session
    assert session.position == 0


@pytest.mark.parametrize("count", [-1, 1.5, "a", None, True])
def test_back_takes_a_count(count) -> None:
    session = session_of(opened("digits_cnn.ms"))
    session.go_to(3)
    with pytest.raises(mi.InputError, match="back takes how many layers to undo, 0 to 3"):
        session.back(count)
    with pytest.raises(mi.InputError, match="lies outside 0 to 11"):
        session.go_to(count)
    assert session.position == 3


@pytest.mark.parametrize("wrong", [-1, "1 MB", None, float("nan"), True])
def test_memory_to_keep_is_a_number_of_bytes(wrong) -> None:
    with pytest.raises(mi.InputError, match="keep_bytes is how much memory earlier layers may take, in bytes, not"):
        opened("digits_cnn.ms").session(IMAGE, keep_bytes=wrong)
