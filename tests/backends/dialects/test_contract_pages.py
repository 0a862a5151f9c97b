"""What every dialect makes of its engine's pages, over a real port: all that they say, and nothing that they do not."""

from collections.abc import Mapping
from dataclasses import fields

import pytest

from backends.dialects import DIALECTS
from backends.features import Feature, FeatureFact, Standing
from backends.health import Probe, http_client
from backends.registry import PollSettings, Registry
from backends.types import (
    EndpointConfig,
    EndpointFacts,
    EndpointId,
    LoadSample,
    ServedModel,
    StartedAdapter,
    TokenizeForm,
)
from tests.backends.dialects.engine_pages import SERVERS, page_server, pages_of
from tests.backends.dialects.expected import EXPECTED, OFF, ON, UNKNOWN

A = EndpointId("a")
HEALTH = frozenset({"/health", "/ready", "/health/ready", "/api/version", "/"})


async def seen(pages: dict[str, tuple[int, bytes]]) -> tuple[EndpointFacts, LoadSample | None]:
    """What a probe finds at a server of these pages."""
    async with page_server(pages) as (_, server):
        config = EndpointConfig(A, server.url)
        async with http_client(config) as http:
            probe = Probe(config, http)
            dialect, facts = await probe.detect()
            return facts, await probe.poll(dialect, 1.0)


def test_the_pages_of_every_dialect_are_here() -> None:
    assert set(EXPECTED) == set(SERVERS)
    named = {one.engine for one in EXPECTED.values()}
    assert named == {dialect.name for dialect in DIALECTS} - {"reference", "openai"}


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_is_detected_as_what_it_is_and_its_pages_are_read_in_full(server: str) -> None:
    expected = EXPECTED[server]
    facts, load = await seen(pages_of(server))
    assert (facts.engine, facts.version, facts.models) == (expected.engine, expected.version, expected.models)
    assert (facts.block_size, facts.capacity_tokens, facts.slots) == expected.shape
    assert tuple(facts.features[feature].standing for feature in Feature) == expected.standings
    assert (facts.ranks, len(facts.event_sources)) == (expected.ranks, expected.sources)
    found = None if load is None else (load.running, load.waiting, load.kv_use, load.prefix_hits, load.prefix_queries)
    assert found == expected.load


@pytest.mark.parametrize("server", SERVERS)
async def test_what_a_page_does_not_say_is_unknown_and_never_made_up(server: str) -> None:
    whole, load = await seen(pages_of(server))
    for gone in pages_of(server).keys() - HEALTH - {"/v1/models"}:
        pages = pages_of(server)
        del pages[gone]
        facts, less = await seen(pages)
        for field in fields(EndpointFacts):
            assert_less(field.name, getattr(facts, field.name), getattr(whole, field.name), facts.engine)
        if less is not None and load is not None:
            for field in fields(LoadSample):
                if field.name != "took_s" and (field.name, gone) != ("finished", "/metrics"):  # other pages count too
                    assert getattr(less, field.name) in (getattr(load, field.name), None, ()), (gone, field.name)


def assert_less(name: str, found: object, whole: object, engine: str) -> None:
    """Equal, or unknown. A server whose own page is gone may be the generic one, of which less is known."""
    if name == "features":
        assert isinstance(found, Mapping)
        assert isinstance(whole, Mapping)
        for feature, fact in found.items():
            assert isinstance(fact, FeatureFact)
            told = {whole[feature].standing, UNKNOWN} | ({OFF} if feature is Feature.METRICS else set())
            assert engine == "openai" or fact.standing in told, (feature, fact)
    elif engine == "openai" or name == "models":
        assert name != "models" or {one.id for one in found} <= {one.id for one in whole}  # type: ignore[attr-defined]
    else:
        assert found in (whole, None, (), 1, frozenset(), TokenizeForm.TEXT_ONLY), name


@pytest.mark.parametrize("server", SERVERS)
async def test_pages_full_of_nonsense_tell_nothing_and_break_nothing(server: str) -> None:
    keeps = {"/v1/models", *HEALTH}
    for nonsense in (
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'{"models":1,"loads":{},"kv_events":[],"version":{}}',
        b"[[1],2]",
    ):
        pages = {
            path: page if path in keeps else (200, nonsense)
            for path, page in pages_of(server).items()
            if path != "/api/version"
        }
        facts, load = await seen(pages)
        assert facts.engine in (EXPECTED[server].engine, "openai")
        assert (facts.capacity_tokens, facts.slots, facts.event_sources) == (None, None, ())
        assert load is None or (load.running, load.waiting, load.kv_use) == (None, None, None)


