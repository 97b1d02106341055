"""Session: a run that stops between layers."""

from __future__ import annotations

import numpy as np

from mlinspect import ir
from mlinspect.errors import InputError
from mlinspect.execute.engine import Program, advance
from mlinspect.execute.ports import wanted_tensors
from mlinspect.execute.trace import Trace


class Session:
    """Computes a model layer by layer.

    Made by ``model.session(inputs)``.

    Attributes
    ----------
    position : int
        How many layers have been computed.

    Examples
    --------
    >>> import mlinspect as mi
    >>> model = mi.open(mi.samples.path("digits_cnn.ms"))
    >>> session = model.session(mi.samples.digits().images[:1, ..., None].astype("float32") / 16)
    >>> layer = session.step()
    >>> session.position, layer.op
    (1, 'Conv2DFusion')
    """

    def __init__(self, network: ir.Network, program: Program, feeds: dict[int, np.ndarray]) -> None:
        self.network = network
        self._program = program
        self._feeds = feeds
        self.reset()

    def reset(self) -> None:
        """Go back to before the first layer."""
        self.position = 0
        self._values: dict[int, np.ndarray] = dict(self._program.constants) | self._feeds

    @property
    def done(self) -> bool:
        """Every layer has been computed."""
        return self.position == len(self._program.steps)

    @property
    def next_layer(self) -> ir.Layer | None:
        """The layer that ``step`` would compute, None at the end."""
        return None if self.done else self._program.steps[self.position].layer

    def step(self) -> ir.Layer | None:
        """Compute one layer; gives it, or None if all are done."""
        if self.done:
            return None
        step = self._program.steps[self.position]
        with np.errstate(all="ignore"):
            advance(self._program, self._values, step)
        self.position += 1
        return step.layer

    def run_to(self, layer: int | str) -> ir.Layer:
        """Compute up to and including a layer, given by index or name.

        Raises
        ------
        InputError
            There is no such layer ahead.
        """
        for offset, step in enumerate(self._program.steps[self.position :]):
            if layer in (step.layer.index, step.layer.name):
                for _ in range(offset + 1):
                    self.step()
                return step.layer
        raise InputError(f"no layer {layer!r} lies ahead of position {self.position}")

    def finish(self) -> dict[str, np.ndarray]:
        """Compute the rest; gives the outputs as ``model.run`` does."""
        while self.step() is not None:
            pass
        return self.outputs

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs that have been computed so far, by name."""
        wanted = wanted_tensors(self.network, None)
        return {name: self._values[tensor] for name, tensor in wanted.items() if tensor in self._values}

    @property
    def trace(self) -> Trace:
        """Everything computed so far."""
        constants = self._program.constants
        return Trace(self.network, {i: value for i, value in self._values.items() if i not in constants})

    def __repr__(self) -> str:
        following = "finished" if self.done else f"next: {self.next_layer.op} {self.next_layer.name!r}"  # type: ignore[union-attr]
        return f"<Session at {self.position} of {len(self._program.steps)} layers, {following}>"
