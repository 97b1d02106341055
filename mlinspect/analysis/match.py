"""Where two networks hold the same values: their layers paired by name, then by weights and structure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from mlinspect import ir
from mlinspect.analysis.operands import grid
from mlinspect.analysis.pairs import matched_constants

# kinds that compute the same; any other kind is a family of its own
_FAMILY = {"fully_connected": "product", "matmul": "product", "flatten": "reshape", "squeeze": "reshape",
           "unsqueeze": "reshape", "expand_dims": "reshape", "relu": "activation", "scale": "batch_norm"}  # fmt: skip
_NO_LAYERS = ("input", "output", "constant")
# what only moves or recodes values
PASSING = {"reshape", "flatten", "squeeze", "unsqueeze", "expand_dims", "transpose", "quantize", "dequantize", "cast",
           "identity", *_NO_LAYERS}  # fmt: skip
_WEIGHTED = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv3d", "fully_connected", "matmul")
_FOLDED = ("batch_norm", "scale", "add", "sub", "mul", "div")  # into the weights and bias before them
_NOTHING = (None, "NO_ACTIVATION")
# the least that activations give that only clip: a number, or the attribute that holds it
_LEAST = {"ReLu": 0.0, "BoundedReLu": "b", "RELU": 0.0, "RELU6": 0.0, "RELU1": -1.0, "HARD_TANH": "min_val"}
_ANYTHING = ("stand_in", "custom", "unknown")  # may stand for any other kind that computes


@dataclass(frozen=True, slots=True)
class Point:
    """A pair of tensors that should hold the same values.

    Attributes
    ----------
    a, b : int
        Tensor ids in either network.
    layer_a, layer_b : int or None
        The layers that were paired, None for inputs.
    matched : {"input", "name", "weights", "structure", "output"}
    folded : tuple of tuple of int
        What one network folds into a layer (or into the range that its output is stored in), the other may compute in
        layers behind it: their indices in `a` and in `b`. The tensor is then that of the last of them.
    """

    a: int
    b: int
    layer_a: int | None
    layer_b: int | None
    matched: str
    folded: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def match(a: ir.Network, b: ir.Network, modes: tuple[str, str] = ("float", "float")) -> list[Point]:
    """Pair the tensors of two networks' main graphs, in the order of the first.

    Layers of one name come first; then those whose weights are alike; then those whose operands are paired and that
    compute the same kind of thing of the same size; then, in order, the others that do.

    TensorFlow Lite stores a layer in the range of the ReLU behind it: run as the vendor does, the quantised layer clips
    what the float one still gives. Where one of the two does so in its mode, they are paired behind the activation.
    """
    layers_a, layers_b = _layers(a), _layers(b)
    pairs = _by_name(layers_a, layers_b)
    pairs |= dict.fromkeys(_by_weights(a, b, layers_a, layers_b, pairs), "weights")
    pairs |= dict.fromkeys(_by_operands(a, b, layers_a, layers_b, pairs), "structure")
    rest_a, rest_b = _others(layers_a, pairs, 0), _others(layers_b, pairs, 1)
    pairs |= dict.fromkeys(_in_order(a, b, rest_a, rest_b), "structure")
    pairs |= dict.fromkeys(_by_operands(a, b, layers_a, layers_b, pairs), "structure")
    points = [
        Point(one.tensor, other.tensor, None, None, "input")
        for one, other in paired_ports(a.graphs[0].inputs, b.graphs[0].inputs)
    ]
    readers_a, readers_b = _readers(a), _readers(b)
    clipped, behind_them = _clipped((a, b), modes, (readers_a, readers_b), pairs)
    pairs = {pair: how for pair, how in pairs.items() if pair not in behind_them}
    paired_a, paired_b = {one for one, _ in pairs}, {other for _, other in pairs}
    order = {layer.index: i for i, layer in enumerate(layers_a)}
    for (i, j), how in sorted(pairs.items(), key=lambda item: order[item[0][0]]):
        one, other = a.layers[i], b.layers[j]
        fused_a, fused_b, both = _fused(one), _fused(other), (i, j) in clipped
        ends_a, folded_a = _ends(a, one, readers_a, paired_a, both or (fused_b and not fused_a))
        ends_b, folded_b = _ends(b, other, readers_b, paired_b, both or (fused_a and not fused_b))
        points += [Point(x, y, i, j, how, (folded_a, folded_b)) for x, y in zip(ends_a, ends_b, strict=False)]
    return points


def paired_ports(a: Sequence[ir.Port], b: Sequence[ir.Port]) -> list[tuple[ir.Port, ir.Port]]:
    """Inputs or outputs of two networks: by name where both have the same names, otherwise by position."""
    named = {port.name: port for port in b}
    if len(named) == len(a) == len(b) and named.keys() == {port.name for port in a}:
        return [(port, named[port.name]) for port in a]
    return list(zip(a, b, strict=False))


def with_outputs(a: ir.Network, b: ir.Network, points: Sequence[Point]) -> list[Point]:
    """The points, and those for the outputs that no pair of layers gives."""
    found = list(points)
    for one, other in paired_ports(a.graphs[0].outputs, b.graphs[0].outputs):
        before_a, before_b = passed(a, one.tensor), passed(b, other.tensor)
        if not any(point.a in before_a and point.b in before_b for point in points):
            makers = _maker(a, one.tensor), _maker(b, other.tensor)
            found.append(Point(one.tensor, other.tensor, *makers, "output"))
    return found


def _maker(network: ir.Network, tensor: int) -> int | None:
    return next((layer.index for layer in network.graphs[0].layers if tensor in layer.outputs), None)


def passed(network: ir.Network, tensor: int) -> list[int]:
    """A tensor and those before it that only casts and reshapes lie between."""
    made = {t: layer for layer in network.graphs[0].layers for t in layer.outputs}
    found = [tensor]
    while tensor in made and made[tensor].kind in PASSING:
        operands = [t for t in made[tensor].inputs if network.tensors[t].data is None]
        if len(operands) != 1:
            break
        (tensor,) = operands
        found.append(tensor)
    return found


def _layers(network: ir.Network) -> list[ir.Layer]:
    return [layer for layer in network.graphs[0].layers if layer.kind not in _NO_LAYERS and layer.outputs]


def _family(layer: ir.Layer) -> str:
    return _FAMILY.get(layer.kind, layer.kind)


def _others(layers: Sequence[ir.Layer], pairs: dict[tuple[int, int], str], side: int) -> list[ir.Layer]:
    taken = {pair[side] for pair in pairs}
    return [layer for layer in layers if layer.index not in taken]


def _by_name(layers_a: Sequence[ir.Layer], layers_b: Sequence[ir.Layer]) -> dict[tuple[int, int], str]:
    """Layers of one name and family; where several share a name, the first with the first and so on."""
    named: dict[tuple[str, str], list[int]] = {}
    for layer in layers_b:
        named.setdefault((layer.name, _family(layer)), []).append(layer.index)
    counts = {key: len(found) for key, found in named.items()}
    mine: dict[tuple[str, str], list[int]] = {}
    for layer in layers_a:
        mine.setdefault((layer.name, _family(layer)), []).append(layer.index)
    return {
        pair: "name"
        for key, found in mine.items()
        if key[0] and counts.get(key) == len(found)
        for pair in zip(found, named[key], strict=True)
    }


def _in_order(
    a: ir.Network, b: ir.Network, layers_a: Sequence[ir.Layer], layers_b: Sequence[ir.Layer]
) -> list[tuple[int, int]]:
    """The longest common subsequence of layers that are alike."""
    signs_a, signs_b = [_sign(a, layer) for layer in layers_a], [_sign(b, layer) for layer in layers_b]
    lengths = [[0] * (len(signs_b) + 1) for _ in range(len(signs_a) + 1)]
    for i in reversed(range(len(signs_a))):
        row, below = lengths[i], lengths[i + 1]
        for j in reversed(range(len(signs_b))):
            row[j] = below[j + 1] + 1 if signs_a[i] == signs_b[j] else max(below[j], row[j + 1])
    found, i, j = [], 0, 0
    while i < len(signs_a) and j < len(signs_b):
        if signs_a[i] == signs_b[j]:
            found.append((layers_a[i].index, layers_b[j].index))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def _sign(network: ir.Network, layer: ir.Layer) -> tuple[str, tuple[int, ...] | None]:
    """What layers have in common that may be the same: what they compute, and the size of the result in any layout."""
    shape = network.tensors[layer.outputs[0]].shape
    if shape is None or min(shape, default=1) < 0:
        return _family(layer), None
    return _family(layer), tuple(sorted(n for n in shape if n != 1))


def _by_weights(
    a: ir.Network,
    b: ir.Network,
    layers_a: Sequence[ir.Layer],
    layers_b: Sequence[ir.Layer],
    pairs: dict[tuple[int, int], str],
) -> list[tuple[int, int]]:
    """Layers that have no partner yet and whose weights are partners."""
    free_a, free_b = (
        {layer.index for layer in _others(layers, pairs, side) if layer.kind in _WEIGHTED}
        for side, layers in enumerate((layers_a, layers_b))
    )
    found = {}
    for one, other in matched_constants(a, b) if free_a and free_b else ():
        if one.role == "weights" and one.use is not None and other.use is not None:
            i, j = one.use.layer.index, other.use.layer.index
            if i in free_a and j in free_b:
                found[i] = j
                free_a.remove(i)
                free_b.remove(j)
    return list(found.items())


def _by_operands(
    a: ir.Network,
    b: ir.Network,
    layers_a: Sequence[ir.Layer],
    layers_b: Sequence[ir.Layer],
    pairs: dict[tuple[int, int], str],
) -> list[tuple[int, int]]:
    """Layers that are alike and read what paired layers give: branches may stand in another order."""
    partner = dict(pairs.keys())
    taken = set(partner.values())
    roots_a, roots_b = _Roots(a, layers_a), _Roots(b, layers_b)
    found = []
    for layer in _others(layers_a, pairs, 0):
        reads = roots_a.reads(layer, partner)
        wanted = tuple(root if isinstance(root, str) else partner.get(root) for root in reads)
        if not wanted or None in wanted:
            continue
        for other in layers_b:
            free = other.index not in taken
            if free and _alike(a, layer, b, other) and roots_b.reads(other, taken) == wanted:
                found.append((layer.index, other.index))
                partner[layer.index] = other.index
                taken.add(other.index)
                break
    return found


Root = int | str  # a layer, or an input of the network by position


class _Roots:
    """What a layer reads, seen through layers that have no partner and keep the values, or are folded elsewhere."""

    def __init__(self, network: ir.Network, layers: Sequence[ir.Layer]) -> None:
        self.network = network
        self.made = {tensor: layer for layer in layers for tensor in layer.outputs}
        self.inputs = {port.tensor: f"input {i}" for i, port in enumerate(network.graphs[0].inputs)}

    def reads(self, layer: ir.Layer, paired: Container[int]) -> tuple[Root, ...]:
        return tuple(self._root(t, paired) for t in self._operands(layer))

    def _operands(self, layer: ir.Layer) -> list[int]:
        return [t for t in layer.inputs if self.network.tensors[t].data is None]

    def _root(self, tensor: int, paired: Container[int]) -> Root:
        while tensor in self.made:
            layer = self.made[tensor]
            operands = self._operands(layer)
            through = layer.kind in PASSING or layer.kind in _FOLDED or layer.kind == "activation"
            if layer.index in paired or not through or len(operands) != 1:
                return layer.index
            (tensor,) = operands
        return self.inputs.get(tensor, f"tensor {tensor}")


def _alike(a: ir.Network, one: ir.Layer, b: ir.Network, other: ir.Layer) -> bool:
    (kind, size), (other_kind, other_size) = _sign(a, one), _sign(b, other)
    kinds = {kind, other_kind}
    return size == other_size and (len(kinds) == 1 or not (kinds.isdisjoint(_ANYTHING) or kinds & PASSING))


def _readers(network: ir.Network) -> dict[int, list[ir.Layer]]:
    """Who reads each tensor; nobody is told of the network's outputs, which others read as well."""
    found: dict[int, list[ir.Layer]] = {}
    for layer in network.graphs[0].layers:
        for tensor in layer.inputs if layer.kind not in _NO_LAYERS else ():
            found.setdefault(tensor, []).append(layer)
    for port in network.graphs[0].outputs:
        found.pop(port.tensor, None)
    return found


