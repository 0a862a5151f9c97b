"""The pictures of the dashboard that the documentation shows: `python -m tests.ui.screenshots [--minutes 16]`.

Four simulated engines and four tenants run for some minutes; then each view is taken as it is. For the last pictures an
engine is killed, so that something is degraded.
"""

import argparse
import asyncio
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image

from tests.ui.world import TOKEN, World, steadily, world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER: Final = Path(__file__).parents[2] / "docs/img"
MOST_BYTES: Final = 150_000
_SCALE: Final = 1.5
_SIZES: Final = {"wide": (1280, 860), "narrow": (400, 860)}


@contextmanager
def busy(running: World) -> Iterator[None]:
    """Traffic until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(steadily(running, 60, stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def dashboard(browser: "Browser", running: World, scheme: str, size: str) -> Iterator["Page"]:
    """A page that has logged in, and has looked long enough to know rates."""
    width, height = _SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=_SCALE
    )
    page = context.new_page()
    page.goto(running.ui)
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")
    page.get_by_label("Period").select_option("15m")
    page.wait_for_timeout(8_000)
    yield page
    context.close()


def take(page: "Page", view: str, name: str) -> None:
    """One picture, as WebP. Raises `ValueError` for one that is too large for a repository."""
    page.evaluate("view => (location.hash = view)", view)
    page.wait_for_timeout(2_500)
    if view == "decisions":
        page.locator("details.decision summary").first.click()
        page.wait_for_timeout(1_500)
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    path = FOLDER / f"dashboard-{name}.webp"
    Image.open(io.BytesIO(page.screenshot())).save(path, lossless=True, method=6)
    size = path.stat().st_size
    sys.stdout.write(f"{path} {size:,} bytes\n")
    if size > MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes, more than {MOST_BYTES:,}")


def take_all(browser: "Browser", running: World) -> None:
    """Those of a fleet that is well, then those of one that is not."""
    with dashboard(browser, running, "light", "wide") as page:
        for view in ("overview", "prefixes", "tenants"):
            take(page, view, view)
    with dashboard(browser, running, "dark", "wide") as page:
        for view in ("overview", "decisions"):
            take(page, view, f"{view}-dark")
    running.engines["gpu-3"].kill()
    time.sleep(5)
    with dashboard(browser, running, "light", "wide") as page:
        take(page, "overview", "degraded")
    with dashboard(browser, running, "dark", "narrow") as page:
        take(page, "overview", "narrow")


def main() -> None:
    """Run and take them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=16, help="of traffic before the first picture")
    given = parser.parse_args()
    ui_dir = os.environ["UI_DIR"]
    sys.path.append(f"{ui_dir}/lib")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only `make ui-screenshots` has it

    program = os.environ.get("PREFIXGATE_BROWSER") or f"{ui_dir}/browser"
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), engines=4, speed=1) as running, busy(running):
        time.sleep(given.minutes * 60)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            take_all(browser, running)
            browser.close()


if __name__ == "__main__":
    main()
