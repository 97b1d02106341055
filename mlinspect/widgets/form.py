"""Form: an HTML form bound to traits, with a snapshot for where no kernel runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import anywidget
from IPython.display import DisplayHandle, display
from traitlets import Unicode

from mlinspect.errors import InputError, near
from mlinspect.html import CSS

WIDGET = "application/vnd.jupyter.widget-view+json"
SETTLED = 0.5  # seconds after the last change when the snapshot is renewed


class Form(anywidget.AnyWidget):
    """A widget whose whole view is the HTML in ``form`` (``form.js`` says how it is bound to traits).

    Displaying it puts two outputs into the notebook: the live form, and below it a snapshot as plain HTML. Where the
    form lives the snapshot is hidden; where it does not (GitHub, nbviewer, an exported page, a notebook opened without
    its kernel) the snapshot is what readers see: as the form was left, since it is renewed as the form changes.

    Subclasses set ``actions``, the methods that buttons may call, and ``title``, and say in ``snapshot`` what is seen.
    """

    _esm = Path(__file__).parent / "form.js"
    actions: tuple[str, ...] = ()
    title = ""
    form = Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._snapshots: list[DisplayHandle] = []
        self._renewal: asyncio.TimerHandle | None = None
        self._asked = False  # by the front end, just now
        self.on_msg(self._on_message)

    def _handle_msg(self, msg: Any) -> None:
        self._asked = True
        try:
            super()._handle_msg(msg)
        finally:
            self._asked = False

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        if content.get("do") in self.actions:
            getattr(self, content["do"])()

    def snapshot(self) -> str:
        """What is seen, as HTML without controls."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        body = re.sub(r"</?button[^>]*>", "", self.snapshot())
        return f"<div class='mli mli-snap'><style>{CSS}{FORM_CSS}</style>{body}</div>"

    def _ipython_display_(self) -> None:
        view = {"model_id": self.model_id, "version_major": 2, "version_minor": 1}
        display({"text/plain": f"{self.title}, as it was left:", WIDGET: view}, raw=True)
        handle = display({"text/html": self._repr_html_(), "text/plain": ""}, raw=True, display_id=True)
        if handle is not None:
            self._snapshots.append(handle)

    def renew(self, soon: bool = False) -> None:
        """Renew the snapshots on display: at once, or if `soon` or clicked on, when changes pause."""
        if self._renewal is not None:
            self._renewal.cancel()
        if not self._snapshots:
            return
        if self._asked or soon:
            self._renewal = asyncio.get_running_loop().call_later(SETTLED, self._renew)
        else:
            self._renew()

    def _renew(self) -> None:
        for handle in self._snapshots:
            handle.update({"text/html": self._repr_html_(), "text/plain": ""}, raw=True)


def one_of(known: Iterable[str], trait: str, value: str) -> str:
    """The value of a trait, if it is known.

    Raises
    ------
    InputError
        It is not.

    Examples
    --------
    >>> one_of(("real", "stored"), "unit", "real")
    'real'
    """
    known = list(known)
    if value not in known:
        raise InputError(f"no {trait} {value!r}: use one of {', '.join(map(repr, known))}{near(value, known)}")
    return value


def frame(label: str, body: str) -> str:
    """The HTML of a form: a named group.

    Examples
    --------
    >>> "aria-label='Stepper of a&lt;b'" in frame("Stepper of a<b", "")
    True
    """
    return (
        f"<div class='mli mli-live' role='group' aria-label='{escape(label, quote=True)}'>"
        f"<style>{CSS}{FORM_CSS}</style>{body}</div>"
    )


# An output directly behind that of a live form is its snapshot, to be hidden. Where the form does not live, what stands
# in its place says nothing; and an exported page (whose body is the notebook) shows the snapshot in any case.
_OUTPUT = ":is(.jp-OutputArea-child,.output_container,.output_area)"
FORM_CSS = (
    f"body:not(.jp-Notebook) {_OUTPUT}:has(.mli-live)+{_OUTPUT}:has(.mli-snap),"
    f"{_OUTPUT}:has(.jupyter-widgets):not(:has(.mli-live)):has(+{_OUTPUT} .mli-snap),"
    f"body.jp-Notebook {_OUTPUT}:has(+{_OUTPUT} .mli-snap){{display:none}}"
    """
.mli-live,.mli-snap{max-width:1080px!important}
.mli-live button,.mli-live select,.mli-live input{font:inherit;color:var(--fg);background:var(--panel);
border:1px solid var(--line);border-radius:5px;padding:2px 9px;margin:0}
.mli-live input[type=range]{padding:0;flex:1;min-width:160px;accent-color:var(--a)}
.mli-live input[type=number]{width:5em}.mli-live select{max-width:24em}
.mli-live button{cursor:pointer}.mli-live button:hover{border-color:var(--a)}
.mli-live :is(button,select,input,summary):focus-visible{outline:2px solid var(--a);outline-offset:1px}
.mli-live button[aria-pressed=true]{background:var(--a);color:var(--bg)}
.mli-live button.mli-go{background:none;border:none;padding:0;text-align:left;color:var(--a);border-radius:2px}
.mli-bar-of-tools{display:flex;flex-wrap:wrap;gap:6px 12px;align-items:center;margin:6px 0}
.mli-bar-of-tools label{display:flex;gap:5px;align-items:center;color:var(--dim)}
.mli-bar-of-tools label.mli-wide{flex:1;min-width:220px}
.mli-live [hidden]{display:none!important}
.mli-halves{display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start}
.mli-halves>*{flex:1 1 340px;min-width:0;overflow-x:auto}
.mli .mli-halves table.mli-t td:last-child{white-space:normal;width:auto}
.mli-row{display:flex;flex-wrap:wrap;gap:8px 20px}
.mli .mli-more img{vertical-align:middle;margin:0 4px;display:inline}
.mli img{margin:2px 0;background:none}
.mli-ends{display:flex;justify-content:space-between}
.mli-key{white-space:nowrap;margin-left:6px}
.mli table.mli-graph{border:none;margin:4px 0;font-size:12px;color:var(--fg)}
.mli table.mli-graph tr,.mli table.mli-graph td{background:none;border:none;padding:2px 6px;text-align:left;
vertical-align:middle;white-space:normal}
.mli-box,.mli-here{border:1px solid var(--line);border-radius:6px;padding:3px 8px;margin:3px 0;overflow-wrap:anywhere;
line-height:1.4}
.mli-here{border:2px solid var(--a)}.mli-here b,.mli-box b{white-space:nowrap}
.mli-message{color:var(--fg);border-left:3px solid var(--a);padding-left:8px;margin:4px 0}
.mli-bad{border-left-color:#d55e00}
.mli table.mli-t tr.mli-chosen td{font-weight:600}
"""
)
