"""The stepper through its traits: what a hand on a control does, without a browser."""

import asyncio
import re

import numpy as np
import pytest

import mlinspect as mi
from mlinspect import ir
from mlinspect.widgets import views
from mlinspect.widgets.stepper import stepper


@pytest.fixture(scope="module")
def x():
    return mi.samples.digits().images[:1, ..., None].astype("float32") / 16


@pytest.fixture(scope="module")
def model():
    return mi.open(mi.samples.path("digits_cnn_int8.ms"))


@pytest.fixture
def steps(model, x):
    return stepper(model, x)


def press(form, action):
    """What the front end sends for a click."""
    form._handle_custom_msg({"do": action}, [])


def test_buttons_move_the_session(steps):
    press(steps, "step")
    press(steps, "step")
    assert (steps.position, steps.target, steps.session.position) == (2, "1", 2)
    press(steps, "back")
    assert steps.position == 1 and "QuantDTypeCast" in steps.where
    press(steps, "finish")
    assert steps.position == steps.steps == 19 and "done" in steps.where
    press(steps, "step")
    assert steps.position == 19
    press(steps, "reset")
    assert (steps.position, steps.target) == (0, "")
    press(steps, "back")
    assert steps.position == 0 and not steps.message


def test_only_actions_can_be_called(steps, monkeypatch):
    called = []
    monkeypatch.setattr(type(steps), "close", lambda self: called.append("close"))
    for action in ("close", "__del__", "", None):
        press(steps, action)
    assert not called and steps.position == 0


def test_the_slider_goes_back_and_forth(steps):
    steps.position = 12
    assert (steps.session.position, steps.target) == (12, "11")
    steps.position = 3
    assert (steps.session.position, steps.target) == (3, "2")
    steps.position = 99
    assert steps.position == 19
    steps.position = -5
    assert steps.position == 0


def test_a_layer_can_be_chosen_by_name_or_in_the_list(steps):
    steps.target = "7"
    assert steps.position == 8
    steps.run_to("/pw/Conv")
    assert steps.position == 4
    steps.target = ""
    assert steps.position == 0
    with pytest.raises(mi.InputError, match="no layer 'nope'"):
        steps.run_to("nope")


@pytest.mark.parametrize(("trait", "value"), [("view", "foo"), ("unit", "Real"), ("condition", "foo")])
def test_a_choice_that_there_is_not_is_refused_and_changes_nothing(steps, trait, value):
    before = getattr(steps, trait)
    with pytest.raises(mi.InputError, match=f"no {trait} '{value}': use one of "):
        setattr(steps, trait, value)
    steps.step()
    assert getattr(steps, trait) == before and steps.position == 1


def test_only_a_notebook_plays(steps):
    with pytest.raises(mi.InputError, match="only a notebook can play steps: call finish"):
        steps.play()
    steps.step()
    assert not steps.playing and steps.position == 1


def test_a_target_may_be_a_name(steps):
    steps.target = "/pw/Conv"
    assert (steps.position, steps.target) == (4, "3")
    steps.target = "nope"
    assert "no layer &#x27;nope&#x27;" in steps.message and steps.target == "3"


def test_planes_stay_within_the_tensor(steps):
    steps.run_to("/res/Conv")
    steps.view, steps.channel, steps.batch, steps.row = "numbers", 999, 7, -3
    assert (steps.channel, steps.batch, steps.row) == (31, 0, 0) and "batch 0, channel 31, rows 0" in steps.picture
    steps.channel = -1
    assert steps.channel == 0


def test_what_is_shown_is_what_the_run_gives(steps, model, x):
    trace = model.trace(x)
    steps.run_to("/res/Conv")
    shown = steps.shown()
    assert shown.tensor.name == "/res/Conv"
    np.testing.assert_array_equal(shown.array, trace["/res/Conv"])
    steps.operand = "in1"
    np.testing.assert_array_equal(steps.shown().array, model.weights["res.weight"])
    steps.view, steps.unit, steps.channel, steps.batch = "numbers", "stored", 5, 31
    assert "batch 31, channel 5" in steps.picture and steps.last_batch == 31
    assert str(model.weights["res.weight"][31, 0, 0, 5]) in steps.picture


