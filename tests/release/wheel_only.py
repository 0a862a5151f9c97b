"""A plugin of pytest for the suite against an installed wheel, without torch: `-p tests.release.wheel_only`.

    tests, bench, docs     a copy without our packages    --> what is imported as `gateway` is the wheel's
    modules of tests       imported as a trial            --> out, where they need torch, and only then
    tests                  by what they ask for, or reach --> out, where that is the reference engine

What was left out is counted and told; that a package under test came from elsewhere ends the run.
"""

import importlib
import sys
import sysconfig
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOMS: Final = ("gateway", "prefix_index", "backends", "billing")
OF_THE_REFERENCE_ENGINE: Final = frozenset({"torch", "safetensors", "gguf", "numpy"})
"""What the extra `reference` brings: who lacks one of these lacks nothing of the wheel."""
OF_OTHERS: Final = (
    *("repo", "release", "helm", "container", "bench", "ui"),  # what they test is in no wheel
    *("engines", "clients", "backends/conformance"),  # programs that are installed for them alone
    "backends/reference",  # needs torch throughout
)
"""Folders whose tests are not of a wheel alone."""
TESTS: Final = Path(__file__).parents[1]


def strangers() -> list[str]:
    """Modules of our names, or packages to be, that are not of the site-packages of this interpreter."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    found = []
    for room in ROOMS:
        spec = find_spec(room)
        if spec is None or spec.origin is None or not Path(spec.origin).resolve().is_relative_to(site):
            found.append(f"{room}: {spec.origin if spec else 'not installed'}")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in ROOMS and file and not Path(file).resolve().is_relative_to(site):
            found.append(f"{name}: {file}")
    return found


def lacks(failure: BaseException | None) -> bool:
    """Whether what failed is that a module of the reference engine is not installed."""
    while failure is not None:
        if (
            isinstance(failure, ModuleNotFoundError)
            and (failure.name or "").partition(".")[0] in OF_THE_REFERENCE_ENGINE
        ):
            return True
        failure = failure.__cause__ or failure.__context__
    return False


class WheelOnly:
    """The hooks, and what they counted."""

    def __init__(self) -> None:
        self.left_out: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Before anything is imported by a test."""
        if found := strangers():
            pytest.exit(f"not the wheel under test: {'; '.join(found)}", returncode=3)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Folders of the checkout, and modules that cannot be imported without torch."""
        if not collection_path.is_relative_to(TESTS):
            return None
        inside = collection_path.relative_to(TESTS)
        if inside.as_posix() in OF_OTHERS:
            return True
        if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
            return None
        try:
            importlib.import_module(".".join(("tests", *inside.with_suffix("").parts)))
        except ModuleNotFoundError as failure:
            if not lacks(failure):
                raise
            self.left_out.append(inside.as_posix())
            return True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test, or what it asks for, that finds no torch as it runs is one that was skipped."""
        report = yield
        if report.failed and call.excinfo is not None and lacks(call.excinfo.value):
            report.outcome = "skipped"
            report.longrepr = (str(report.fspath), 0, "needs the reference engine")
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What was imported meanwhile came from the wheel, too."""
        if found := strangers():
            session.exitstatus = 3
            pytest.exit(f"not the wheel under test: {'; '.join(found)}", returncode=3)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where the packages are, and how much was left out."""
        rooms = find_spec(ROOMS[0])
        terminalreporter.write_line(f"under test: {Path(rooms.origin).parents[1] if rooms and rooms.origin else None}")
        terminalreporter.write_line(f"left out: {', '.join(OF_OTHERS)}; without torch: {len(self.left_out)} modules")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.pluginmanager.register(WheelOnly(), "wheel-only")
