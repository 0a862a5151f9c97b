"""The proof of token parity on demand: against real engines, and against servers that answer otherwise."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends import (
    EndpointConfig,
    EndpointFacts,
    EndpointId,
    EndpointSnapshot,
    PollSettings,
    Registry,
    ServedModel,
    TokenizeForm,
)
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.probes import probes
from gateway.proof import Effort, Proof, Verdict, prove, summary
from gateway.types import Route, TokenSource
from prefix_index import TokenIds
from prefix_index.prompt import ModelText, PromptView, Renderer, load_model_text
from prefix_index.token_bytes import unpack
from tests.hostile import Behaviour, HostileServer, Peer

A = EndpointId("a")
KEY = "of the backend"
QUESTION = "What is the weather like in Lisbon today?"
PLAIN_ROUTES = frozenset({"/v1/chat/completions", "/v1/completions"})
FACTS = EndpointFacts("openai", models=(ServedModel("tiny"),), routes=PLAIN_ROUTES)
UP = EndpointSnapshot(A, healthy=True, generation=1, facts=FACTS)


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1, api_key=KEY)
    with run_engine(config) as running:
        yield running


def text_of(template: Path | None = None) -> ModelText:
    return load_model_text(ensure_model("tiny"), template, lambda: datetime.now(UTC))


@pytest.fixture(scope="module")
def texts() -> dict[str, ModelText]:
    return {"tiny": text_of()}


def token_ids(text: ModelText, *messages: dict[str, object]) -> TokenIds:
    encoding = text.begin(PromptView(messages=list(messages)))
    encoding.compute()
    return encoding.finish()


async def proven(engine: RunningEngine, texts: Mapping[str, ModelText]) -> dict[str, Proof]:
    config = EndpointConfig(A, engine.url, api_key=KEY)
    async with Registry([config], time.monotonic, settings=PollSettings(deadline_s=30)) as registry:
        await registry.detect_all(30)
        (endpoint,) = registry.snapshot()
    assert endpoint.healthy, endpoint.unhealthy_reason
    return {proof.shape: proof for proof in await prove([(config, endpoint)], texts)}


async def test_every_kind_of_request_has_the_engines_own_ids(
    engine: RunningEngine, texts: Mapping[str, ModelText]
) -> None:
    proofs = await proven(engine, texts)
    assert set(proofs) == {probe.shape for probe in probes(ServedModel("tiny"), PLAIN_ROUTES)}
    assert {"plain", "multi-turn", "system", "tools", "control tokens", "content parts", "long"} < set(proofs)
    assert {"Japanese", "Chinese", "Korean", "emoji", "completion text", "completion ids"} < set(proofs)
    assert [(p.shape, p.ours_tokens, p.engine_tokens) for p in proofs.values() if p.verdict is not Verdict.EQUAL] == []
    assert {proof.source for proof in proofs.values()} == {TokenSource.LOCAL}
    assert {shape for shape, proof in proofs.items() if proof.ids_equal != "yes"} <= {"completion ids"}
    assert 1500 < (proofs["long"].engine_tokens or 0) < 2500


async def test_without_a_local_tokenizer_the_engines_ids_are_held_against_its_usage(engine: RunningEngine) -> None:
    proofs = await proven(engine, {})
    assert {proof.source for proof in proofs.values()} == {TokenSource.ENGINE}
    chats = [proof for proof in proofs.values() if not proof.shape.startswith("completion")]
    assert {(proof.verdict, proof.ids_equal) for proof in chats} == {(Verdict.EQUAL, "-")}
    assert proofs["completion text"].verdict is Verdict.EQUAL


def edited(tmp_path: Path, old: str, new: str) -> dict[str, ModelText]:
    """The engine's template with one edit."""
    source = text_of().templates["default"].source
    assert old in source
    path = tmp_path / "edited.jinja"
    path.write_text(source.replace(old, new))
    return {"tiny": text_of(path)}


async def test_a_wrong_template_disagrees_on_chats_alone(engine: RunningEngine, tmp_path: Path) -> None:
    proofs = await proven(engine, edited(tmp_path, "<|im_start|>assistant\\n", "<|im_start|>assistant: "))
    chats = {shape: proof for shape, proof in proofs.items() if not shape.startswith("completion")}
    assert {proof.verdict for proof in chats.values()} == {Verdict.DIFFERENT}
    assert all(proof.ids_compared and proof.first_difference for proof in chats.values())
    assert {proofs["completion text"].verdict, proofs["completion ids"].verdict} == {Verdict.EQUAL}


async def test_equal_counts_of_other_ids_disagree_and_tell_from_where(engine: RunningEngine, tmp_path: Path) -> None:
    proofs = await proven(engine, edited(tmp_path, "<|im_start|>assistant\\n", "<|im_end|>assistant\\n"))
    plain = proofs["plain"]
    assert plain.ours_tokens == plain.engine_tokens
    assert plain.verdict is Verdict.DIFFERENT
    assert plain.engine_tokens is not None
    last_turn = 4  # the mark, two tokens of the role, the end of the line
    assert plain.ids_equal == f"no, from {plain.engine_tokens - last_turn}"