RESTARTED: Mapping[str, tuple[str, bytes, bytes]] = {
    "vllm-0.32": ("/metrics", b"process_start_time_seconds 1.79596121854e+09", b"process_start_time_seconds 1.8e+09"),
    "vllm-0.8.5": ("/metrics", b"1.746e+09", b"1.747e+09"),
    "vllm-0.11-no-total": ("/metrics", b'"base"} 100', b'"base"} 3'),
    "sglang-0.5.23": ("/metrics", b"1000.0", b"10.0"),
    "sglang-0.4.6": ("/metrics", b"200.0", b"20.0"),
    "trtllm-1.4": ("/prometheus/metrics", b"70.0", b"1.0"),
    "trtllm-1.2-json": ("/metrics", b'"iter": 42', b'"iter": 1'),
    "triton-25": ("/metrics", b'version="1"} 12', b'version="1"} 1'),
    "llamacpp": ("/metrics", b"prompt_tokens_total 11732", b"prompt_tokens_total 5"),
    "llamacpp-no-metrics": ("/slots", b'"id_task"', b'"none"'),
    "sglang-0.5.23-no-metrics": ("/v1/loads", b'tokens": 9000', b'tokens": 10'),
    "tgi-3.3.7": ("/metrics", b"} 21", b"} 1"),
    "ollama-0.14": ("/api/ps", b'"llama3.2:latest"', b'"other:1b"'),
    "ollama-0.5": ("/api/ps", b'"llama3.2:latest"', b'"other:1b"'),
}
"""Page, and what it says before and after. Of those that are missing here nothing shows one but that they were away."""


@pytest.mark.parametrize("server", SERVERS)
async def test_a_restart_is_noticed(server: str) -> None:
    pages = pages_of(server)
    async with page_server(pages) as (engine, at):
        config = EndpointConfig(A, at.url)
        async with Registry([config], lambda: 0.0, settings=PollSettings(deadline_s=30)) as registry:
            await registry.poll(A)
            first = registry.snapshot()[0]
            assert first.healthy, first.unhealthy_reason
            await registry.poll(A)
            assert registry.snapshot()[0].generation == first.generation
            if server in RESTARTED:
                path, before, after = RESTARTED[server]
                status, body = pages[path]
                assert before in body
                pages[path] = (status, body.replace(before, after))
            else:
                engine.pages = {}
                await registry.poll(A)
                assert not registry.snapshot()[0].healthy
                engine.pages = pages
            await registry.poll(A)
            assert registry.snapshot()[0].generation > first.generation


@pytest.mark.parametrize("server", [name for name, one in EXPECTED.items() if one.version is not None])
async def test_another_version_at_the_same_address_is_another_process(server: str) -> None:
    version = str(EXPECTED[server].version).encode()
    pages = pages_of(server)
    async with page_server(pages) as (_, at):
        config, settings = EndpointConfig(A, at.url), PollSettings(deadline_s=30, polls_to_detect=1)
        async with Registry([config], lambda: 0.0, settings=settings) as registry:
            await registry.poll(A)
            first = registry.snapshot()[0].generation
            await registry.poll(A)
            assert registry.snapshot()[0].generation == first
            for path, (status, body) in list(pages.items()):
                pages[path] = (status, body.replace(version, b"9" + version))
            await registry.poll(A)
            again = registry.snapshot()[0]
    assert again.generation > first
    assert again.facts is not None
    assert again.facts.version == f"9{version.decode()}"


@pytest.mark.parametrize(
    ("server", "owner"), [("llamacpp", b'"llamacpp"'), ("sglang-0.5.23-no-metrics", b'"sglang"'), ("tgi-3.3.7", b"-")]
)
async def test_an_engine_behind_a_proxy_that_hides_the_owner_of_its_models_is_told_by_its_own_page(
    server: str, owner: bytes
) -> None:
    pages = pages_of(server)
    pages["/v1/models"] = (200, pages["/v1/models"][1].replace(owner, b'"proxy"'))
    pages.pop("/metrics", None)
    facts, _ = await seen(pages)
    assert facts.engine == EXPECTED[server].engine


