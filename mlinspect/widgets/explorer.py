"""The explorer: find a layer or tensor and see everything about it, beside a second model if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from traitlets import Bool, Int, Unicode, observe, validate

from mlinspect import constants, ir
from mlinspect.analysis.cost import cost
from mlinspect.analysis.lint import lint
from mlinspect.analysis.match import match
from mlinspect.analysis.pairs import compare_weights
from mlinspect.errors import InputError
from mlinspect.execute.names import find_layer
from mlinspect.html import escape, fold, head, table
from mlinspect.widgets import facts, views
from mlinspect.widgets.form import frame, one_of
from mlinspect.widgets.look import PICKERS, LookForm
from mlinspect.widgets.search import EXAMPLE, find, listing

COSTS = {"macs": "multiply-adds", "params": "parameters", "weight_bytes": "weight bytes", "bytes_out": "bytes given"}


def explore(model: Any, other: Any = None) -> Explorer:
    """A widget to search a model with.

    Parameters
    ----------
    model : Model
    other : Model, optional
        Shown beside it: for each layer and constant its partner there, and how far the weights lie apart.

    Returns
    -------
    Explorer

    Raises
    ------
    InputError
        What is given is no model.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn_int8.ms"))
    >>> found = explore(model)
    >>> found.query = "not quantized"
    >>> found.rows.name.tolist()
    ['/MaxPool', '/Add', '/AveragePool', '/Flatten', '/Softmax']
    """
    return Explorer(model, other)


class Side:
    """One model, and what is known about its layers and tensors."""

    def __init__(self, model: Any) -> None:
        if not isinstance(getattr(model, "network", None), ir.Network):
            raise InputError(
                f"explore shows models, not {type(model).__name__}: open the file first, "
                "model.explore(mlinspect.open(path))"
            )
        self.model = model
        self.network: ir.Network = model.network
        self.name = model.name or "model"

    @cached_property
    def costs(self) -> pd.DataFrame:
        """The cost table."""
        return cost(self.model)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """What lint finds."""
        return lint(self.model)

    def warned(self, kind: str) -> set[int]:
        """Layers or tensors that lint has warnings or errors about."""
        found = self.findings[self.findings.severity != "info"]
        return set(found[kind.removesuffix("s")].dropna().astype(int))

    def layer(self, index: int) -> str:
        """All about a layer."""
        layer = self.network.layers[index]
        row = self.costs.loc[index]
        costs = ", ".join(f"{words} {_figure(row[name])}" for name, words in COSTS.items())
        return (
            f"<div><b>{escape(layer.op)}</b> {escape(layer.name)}</div>"
            f"{facts.neighbourhood(self.network, layer, 'layer')}{facts.operands(self.network, layer, 'tensor')}"
            f"<div class='mli-more'>{costs}</div>{self._lint('layer', index)}"
            f"{fold('Attributes', '', facts.attributes(layer), unfolded=True)}"
        )

    def tensor(self, index: int) -> str:
        """All about a tensor."""
        row = self.model.tensors.loc[index]
        shown = {
            "role": row["role"], "type": f"{row['dtype']} ({row['vendor_dtype']})", "layout": row["layout"],
            "quantised": facts.quantization_text(self.network.tensors[index]), "stored bytes": _figure(row["nbytes"]),
            "compression": row["compression"], "at byte": _figure(row["file_offset"]),
        }  # fmt: skip
        rows = [[words, escape(str(value))] for words, value in shown.items() if not pd.isna(value) and value != ""]
        rows += [["given by", self._layers([row["producer"]])], ["read by", self._layers(row["consumers"])]]
        size = views.shape_text(self.network.tensors[index].shape)
        return f"<div><b>{escape(row['name'])}</b> {size}</div>{table((), rows)}{self._lint('tensor', index)}"

    def _layers(self, indices: Any) -> str:
        layers = [self.network.layers[int(i)] for i in indices if not pd.isna(i)]
        return ", ".join(
            facts.button(escape(f"{one.index} {one.name}"), "layer", one.index, "look at it") for one in layers
        )

    def _lint(self, column: str, index: int) -> str:
        found = self.findings[self.findings[column] == index].fillna(False)
        return "".join(
            f"<div class='mli-message{'' if row.severity == 'info' else ' mli-bad'}'>{escape(str(row.severity))}: "
            f"{escape(str(row.message))}. {escape(str(row.fix))}</div>"
            for row in found.itertuples()
        )

    def shown(self, index: int | None, unit: str, reference: Any = None) -> views.Shown | None:
        """A constant to look at."""
        tensor = self.network.tensors.get(-1 if index is None else index)
        if tensor is None or tensor.data is None:
            return None
        stored = constants.stored(tensor)
        if stored.dtype.kind not in "iufb":
            return views.Shown(tensor, stored, unit)
        return views.Shown(tensor, stored, unit, reference, constants.real(tensor, self.network.format))


class Index(Int):
    """A trait that is an index, and takes names."""

    def validate(self, obj: Any, value: Any) -> int | None:
        """The index of what has the name; indices as they are."""
        if isinstance(value, str):
            value = (find_layer if self.name == "layer" else constants.find_tensor)(obj.side.network, value).index
        return super().validate(obj, int(value) if isinstance(value, np.integer) else value)


class Explorer(LookForm):
    """A list of layers or tensors, and all about the one that is chosen. Made by :func:`explore`.

    Attributes
    ----------
    kind : {"layers", "tensors"}
        What the list holds.
    word : str
        Only rows that have it in their name or operator.
    query : str
        Only rows for which this pandas expression is true.
    rows : DataFrame
        What the list holds now.
    layer, tensor : int
        What is looked at, by index; -1: none. A name is set as the index that it stands for. Setting one unsets the
        other.
    operand, view, unit, batch, channel, row, column
        What is seen of a constant: see :class:`~mlinspect.widgets.look.LookForm`.
    """

    kind = Unicode("layers").tag(sync=True)
    view = Unicode("histogram").tag(sync=True)
    word = Unicode().tag(sync=True)
    query = Unicode().tag(sync=True)
    layer = Index(-1).tag(sync=True)
    tensor = Index(-1).tag(sync=True)
    # what is seen, as HTML
    message = Unicode().tag(sync=True)
    found = Unicode().tag(sync=True)
    details = Unicode().tag(sync=True)
    beside = Unicode().tag(sync=True)
    beside_picture = Unicode().tag(sync=True)
    has_values = Bool().tag(sync=True)

    def __init__(self, model: Any, other: Any = None) -> None:
        self.side = Side(model)
        self.other = None if other is None else Side(other)
        self.title = f"Explorer of {self.side.name}" + ("" if self.other is None else f" beside {self.other.name}")
        self.rows = model.layers
        super().__init__(form=frame(self.title, _layout(self.side, self.other)))
        self._list()
        self._show()

    def __repr__(self) -> str:
        return f"<{self.title}>"

    @cached_property
    def partners(self) -> dict[str, Mapping[int, int]]:
        """Layers and tensors of the second model by those of the first."""
        if self.other is None:
            return {"layer": {}, "tensor": {}}
        points = match(self.side.network, self.other.network)
        layers = {p.layer_a: p.layer_b for p in points if p.layer_a is not None and p.layer_b is not None}
        weights = compare_weights(self.other.model, self.side.model)
        pairs = weights.dropna(subset=["tensor_a", "tensor_b"])
        tensors = {p.a: p.b for p in points} | dict(zip(pairs.tensor_b.tolist(), pairs.tensor_a.tolist(), strict=True))
        return {"layer": layers, "tensor": tensors}

    @validate("kind")
    def _known_kind(self, proposal: Any) -> str:
        return one_of(("layers", "tensors"), "kind", proposal.value)

    @observe("kind", "word", "query")
    def _search(self, change: Any) -> None:
        with self.hold_sync():
            self._list()
        self.renew()

    @observe("layer", "tensor")
    def _choose(self, change: Any) -> None:
        known = self.side.network.layers if change.name == "layer" else self.side.network.tensors
        if change.new < 0:
            return
        with self.hold_sync():
            if change.new not in known:
                self.message = f"<div class='mli-message mli-bad'>no {change.name} {change.new}</div>"
                return
            self.set_trait("tensor" if change.name == "layer" else "layer", -1)
            self._list()
            self._show()
        self.renew()

    def _list(self) -> None:
        frame = getattr(self.side.model, self.kind)
        self.message = ""
        try:
            self.rows = find(frame, self.word.strip(), self.query)
        except InputError as error:
            self.message = f"<div class='mli-message mli-bad'>{escape(str(error))}</div>"
        else:
            chosen = self.layer if self.kind == "layers" else self.tensor
            count = f"<div class='mli-more'>{len(self.rows):,} of {len(frame):,} {self.kind}</div>"
            self.found = count + listing(self.rows, self.kind, chosen, self.side.warned(self.kind))

    def _show(self) -> None:
        """All about what is chosen."""
        self.details, self.beside = "<div class='mli-more'>choose a row</div>", ""
        which = "layer" if self.layer >= 0 else "tensor"
        index = max(self.layer, self.tensor)
        self._slots: dict[str, int] = {}
        if index >= 0:
            self.details = getattr(self.side, which)(index)
            if self.other is not None:
                partner = self.partners[which].get(index)
                none = f"<div class='mli-more'>no partner in {escape(self.other.name)}</div>"
                self.beside = none if partner is None else getattr(self.other, which)(partner)
            tensors = self.side.network.tensors
            slots = facts.slots(self.side.network.layers[index]) if which == "layer" else [("out0", index)]
            self._slots = {slot: tensor for slot, tensor in slots if tensors[tensor].data is not None}
        self.choices = facts.options(
            (slot, self.side.network.tensors[tensor].name) for slot, tensor in self._slots.items()
        )
        self.has_values = bool(self._slots)
        if self._slots and self.operand not in self._slots:
            self.operand = next(iter(self._slots))
        self.show_tensor()

    def shown(self) -> views.Shown | None:
        """The constant that is looked at; a second model's partner is its reference."""
        index = self._slots.get(self.operand)
        partner = self._partner()
        return self.side.shown(index, self.unit, None if partner is None else partner.real)

    def _partner(self) -> views.Shown | None:
        index = self._slots.get(self.operand)
        if self.other is None or index is None:
            return None
        return self.other.shown(self.partners["tensor"].get(index), self.unit)

    def show_tensor(self) -> None:
        """Draw the constant anew, and its partner."""
        super().show_tensor()
        partner = self._partner()
        at = (self.view, self.batch, self.channel, self.row, self.column)
        self.beside_picture = "" if partner is None else views.picture(partner, *at)

    def snapshot(self) -> str:
        """What is seen, without controls."""
        asked = [f"{name}: {value}" for name, value in (("word", self.word), ("query", self.query)) if value]
        parts = [head(self.title, asked), self.message, self.found]
        if self.layer >= 0 or self.tensor >= 0:
            parts += [self.details, self.picture if self.has_values else "", self.beside, self.beside_picture]
        return "".join(parts)


def _figure(value: Any) -> str:
    return "?" if pd.isna(value) else f"{int(value):,}"


def _layout(side: Side, other: Side | None) -> str:
    """The layout; ``form.js`` says what the attributes mean."""
    kinds = facts.options([("layers", "layers"), ("tensors", "tensors")])
    second = (
        ""
        if other is None
        else f"""<div><div class='mli-label'>{escape(other.name)}</div><div class='mli-second' data-show='beside'></div>
<div data-show='beside_picture'></div></div>"""
    )
    return f"""{head(side.name, ["explorer"] + ([] if other is None else [f"beside {other.name}"]))}
<div class='mli-bar-of-tools' role='toolbar' aria-label='Search'>
<label>list <select name='kind'>{kinds}</select></label>
<label>with the word <input type='text' name='word' size='14'></label>
<label class='mli-wide'>where <input type='text' name='query' style='flex:1' placeholder='{EXAMPLE}'></label></div>
<div role='status' data-show='message'></div>
<div data-show='found'></div>
<div class='mli-halves'><div><div class='mli-label'>{escape(side.name)}</div><div data-show='details'></div>
<div data-if='has_values'>{PICKERS}<div data-show='picture'></div></div></div>
{second}</div>"""