async def test_a_template_that_is_wrong_about_tools_is_right_about_the_rest(
    engine: RunningEngine, tmp_path: Path
) -> None:
    proofs = await proven(engine, edited(tmp_path, "You can call these functions", "You may call these functions"))
    assert {shape for shape, proof in proofs.items() if proof.verdict is Verdict.DIFFERENT} == {"tools", "tool results"}


async def test_a_template_that_refuses_what_the_engine_takes_disagrees(engine: RunningEngine, tmp_path: Path) -> None:
    refusing = "{%- if messages and messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    proofs = await proven(engine, edited(tmp_path, "{%- if tools %}", refusing + "{%- if tools %}"))
    wrong = {shape: proof for shape, proof in proofs.items() if proof.verdict is Verdict.DIFFERENT}
    assert {shape: proof.ours_tokens for shape, proof in wrong.items()} == {"system": None}


async def test_chats_that_only_the_engine_can_render_are_proven_by_its_ids(engine: RunningEngine) -> None:
    custom = load_model_text(ensure_model("tiny"), renderer=Renderer.CUSTOM)
    proofs = await proven(engine, {"tiny": custom})
    assert (proofs["plain"].source, proofs["plain"].verdict) == (TokenSource.ENGINE, Verdict.EQUAL)
    text = proofs["completion text"]
    assert (text.source, text.ids_equal, text.verdict) == (TokenSource.LOCAL, "yes", Verdict.EQUAL)


def answering(usage: Callable[[str, dict[str, object]], object], status: bytes = b"200 OK") -> Behaviour:
    """Answers each request with `usage(path, body)`, and closes."""

    async def behave(peer: Peer) -> None:
        request = await peer.read_request()
        head, _, body = request.partition(b"\r\n\r\n")
        answer = json.dumps({"usage": usage(head.split(b" ", 2)[1].decode(), json.loads(body))}).encode()
        await peer.send(
            b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (status, len(answer), answer)
        )

    return behave


async def asked(server: HostileServer, texts: Mapping[str, ModelText], endpoint: EndpointSnapshot = UP) -> list[Proof]:
    return await prove([(EndpointConfig(A, server.url), endpoint)], texts)


async def test_a_refusal_is_shown_with_its_status_and_is_no_disagreement(texts: Mapping[str, ModelText]) -> None:
    async with HostileServer([answering(lambda *_: None, b"400 Bad Request")]) as server:
        proofs = await asked(server, texts)
    assert {proof.outcome for proof in proofs} == {"refused 400"}
    assert summary(proofs) == "token parity: nothing could be compared"


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": None}, {"prompt_tokens": "many"}])
async def test_an_answer_without_a_count_proves_nothing(texts: Mapping[str, ModelText], usage: object) -> None:
    async with HostileServer([answering(lambda *_: usage)]) as server:
        proofs = await asked(server, texts)
    assert {proof.outcome for proof in proofs} == {"no usage reported"}
    assert all(proof.ours_tokens for proof in proofs)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 100_000])
async def test_an_answer_that_is_none_proves_nothing(texts: Mapping[str, ModelText], body: bytes) -> None:
    async def behave(peer: Peer) -> None:
        await peer.read_request()
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        await peer.send(head + body)

    async with HostileServer([behave]) as server:
        assert {proof.outcome for proof in await asked(server, texts)} == {"no usage reported"}


async def test_an_endpoint_that_breaks_off_is_shown_and_the_next_probe_is_sent(texts: Mapping[str, ModelText]) -> None:
    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        peer.reset()

    async with HostileServer([breaks_off, answering(lambda *_: {"prompt_tokens": 1})]) as server:
        first, second, *_ = await asked(server, texts)
    assert (first.outcome, first.status) == ("no answer", None)
    assert (second.verdict, second.engine_tokens, second.ids_equal) == (Verdict.DIFFERENT, 1, "-")


@pytest.mark.parametrize(("shift", "outcome"), [(0, "equal"), (1, "different")])
async def test_ids_alone_are_a_proof_where_no_usage_is_reported(
    texts: Mapping[str, ModelText], shift: int, outcome: str
) -> None:
    ids = unpack(token_ids(texts["tiny"], {"role": "user", "content": QUESTION}))

    async def behave(peer: Peer) -> None:
        asks_tokens = (await peer.read_request()).startswith(b"POST /tokenize ")
        answer = json.dumps({"tokens": [one + shift for one in ids]} if asks_tokens else {}).encode()
        await peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    async with HostileServer([behave]) as server:
        plain, *_ = await asked(server, texts, replace(UP, facts=replace(FACTS, tokenize=TokenizeForm.MESSAGES)))
    assert (plain.shape, plain.outcome, plain.engine_tokens) == ("plain", outcome, None)


