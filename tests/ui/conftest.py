"""A browser, what it looks at, and a page that keeps account of everything that should not happen on it.

`make ui-test` says in UI_DIR where the browser and what drives it are. Without that nothing here is collected, and a
run of these tests alone fails, since it has none.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from tests.ui.world import TOKEN, World, in_own_loop, traffic, world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

UI_DIR: Final = os.environ.get("UI_DIR")
if UI_DIR is None:
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path.append(f"{UI_DIR}/lib")

WIDE: Final = (1280, 860)
NARROW: Final = (400, 860)
WITHIN_MS: Final = 20_000
"""The machine may be busy."""
_NO_SESSION: Final = re.compile(r"status of 401 .*")
_POLICY: Final = """addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"""


@dataclass(slots=True)
class Account:
    """What a page did that it should not: errors, what its policy forbids, requests to others."""

    host: str
    wrong: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Parts of messages that the test provokes."""

    def listen(self, page: "Page") -> None:
        """From now on."""
        page.add_init_script(_POLICY)
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not _NO_SESSION.search(text):
            self.wrong.append(text)

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != self.host:
            self.wrong.append(f"asked {url}")

    def check(self) -> None:
        """Fails where there is anything that was not expected."""
        assert [one for one in self.wrong if not any(part in one for part in self.expected)] == []


OpenPage = Callable[..., "Page"]
StartWorld = Callable[..., World]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, or what PREFIXGATE_BROWSER names."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only `make ui-test` has it

    program = os.environ.get("PREFIXGATE_BROWSER") or f"{UI_DIR}/browser"
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that four tenants have used."""
    with world(tmp_path_factory.mktemp("world")) as made:
        in_own_loop(lambda: traffic(made))
        yield made


@pytest.fixture
def accounts() -> Iterator[list[Account]]:
    """Of each page of a test; looked at when it ends."""
    kept: list[Account] = []
    yield kept
    for account in kept:
        account.check()


@pytest.fixture
def start_world(tmp_path: Path) -> Iterator[StartWorld]:
    """Start a gateway of the test's own; flags are the configuration's. It outlives the pages that look at it."""
    with ExitStack() as stack:
        yield lambda **flags: stack.enter_context(world(tmp_path, **flags))


@pytest.fixture
def open_page(browser: "Browser", accounts: list[Account], start_world: StartWorld) -> Iterator[OpenPage]:
    """Open a dashboard in a browser without memory, and log in unless told not to."""
    contexts = []

    def opened(
        url: str, *, size: tuple[int, int] = WIDE, scheme: str = "light", login: bool = True, **more: object
    ) -> "Page":
        width, height = size
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WITHIN_MS)
        accounts.append(Account(urlsplit(url).netloc))
        accounts[-1].listen(page)
        page.goto(url)
        if login:
            log_in(page)
        return page

    yield opened
    for context in contexts:
        context.close()


def log_in(page: "Page", token: str = TOKEN) -> None:
    """As a person does, and wait for the first view."""
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")


def enter(page: "Page", view: str) -> None:
    """A view, once all that it asks for has been answered."""
    page.click(f'nav a[href="#{view}"]')
    page.wait_for_function(
        """view => document.querySelector('h1')?.innerText
                === document.querySelector(`nav a[href="#${view}"]`).firstChild.data
            && !document.querySelector('main').innerText.includes('Reading …')""",
        arg=view,
    )


@pytest.fixture(scope="session")
def axe() -> str:
    """The rules of accessibility, as JavaScript."""
    return (Path(str(UI_DIR)) / "lib/axe_playwright_python/axe.min.js").read_text()