def test_pickers_show_when_they_matter(steps):
    steps.run_to("/res/Conv")
    assert (steps.one_channel, steps.numbers, steps.one_batch) == (False, False, False)
    steps.view = "map"
    assert (steps.one_channel, steps.numbers) == (True, False)
    steps.operand, steps.view = "in1", "numbers"
    assert (steps.one_channel, steps.numbers, steps.one_batch) == (True, True, True)


def test_an_operand_that_the_next_layer_lacks_gives_way_to_its_output(steps):
    steps.run_to("/res/Conv")
    steps.operand = "in2"
    steps.step()
    assert steps.operand == "out0" and steps.shown().tensor.name == "/Add_dtype_cast_2_pre"


def test_layer_facts(steps):
    steps.run_to("/res/Conv")
    assert "kernel_size" in steps.attributes and "3, 3" in steps.attributes
    assert "32 channels, scales" in steps.operands
    assert "/res/Conv_dtype_cast_1_pre" in steps.neighbours and "/Add_dtype_cast_2_pre" in steps.neighbours
    goes = re.findall(r"data-set='target' data-value='(\d+)'", steps.neighbours)
    assert goes == ["6", "8"]


def test_at_the_start_the_inputs_are_shown(steps, x):
    np.testing.assert_array_equal(steps.shown().array, x)
    assert "these are the inputs" in steps.neighbours


def test_breaks(steps):
    steps.condition, steps.limit = "clipped", "0.9"
    press(steps, "add_break")
    assert "clipped share above 0.9" in steps.breaks
    press(steps, "clear_breaks")
    steps.condition, steps.limit = "kind", "conv2d"
    press(steps, "add_break")
    press(steps, "resume")
    assert steps.position == 2 and "a layer of kind conv2d" in steps.message
    press(steps, "clear_breaks")
    press(steps, "resume")
    assert steps.position == 19 and not steps.message


@pytest.mark.parametrize(("condition", "limit"), [("above", "much"), ("kind", " "), ("clipped", "")])
def test_a_limit_that_is_none_is_told(steps, condition, limit):
    steps.condition, steps.limit = condition, limit
    press(steps, "add_break")
    assert "mli-bad" in steps.message and "no breaks" in steps.breaks


def test_watches(steps):
    steps.run_to("/stem/Conv")
    press(steps, "add_watch")
    assert "/stem/Conv" in steps.watches
    steps.watch("/res/Conv", np.std)
    assert "not computed" in steps.watches
    steps.run_to("/res/Conv")
    assert "not computed" not in steps.watches
    press(steps, "clear_watches")
    assert "nothing is watched" in steps.watches


def test_a_reference_stands_beside_the_values(model, x):
    floats = mi.open(mi.samples.path("digits_cnn.ms"))
    for reference in ("float", floats, floats.trace(x)):
        steps = stepper(model, x, reference=reference)
        steps.run_to("/res/Conv")
        (decibels,) = re.findall(r"SQNR ([\d.]+) dB", steps.picture)
        assert 20 < float(decibels) < 60
    steps.break_when(sqnr=40.0)
    steps.reset()
    steps.resume()
    assert 0 < steps.position < 19 and "SQNR" in steps.message
    steps.operand = "in1"
    assert "against the reference" in steps.picture


def test_a_reference_in_the_other_format(x):
    steps = stepper(
        mi.open(mi.samples.path("digits_cnn_u8.armnn")), x, mi.open(mi.samples.path("digits_cnn.ms")), quantize=True
    )
    steps.run_to("head")
    assert "against the reference: SQNR" in steps.picture


def test_errors_of_a_layer_are_told(model, x):
    steps = stepper(model, x)

    def broken(call, *arrays):
        raise RuntimeError("no & no")

    steps.run_to("/pw/Conv")
    steps.session.replace("/res/Conv", broken)
    steps.finish()
    assert "mli-bad" in steps.message and "no &amp; no" in steps.message
    assert steps.position == 7


