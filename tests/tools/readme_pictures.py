"""Draws the README's pictures of plots, card and stepper into .assets/, each for a light and a dark page.

    python tests/tools/readme_pictures.py

Card and stepper need Playwright and a Chromium; without them only the plots are drawn.
"""

import json
import shutil
from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import mlinspect as mi
from mlinspect.plot import errors

ASSETS = Path(__file__).parents[2] / ".assets"
PAGES = {"light": ("default", "#ffffff"), "dark": ("dark_background", "#0d1117")}  # matplotlib style, background
SIZE, DPI = (3.9, 2.8), 160
COLOURS = 160  # in a file: few take little room, fewer show steps in colour bars


def sample(name):
    return mi.open(mi.samples.path(name))


def draw(ax):
    """The three plots, each on new axes: (file name, axes)."""
    floating, coarse = sample("digits_cnn.ms"), sample("digits_cnn_wq4.ms")
    scales = coarse.quant.query("name == 'res.weight'").scale.to_numpy()
    narrow = coarse.with_quant("res.weight", scale=0.5 * scales)
    narrow = narrow.with_constant("res.weight", floating.dequantized["res.weight"], quantize=True)
    yield "plot-weights", narrow.plot.weights("res.weight", ax=ax())

    images = mi.samples.digits().images[:32, ..., None].astype(np.float32) / 16
    broken = sample("digits_cnn_int8.ms").with_quant("res.weight", zero_point=6)
    yield "plot-errors", errors.accumulated(mi.compare(floating, broken, images), ax=ax())

    yield "plot-memory", floating.plot.memory(ax=ax())


def plots(page):
    style, background = PAGES[page]
    with plt.style.context([style, {"axes.facecolor": background, "figure.facecolor": background}]):
        for name, ax in draw(lambda: plt.subplots(figsize=SIZE, layout="constrained")[1]):
            lines = (fill(line, 46) for line in ax.get_title(loc="left").splitlines())
            ax.set_title("\n".join(lines), loc="left", fontsize=9)
            ax.figure.savefig(ASSETS / f"{name}-{page}.png", dpi=DPI)
            plt.close(ax.figure)


def stepper():
    """The stepper in the midst of a run: its HTML and script, bound to its traits as they stand, without a kernel."""
    image = mi.samples.digits().images[:1, ..., None].astype(np.float32) / 16
    steps = sample("digits_cnn_u8.armnn").stepper(image, reference="float", quantize=True)
    steps.run_to("block/pointwise")
    steps.timing = ""  # it would differ from run to run
    traits = {name: getattr(steps, name) for name in steps.keys if not name.startswith("_")}
    traits = {name: value for name, value in traits.items() if isinstance(value, str | int | float | bool)}
    script = steps._esm.replace("export default", "const widget =")
    bind = "widget.render({model: {get: (name) => traits[name], on() {}, off() {}}, el: form})"
    return f"<div id=form></div><script type=module>{script}\nconst traits = {json.dumps(traits)};\n{bind}</script>"


def pages():
    """What is a picture of a page: name, HTML, width of the page in pixels."""
    yield "card", sample("digits_cnn_int8.ms")._repr_html_().replace("<details>", "<details open>", 1), 800
    yield "stepper", stepper(), 1100


def screenshots():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as run, run.chromium.launch(executable_path=shutil.which("chromium")) as browser:
        for name, html, width in pages():
            for page, (_, background) in PAGES.items():
                viewport = {"width": width, "height": 600}
                view = browser.new_page(color_scheme=page, device_scale_factor=2, viewport=viewport)
                view.set_content(f"<body style='margin:8px;background:{background}'>{html}</body>")
                view.locator(".mli").screenshot(path=ASSETS / f"{name}-{page}.png")


if __name__ == "__main__":
    for page in PAGES:
        plots(page)
    try:
        screenshots()
    except ImportError as error:
        print(f"no pictures of card and stepper: {error}")
    for file in ASSETS.glob("*-*.png"):
        Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
