"""Constants cut into groups of channels, so that only a part is unpacked, and few figures are held, at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from mlinspect import ir
from mlinspect.analysis.operands import Use, by_channel, channel_axis, is_per_channel, of_channels, parameters_fit

_UNPACKED = 1 << 23  # numbers from which on they are unpacked by groups, of less than twice as many
_CHANNELS = 1 << 16


def pieces(tensor: ir.Tensor, use: Use | None) -> Iterator[tuple[np.ndarray, ir.Tensor]]:
    """A constant in groups of channels.

    Parameters
    ----------
    tensor : ir.Tensor
        With data.
    use : Use or None
        Its first reader.

    Yields
    ------
    view : ndarray, shape (outer, channels, inner)
        As :func:`~mlinspect.analysis.operands.by_channel` gives it.
    tensor : ir.Tensor
        The tensor, its parameters those of these channels.

    Examples
    --------
    >>> t = ir.Tensor(1, "w", 0, "constant", "int8", "Int8", (2, 3), data=np.int8([[1, 2, 3], [4, 5, 6]]), layout="OI")
    >>> use = Use(ir.Layer(0, "", "", "fully_connected", 0, {}, (), ()), 1)
    >>> [view.shape for view, _ in pieces(t, use)]
    [(1, 2, 3)]
    """
    shape = tensor.shape or ()
    part = tensor.data.part if isinstance(tensor.data, ir.PackedData) else None
    if part is not None and channel_axis(tensor, use) == 0 and prod(shape) > _UNPACKED:
        inner = prod(shape[1:])
        for group, parameters in _groups(tensor, shape[0], _UNPACKED // inner):
            numbers = part(group.start * inner, group.stop * inner)
            yield numbers.reshape(1, -1, inner), parameters
        return
    array = tensor.data.load() if isinstance(tensor.data, ir.PackedData) else tensor.data
    assert array is not None
    view = by_channel(array.view(np.uint8) if array.dtype == bool else array, tensor, use)
    many = len(view) == 1 and view.dtype.kind in "iu"  # of others, little is held of each channel
    for group, parameters in _groups(tensor, view.shape[1], _CHANNELS if many else view.shape[1]):
        yield view[:, group], parameters


def _groups(tensor: ir.Tensor, channels: int, least: int) -> Iterator[tuple[slice, ir.Tensor]]:
    """About equal groups of so many channels or more, in one where the parameters do not fit the channels."""
    many = channels // max(least, 1)
    if many < 2 or not parameters_fit(tensor, channels):
        yield slice(0, channels), tensor
        return
    ends = np.linspace(0, channels, many + 1).astype(int).tolist()
    for group in map(slice, ends, ends[1:]):
        q = tensor.quantization
        if q is not None and is_per_channel(tensor):
            yield group, replace(tensor, quantization=of_channels(q, group))
        else:
            yield group, tensor
