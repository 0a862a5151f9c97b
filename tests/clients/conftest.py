"""What the tests of clients measured, as one JSON behind them, kept where all of them ran."""

import json
from pathlib import Path

import pytest

from bench.result import write_result

_ROWS = pytest.StashKey[list[dict[str, object]]]()
_PACKAGES = ("openai", "anthropic", "aiohttp")


def pytest_configure(config: pytest.Config) -> None:
    """A place for the figures of this run."""
    config.stash[_ROWS] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    """Print them."""
    rows = config.stash[_ROWS]
    for row in rows:
        terminalreporter.write_line(json.dumps(row))
    here = Path(__file__).parent
    if (
        exitstatus == pytest.ExitCode.OK
        and rows
        and not config.getoption("keyword")
        and [Path(arg).resolve() for arg in config.args] == [here]
    ):
        terminalreporter.write_line(f"written to {write_result('clients', rows, (), _PACKAGES)}")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[dict[str, object]]:
    """Where to write down what was measured."""
    return pytestconfig.stash[_ROWS]
