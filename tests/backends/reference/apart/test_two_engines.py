"""A prompt computed at one engine and answered by another: tokens and cached counts of one engine that does both."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backends.reference.apart import transfers
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.types import DraftMethod, EngineConfig, KvRole, SpeculationConfig, WeightForm
from backends.reference.weights import ModelWeights
from tests.backends.reference.micro_model import micro_weights
from tests.until import until

CONFIG = EngineConfig(model="tiny", kv_blocks=64)
ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_host": None, "remote_port": None}
PROMPT = [(31 * i * i + 17 * i + 100) % 49_152 for i in range(50)]
BODY: dict[str, Any] = {
    "prompt": PROMPT,
    "max_tokens": 12,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}

RUNNING_USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@pytest.fixture
def producer(micro: ModelWeights) -> Iterator[RunningEngine]:
    with run_engine(replace(CONFIG, kv_role=KvRole.PRODUCER), micro) as running:
        yield running


@pytest.fixture
def consumer(micro: ModelWeights) -> Iterator[RunningEngine]:
    with run_engine(replace(CONFIG, kv_role=KvRole.CONSUMER), micro) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


async def asked(http: httpx.AsyncClient, engine: RunningEngine, **more: Any) -> dict[str, Any]:
    answer = await http.post(f"{engine.url}/v1/completions", json={**BODY, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def handed(http: httpx.AsyncClient, producer: RunningEngine, **more: Any) -> dict[str, Any]:
    answer = await asked(http, producer, **more, max_tokens=1, kv_transfer_params=ASKED)
    params: dict[str, Any] = answer["kv_transfer_params"]
    return params


def told(answer: dict[str, Any]) -> tuple[list[int], str, int]:
    [choice] = answer["choices"]
    return choice["token_ids"], choice["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_p": 0.9, "seed": 3}])
async def test_two_engines_answer_as_one(
    producer: RunningEngine,
    consumer: RunningEngine,
    served: RunningEngine,
    http: httpx.AsyncClient,
    sampling: dict[str, Any],
) -> None:
    longer = [*PROMPT, *range(200, 240)]
    for prompt, cached in ((PROMPT, 0), (PROMPT, 48), (longer, 48)):
        wanted = {"prompt": prompt, "cache_salt": "tenant", **sampling}
        params = await handed(http, producer, **wanted)
        assert params["remote_prefill_cached_tokens"] == cached
        before = consumer.stats().computed_tokens
        apart = told(await asked(http, consumer, **wanted, kv_transfer_params=params))
        assert apart == told(await asked(http, served, **wanted))
        # What was carried was not computed again: the rest of the prompt was, and all of the answer but its end.
        carried = (len(prompt) - 1) // 16 * 16
        assert consumer.stats().computed_tokens - before == len(prompt) - carried + 11
    assert producer.service.transfers is not None
    assert producer.service.transfers.waiting == 0


async def test_a_stream_says_what_was_found_where_the_prompt_was_computed(
    producer: RunningEngine, consumer: RunningEngine, http: httpx.AsyncClient
) -> None:
    await asked(http, producer)
    params = await handed(http, producer)
    answer = await http.post(
        f"{consumer.url}/v1/completions", json={**BODY, **RUNNING_USAGE, "kv_transfer_params": params}
    )
    assert '"cached_tokens":48' in answer.text


async def test_blocks_are_given_once(producer: RunningEngine, consumer: RunningEngine, http: httpx.AsyncClient) -> None:
    params = await handed(http, producer)
    await asked(http, consumer, kv_transfer_params=params)
    again = await http.post(f"{consumer.url}/v1/completions", json={**BODY, "kv_transfer_params": params})
    assert again.status_code == 500
    assert "no such blocks" in again.json()["error"]["message"]


async def test_what_nobody_fetches_is_let_go(
    producer: RunningEngine, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LEASE_S", 0.01)
    await handed(http, producer)
    waiting = producer.service.transfers
    assert waiting is not None
    await until(lambda: waiting.waiting == 0)


async def test_blocks_of_another_salt_and_of_nobody_are_an_error_of_the_engine(
    producer: RunningEngine, consumer: RunningEngine, http: httpx.AsyncClient
) -> None:
    params = await handed(http, producer, cache_salt="one")
    nobody = {**params, "remote_port": 1}
    nowhere = {"do_remote_prefill": True}
    for wrong in (params, nobody, nowhere):
        answer = await http.post(
            f"{consumer.url}/v1/completions", json={**BODY, "cache_salt": "other", "kv_transfer_params": wrong}
        )
        assert answer.status_code == 500, answer.text
    assert told(await asked(http, consumer))[2] == 0


@pytest.mark.parametrize(
    ("weights", "form"), [(micro_weights(seed=1), WeightForm.FLOAT32), (micro_weights(), WeightForm.INT8)]
)
async def test_blocks_of_another_model_of_the_same_shape_or_of_rounded_weights_are_refused(
    consumer: RunningEngine, http: httpx.AsyncClient, weights: ModelWeights, form: WeightForm
) -> None:
    with run_engine(replace(CONFIG, kv_role=KvRole.PRODUCER, weights=form), weights) as producer:
        params = await handed(http, producer)
        answer = await http.post(f"{consumer.url}/v1/completions", json={**BODY, "kv_transfer_params": params})
    assert (answer.status_code, "another model" in answer.text) == (500, True), answer.text
    assert told(await asked(http, consumer))[2] == 0


async def test_an_answer_that_is_over_with_its_first_token_hands_nothing_over(
    producer: RunningEngine, http: httpx.AsyncClient
) -> None:
    [first] = (await asked(http, producer, max_tokens=1))["choices"][0]["token_ids"]
    assert await handed(http, producer, stop_token_ids=[first]) is None


async def test_engines_without_a_role_neither_keep_nor_fetch(
    served: RunningEngine, producer: RunningEngine, http: httpx.AsyncClient
) -> None:
    assert await handed(http, served) is None
    params = await handed(http, producer)
    assert told(await asked(http, served, prompt=[7, *PROMPT], kv_transfer_params=params))[2] == 0
    assert (await http.post(f"{served.url}/kv_transfer/anything")).status_code == 404


def test_blocks_are_not_carried_without_those_of_a_draft_model() -> None:
    with pytest.raises(ValueError, match="look-up only"):
        replace(CONFIG, kv_role=KvRole.BOTH, speculation=SpeculationConfig(DraftMethod.MODEL))


async def test_usage_has_drafted_tokens_in_openais_words(micro: ModelWeights, http: httpx.AsyncClient) -> None:
    config = replace(CONFIG, kv_role=KvRole.BOTH, speculation=SpeculationConfig(tokens=3))
    with run_engine(config, micro) as engine:
        details = (await asked(http, engine, prompt=[5, 6, 7] * 9))["usage"]["completion_tokens_details"]
        plain = (await asked(http, engine, max_tokens=1))["usage"]["completion_tokens_details"]
        stream = await http.post(f"{engine.url}/v1/completions", json={**BODY, **RUNNING_USAGE})
    assert details.keys() == {"accepted_prediction_tokens", "rejected_prediction_tokens"}
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] > 0
    assert plain == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    # In the midst of a step it is not known how many of its drafts are kept.
    *under_way, last = (json.loads(event[6:])["usage"] for event in stream.text.split("\n\n") if event[6:7] == "{")
    assert {usage["completion_tokens_details"] for usage in under_way} == {None}
    assert last["completion_tokens_details"].keys() == details.keys()


async def test_a_copy_that_fails_is_said_to_the_client(
    producer: RunningEngine, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(transfers, "copied", no_memory)
    body = {**BODY, "max_tokens": 1, "kv_transfer_params": ASKED}
    answer = await http.post(f"{producer.url}/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableError")