def _fused(layer: ir.Layer) -> bool:
    """The layer has an activation of its own."""
    return layer.kind != "activation" and layer.attrs.get("activation_type") not in _NOTHING


Pairs = set[tuple[int, int]]


def _clipped(
    networks: tuple[ir.Network, ir.Network],
    modes: tuple[str, str],
    readers: tuple[dict[int, list[ir.Layer]], ...],
    pairs: dict[tuple[int, int], str],
) -> tuple[Pairs, Pairs]:
    """Pairs of which one layer is stored in the range of the other's activation; the pairs of activations behind."""
    found: Pairs = set()
    activations: Pairs = set()
    taken = [{pair[side] for pair in pairs} for side in (0, 1)]
    for pair in pairs:
        layers = [network.layers[i] for network, i in zip(networks, pair, strict=True)]
        ends = [_ends(*side, False)[0] for side in zip(networks, layers, readers, taken, strict=True)]
        after = [_activation(tensors, r) for tensors, r in zip(ends, readers, strict=True)]
        clips = [
            modes[side] != "float" and _in_range(networks[side].tensors[ends[side][0]], after[1 - side])
            for side in (0, 1)
        ]
        if clips[0] == clips[1] or any(map(_fused, layers)):
            continue
        first, second = (-1 if layer is None else layer.index for layer in after)
        if (first, second) in pairs:
            activations.add((first, second))
        elif (first, second)[clips[0]] in taken[clips[0]]:
            continue  # the other's activation has a partner elsewhere
        found.add(pair)
    return found, activations


