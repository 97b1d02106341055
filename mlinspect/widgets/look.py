"""The part that the widgets share: a form that shows one tensor, and the pickers of what to see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from traitlets import Bool, Int, Unicode, observe, validate

from mlinspect.widgets import facts, views
from mlinspect.widgets.form import Form, one_of


class LookForm(Form):
    """A form that shows a tensor. Subclasses say in ``shown`` which.

    Attributes
    ----------
    operand : str
        Which of the layer's tensors is shown: ``out0``, ``in0``, ...
    view : {"maps", "map", "histogram", "numbers"}
    unit : {"real", "stored"}
    batch, channel, row, column : int
        What is shown of the tensor; ``row`` and ``column`` are where the table of numbers starts. Below 0 they become
        0, and a batch or channel beyond the last the last.

    Raises
    ------
    InputError
        Another view or unit is set.
    """

    operand = Unicode("out0").tag(sync=True)
    view = Unicode("maps").tag(sync=True)
    unit = Unicode("real").tag(sync=True)
    batch = Int().tag(sync=True)
    channel = Int().tag(sync=True)
    row = Int().tag(sync=True)
    column = Int().tag(sync=True)
    # what is seen
    choices = Unicode().tag(sync=True)
    picture = Unicode().tag(sync=True)
    last_batch = Int().tag(sync=True)
    last_channel = Int().tag(sync=True)
    one_batch = Bool().tag(sync=True)
    one_channel = Bool().tag(sync=True)
    numbers = Bool().tag(sync=True)

    _last: Mapping[str, int] = {}  # of what is drawn

    @validate("view", "unit")
    def _known(self, proposal: Any) -> str:
        name = proposal.trait.name
        return one_of(views.VIEWS if name == "view" else views.UNITS, name, proposal.value)

    @validate("batch", "channel", "row", "column")
    def _within(self, proposal: Any) -> int:
        return max(min(proposal.value, self._last.get(proposal.trait.name, proposal.value)), 0)

    def shown(self) -> views.Shown | None:
        """The tensor that is looked at, or None where there is none."""
        raise NotImplementedError

    @observe("operand", "view", "unit", "batch", "channel", "row", "column")
    def _look(self, change: Any) -> None:
        with self.hold_sync():
            self.show_tensor()
        self.renew()

    def show_tensor(self) -> None:
        """Draw the tensor anew."""
        shown = self.shown()
        self.one_channel = self.view in ("map", "numbers")
        self.numbers = self.view == "numbers"
        self._last = {}
        if shown is None or not isinstance(shown.array, np.ndarray):
            self.picture, self.last_batch, self.last_channel = "<div class='mli-more'>no values</div>", 0, 0
            return
        if shown.array.size:
            batches, channels, *_ = views.planes(shown.array, shown.tensor.layout).shape
            self.last_batch, self.last_channel = batches - 1, channels - 1
            self._last = {"batch": batches - 1, "channel": channels - 1}
        self.one_batch = self.view != "histogram" and self.last_batch > 0
        self.picture = views.picture(shown, self.view, self.batch, self.channel, self.row, self.column)


_NUMBER = "<label data-if={when}>{label} <input type=number min=0 name={name} {more}></label>"
PICKERS = f"""<div class='mli-bar-of-tools' role='toolbar' aria-label='Values'>
<label>values of <select name='operand' data-show='choices'></select></label>
<label>as <select name='view'>{facts.options(views.VIEWS.items())}</select></label>
<label>in <select name='unit'>{facts.options(views.UNITS.items())}</select></label>
{_NUMBER.format(when="one_batch", label="batch", name="batch", more="data-max=last_batch")}
<span data-if=one_channel>{_NUMBER.format(when="last_channel", label="channel", name="channel", more="data-max=last_channel")}</span>
{_NUMBER.format(when="numbers", label="from row", name="row", more="")}
{_NUMBER.format(when="numbers", label="column", name="column", more="")}
</div>"""  # noqa: E501
