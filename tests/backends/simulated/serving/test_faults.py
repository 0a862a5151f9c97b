"""What can be made to go wrong with a simulated engine, seen from the outside: with sockets, and with a process."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from backends.simulated import EngineSpec
from backends.simulated.serving import DIALECTS, ServerSpec, SimulatedServer, is_whole
from tests.until import until_in_thread

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Where? " * 40}], "max_tokens": 8}
FAST = 500.0


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(ServerSpec(model="m", speed=FAST)) as running:
        yield running


def chat(server: SimulatedServer, timeout_s: float = 30, **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, **more}, timeout=timeout_s)


def streamed(server: SimulatedServer, **more: Any) -> bytes:
    """What comes of a stream until it ends or is cut."""
    got = bytearray()
    body = {**CHAT, "stream": True, **more}
    try:
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=30) as answer:
            for part in answer.iter_raw():
                got += part
    except httpx.TransportError:
        pass
    return bytes(got)


def metric(server: SimulatedServer, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    [line] = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])


@contextmanager
def in_the_background(server: SimulatedServer, **more: Any) -> Iterator[list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(chat(server, **more))
        except httpx.TransportError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield results
    thread.join(30)


def test_a_frozen_engine_takes_connections_and_says_nothing_until_it_thaws(server: SimulatedServer) -> None:
    server.change(frozen=True)
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{server.url}/health", timeout=0.2)
    with in_the_background(server) as results:
        socket.create_connection((server.spec.host, server.spec.port), 5).close()
        assert not results
        server.change(frozen=False)
    [answer] = results
    assert isinstance(answer, httpx.Response)
    assert answer.status_code == 200


def test_a_wedged_engine_is_healthy_and_its_counters_stand_still(server: SimulatedServer) -> None:
    chat(server)
    before = metric(server, "vllm:generation_tokens_total")
    server.change(wedged=True)
    with in_the_background(server) as results, in_the_background(server) as others:
        until_in_thread(
            lambda: metric(server, "vllm:num_requests_running") + metric(server, "vllm:num_requests_waiting") == 2
        )
        assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200
        assert metric(server, "vllm:generation_tokens_total") == before
        assert not results
        server.change(wedged=False)
    assert isinstance(results[0], httpx.Response)
    assert isinstance(others[0], httpx.Response)
    assert metric(server, "vllm:generation_tokens_total") == before + 16


def test_a_slow_engine_takes_so_many_times_as_long() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=10)) as server:

        def seconds() -> float:
            began_s = time.monotonic()
            chat(server)
            return time.monotonic() - began_s

        fast_s = seconds()
        server.change(slow=10)
        assert seconds() > 0.15  # 8 tokens of 20 ms, at the pace of the engine
        assert fast_s > 0.015


@pytest.mark.parametrize("within_bytes", [0, 9])
def test_an_engine_dies_after_so_many_events_and_comes_back_with_nothing_cached(
    server: SimulatedServer, within_bytes: int
) -> None:
    chat(server)
    server.change(die_after_events=4, die_within_bytes=within_bytes)
    got = streamed(server)
    *whole, rest = got.split(b"\n\n")
    assert (len(whole), len(rest)) == (4, within_bytes)
    text = "".join(json.loads(one[6:])["choices"][0]["delta"]["content"] for one in whole)
    assert is_whole(text)
    until_in_thread(lambda: not server.is_alive())
    with pytest.raises(httpx.ConnectError):
        chat(server)
    server.restart()
    assert chat(server).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_streams_are_reset_after_so_many_events_and_the_engine_goes_on(server: SimulatedServer) -> None:
    server.change(reset_after_events=3)
    got = streamed(server, max_tokens=4000, ignore_eos=True)
    assert got.count(b"\n\n") <= 3  # what is under way when a connection is reset may be lost
    until_in_thread(lambda: [one.outcome for one in server.records()] == ["abort"])
    assert chat(server).status_code == 200


def test_a_share_of_requests_is_reset_or_fails_evenly(server: SimulatedServer) -> None:
    server.change(error_share=0.5, error_status=502)
    assert [chat(server).status_code for _ in range(4)] == [200, 502, 200, 502]
    server.change(error_share=0, reset_share=0.25)
    reset = 0
    for _ in range(8):
        try:
            chat(server)
        except httpx.TransportError:
            reset += 1
    assert reset == 2


@pytest.mark.parametrize(
    ("lie", "cached", "prompt", "output"),
    [
        ("all_cached", 87, 88, 8),
        ("none_cached", 0, 88, 8),
        ("double_prompt", 80, 176, 8),
        ("double_output", 80, 88, 16),
    ],
)
def test_usage_may_lie(server: SimulatedServer, lie: str, cached: int, prompt: int, output: int) -> None:
    chat(server)
    assert chat(server).json()["usage"]["prompt_tokens"] == 88
    server.change(wrong_usage=lie)
    usage = chat(server).json()["usage"]
    told = (usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"], usage["completion_tokens"])
    assert told == (cached, prompt, output)
    server.change(wrong_usage="missing")
    assert "usage" not in chat(server).json()


def test_a_fault_that_nobody_knows_is_an_error(server: SimulatedServer) -> None:
    with pytest.raises(ValueError, match="unknown field"):
        server.change(tired=True)
    with pytest.raises(ValueError, match="frozen"):
        server.change(frozen="very")


def test_who_leaves_is_forgotten_and_its_blocks_are_free(server: SimulatedServer) -> None:
    server.change(wedged=True)
    with pytest.raises(httpx.ReadTimeout):
        chat(server, timeout_s=0.2)
    until_in_thread(lambda: [one.outcome for one in server.records()] == ["abort"])
    server.change(wedged=False)
    until_in_thread(lambda: metric(server, "vllm:num_requests_running") == 0)
    until_in_thread(lambda: metric(server, "vllm:kv_cache_usage_perc") == 0)


def test_a_full_cache_forgets_what_was_used_longest_ago() -> None:
    small = EngineSpec(capacity_blocks=12)
    with SimulatedServer(ServerSpec(model="m", speed=FAST, engine=small)) as server:

        def cached(word: str) -> int:
            messages = [{"role": "user", "content": f"{word} " * 80}]
            return int(chat(server, messages=messages).json()["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert [cached(word) for word in "aabbab"][:4] == [0, 80, 0, 80]
        assert cached("c") == 0
        assert cached("a") < 80


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_fails_in_the_middle_says_so_in_the_engines_words(dialect: str) -> None:
    with SimulatedServer(ServerSpec(dialect=dialect, model="m", speed=FAST)) as server:
        server.change(error_share=1.0)
        answer = chat(server, stream=True)
        assert answer.status_code == 500
        assert "told to fail" in answer.text


def test_a_process_of_its_own_is_told_over_its_control_port_and_dies_as_if_it_were_killed() -> None:
    command = [sys.executable, "-m", "backends.simulated.serving", "--dialect", "sglang", "--model", "m"]
    command += ["--port", "0", "--control-port", "0", "--speed", "500", "--faults", '{"not_ready": true}']
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            url, control = told["url"], told["control_url"]
            assert httpx.get(f"{url}/ready", timeout=30).status_code == 503
            assert httpx.post(f"{control}/faults", json={"not_ready": False}, timeout=30).json()["not_ready"] is False
            assert httpx.get(f"{url}/ready", timeout=30).status_code == 200
            assert httpx.post(f"{control}/faults", json={"tired": 1}, timeout=30).status_code == 400
            httpx.post(f"{control}/faults", json={"frozen": True}, timeout=30)
            assert httpx.get(f"{control}/state", timeout=30).json()["faults"]["frozen"] is True
            httpx.post(f"{control}/faults", json={"frozen": False, "die_after_events": 2}, timeout=30)
            with (
                pytest.raises(httpx.TransportError),
                httpx.stream("POST", f"{url}/v1/chat/completions", json={**CHAT, "stream": True}, timeout=30) as answer,
            ):
                answer.read()
            assert process.wait(30) == -9
        finally:
            process.kill()
