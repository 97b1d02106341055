"""Layers and tensors by id or name: the one that is meant, or an error that says why there is not just one."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mlinspect import ir
from mlinspect.errors import InputError, near


def find_layer(network: ir.Network, layer: int | str) -> ir.Layer:
    """A layer of a network by index or name.

    Raises
    ------
    InputError
        No such layer, or several of that name.
    """
    return layer_among(network.layers.values(), layer)


def layer_among(layers: Iterable[ir.Layer], layer: int | str) -> ir.Layer:
    """The one of some layers that has an index or name; raises as :func:`find_layer`.

    Examples
    --------
    >>> relu = ir.Layer(3, "act", "Activation", "relu", 0, {}, (), ())
    >>> layer_among([relu], "act").index
    3
    """
    _check("layer", layer, "index")
    every = list(layers)
    found = [one for one in every if layer in (one.index, one.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"layers {[one.index for one in found]} are all called {layer!r}: use an index")
    raise InputError(f"no layer {layer!r}{near(layer, (one.name for one in every))}")


def _check(what: str, key: Any, number: str) -> None:
    if not isinstance(key, str | numbers.Real):
        raise InputError(f"a {what} goes by {number} or name, not by {'None' if key is None else type(key).__name__}")


def tensor_among(tensors: Mapping[int, ir.Tensor], tensor: int | str, parts: Collection[int] = ()) -> int:
    """The id of a tensor by id or name; where several have the name, of the only one among `parts`.

    Raises
    ------
    InputError
        No such tensor, or several of that name.
    """
    _check("tensor", tensor, "id")
    found = [one.index for one in tensors.values() if tensor in (one.index, one.name)]
    if len(found) > 1:
        found = [i for i in found if i in parts] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"tensors {found} are all called {tensor!r}: use an id")
    raise InputError(f"no tensor {tensor!r}{near(tensor, (one.name for one in tensors.values()))}")