def test_playing_stops_at_a_break_and_at_the_end(steps):
    async def play():
        steps.pause = 0
        press(steps, "play")
        assert steps.playing
        while steps.playing:
            await asyncio.sleep(0.001)

    steps.break_when(kind="max_pool2d")
    asyncio.run(play())
    assert "MaxPoolFusion" in steps.where and "max_pool2d" in steps.message
    asyncio.run(play())
    assert steps.position == 19


def test_playing_can_be_stopped(steps):
    async def play():
        steps.pause = 60
        press(steps, "play")
        await asyncio.sleep(0.05)
        press(steps, "play")
        await asyncio.sleep(0)

    asyncio.run(play())
    assert not steps.playing and steps.position == 1


def test_the_snapshot_says_where_it_stands_without_controls(steps):
    steps.run_to("/res/Conv")
    html = steps._repr_html_()
    assert "layer 8 of 19" in html and "<img" in html and "kernel_size" in html
    assert not re.search("<(button|input|select|script)", html)
    assert " ms " not in html  # the same run gives the same snapshot
    assert html == steps._repr_html_()


def test_a_step_sends_little(steps, monkeypatch):
    """Bytes a step of what the front end needs: all that changes, and no tensor."""
    sent = []
    monkeypatch.setattr(type(steps), "send_state", lambda self, key=None: sent.append(self.get_state(key)))
    for _ in range(19):
        steps.step()
    size = sum(len(str(state)) for state in sent)
    assert sent and size / 19 < 30_000


def test_names_from_a_file_are_escaped(x):
    from mlinspect import ir
    from mlinspect.widgets import facts

    evil = "<script>alert(1)</script>"
    t = {i: ir.Tensor(i, evil, 0, "activation", evil, evil, (1,)) for i in range(2)}
    layer = ir.Layer(0, evil, evil, evil, 0, {evil: evil}, (0,), (1,))
    network = ir.Network("armnn", "", "", (ir.Graph(0, "", (), (), (layer,)),), t)
    for html in (facts.neighbourhood(network, layer), facts.attributes(layer), facts.operands(network, layer)):
        assert "<script" not in html and "&lt;script" in html


class Handle:
    """What ``display`` gives: collects the snapshots that it is sent."""

    def __init__(self):
        self.sent = []

    def update(self, data, raw):
        self.sent.append(data["text/html"])


def test_snapshots_follow_code_at_once_and_hands_when_they_rest(steps, monkeypatch):
    from mlinspect.widgets import form

    monkeypatch.setattr(form, "SETTLED", 0.01)
    handle = Handle()
    steps._snapshots.append(handle)
    steps.run_to("/stem/Conv")
    assert len(handle.sent) == 1 and "layer 2 of 19" in handle.sent[0]

    async def hand():
        for _ in range(3):
            message = {"content": {"data": {"method": "custom", "content": {"do": "step"}}}, "buffers": []}
            steps._handle_msg(message)
        assert len(handle.sent) == 1
        await asyncio.sleep(0.1)

    asyncio.run(hand())
    assert len(handle.sent) == 2 and "layer 5 of 19" in handle.sent[1]


def test_a_layer_that_the_run_leaves_out_is_told(x):
    """What no output needs is not computed; a tensor without a value shows none."""
    builder = mi.build.mslite().input("x", (1, 4)).layer("Activation", "used", "x", activation_type="RELU")
    idle = builder.layer("Activation", "idle", "x", activation_type="TANH").output("y", "used").model()
    steps = stepper(idle, np.ones((1, 4), np.float32))
    assert steps.steps == 1
    with pytest.raises(mi.InputError, match="layer 'idle' is not computed in this run"):
        steps.run_to("idle")


def test_bfloat16_is_seen_as_real_values():
    stored = (np.array([[1.0, -2.5]], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensor = ir.Tensor(0, "w", 0, "constant", "bfloat16", "BFloat16", (1, 2), data=stored)
    assert views.Shown(tensor, stored).real.tolist() == [[1.0, -2.5]]
