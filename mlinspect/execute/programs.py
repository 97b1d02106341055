"""Network + mode + wanted tensors -> a program to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError, near
from mlinspect.execute import registry
from mlinspect.execute.engine import STEP_LIMIT, Compute, Program, plan
from mlinspect.execute.lookups import with_tables

MODES = ("vendor", "float")


class Programs:
    """Programs of one network, each made once; what they share (decoded constants) is shared.

    Attributes
    ----------
    network : ir.Network
        As the vendor's runtime sees it once it has loaded the file.
    """

    def __init__(self, network: ir.Network) -> None:
        self.network = _binding(network).as_loaded(network)
        self._registry = registry.changes()
        self._binders: dict[str, tuple[Callable[[ir.Layer], Compute | None], Callable[[ir.Tensor], np.ndarray]]] = {}
        self._programs: dict[tuple[str, tuple[int, ...], bool], Program] = {}

    def get(self, mode: str, wanted: Iterable[int], step_limit: int = STEP_LIMIT, only_wanted: bool = False) -> Program:
        """The program that leads to the wanted tensors; ``only_wanted`` if nobody will look at the others.

        Raises
        ------
        InputError
            Unknown mode.
        """
        if mode not in MODES:
            raise InputError(f"mode {mode!r} is unknown: use one of {', '.join(map(repr, MODES))}{near(mode, MODES)}")
        if self._registry != registry.changes():  # an operator was registered since
            self._registry = registry.changes()
            self._binders.clear()
            self._programs.clear()
        key = (mode, tuple(wanted), only_wanted and mode == "vendor")
        if key not in self._programs:
            if mode not in self._binders:
                self._binders[mode] = self._binder(mode)
            program = plan(self.network, key[1], *self._binders[mode])
            self._programs[key] = with_tables(program, self.network, self._is_own) if key[2] else program
        program = self._programs[key]
        return program if step_limit == program.step_limit else replace(program, step_limit=step_limit)

    def _is_own(self, layer: ir.Layer) -> bool:
        """Whether the layer's arithmetic is not a user's."""
        return bool(_binding(self.network).reference_of(self.network, layer) != "user")

    def _binder(self, mode: str) -> tuple[Callable[[ir.Layer], Compute | None], Callable[[ir.Tensor], np.ndarray]]:
        """What binds a layer to its function, and what loads a constant."""
        vendor = _binding(self.network)
        return vendor.binder(self.network, mode), vendor.loader(self.network, mode)


def references(network: ir.Network) -> dict[int, str]:
    """Whose arithmetic each layer follows: vendor, published definition, user, or none where there is no arithmetic."""
    vendor = _binding(network)
    return {i: vendor.reference_of(network, layer) for i, layer in network.layers.items()}


def _binding(network: ir.Network) -> Any:
    """``bind_armnn`` or ``bind_mslite``, with the operators of that format."""
    return import_module(f"mlinspect.execute.bind_{network.format}")