def _activation(tensors: Sequence[int], readers: dict[int, list[ir.Layer]]) -> ir.Layer | None:
    """The activation that alone reads what a layer gives."""
    following = readers.get(tensors[0], []) if len(tensors) == 1 else []
    return following[0] if len(following) == 1 and following[0].kind == "activation" else None


def _in_range(tensor: ir.Tensor, activation: ir.Layer | None) -> bool:
    """Whether a tensor's range begins where an activation clips, give or take a sixteenth of it."""
    q, limits = tensor.quantization, grid(tensor)
    if activation is None or q is None or limits is None or len(q.scale) != 1 or len(q.zero_point) != 1:
        return False
    attrs = activation.attrs
    least = _LEAST.get(str(attrs.get("activationFunction") or attrs.get("activation_type")))
    if least is None:
        return False
    least = float(attrs.get(least, 0)) if isinstance(least, str) else least
    below = q.zero_point[0] + least / q.scale[0] - limits[0]  # steps that the activation never gives
    return bool(below <= (limits[1] - limits[0]) / 16)


def _ends(
    network: ir.Network, layer: ir.Layer, readers: dict[int, list[ir.Layer]], paired: set[int], activated: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tensors where a layer's work ends that the other network does in one layer, and the further layers of it.

    Constants that are added or multiplied behind it are folded there; an activation only if the other has one fused.
    """
    tensors, folded = layer.outputs, []
    while len(tensors) == 1:
        following = readers.get(tensors[0], [])
        if len(following) != 1 or following[0].index in paired:
            break
        (after,) = following
        constants = all(network.tensors[t].data is not None for t in after.inputs if t != tensors[0])
        weights = layer.kind in _WEIGHTED and after.kind in _FOLDED and constants
        if not (weights or (activated and after.kind == "activation")):
            break
        tensors = after.outputs
        folded.append(after.index)
        if not weights:
            break
    return tensors, tuple(folded)


def unpaired(network: ir.Network, points: Sequence[Point], side: int) -> list[ir.Layer]:
    """Layers that no point stands for, but for those that only move or recode values; `side` 0 is `a`."""
    known = {(point.layer_a, point.layer_b)[side] for point in points}
    known |= {layer for point in points for layer in point.folded[side]}
    return [layer for layer in _layers(network) if layer.index not in known and layer.kind not in PASSING]


def behind(network: ir.Network, tensor: int, stops: set[int]) -> tuple[list[int], set[int]]:
    """The layers that lead from some tensors to another, last first, and which of the tensors they start from."""
    wanted, layers, reached = {tensor}, [], set()
    for layer in reversed(network.graphs[0].layers):
        if wanted.isdisjoint(layer.outputs):
            continue
        layers.append(layer.index)
        reached |= {t for t in layer.inputs if t in stops}
        wanted |= {t for t in layer.inputs if t not in stops}
    return layers, reached
