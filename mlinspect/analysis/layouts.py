"""The same values in another order of axes or another shape: recognised, undone, and said."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from mlinspect.kernels.agreement import sqnr_db


class Layout(NamedTuple):
    """How an array becomes one of another layout: ``array.transpose(before).reshape(shape).transpose(after)``.

    ``note`` is the difference in words, ``""`` when there is none.
    """

    before: tuple[int, ...]
    shape: tuple[int, ...]
    after: tuple[int, ...]
    note: str

    def apply(self, array: np.ndarray) -> np.ndarray:
        """Bring an array into the other layout."""
        return array.transpose(self.before).reshape(self.shape).transpose(self.after) if self.note else array

    def undo(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Bring an array of the other layout back into this one, where it has the given shape."""
        if not self.note:
            return array
        moved = tuple(shape[axis] for axis in self.before)
        return array.transpose(np.argsort(self.after)).reshape(moved).transpose(np.argsort(self.before))


def layouts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[Layout]:
    """The layouts by which an array of one shape may hold the values of another; likelier ones first.

    Examples
    --------
    >>> [layout.note for layout in layouts((1, 16, 8, 8), (1, 8, 8, 16))]
    ['NCHW against NHWC']
    >>> [layout.note for layout in layouts((1, 4, 4, 2), (1, 32))]
    ['shape', 'shape, and NHWC against NCHW', 'shape, and NCHW against NHWC']
    >>> layouts((1, 8), (1, 9))
    []
    """
    plain, flat = tuple(range(len(shape))), tuple(range(len(wanted)))
    if shape == wanted:
        return [Layout(plain, wanted, flat, "")]
    if prod(shape) != prod(wanted):
        return []
    moves = [(order, _moved(shape, order), flat, note) for order, note in _moves(len(shape))]
    if len(shape) == len(wanted):
        found = [Layout(*move) for move in moves if move[1] == wanted]
        if found:
            return found
    found = [Layout(plain, wanted, flat, "shape")]
    if [n for n in shape if n != 1] == [n for n in wanted if n != 1]:
        return found
    if len(shape) >= len(wanted):
        return found + [Layout(order, wanted, flat, f"shape, and {note}") for order, _, _, note in moves]
    back = [(tuple(map(int, np.argsort(order))), order, note) for order, note in _moves(len(wanted))]
    return found + [Layout(plain, _moved(wanted, into), order, f"shape, and {note}") for into, order, note in back]


def _moved(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in order)


def _moves(rank: int) -> list[tuple[tuple[int, ...], str]]:
    """Orders of axes that move the channels from the end to the front of the picture, or back."""
    moves = []
    for name, other in _NAMES.get(rank, ()):
        to_other = tuple(name.index(axis) for axis in other)
        to_name = tuple(other.index(axis) for axis in name)
        moves += [(to_other, f"{name} against {other}"), (to_name, f"{other} against {name}")]
    return moves


_NAMES = {3: [("HWC", "CHW"), ("NWC", "NCW")], 4: [("NHWC", "NCHW")], 5: [("NDHWC", "NCDHW")]}


def best_layout(array: np.ndarray, wanted: np.ndarray) -> Layout | None:
    """The layout in which an array agrees best with another; None when their sizes differ.

    Examples
    --------
    >>> x = np.arange(12.0).reshape(1, 2, 3, 2)
    >>> flat = x.transpose(0, 3, 1, 2).reshape(1, 12)
    >>> best_layout(flat, x).note, best_layout(x, flat).note
    ('shape, and NCHW against NHWC', 'shape, and NHWC against NCHW')
    """
    found = layouts(array.shape, wanted.shape)
    if len(found) < 2:
        return found[0] if found else None
    # the first of equals, as max takes it
    return max(found, key=lambda layout: sqnr_db(wanted, layout.apply(array)))
