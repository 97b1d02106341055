"""What the stepper shows of its session, and its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from mlinspect.execute.session import Session
from mlinspect.html import code, head, number, table
from mlinspect.widgets import facts
from mlinspect.widgets.form import frame
from mlinspect.widgets.look import PICKERS

# what a run can stop at: key -> (words, how the text of the limit is read)
CONDITIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "nan": ("NaN", lambda text: True),
    "inf": ("Inf", lambda text: True),
    "clipped": ("clipped share above", float),
    "above": ("a value above", float),
    "below": ("a value below", float),
    "kind": ("kind or operator", str),
    "layer": ("layer", lambda text: int(text) if text.isdigit() else text),
    "sqnr": ("SQNR (dB) below", float),
}


def where(session: Session) -> str:
    """Where a session stands, in a line."""
    if session.layer is None:
        return f"<b>start</b>, {len(session)} layers to compute"
    layer = session.layer
    done = ", done" if session.done else ""
    return f"<b>{escape(layer.op)}</b> {code(layer.name)}: layer {session.position} of {len(session)}{done}"


def said(text: str, bad: bool = False) -> str:
    """Something to tell the user.

    Examples
    --------
    >>> said("a < b")
    "<div class='mli-message'>a &lt; b</div>"
    """
    return f"<div class='mli-message{' mli-bad' if bad else ''}'>{escape(text)}</div>"


def items(texts: Sequence[str], none: str) -> str:
    """A list, or a line that says that there is none.

    Examples
    --------
    >>> items([], "no breaks")
    "<div class='mli-more'>no breaks</div>"
    """
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul class='mli-notes'>{lines}</ul>" if lines else f"<div class='mli-more'>{none}</div>"


def watches(session: Session) -> str:
    """The watched tensors as a table."""
    found = session.watches
    if found.empty:
        return "<div class='mli-more'>nothing is watched</div>"

    rows = [
        [code(str(row["watch"])), escape(str(row["shape"] or "not computed"))]
        + [escape(number(row[name])) for name in ("min", "max", "mean", "value")]
        for row in found.to_dict("records")
    ]
    return table(("tensor", "shape", "min", "max", "mean", "value"), rows)


def layout(name: str, reference: bool) -> str:
    """The layout; ``form.js`` says what the attributes mean."""
    kept = CONDITIONS if reference else {k: v for k, v in CONDITIONS.items() if k != "sqnr"}
    conditions = facts.options((key, words) for key, (words, _) in kept.items())
    body = f"""
{head(name, ["stepper"])}
<div class='mli-bar-of-tools' role='toolbar' aria-label='Run'>
<button data-do='reset' aria-keyshortcuts='Home' title='Go to the start, forget changes (Home)'>Start</button>
<button data-do='back' aria-keyshortcuts='b' title='Go back one layer (b)'>◀ Back</button>
<button data-do='step' aria-keyshortcuts='n' title='Compute the next layer (n)'>Step ▶</button>
<button data-do='play' data-pressed='playing' aria-keyshortcuts='p' title='Step by itself (p)'>Play</button>
<button data-do='resume' aria-keyshortcuts='r' title='Compute until a break holds (r)'>Run to break</button>
<button data-do='finish' aria-keyshortcuts='End' title='Compute the rest (End)'>End</button>
<label>go to <select name='target' data-show='targets'></select></label>
</div>
<div class='mli-bar-of-tools'><label class='mli-wide'>layer
<input type='range' name='position' min='0' data-max='steps' step='1'></label></div>
<div aria-live='polite'><span data-show='where'></span> <span class='mli-more' data-show='timing'></span></div>
<div role='status' data-show='message'></div>
<div class='mli-halves'>
<div><div data-show='neighbours'></div><div data-show='operands'></div>
<details open><summary>Attributes</summary><div class='mli-body' data-show='attributes'></div></details></div>
<div>{PICKERS}
<div data-show='picture'></div></div>
</div>
<details><summary>Breaks and watches</summary><div class='mli-halves'>
<div><div class='mli-bar-of-tools'><label>break at <select name='condition'>{conditions}</select></label>
<label>limit <input type='text' name='limit' size='8'></label>
<button data-do='add_break' title='Stop runs where this holds'>Add break</button>
<button data-do='clear_breaks' title='Forget all breaks'>Clear breaks</button></div>
<div data-show='breaks'></div></div>
<div><div class='mli-bar-of-tools'>
<button data-do='add_watch' title='Watch the tensor that is shown'>Watch this tensor</button>
<button data-do='clear_watches' title='Watch nothing'>Clear watches</button></div>
<div data-show='watches'></div></div>
</div></details>"""
    return frame(f"Stepper of {name}", body)
