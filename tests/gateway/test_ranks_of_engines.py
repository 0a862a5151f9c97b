"""Ranks and adapters of simulated engines over HTTP, whose records say what each request found where it went."""

import random
import secrets
from collections.abc import Iterator

import httpx
import pytest

from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.gateway.conftest import RunningGateway, StartGateway
from tests.until import until_in_thread

ADAPTERS = tuple(f"a{number}" for number in range(6))


@pytest.fixture(params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest) -> Iterator[SimulatedServer]:
    """Three ranks behind one address."""
    with SimulatedServer(ServerSpec(dialect=request.param, model="m", speed=200, ranks=3)) as running:
        yield running


def words(count: int) -> str:
    """So many that nobody has sent before."""
    return " ".join(secrets.token_hex(2) for _ in range(count))


def ask(gateway: RunningGateway, messages: list[dict[str, str]], model: str = "m") -> httpx.Response:
    """One turn."""
    answer = gateway.http.post("/v1/chat/completions", json={"model": model, "messages": messages, "max_tokens": 3})
    assert answer.status_code == 200, answer.text
    return answer


def converse(gateway: RunningGateway, turns: int) -> set[str]:
    """One conversation; the ranks that it was sent to."""
    messages: list[dict[str, str]] = []
    ranks = set()
    for _ in range(turns):
        messages.append({"role": "user", "content": words(80)})
        answer = ask(gateway, messages)
        ranks.add(answer.headers["x-prefixgate-rank"])
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
    return ranks


def test_each_conversation_has_a_rank_and_each_turn_but_the_first_finds_its_prefix_there(
    server: SimulatedServer, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(server.url)
    ranks = [converse(gateway, turns=3) for _ in range(6)]
    assert all(len(one) == 1 for one in ranks)
    records = server.records()
    assert {str(record.rank) for record in records} == set[str]().union(*ranks) == {"0", "1", "2"}
    later = [record for at, record in enumerate(records) if at % 3]
    assert all(record.cached_tokens > record.prompt_tokens / 3 for record in later)


def test_no_rank_is_expected_to_have_what_another_computed(
    server: SimulatedServer, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(server.url, scheduling__policy="round_robin")
    messages = [{"role": "user", "content": words(200)}]
    expected = [int(ask(gateway, messages).headers["x-prefixgate-cached-tokens"]) for _ in range(6)]
    assert [record.rank for record in server.records()] == [0, 1, 2, 0, 1, 2]
    assert expected[:3] == [0, 0, 0]
    assert all(tokens > 100 for tokens in expected[3:])


def test_a_server_that_restarts_is_given_its_prefixes_rank_by_rank(start_gateway: StartGateway) -> None:
    with SimulatedServer(ServerSpec(model="m", speed=200, ranks=2)) as server:
        gateway = start_gateway(server.url, scheduling__prewarm_prefixes=2)
        for story in (words(150), words(150)):
            for question in ("Who?", "And why?"):
                ask(gateway, [{"role": "system", "content": story}, {"role": "user", "content": question}])
        server.restart()
        until_in_thread(lambda: gateway.metric("prefixgate_prewarm_requests_total", outcome="computed") >= 2)
        assert {record.rank for record in server.records()} == {0, 1}
        known = ask(gateway, [{"role": "system", "content": story}, {"role": "user", "content": "And when?"}])
        assert int(known.headers["x-prefixgate-cached-tokens"]) > 100
        last = server.records()[-1]
        assert str(last.rank) == known.headers["x-prefixgate-rank"]
        assert last.cached_tokens == int(known.headers["x-prefixgate-cached-tokens"])


def test_adapters_are_loaded_less_often_than_by_turns(start_gateway: StartGateway) -> None:
    asked = random.Random(4).choices(ADAPTERS, k=40)
    loads = {}
    for policy in ("prefix", "round_robin"):
        spec = ServerSpec(model="m", speed=200, adapters=ADAPTERS, max_adapters=3)
        with SimulatedServer(spec) as one, SimulatedServer(spec) as other:
            gateway = start_gateway(one.url, other.url, scheduling__policy=policy)
            for adapter in asked:
                ask(gateway, [{"role": "user", "content": words(20)}], adapter)
            sites = [server.site for server in (one, other)]
            loads[policy] = sum(site.adapters.loads for site in sites if site is not None)
            absent = gateway.metric("prefixgate_adapter_requests_total", residency="absent")
            assert abs(absent - loads[policy]) <= 2, "what the gateway takes for loaded is loaded"
    assert loads["prefix"] == len(ADAPTERS)
    assert loads["round_robin"] > 2 * loads["prefix"]
