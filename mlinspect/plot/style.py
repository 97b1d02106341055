"""What all plots share: colours, new axes, names and numbers as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlinspect.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, safe for any colour vision; what must differ in grey, too, differs in shape or place
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, PALE = "#808080", "#E8E8E8"
MAX_BARS = 40  # rows of a bar chart; the smaller ones are left out, and counted
CYCLE = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)

# kind of layer -> what it is in a picture
_FAMILIES = {
    "convolution": ("conv2d", "conv3d", "conv2d_transpose"),
    "depthwise": ("depthwise_conv2d",),
    "product": ("fully_connected", "matmul", "lstm", "gru"),
    "pooling": ("max_pool2d", "average_pool2d", "l2_pool2d", "max_pool3d", "average_pool3d", "reduce_mean"),
    "activation": ("activation", "prelu", "softmax", "log_softmax", "elu", "leaky_relu", "exp", "sqrt", "rsqrt"),
    "elementwise": ("add", "sub", "mul", "div", "maximum", "minimum", "scale", "power", "square", "neg", "abs"),
    "normalisation": ("batch_norm", "instance_norm", "layer_norm", "group_norm", "l2_norm", "local_response_norm"),
    "quantisation": ("quantize", "dequantize", "requantize", "cast", "dynamic_quant"),
}
FAMILY_COLOURS = {
    "convolution": BLUE, "depthwise": SKY, "product": GREEN, "pooling": YELLOW, "activation": ORANGE,
    "elementwise": PURPLE, "normalisation": VERMILION, "quantisation": BLACK, "other": GREY,
}  # fmt: skip
_FAMILY_OF = {kind: family for family, kinds in _FAMILIES.items() for kind in kinds}


def family(kind: str) -> str:
    """The group of kinds that share a colour.

    Examples
    --------
    >>> family("conv2d"), family("reshape")
    ('convolution', 'other')
    """
    return _FAMILY_OF.get(kind, "other")


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure of that size in inches.

    Raises
    ------
    InputError
        What is given is no Axes of matplotlib.
    """
    import matplotlib.pyplot as plt

    if ax is not None and not isinstance(ax, plt.Axes):
        raise InputError(
            f"ax is the matplotlib Axes to draw into, as of plt.subplots(), not {type(ax).__name__}: leave it out for "
            "a new figure (plots of a whole model take no tensor)"
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def plain(name: Any, most: int = 60) -> str:
    """A name for matplotlib: dollars escaped, as a pair of them would start a formula, and shortened from the left.

    Examples
    --------
    >>> plain("a$b", 10), plain("abcdefgh", 5)
    ('a\\\\$b', '…efgh')
    """
    text = "".join(c if c.isprintable() else "\ufffd" for c in str(name))
    return (text if len(text) <= most else "…" + text[1 - most :]).replace("$", r"\$")


def tidy(ax: Axes, title: str = "", sub: str = "") -> Axes:
    """Left title with a second line, no frame at the top and right."""
    ax.set_title("\n".join(line for line in (title, sub) if line), fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def bars(ax: Axes, names: list[str], values: list[float], colours: list[str], texts: list[str]) -> None:
    """Horizontal bars from the top down, each with its name at the left and a text at its end."""
    places = range(len(names))
    ax.barh(places, values, color=colours, height=0.75, linewidth=0)
    ax.set_yticks(places, names, fontsize=8)
    ax.set_ylim(len(names) - 0.4, -0.6)
    right = max([v for v in values if v == v], default=1) or 1
    for place, value, text in zip(places, values, texts, strict=True):
        ax.text(value + right * 0.01, place, text, va="center", fontsize=8)
    ax.set_xlim(0, right * 1.18)
    ax.tick_params(axis="y", length=0)
