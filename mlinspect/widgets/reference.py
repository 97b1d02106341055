"""What a run is measured against, by the run's own tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlinspect import constants
from mlinspect.analysis.compare import operands
from mlinspect.analysis.layouts import best_layout
from mlinspect.analysis.match import match
from mlinspect.analysis.samples import Sample, split
from mlinspect.execute.conditions import real_values
from mlinspect.execute.ports import Inputs
from mlinspect.execute.session import Session


class Reference(Mapping[int, np.ndarray]):
    """Real values that a session's tensors should have, by tensor id, in the session's layout.

    Parameters
    ----------
    session : Session
        Whose values they stand beside; tensors that it has not computed yet are missing.
    model : Model
        That the session runs.
    source : Model, Trace, Dump or "float"
        As the second operand of ``mlinspect.compare``; ``"float"`` is the session's model on real values.
    inputs : array, mapping or sequence
        What the session was given.
    """

    def __init__(self, session: Session, model: Any, source: Any, inputs: Inputs) -> None:
        self._session = session
        one, other = operands(model, source, ("vendor", "vendor"))
        points = match(one.network, other.network, (one.mode, other.mode))
        self._network = other.network
        self._pairs = {point.a: point.b for point in points}
        sample = split(model.network, inputs)[0] if other.runs is not None else Sample()
        self._values, _ = other.run(sample, list(self._pairs.values()))
        self._named = {tensor.name: tensor for tensor in other.network.tensors.values() if tensor.data is not None}

    def __getitem__(self, tensor: int) -> np.ndarray:
        mine = self._session.network.tensors[tensor]
        if mine.data is not None:
            array = constants.real(self._named[mine.name], self._network.format)
        else:
            other = self._pairs[tensor]
            array = real_values(self._values[other], self._network.tensors[other])
        layout = best_layout(array, real_values(self._session[tensor], mine))
        return array if layout is None else layout.apply(array)

    def __iter__(self) -> Iterator[int]:
        return (tensor for tensor, other in self._pairs.items() if other in self._values)

    def __len__(self) -> int:
        return sum(1 for _ in self)
