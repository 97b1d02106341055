"""The widgets in a real browser: JupyterLab and Notebook 7 on a free port, Debian's Chromium driven by Playwright.

Nothing is fetched from elsewhere: the browser is one that is installed, and the server runs on this machine. Latency
and bytes a step are printed (``pytest -s``), not asserted: machines differ.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "mlinspect" / "samples"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)

playwright.expect.set_options(timeout=30_000)  # a busy machine is slow
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
TOKEN = "test"
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # cells that are not on the screen live, too
}
STEPPER = """
import mlinspect as mi
from mlinspect.widgets.stepper import stepper
model = mi.open({path!r})
s = stepper(model, {inputs})
s
"""
DIGIT = "mi.samples.digits().images[:1, ..., None].astype('float32') / 16"
EXPLORER = """
import mlinspect as mi
from mlinspect.widgets.explorer import explore
e = explore(*(mi.open(mi.samples.path(name)) for name in ("digits_cnn_wq4.ms", "digits_cnn.ms")))
e
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the server's notebooks lie."""
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory):
    """A running JupyterLab, with settings of its own."""
    own = tmp_path_factory.mktemp("jupyter")
    for plugin, values in SETTINGS.items():
        package, name = plugin.split(":")
        file = own / "settings" / package / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    env = os.environ | {f"JUPYTER_{name}": str(own / place) for name, place in places.items()}
    env |= {"IPYTHONDIR": str(own), "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"), "OPENBLAS_NUM_THREADS": "1"}
    env |= {"JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces")}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
    ]  # fmt: skip
    with (own / "log").open("w") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(300):
                if server.poll() is not None:
                    break
                try:
                    urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=2).close()
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                server.kill()
            assert server.poll() is None, (own / "log").read_text()[-2000:]
            yield address
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def browser():
    """One context of a browser, so that pages share what has been loaded."""
    with playwright.sync_playwright() as run, run.chromium.launch(executable_path=CHROMIUM, args=FLAGS) as found:
        yield found.new_context(viewport={"width": 1400, "height": 1000})


