"""The stepper: a session with traits, and a form that shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from traitlets import Bool, Int, Unicode, observe, validate

from mlinspect import ir
from mlinspect.errors import InputError, MlinspectError, NotFoundError
from mlinspect.execute.conditions import Condition, Result, conditions
from mlinspect.execute.names import find_layer
from mlinspect.execute.ports import Inputs
from mlinspect.execute.session import Session
from mlinspect.html import head
from mlinspect.widgets import facts, views
from mlinspect.widgets.form import one_of
from mlinspect.widgets.look import LookForm
from mlinspect.widgets.reference import Reference
from mlinspect.widgets.stepper_form import CONDITIONS, items, layout, said, watches, where


def stepper(
    model: Any, inputs: Inputs, reference: Any = None, *, mode: str = "vendor", quantize: bool = False
) -> Stepper:
    """A widget that runs a model layer by layer.

    Parameters
    ----------
    model : Model
    inputs : dict, sequence or array
        As for ``model.run``.
    reference : Model, Trace, Dump or "float", optional
        What the values should be: the error stands beside them, and a run can stop where it grows. ``"float"`` is the
        model itself on real values.
    mode, quantize
        As for ``model.run``.

    Returns
    -------
    Stepper

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    >>> x = mi.samples.digits().images[:1, ..., None].astype("float32") / 16
    >>> steps = stepper(model, x, reference="float")
    >>> steps.run_to("/res/Conv")
    >>> steps
    <Stepper of digits_cnn_int8.ms: 8 of 19 layers computed>
    """
    session = model.session(inputs, mode=mode, quantize=quantize)
    aligned = None if reference is None else Reference(session, model, reference, inputs)
    return Stepper(session, model.name or "model", aligned)


class Stepper(LookForm):
    """A session with traits: setting one does what a hand on its control does. Made by :func:`stepper`.

    Attributes
    ----------
    session : Session
        What runs. After changing it from code (a patch, a replacement), call ``refresh``.
    position : int
        How many layers have been computed; set it to go there.
    target : str
        Index of the layer computed last, ``""`` at the start; set it, or a layer's name, to go there.
    operand, view, unit, batch, channel, row, column
        What is shown: see :class:`~mlinspect.widgets.look.LookForm`.
    playing : bool
        Steps go on by themselves.
    pause : float
        Seconds between them.
    """

    actions = (
        "reset",
        "back",
        "step",
        "play",
        "resume",
        "finish",
        "add_break",
        "clear_breaks",
        "add_watch",
        "clear_watches",
    )

    position = Int().tag(sync=True)
    target = Unicode().tag(sync=True)
    playing = Bool().tag(sync=True)
    condition = Unicode("nan").tag(sync=True)
    limit = Unicode().tag(sync=True)
    # what is seen, as HTML
    steps = Int().tag(sync=True)
    targets = Unicode().tag(sync=True)
    where = Unicode().tag(sync=True)
    message = Unicode().tag(sync=True)
    timing = Unicode().tag(sync=True)
    neighbours = Unicode().tag(sync=True)
    attributes = Unicode().tag(sync=True)
    operands = Unicode().tag(sync=True)
    breaks = Unicode().tag(sync=True)
    watches = Unicode().tag(sync=True)

    def __init__(self, session: Session, name: str = "model", reference: Reference | None = None) -> None:
        self.session = session
        self.name = name
        self.title = f"Stepper of {name}"
        self.reference = reference
        self.pause = 0.5
        self._task: asyncio.Task[None] | None = None
        self._conditions: list[Condition] = []
        self._breaks: list[str] = []  # the same in words
        layers = facts.options((layer.index, f"{layer.index} {layer.name} ({layer.op})") for layer in session.layers)
        super().__init__(
            steps=len(session),
            targets=f"<option value=''>the start</option>{layers}",
            form=layout(name, reference is not None),
        )
        self.refresh()

    def __repr__(self) -> str:
        return f"<Stepper of {self.name}: {self.session.position} of {self.steps} layers computed>"

    # --- what the buttons do ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """Compute one layer."""
        self._do(self.session.step)

    def back(self) -> None:
        """Go back one layer."""
        self._do(lambda: self.session.back(min(1, self.session.position)))

    def reset(self) -> None:
        """Go back to the start; patches and replacements are forgotten."""
        self._do(self.session.reset)

    def finish(self) -> None:
        """Compute the rest."""
        self._do(self.session.finish)

    def resume(self) -> None:
        """Compute until a break."""
        self._do(self.session.resume)

    def run_to(self, layer: int | str) -> None:
        """Go to just behind a layer, given by index or name, back or forth."""
        index = find_layer(self.session.network, layer).index
        order = [one.index for one in self.session.layers]
        if index not in order:
            raise InputError(f"layer {layer!r} is not computed in this run")
        self._do(lambda: self.session.go_to(order.index(index) + 1))

    def play(self) -> None:
        """Go on step by step until the end, a break, or the next call."""
        self.playing = not self.playing

    def break_when(self, **condition: Any) -> None:
        """Stop ``resume`` and ``play`` where a condition holds: as for ``Session.break_when``, or ``sqnr=`` in dB."""
        if "sqnr" in condition:
            condition.setdefault("reference", self.reference)
        self.session.break_when(**condition)
        self._conditions += conditions(**condition)
        words = [
            f"{CONDITIONS[key][0]} {'' if value is True else value}"
            for key, value in condition.items()
            if key in CONDITIONS
        ]
        self._breaks.append(" ".join(words).strip() or "a function")
        self.breaks = items(self._breaks, "no breaks: a run goes to the end")

    def add_break(self) -> None:
        """Break where ``condition`` holds for ``limit``."""
        words, read = CONDITIONS[self.condition]
        try:
            value = read(self.limit.strip())
        except ValueError:
            self.message = said(f"{words}: {self.limit!r} is not a number", bad=True)
            return
        if value == "":
            self.message = said(f"{words}: which?", bad=True)
            return
        self.message = ""
        self._do(lambda: self.break_when(**{self.condition: value}))

    def clear_breaks(self) -> None:
        """Forget all breaks."""
        self.session.clear_breaks()
        self._conditions.clear()
        self._breaks.clear()
        self.breaks = items(self._breaks, "no breaks: a run goes to the end")

    def watch(self, tensor: int | str, function: Callable[[np.ndarray], Any] | None = None) -> None:
        """Watch a tensor, as ``Session.watch`` does."""
        self.session.watch(tensor, function)
        self.refresh()

    def add_watch(self) -> None:
        """Watch the tensor that is shown."""
        if (tensor := self._tensor()) is not None:
            self.watch(tensor.index)

    def clear_watches(self) -> None:
        """Watch nothing."""
        self.session._watched.clear()
        self.refresh()

    # --- traits that are set ----------------------------------------------------------------------------------------

    @validate("condition")
    def _known_condition(self, proposal: Any) -> str:
        return one_of(CONDITIONS, "condition", proposal.value)

    @observe("position")
    def _go(self, change: Any) -> None:
        if change.new != self.session.position:
            self._do(lambda: self.session.go_to(min(max(change.new, 0), self.steps)))

    @observe("target")
    def _go_behind(self, change: Any) -> None:
        if change.new == self._here():
            return
        if not change.new:
            self._do(lambda: self.session.go_to(0))
        else:
            self._try(lambda: self.run_to(int(change.new) if change.new.isdecimal() else change.new))

    @observe("playing")
    def _play(self, change: Any) -> None:
        if not change.new:
            if self._task is not None:
                self._task.cancel()
        elif self._task is None or self._task.done():
            try:
                self._task = asyncio.get_running_loop().create_task(self._run())
            except RuntimeError:
                self.playing = False
                raise InputError("only a notebook can play steps: call finish or resume, or step in a loop") from None

    async def _run(self) -> None:
        """Step until the end or a break; the kernel answers between the steps."""
        try:
            while not self.session.done:
                position = self.session.position
                self._do(self._step_and_test)
                if self.session.position == position or self.session.stopped:
                    break
                await asyncio.sleep(self.pause)
        finally:
            self.playing = False

    def _step_and_test(self) -> None:
        """One step of a run that breaks stop."""
        layer = self.session.step()
        if layer is None:
            return
        for tensor in layer.outputs:
            result = Result(layer, self.session.network.tensors[tensor], self.session[tensor])
            if reason := next((found for test in self._conditions if (found := test(result))), ""):
                self.session.stopped = f"{result.where}: {reason}"
                return

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _try(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except (MlinspectError, ArithmeticError, ValueError) as error:
            self.message = said(str(error), bad=True)
            self.refresh()

    def _do(self, function: Callable[[], Any]) -> None:
        """Move the session, and show where it is then."""
        self.message = ""
        before = self.session.position

        def move() -> None:
            self.session.stopped = ""
            function()
            if self.session.stopped:
                self.message = said(f"stopped at {self.session.stopped}")

        with self.hold_sync():
            self._try(move)
            self.refresh()
            moved = self.session.history.seconds.iloc[before:] if self.session.position > before else ()
            self.timing = f"{sum(moved) * 1e3:.1f} ms of computing" if len(moved) else ""

    def refresh(self) -> None:
        """Show the session as it is."""
        session, layer = self.session, self.session.layer
        with self.hold_sync():
            self.position, self.target = session.position, self._here()
            self.where = where(session)
            if layer is None:
                ports = session.network.graphs[0].inputs
                said = "nothing is computed yet; these are the inputs"
                self.neighbours, self.attributes = f"<div class='mli-more'>{said}</div>", ""
                layer = ir.Layer(-1, "", "", "", 0, {}, (), tuple(port.tensor for port in ports))
            else:
                self.neighbours = facts.neighbourhood(session.network, layer)
                self.attributes = facts.attributes(layer)
            self._slots = dict(facts.slots(layer))
            self.operands = facts.operands(session.network, layer)
            self.choices = facts.options(
                (slot, f"{slot} {session.network.tensors[tensor].name}") for slot, tensor in self._slots.items()
            )
            if self.operand not in self._slots and self._slots:
                self.operand = next(iter(self._slots))
            self.show_tensor()
            self.breaks = items(self._breaks, "no breaks: a run goes to the end")
            self.watches = watches(session)
        self.renew(soon=self.playing)

    def _here(self) -> str:
        return "" if self.session.layer is None else str(self.session.layer.index)

    def _tensor(self) -> ir.Tensor | None:
        index = self._slots.get(self.operand)
        return None if index is None else self.session.network.tensors[index]

    def shown(self) -> views.Shown | None:
        """The tensor that is looked at, or None where there is none."""
        tensor = self._tensor()
        if tensor is None:
            return None
        try:
            array = self.session[tensor.index]
        except NotFoundError:  # an operand of a branch that was not taken
            return None
        wanted = (
            None if self.reference is None or not isinstance(array, np.ndarray) else self.reference.get(tensor.index)
        )
        return views.Shown(tensor, array, self.unit, wanted)

    def snapshot(self) -> str:
        """Where the run stands, without controls."""
        parts = [head(self.name, ["stepper"]), self.where, self.message, self.neighbours, self.picture]
        parts += [self.operands, self.attributes]
        parts += [f"<div class='mli-label'>Watches</div>{self.watches}"] if self.session._watched else []
        return "".join(parts)
