"""Two real vLLM with NIXL on the loopback: one computes prompts, the other answers, behind a gateway.

client ──> gateway ──> P: one token, blocks kept ──params──> D: pulls the blocks, answers ──> client
"""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import load_config
from tests.engines.figures import Figures
from tests.engines.servers import MODEL, EngineServer, VllmOptions, vllm
from tests.gateway.conftest import RunningGateway, running_gateway

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

RULES = " ".join(f"Rule {number}: cite shelf {number * 7} and do not guess." for number in range(1, 42))
"""About 600 tokens."""
FETCHED = "vllm:prompt_tokens_by_source_total"
PINNED = "vllm:kv_cache_usage_perc"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both engines, and a gateway that knows what they are for."""

    prefill: EngineServer
    decode: EngineServer
    gateway: RunningGateway
    http: httpx.Client

    def row(self) -> dict[str, Any]:
        """The settlement of the last request."""
        with closing(sqlite3.connect(f"file:{self.gateway.ledger_path}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            query = "SELECT * FROM settlements ORDER BY settled_at_us DESC LIMIT 1"
            return dict(connection.execute(query).fetchone())

    def attempts(self) -> list[tuple[str, str]]:
        """Endpoints and outcomes of the calls of the last request."""
        with closing(sqlite3.connect(f"file:{self.gateway.ledger_path}?mode=ro", uri=True)) as connection:
            query = "SELECT endpoint_id, outcome FROM attempts WHERE request_id = ? ORDER BY ordinal"
            return list(connection.execute(query, (self.row()["request_id"],)))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineServer, EngineServer]]:
    """They are started side by side: most of it is waiting for one processor each."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as starting:
        begun = [
            starting.submit(
                stack.enter_context,
                vllm("tiny", tmp_path_factory.mktemp(role), VllmOptions(processors=processor, hands_over=role)),
            )
            for processor, role in (("0", "kv_producer"), ("1", "kv_consumer"))
        ]
        prefill, decode = (one.result() for one in begun)
        yield prefill, decode


@pytest.fixture
def pair(engines: tuple[EngineServer, EngineServer], tmp_path: Path) -> Iterator[Pair]:
    """With a gateway that believes that who answers is slow at prompts."""
    prefill, decode = engines
    (tmp_path / "salt").write_text(str(tmp_path))
    flags: dict[str, object] = {
        "backends": [
            {"url": prefill.url, "id": "p", "role": "prefill", "prefill_tokens_per_s": 1e6},
            {"url": decode.url, "id": "d", "role": "decode", "prefill_tokens_per_s": 10.0},
        ],
        "disaggregation.transfer_base_s": 0.0,
        "ledger.path": tmp_path / "ledger.db",
        "limits.drain_s": 2,
        "listen.port": 0,
        "models": {MODEL: {"tokenizer": prefill.tokenizer, "chat_template": prefill.chat_template}},
        "salt_secret_file": tmp_path / "salt",
    }
    with (
        running_gateway(load_config(None, {}, flags)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=600) as http,
    ):
        yield Pair(prefill, decode, gateway, http)


def chat(question: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": question}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **more}


def counter(server: EngineServer, name: str, **labels: str) -> float:
    """The sum of a metric of an engine over the series with these labels."""
    page = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in page
        if line.startswith(f"{name}{{") and all(one in line for one in wanted)
    )


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_the_answer_is_that_of_one_engine_and_the_prompt_is_billed_as_the_first_reports_it(
    pair: Pair, figures: Figures
) -> None:
    alone = said(httpx.post(f"{pair.decode.url}{CHAT}", json=chat("What is a whale?", cache_salt="alone"), timeout=600))
    before = counter(pair.decode, FETCHED, source="external_kv_transfer")
    cold = pair.http.post(CHAT, json=chat("What is a whale?"))
    assert said(cold) == alone
    assert (cold.headers["x-prefixgate-endpoint"], cold.headers["x-prefixgate-prefill-endpoint"]) == ("d", "p")
    row = pair.row()
    prompt = row["prompt_tokens"]
    assert (row["prefill_endpoint_id"], row["prefill_cached_tokens"], row["cached_tokens"]) == ("p", 0, 0)
    assert row["decode_cached_tokens"] == 0, "what was carried is not in its report since 0.31"
    assert pair.attempts() == [("p", "prefilled"), ("d", "answered")]
    assert counter(pair.decode, FETCHED, source="external_kv_transfer") - before == prompt

    warm = pair.http.post(CHAT, json=chat("What is a heron?"))
    assert warm.headers["x-prefixgate-prefill-endpoint"] == "p"
    row = pair.row()
    expected = int(warm.headers["x-prefixgate-cached-tokens"])
    assert row["prefill_cached_tokens"] == row["cached_tokens"] == row["decode_cached_tokens"] == expected
    assert expected > 500
    assert warm.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == expected
    assert "disputed" not in row["flags"]
    figures.add("vllm pair", "prompt, tokens carried", f"{prompt}")
    figures.add(
        "vllm pair", "next prompt, cached tokens of the prefill engine", f"{expected} of {row['prompt_tokens']}"
    )


def test_a_stream_passes_and_the_time_of_the_transfer_is_learned(pair: Pair, figures: Figures) -> None:
    began_s = time.monotonic()
    with pair.http.stream("POST", CHAT, json=chat("Where do herons live?", stream=True)) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert answer.headers["x-prefixgate-prefill-endpoint"] == "p"
    assert lines[-1] == "data: [DONE]"
    assert pair.gateway.metric("prefixgate_transfer_seconds_count", endpoint="d") == 1
    transfer_s = pair.gateway.metric("prefixgate_transfer_seconds_sum", endpoint="d")
    assert 0 < transfer_s < time.monotonic() - began_s
    figures.add("vllm pair", "decode call to first token", f"{transfer_s:.2f} s")


def test_clients_that_leave_pin_nothing(pair: Pair, figures: Figures) -> None:
    for number in range(6):
        with suppress(httpx.TimeoutException):
            httpx.post(f"{pair.gateway.url}{CHAT}", json=chat(f"Question {number}?"), timeout=0.05 + 0.15 * number)
    said(pair.http.post(CHAT, json=chat("And now?")))
    until_s = time.monotonic() + 20  # leases end after 30
    while counter(pair.prefill, PINNED) > 0 and time.monotonic() < until_s:
        time.sleep(0.2)
    assert counter(pair.prefill, PINNED) == 0
    freed = pair.gateway.metric("prefixgate_prefill_releases_total", outcome="freed")
    figures.add("vllm pair", "prompts freed whose clients had left, of 6", f"{freed:.0f}")
