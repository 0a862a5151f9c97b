"""Real engines, one after the other, with a gateway in front; and the table of what was found."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gateway.config import load_config
from tests.engines.figures import Figures
from tests.engines.servers import MODEL, EngineServer, llamacpp, version_of, vllm
from tests.gateway.conftest import LedgerRow, RunningGateway, ledger_rows, running_gateway

_STARTERS: dict[str, Callable[[str, Path], AbstractContextManager[EngineServer]]] = {"vllm": vllm, "llamacpp": llamacpp}
_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    """A place for the figures of this run."""
    config.stash[_FIGURES] = Figures()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was found; keep it where all of these tests were run."""
    figures = config.stash[_FIGURES]
    if not figures.rows:
        return
    terminalreporter.section("real engines")
    for line in figures.lines():
        terminalreporter.write_line(line)
    if _runs_all(config):
        terminalreporter.write_line(f"written to {figures.result()}")


def _runs_all(config: pytest.Config) -> bool:
    here = Path(__file__).parent
    return not config.getoption("keyword") and [Path(arg).resolve() for arg in config.args] == [here]


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    """Where to write down what was found."""
    return pytestconfig.stash[_FIGURES]


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    """The server a test asks for as (engine, model). pytest keeps tests of one server together, and ends it before the
    next one starts."""
    name, model = request.param
    with _STARTERS[name](model, tmp_path_factory.mktemp(f"{name}-{model}")) as server:
        request.config.stash[_FIGURES].add(name, f"version, with the {model} model", version_of(server))
        yield server


@dataclass(frozen=True, slots=True)
class Front:
    """A gateway in front of one engine, and the client's way to either of them."""

    gateway: RunningGateway
    engine: EngineServer
    http: httpx.Client
    direct: httpx.Client
    admin_token: str

    def ledger(self) -> list[LedgerRow]:
        """What has been settled so far, oldest first."""
        return ledger_rows(self.gateway.ledger_path)

    def differences(self) -> dict[str, tuple[int, int]]:
        """Our count and the engine's, by request id, of the prompts that were not counted the same."""
        answer = self.http.get("/admin/parity", headers={"authorization": f"Bearer {self.admin_token}"})
        rows = answer.raise_for_status().json()["differences"]
        return {row["request_id"]: (row["ours_tokens"], row["engine_tokens"]) for row in rows}


@pytest.fixture
def front(engine: EngineServer, tmp_path: Path) -> Iterator[Front]:
    """A new gateway, with an index that knows nothing and a cache salt of its own."""
    with _gateway_before(engine, tmp_path) as found:
        yield found


@contextmanager
def _gateway_before(engine: EngineServer, folder: Path) -> Iterator[Front]:
    token, salt = secrets.token_hex(16), secrets.token_hex(16)
    (folder / "admin-token").write_text(token)
    (folder / "salt").write_text(salt)
    flags: dict[str, object] = {
        "admin_token_file": folder / "admin-token",
        "backends": [{"url": engine.url, "id": engine.engine}],
        "ledger.path": folder / "ledger.db",
        "limits.drain_s": 2,
        "listen.port": 0,
        "models": {MODEL: {"tokenizer": engine.tokenizer, "chat_template": engine.chat_template}},
        "salt_secret_file": folder / "salt",
    }
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(load_config(None, {}, flags)))
        http, direct = (
            stack.enter_context(httpx.Client(base_url=url, timeout=600, headers={"content-type": "application/json"}))
            for url in (gateway.url, engine.url)
        )
        yield Front(gateway, engine, http, direct, token)
