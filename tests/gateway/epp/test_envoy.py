"""A real Envoy in front, OpenAI's client before it, two simulated engines behind: `make epp-test`."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.conftest import ledger_rows, settled
from tests.gateway.epp.asking import TEXT, nothing_stays_reserved
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine, running_picker, simulated_engine
from tests.gateway.epp.envoy_config import Plan, config_of
from tests.ports import free_port

pytestmark = pytest.mark.envoy
DUPLEX, BUFFERED, STREAMED, NONE = "FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED", "NONE"


@dataclass(frozen=True, slots=True)
class World:
    """All that runs."""

    url: str
    picker: RunningPicker
    engines: list[SimulatedEngine]
    client: openai.OpenAI

    def chat(self, question: str, **more: Any) -> Any:
        messages: Any = [{"role": "system", "content": TEXT}, {"role": "user", "content": question}]
        return self.client.chat.completions.create(model="simulated", messages=messages, max_tokens=5, **more)

    def row(self, number: int) -> Any:
        """A settled request; its usage is durable before its end, so it is there."""
        return ledger_rows(self.picker.pages.ledger_path)[number]


StartWorld = Callable[..., World]


@contextmanager
def running_envoy(folder: Path, plan: Plan) -> Iterator[None]:
    """Run Envoy until the block ends."""
    binary = os.environ.get("ENVOY")
    assert binary, "make epp-test says where Envoy is"
    (folder / "envoy.json").write_text(config_of(plan))
    command = (binary, "-c", str(folder / "envoy.json"), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning")
    with (folder / "envoy.log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            until_s = time.monotonic() + 60
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{plan.admin_port}/ready", timeout=5).raise_for_status()
                    break
                except httpx.HTTPError:
                    assert process.poll() is None, (folder / "envoy.log").read_text()
                    assert time.monotonic() < until_s
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StartWorld]:
    """Start one: how Envoy shows bodies, and flags of the picker."""
    with ExitStack() as stack:

        def start(
            request: str = DUPLEX, response: str = DUPLEX, retries: int = 0, direct: bool = False, **flags: object
        ) -> World:
            engines = [stack.enter_context(simulated_engine()) for _ in range(2)]
            urls = [engine.url for engine in engines]
            picker = stack.enter_context(running_picker(tmp_path, *urls, epp__tls="self_signed", **flags))
            places = [(host, int(port)) for host, _, port in (engine.address.partition(":") for engine in engines)]
            port = free_port()
            grpc_port = int(picker.address.rpartition(":")[2])
            plan = Plan(grpc_port, places, port, free_port(), request, response, retries, original_destination=direct)
            stack.enter_context(running_envoy(tmp_path, plan))
            url = f"http://127.0.0.1:{port}"
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)
            return World(url, picker, engines, stack.enter_context(client))

        yield start


@pytest.mark.parametrize("request_mode", [DUPLEX, BUFFERED])
@pytest.mark.parametrize("response_mode", [DUPLEX, STREAMED, BUFFERED])
def test_the_same_prefix_goes_to_the_same_engine_and_the_bill_is_what_it_computed(
    world: StartWorld, request_mode: str, response_mode: str
) -> None:
    here = world(request_mode, response_mode)
    for number in range(4):
        usage = here.chat(f"Number {number}?").usage
        row = here.row(number)
        assert (row.prompt_tokens, row.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)
        assert row.cached_tokens == usage.prompt_tokens_details.cached_tokens
        assert (row.cached_tokens > 0) is (number > 0)
    stream = list(here.chat("Number 9?", stream=True))
    asked = list(here.chat("Number 9?", stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage for chunk in stream if chunk.usage] == []
    assert asked[-1].usage is not None
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    rows = ledger_rows(here.picker.pages.ledger_path)
    assert {row.state for row in rows} == {"complete"}
    assert len({row.endpoint_id for row in rows}) == 1
    assert rows[-1].cached_tokens == asked[-1].usage.prompt_tokens_details.cached_tokens


def test_a_cluster_without_endpoints_goes_where_it_is_told(world: StartWorld) -> None:
    here = world(direct=True)
    for number in range(3):
        assert here.chat(f"Number {number}?").usage.completion_tokens == 5
    rows = ledger_rows(here.picker.pages.ledger_path)
    assert len({row.endpoint_id for row in rows}) == 1
    assert rows[-1].cached_tokens


def test_a_stream_comes_piece_by_piece(world: StartWorld) -> None:
    here = world()
    with httpx.stream(
        "POST",
        f"{here.url}/v1/chat/completions",
        json={"model": "simulated", "stream": True, "max_tokens": 400, "messages": [{"role": "user", "content": "Hi"}]},
    ) as answer:
        pieces = sum(1 for _ in answer.iter_raw())
    assert pieces > 1


async def test_a_client_that_leaves_is_settled_and_leaves_nothing_reserved(world: StartWorld) -> None:
    here = world()
    stream = here.chat("Tell me more.", stream=True, extra_body={"max_tokens": 4000, "ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert [row.state for row in await settled(here.picker.pages, 1, within_s=20)] == ["partial"]
    await nothing_stays_reserved(here.picker)


async def test_an_engine_that_dies_inside_a_stream_cuts_it_and_what_was_relayed_is_settled(world: StartWorld) -> None:
    here = world()
    stream = iter(here.chat("Tell me more.", stream=True, extra_body={"max_tokens": 4000, "ignore_eos": True}))
    said = [next(stream) for _ in range(3)]
    for engine in here.engines:
        engine.process.kill()
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        said += list(stream)
    (row,) = await settled(here.picker.pages, 1, within_s=20)
    assert row.state == "partial"
    assert "estimated" in row.flags
    assert row.output_tokens is None or row.output_tokens >= 2
    await nothing_stays_reserved(here.picker)


def test_refusals_reach_the_client_as_the_gateway_gives_them(world: StartWorld) -> None:
    here = world(limits__max_body_bytes=200_000)
    with pytest.raises(openai.NotFoundError) as unknown:
        here.client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "Hi"}])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as huge:
        here.chat("Hi " * 200_000)
    assert (huge.value.status_code, huge.value.code) == (413, "body_too_large")
    garbage = httpx.post(f"{here.url}/v1/chat/completions", content=b"{")
    assert (garbage.status_code, garbage.json()["error"]["code"]) == (400, "invalid_request")
    assert [model.id for model in here.client.models.list()] == ["simulated"]
    assert httpx.get(f"{here.url}/metrics").status_code == 404


def test_a_body_of_a_megabyte_reaches_the_engine_whole(world: StartWorld) -> None:
    here = world()
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        here.chat("Hi " * 400_000)


@pytest.mark.parametrize("response_mode", [DUPLEX, STREAMED, BUFFERED])
def test_a_dead_engine_is_an_error_in_the_clients_dialect_and_is_left_alone_after_it(
    world: StartWorld, response_mode: str
) -> None:
    here = world(response=response_mode, poll_interval_s=60, health__failures=1)
    here.chat("Hi?")
    _kill(here, here.row(0).endpoint_id)
    with pytest.raises(openai.InternalServerError) as failed:
        here.chat("Hi?")
    assert (failed.value.status_code, failed.value.code) == (502, "upstream_failed")
    assert here.chat("Hi?").usage.completion_tokens == 5
    states = [row.state for row in ledger_rows(here.picker.pages.ledger_path)]
    assert states == ["complete", "failed", "complete"]


def test_a_fallback_answers_for_a_dead_engine_and_has_it_on_its_own_account(world: StartWorld) -> None:
    here = world(retries=2, epp__fallbacks=1, poll_interval_s=60)
    here.chat("Hi?")
    dead = here.row(0).endpoint_id
    _kill(here, dead)
    usage = here.chat("Hi?").usage
    row = here.row(1)
    assert row.endpoint_id != dead
    assert (row.attempts, row.state, row.cached_tokens) == (2, "complete", 0)
    assert row.prompt_tokens == usage.prompt_tokens
    assert here.picker.pages.metric("prefixgate_epp_served_elsewhere_total", by="fallback") == 1


async def test_answers_that_envoy_does_not_show_are_not_billed(world: StartWorld) -> None:
    here = world(response=NONE)
    for number in range(3):
        here.chat(f"Number {number}?")
        await settled(here.picker.pages, number + 1)
    rows = ledger_rows(here.picker.pages.ledger_path)
    assert {(row.state, row.prompt_tokens, row.output_tokens) for row in rows} == {("complete", None, None)}
    assert len({row.endpoint_id for row in rows}) == 1, "prefixes are known all the same"
    assert "not billed" in json.dumps(here.picker.pages.http.get("/health").json()["degraded"])
    await nothing_stays_reserved(here.picker)


def _kill(here: World, endpoint_id: str) -> None:
    engine = here.engines[int(endpoint_id.removeprefix("e"))]
    engine.process.kill()
    engine.process.wait()
