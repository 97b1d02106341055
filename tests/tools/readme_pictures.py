"""Draws the README's pictures of plots and of the card into .assets/, each for a light and a dark page.

    python tests/tools/readme_pictures.py

The card needs Playwright and a Chromium; without them only the plots are drawn. The stepper's picture is a screenshot.
"""

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


def cards():
    from playwright.sync_api import sync_playwright

    html = sample("digits_cnn_int8.ms")._repr_html_().replace("<details>", "<details open>", 1)
    with sync_playwright() as run, run.chromium.launch(executable_path=shutil.which("chromium")) as browser:
        for page, (_, background) in PAGES.items():
            view = browser.new_page(color_scheme=page, device_scale_factor=2, viewport={"width": 800, "height": 600})
            view.set_content(f"<body style='margin:8px;background:{background}'>{html}</body>")
            view.locator(".mli").screenshot(path=ASSETS / f"card-{page}.png")


if __name__ == "__main__":
    for page in PAGES:
        plots(page)
    try:
        cards()
    except ImportError as error:
        print(f"no pictures of the card: {error}")
    for file in ASSETS.glob("*-*.png"):  # few colours take little room
        Image.open(file).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, optimize=True)
