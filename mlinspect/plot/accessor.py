"""``model.plot``: the plots, bound to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlinspect import constants
from mlinspect.analysis.operands import is_weight, uses
from mlinspect.plot import cost, graph, quantization
from mlinspect.plot import weights as histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotAccessor:
    """Plots of a model; every method takes ``ax=`` and returns the Axes.

    Parameters
    ----------
    model : Model
        Anything with a ``network``.

    Examples
    --------
    >>> import mlinspect as mi
    >>> plot = PlotAccessor(mi.open(mi.samples.path("digits_cnn_wq4.ms")))
    >>> plot.weights("res.weight").get_xlabel()
    'stored value'
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def __repr__(self) -> str:
        return f"<plots of a model: {', '.join(name for name in dir(type(self)) if not name.startswith('_'))}>"

    def weights(self, tensor: int | str, ax: Axes | None = None) -> Axes:
        """Histogram of a constant over the grid of its type; a layer's name stands for its weights.

        See :func:`mlinspect.plot.weights.weights`.
        """
        return histogram.weights(self._constant(tensor), ax)

    def channel_ranges(self, tensor: int | str, ax: Axes | None = None) -> Axes:
        """Range of each output channel. See :func:`mlinspect.plot.quantization.channel_ranges`."""
        return quantization.channel_ranges(self._model, self._constant(tensor).index, ax)

    def scales(self, ax: Axes | None = None) -> Axes:
        """Quantisation steps over depth. See :func:`mlinspect.plot.quantization.scales`."""
        return quantization.scales(self._model, ax)

    def zero_points(self, ax: Axes | None = None) -> Axes:
        """Zero points in their grids over depth. See :func:`mlinspect.plot.quantization.zero_points`."""
        return quantization.zero_points(self._model, ax)

    def levels(self, ax: Axes | None = None) -> Axes:
        """Use that constants make of their grids. See :func:`mlinspect.plot.quantization.levels`."""
        return quantization.levels(self._model, ax)

    def sqnr(self, reference: Any, ax: Axes | None = None, good: float = 40, bad: float = 20) -> Axes:
        """Weights against those of a reference model. See :func:`mlinspect.plot.quantization.sqnr`."""
        return quantization.sqnr(reference, self._model, ax, good, bad)

    def cost(self, column: str = "macs", ax: Axes | None = None) -> Axes:
        """One column of the cost table as bars. See :func:`mlinspect.plot.cost.cost`."""
        return cost.cost(self._model, column, ax)

    def memory(self, ax: Axes | None = None) -> Axes:
        """Activations in memory while each layer runs. See :func:`mlinspect.plot.cost.memory`."""
        return cost.memory(self._model, ax)

    def graph(self, color: Any = "kind", ax: Axes | None = None, max_nodes: int = graph.MAX_NODES) -> Axes:
        """The graph, layered from top to bottom. See :func:`mlinspect.plot.graph.graph`."""
        return graph.graph(self._model, color, ax, max_nodes)

    def _constant(self, key: int | str) -> Any:
        """A constant by id or name, or the weights of a layer by its name."""
        network = self._model.network
        if isinstance(key, str) and all(
            tensor.name != key or tensor.data is None for tensor in network.tensors.values()
        ):
            readers = uses(network)
            named = [layer for layer in network.layers.values() if layer.name == key]
            found = [network.tensors[i] for layer in named for i in layer.inputs]
            weights = [t for t in found if is_weight(t, readers.get(t.index))]
            if len(named) == 1 and weights:
                return weights[0]
        return constants.find_tensor(network, key)