async def test_a_vllm_that_is_put_to_sleep_has_lost_its_cache_and_is_down_until_it_wakes() -> None:
    pages = pages_of("vllm-0.32")
    async with page_server(pages) as (_, at):
        config = EndpointConfig(A, at.url)
        async with Registry([config], lambda: 0.0, settings=PollSettings(deadline_s=30)) as registry:
            await registry.poll(A)
            first = registry.snapshot()[0]
            awake, (status, body) = b'sleep_state="awake"} 1.0', pages["/metrics"]
            assert awake in body
            pages["/metrics"] = (status, body.replace(awake, b'sleep_state="awake"} 0.0'))
            found = []
            for _ in range(3):
                await registry.poll(A)
                found.append(registry.snapshot()[0])
            pages["/metrics"] = (status, body)
            await registry.poll(A)
            again = registry.snapshot()[0]
    assert first.healthy
    assert {(one.healthy, one.unhealthy_reason) for one in found} == {(False, "it sleeps, until somebody wakes it")}
    assert {one.generation for one in (*found, again)} == {first.generation + 1}
    assert again.healthy


async def test_an_ollama_without_a_model_in_memory_is_up() -> None:
    facts, load = await seen(pages_of("ollama-0.14") | {"/api/ps": (200, b'{"models":[]}')})
    assert (facts.engine, [model.max_model_len for model in facts.models]) == ("ollama", [None] * 4)
    assert load is not None
    assert load.awake == frozenset()


async def test_a_server_that_answers_every_path_alike_is_the_generic_one() -> None:
    everything = {path: (200, b'{"status":"ok"}') for server in SERVERS for path in pages_of(server)}
    facts, load = await seen({**everything, "/v1/models": (200, b'{"data":[{"id":"m","owned_by":"me"}]}')})
    assert (facts.engine, facts.models, facts.version, load) == ("openai", (ServedModel("m"),), None, LoadSample(1.0))


async def test_metrics_without_a_single_known_name_still_say_that_there_are_metrics() -> None:
    """As of a TensorRT-LLM 1.1, which has five, none of them of load."""
    pages = pages_of("trtllm-1.4")
    pages["/prometheus/metrics"] = (200, b'trtllm_request_success_total{finished_reason="stop"} 1\n')
    facts, load = await seen(pages)
    assert facts.features[Feature.METRICS].standing is ON
    assert load is not None
    assert (load.running, load.waiting, load.kv_use, load.finished) == (None, None, None, 1)


async def test_an_iteration_that_another_reader_took_leaves_the_load_unknown_but_not_the_cache() -> None:
    async with page_server(pages_of("trtllm-1.2-json")) as (engine, server):
        config = EndpointConfig(A, server.url)
        async with http_client(config) as http:
            probe = Probe(config, http)
            await probe.detect()
            engine.pages["/metrics"] = (200, b"[]")
            dialect, facts = await probe.detect()
            load = await probe.poll(dialect, 1.0)
    assert facts.capacity_tokens == 3200
    assert load is not None
    assert (load.running, load.steps) == (None, None)


@pytest.mark.parametrize(
    ("page", "adapters", "standing"),
    [
        (b"[]", (), OFF),
        (
            b'[{"id":0,"path":"/adapters/sql.gguf","scale":1.0},{"id":1,"scale":0}]',
            (StartedAdapter(0, "sql.gguf", 1.0), StartedAdapter(1, "", 0.0)),
            ON,
        ),
        (b"{}", None, UNKNOWN),
        (b'[{"id":"0","scale":1}]', None, UNKNOWN),
        (b'[{"id":0}]', None, UNKNOWN),
        (b"[7]", None, UNKNOWN),
    ],
)
async def test_llamacpps_adapters_are_numbers_and_no_models(
    page: bytes, adapters: tuple[StartedAdapter, ...] | None, standing: Standing
) -> None:
    facts, _ = await seen(pages_of("llamacpp") | {"/lora-adapters": (200, page)})
    assert facts.adapters == adapters
    assert facts.features[Feature.LORA].standing is standing
    assert [model.id for model in facts.models] == ["smollm2"]


async def test_a_llamacpp_that_works_is_not_asked_for_its_adapters_again() -> None:
    """It would answer only when its batch is done, half a minute later on a slow machine."""
    pages = pages_of("llamacpp") | {"/lora-adapters": (200, b'[{"id":0,"path":"a","scale":1.0}]')}
    async with page_server(pages) as (engine, at):
        config = EndpointConfig(A, at.url)
        async with http_client(config) as http:
            probe = Probe(config, http)
            _, first = await probe.detect()
            status, metrics = pages["/metrics"]
            busy = metrics.replace(b"requests_processing 0", b"requests_processing 1")
            assert busy != metrics
            engine.pages = pages | {"/metrics": (status, busy), "/lora-adapters": (200, b"[]")}
            _, working = await probe.detect()
            engine.pages = pages | {"/lora-adapters": (200, b"[]")}
            _, idle = await probe.detect()
    assert first.adapters == working.adapters == (StartedAdapter(0, "a", 1.0),)
    assert idle.adapters == ()
