"""Roots: prompts that share an engine's cache share a root, and nothing else does."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backends import EndpointFacts, EndpointId, EndpointSnapshot, ServedModel
from gateway.roots import base_of, root_of_event, root_of_request
from gateway.served_models import sharing_models
from gateway.types import InferenceRequest, KeyId, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index.prompt import PromptView

TENANT = Tenant(TenantId("t"), KeyId("k"), "group", "salt of group")
REQUEST = InferenceRequest(
    id=RequestId("r"),
    tenant=TENANT,
    route=Route.CHAT,
    path="/v1/chat/completions",
    model="m",
    stream=False,
    client_wants_usage=False,
    max_output_tokens=None,
    prompt=PromptView(prompt="x"),
    body=b"{}",
    headers=(),
    started_s=0.0,
    opened_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def endpoint(*models: ServedModel, engine: str = "vllm") -> EndpointSnapshot:
    return EndpointSnapshot(EndpointId("e"), healthy=True, generation=1, facts=EndpointFacts(engine, models))


def root(model: str, *endpoints: EndpointSnapshot, source: TokenSource = TokenSource.LOCAL, salt: str = "s") -> bytes:
    return root_of_request(replace(REQUEST, model=model), endpoints, source, 16, salt)


def event_root(of: EndpointSnapshot, adapter: str | None = None, salt: str | None = "s", block_size: int = 16) -> bytes:
    assert of.facts is not None
    found = root_of_event(of.facts, adapter, salt, block_size)
    assert found is not None
    return found


def test_what_an_engine_says_it_stored_has_the_root_of_the_prompt_it_was_asked() -> None:
    e = endpoint(ServedModel("m"))
    assert event_root(e) == root("m", e)


@pytest.mark.parametrize("source", [TokenSource.LOCAL, TokenSource.ENGINE])
def test_token_ids_of_the_engine_have_one_root_wherever_they_came_from(source: TokenSource) -> None:
    e = endpoint(ServedModel("m"))
    assert root("m", e, source=source) == event_root(e)


def test_bytes_are_no_tokens() -> None:
    e = endpoint(ServedModel("m"))
    assert root("m", e, source=TokenSource.BYTES) != root("m", e)


def test_an_adapter_has_a_root_of_its_own_which_its_events_share() -> None:
    e = endpoint(ServedModel("m"), ServedModel("lora", parent="m"))
    assert root("lora", e) == event_root(e, adapter="lora") != event_root(e)
    assert base_of("lora", [e]) == "m"
    assert base_of("m", [e]) is None


def test_two_salts_never_share() -> None:
    e = endpoint(ServedModel("m"))
    assert len({root("m", e, salt=""), root("m", e, salt="a"), root("m", e, salt="b")}) == 3
    assert event_root(e, salt=None) == root("m", e, salt="")


def test_aliases_of_one_model_are_one_cache() -> None:
    e = endpoint(ServedModel("m"), ServedModel("alias"))
    assert root("alias", e) == root("m", e) == event_root(e)


def test_an_alias_that_endpoints_disagree_on_stands_for_itself() -> None:
    one, other = endpoint(ServedModel("m"), ServedModel("alias")), endpoint(ServedModel("n"), ServedModel("alias"))
    assert len({root("alias", one, other), root("m", one, other), root("n", one, other)}) == 3


@pytest.mark.parametrize("engine", ["openai", "llamacpp"])
def test_where_an_address_may_serve_many_models_names_are_no_aliases_and_events_mean_nothing(engine: str) -> None:
    e = endpoint(ServedModel("m"), ServedModel("n"), engine=engine)
    assert root("m", e) != root("n", e)
    assert e.facts is not None
    assert root_of_event(e.facts, None, None, 16) is None


def test_an_engine_that_names_no_model_has_no_root() -> None:
    assert root_of_event(EndpointFacts("vllm"), None, None, 16) is None


def test_thousands_of_adapters_do_not_hold_up_the_gateway() -> None:
    """Who shares models with an endpoint is asked on the event loop, each time that one is looked at anew."""
    mine, others = (endpoint(*(ServedModel(f"{who}{n}") for n in range(20_000))) for who in "ab")
    assert mine.facts is not None
    began_s = time.process_time()
    assert sharing_models([mine, others], mine.facts) == [mine]
    assert time.process_time() - began_s < 1