async def test_messages_and_responses_are_proven_where_they_are_spoken(texts: Mapping[str, ModelText]) -> None:
    """Their own bodies go out, and the chat that asks the same is what is counted."""
    turns: list[dict[str, object]] = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello. What can I do?"},
        {"role": "user", "content": QUESTION},
    ]
    system: dict[str, object] = {"role": "system", "content": "You are a patient assistant. Answer in one sentence."}
    wanted = len(unpack(token_ids(texts["tiny"], system, *turns)))
    bodies: dict[str, list[dict[str, object]]] = {}

    def usage(path: str, body: dict[str, object]) -> object:
        bodies.setdefault(path, []).append(body)
        cached = {"cache_read_input_tokens": wanted - 4, "cache_creation_input_tokens": 0}
        return {"input_tokens": 4, "output_tokens": 1, **cached} if path.endswith("messages") else {"input_tokens": 54}

    routes = frozenset({*PLAIN_ROUTES, "/v1/messages", "/v1/responses"})
    speaking = replace(UP, facts=replace(FACTS, routes=routes))
    async with HostileServer([answering(usage)]) as server:
        proofs = {proof.shape: proof for proof in await asked(server, texts, speaking)}
    assert {"messages", "messages tools", "responses", "responses tools"} < set(proofs)
    assert (proofs["messages"].ours_tokens, proofs["messages"].engine_tokens) == (wanted, wanted)
    assert proofs["messages"].verdict is Verdict.EQUAL
    assert proofs["responses"].ours_tokens == wanted
    assert "system" in bodies["/v1/messages"][0]
    assert "instructions" in bodies["/v1/responses"][0]
    assert all(body["max_tokens"] == 1 for body in bodies["/v1/messages"])
    assert all(body["max_output_tokens"] == 1 for body in bodies["/v1/responses"])


async def test_only_healthy_endpoints_and_models_with_tokens_are_asked(texts: Mapping[str, ModelText]) -> None:
    configs = EndpointConfig(A, "http://127.0.0.1:9")
    down = replace(UP, healthy=False, unhealthy_reason="cannot connect")
    unseen = replace(UP, healthy=False, facts=None)
    assert await prove([(configs, down), (configs, unseen)], texts) == []
    assert await prove([(configs, UP)], {}) == []
    assert await prove([(configs, replace(UP, facts=replace(FACTS, models=())))], texts) == []


async def test_of_thousands_of_models_a_few_are_probed_and_the_others_are_named(
    engine: RunningEngine, texts: Mapping[str, ModelText]
) -> None:
    names = ["tiny", *(f"m{number}" for number in range(3000))]
    models = (
        *(ServedModel(name) for name in names),
        *(ServedModel(f"adapter-{number}", parent="tiny") for number in range(1000)),
        ServedModel("t", alias_of="tiny"),
    )
    endpoint = replace(UP, facts=replace(FACTS, models=models))
    all_texts = dict.fromkeys(names, texts["tiny"])
    told: list[tuple[int, int | None]] = []
    effort = Effort(most_models=2, told=lambda done, total: told.append((done, total)))
    proofs = await prove([(EndpointConfig(A, engine.url, api_key=KEY), endpoint)], all_texts, effort)
    probed = {proof.model for proof in proofs if proof.verdict is not Verdict.NOT_PROBED}
    assert probed == {"tiny", "m0"}
    assert [proof.model for proof in proofs if proof.verdict is Verdict.NOT_PROBED] == names[2:]
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert summary(proofs).endswith("; 2,999 models not probed")


async def test_when_the_time_is_up_no_probe_is_sent(engine: RunningEngine, texts: Mapping[str, ModelText]) -> None:
    before = engine.stats()
    proofs = await prove([(EndpointConfig(A, engine.url, api_key=KEY), UP)], texts, Effort(limit_s=-1.0))
    assert [(proof.model, proof.verdict) for proof in proofs] == [("tiny", Verdict.NOT_PROBED)]
    assert summary(proofs) == "token parity: nothing could be compared; 1 model not probed"
    assert engine.stats() == before


def test_probes_ask_for_one_token_and_fit_a_short_context() -> None:
    for probe in probes(ServedModel("m", max_model_len=512), frozenset(Route)):
        assert 1 in (probe.body.get("max_tokens"), probe.body.get("max_output_tokens"))
        assert probe.body["temperature"] == 0
        assert len(json.dumps(probe.body, ensure_ascii=False)) < 512 * 4
    (long,) = (p for p in probes(ServedModel("m"), PLAIN_ROUTES) if p.shape == "long")
    assert len(json.dumps(long.body)) > 2000 * 4


def test_the_last_line_tells_the_share_that_agrees() -> None:
    equal = Proof("a", "m", "plain", TokenSource.LOCAL, Verdict.EQUAL)
    others = [replace(equal, verdict=verdict) for verdict in (Verdict.DIFFERENT, Verdict.REFUSED, Verdict.NO_USAGE)]
    assert summary([equal, equal]) == "token parity: 2 of 2 agree (100.0%)"
    assert summary([equal, *others]) == "token parity: 1 of 2 agree (50.0%); 2 could not be compared"
    assert summary([]) == "token parity: nothing could be compared"