class Page:
    """A page whose errors are collected, and the bytes that its web sockets received."""

    def __init__(self, browser):
        self.page = browser.new_page()
        self.errors = []
        self.received = 0
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("websocket", lambda socket: socket.on("framereceived", self._count))

    def _heard(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _count(self, payload):
        self.received += len(payload)

    def open(self, address, path):
        """A notebook, once its kernel waits. (What the front end itself complains of until then is not our doing.)"""
        self.page.goto(f"{address}/{path}?token={TOKEN}&reset")
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        for _ in range(300):
            with urllib.request.urlopen(f"{address}/api/sessions?token={TOKEN}", timeout=5) as answer:
                kernels = [one["kernel"] for one in json.load(answer) if one["path"] == Path(path).name]
            if kernels and kernels[0]["connections"] and kernels[0]["execution_state"] == "idle":
                break
            self.page.wait_for_timeout(100)
        self.settle()
        self.page.wait_for_timeout(300)
        self.errors.clear()

    def run_all(self, forms):
        """Run every cell, until so many forms are seen."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.locator(".mli-live").nth(forms - 1).wait_for()
        self.settle()
        return self.page.locator(".mli-live")

    def settle(self):
        """Until the kernel is idle, and what it sent is drawn."""
        self.page.wait_for_function(
            "document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'"
        )
        self.page.wait_for_timeout(100)


TUTORIAL = nbformat.read(ROOT / "notebooks" / "05_step_through.ipynb", 4)


@pytest.fixture(scope="module")
def lab(browser, address, folder, detector):
    """JupyterLab with a tutorial that has been run, and more widgets behind it: a detector, the explorer."""
    cells = [STEPPER.format(path=str(SAMPLES / "digits_cnn_int8.ms"), inputs=DIGIT), EXPLORER]
    cells += [] if detector is None else [STEPPER.format(**detector)]
    made = nbformat.v4.new_notebook(metadata=TUTORIAL.metadata, cells=TUTORIAL.cells + list(map(code, cells)))
    nbformat.write(made, folder / "tutorial.ipynb")
    found = Page(browser)
    found.open(address, "lab/tree/tutorial.ipynb")
    found.run_all(2 + len(cells))
    yield found
    found.page.close()


@pytest.fixture(scope="module")
def detector():
    """A detector of 473 layers, where there is one."""
    folder = ROOT.parent / "shared" / "models"
    names = ("ssd_mobilenet_v3_small_coco_2019_08_14.armnn", "ssd_mobilenet_v3.x1000_io.npz")
    path, data = (str(folder / name) for name in names)
    found = Path(path).is_file() and Path(data).is_file()
    return {"path": path, "inputs": f"__import__('numpy').load({data!r})['in_0']"} if found else None


@pytest.fixture
def page(lab):
    """The page of ``lab``, without errors so far."""
    lab.errors.clear()
    return lab


def code(text):
    return nbformat.v4.new_code_cell(text.strip())


def where(form):
    return form.locator("[data-show=where]")


def names(form):
    """Controls, and the names that a screen reader gives them."""
    tree = form.aria_snapshot()
    lines = [line.strip("- ") for line in tree.splitlines()]
    return [line for line in lines if line.startswith(("button", "slider", "combobox", "textbox", "spinbutton"))]


STEP = """form => new Promise(done => {
    const button = form.querySelector('[data-do=step]'), place = form.querySelector('[data-show=where]');
    const start = performance.now();
    new MutationObserver((_, self) => {
        self.disconnect();
        requestAnimationFrame(() => setTimeout(() => done([
            performance.now() - start, parseFloat(form.querySelector('[data-show=timing]').textContent) || 0,
        ])));
    }).observe(place, {childList: true, characterData: true, subtree: true});
    button.click();
})"""


def measure(page, form, steps, title):
    """Step, and print how long it took from click to screen and how many bytes came."""
    form.get_by_role("button", name="Start").click()
    playwright.expect(where(form)).to_contain_text("layers to compute")
    page.settle()
    before, times, own = page.received, [], []
    for _ in range(steps):
        shown, computed = form.evaluate(STEP)
        times.append(shown)
        own.append(shown - computed)
    page.settle()
    size = (page.received - before) / steps
    print(
        f"\n{title}: {steps} steps, click to screen median {statistics.median(times):.0f} ms, beyond the kernels' own "
        f"time median {statistics.median(own):.0f} ms, worst {max(own):.0f} ms; {size / 1000:.1f} kB a step"
    )
    return size


def test_a_tutorial_is_stepped_through(page):
    form = page.page.locator(".mli-live").first
    form.get_by_role("button", name="Start").click()
    playwright.expect(where(form)).to_contain_text("15 layers to compute")
    form.get_by_role("button", name="Step").click()
    playwright.expect(where(form)).to_contain_text("Convolution2d stem: layer 1 of 15")
    form.get_by_role("button", name="Step").click()
    playwright.expect(where(form)).to_contain_text("BatchNormalization stem/bn: layer 2 of 15")
    playwright.expect(form.locator("[data-show=picture] img").first).to_be_visible()
    playwright.expect(form.locator("[data-show=picture]")).to_contain_text("against the reference: SQNR")

    # the mouse on the slider, and a neighbour
    slider = form.get_by_role("slider", name="layer")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.page.mouse.click(box["x"] + box["width"] * 10 / 15, box["y"] + box["height"] / 2)
    playwright.expect(where(form)).to_contain_text("layer 10 of 15")
    form.locator("[data-show=neighbours] button").last.click()
    playwright.expect(where(form)).to_contain_text("layer 11 of 15")

    form.get_by_role("combobox", name="as", exact=True).select_option("numbers")
    playwright.expect(form.locator("[data-show=picture] table")).to_be_visible()
    form.get_by_role("spinbutton", name="channel").fill("3")
    page.page.keyboard.press("Enter")
    playwright.expect(form.locator("[data-show=picture]")).to_contain_text("channel 3")
    form.get_by_text("Breaks and watches").click()
    form.get_by_role("button", name="Clear breaks").click()
    form.get_by_role("combobox", name="break at").select_option("kind")
    form.get_by_role("textbox", name="limit").fill("conv2d")
    form.get_by_role("button", name="Add break").click()
    form.get_by_role("button", name="Start").click()
    form.get_by_role("button", name="Run to break").click()
    playwright.expect(form.get_by_role("status")).to_contain_text("a layer of kind conv2d")
    assert not page.errors


def test_the_keyboard_works_and_every_control_has_a_name(page):
    form = page.page.locator(".mli-live").nth(2)
    form.get_by_role("button", name="Start").focus()
    page.page.keyboard.press("Enter")
    playwright.expect(where(form)).to_contain_text("19 layers to compute")
    page.page.keyboard.press("n")
    playwright.expect(where(form)).to_contain_text("layer 1 of 19")
    form.get_by_role("slider", name="layer").focus()
    page.page.keyboard.press("ArrowRight")
    playwright.expect(where(form)).to_contain_text("layer 2 of 19")
    page.page.keyboard.press("b")
    playwright.expect(where(form)).to_contain_text("layer 1 of 19")
    page.page.keyboard.press("End")
    playwright.expect(where(form)).to_contain_text("layer 19 of 19, done")
    assert page.page.locator(".jp-Cell").count() == len(TUTORIAL.cells) + page.page.locator(".mli-live").count() - 2
    for form in page.page.locator(".mli-live").all():
        assert len(names(form)) > 5 and all('"' in name for name in names(form))
    assert not page.errors


def test_steps_are_quick_and_small(page, detector):
    assert measure(page, page.page.locator(".mli-live").nth(2), 19, "digit model") < 60_000  # no tensor is sent whole
    if detector is not None:
        assert measure(page, page.page.locator(".mli-live").nth(4), 60, "SSD MobileNet V3") < 150_000
    assert not page.errors


def test_the_explorer_finds_and_shows(page):
    form = page.page.locator(".mli-live").nth(3)
    query = form.get_by_role("textbox", name="where")
    query.fill("mac > 3")
    page.page.keyboard.press("Enter")
    playwright.expect(form.get_by_role("status")).to_contain_text("no column 'mac'")
    query.fill("macs > 100000")
    page.page.keyboard.press("Enter")
    playwright.expect(form.locator("[data-show=found] button")).to_have_count(1)
    form.locator("[data-show=found] button").click()
    playwright.expect(form.locator("[data-show=details]")).to_contain_text("multiply-adds 147,456")
    playwright.expect(form.locator("[data-show=beside]")).to_contain_text("weight bytes 36,992")
    assert not page.errors


def test_notebook_7(browser, address, folder):
    pytest.importorskip("notebook", reason="Notebook 7 is not installed")
    cell = code(STEPPER.format(path=str(SAMPLES / "digits_cnn.ms"), inputs=DIGIT))
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=TUTORIAL.metadata), folder / "classic.ipynb")
    page = Page(browser)
    page.open(address, "notebooks/classic.ipynb")
    form = page.run_all(1).first
    form.get_by_role("button", name="Step").click()
    playwright.expect(where(form)).to_contain_text("layer 1 of 11")
    page.page.keyboard.press("n")
    playwright.expect(where(form)).to_contain_text("layer 2 of 11")
    assert not page.errors
    page.page.close()


def test_without_a_kernel_the_snapshot_is_seen(page, browser, address, folder, tmp_path):
    """Saved, opened again without its kernel, and exported: the step where the form was left."""
    form = page.page.locator(".mli-live").nth(2)
    form.get_by_role("button", name="Start").click()
    for _ in range(3):
        form.evaluate(STEP)
    page.page.wait_for_timeout(1000)  # the snapshot follows when the form has settled
    assert not any(snapshot.is_visible() for snapshot in page.page.locator(".mli-snap").all())
    page.page.keyboard.press("Control+s")
    for _ in range(100):
        text = (folder / "tutorial.ipynb").read_text()
        if "layer 3 of 19" in text:
            break
        page.page.wait_for_timeout(100)
    assert "layer 3 of 19" in text

    (folder / "sent.ipynb").write_text(text)  # a name that no kernel runs for
    other = browser.new_page()
    other.goto(f"{address}/lab/tree/sent.ipynb?token={TOKEN}&reset")
    snapshot = other.locator(".mli-snap").nth(2)
    playwright.expect(snapshot).to_contain_text("layer 3 of 19")
    playwright.expect(snapshot).to_be_visible()
    other.close()

    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed")
    body, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.reads(text, 4))
    (tmp_path / "saved.html").write_text(body)
    exported = browser.new_page()
    exported.route("http*://**", lambda route: route.abort())
    exported.goto((tmp_path / "saved.html").as_uri(), wait_until="commit")
    playwright.expect(exported.locator(".mli-snap").nth(2)).to_contain_text("layer 3 of 19")
    playwright.expect(exported.locator(".mli-snap").nth(2)).to_be_visible()
    assert exported.locator(".mli-live").count() == 0
    exported.close()
