"""After the answer: what the index learns for the next turn, from every dialect, and what it must not learn.

`test_next_turn_engine.py` holds it against a real engine.
"""

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.reference.model_files import ensure_model
from gateway import next_turn
from gateway.exchange import Exchange
from gateway.next_turn import LOOP_SAFE_KEPT_BYTES, MOST_ANSWER_CHARS, MOST_WAITING, NextTurns, Outcome
from gateway.planning import LOOP_SAFE_BODY_BYTES
from gateway.relay import MOST_KEPT_BYTES
from gateway.telemetry import Telemetry
from gateway.types import Plan, Route, TokenSource
from prefix_index import TOKEN_BYTES, Chain, chain_of
from prefix_index.prompt import ModelText, PromptView, Renderer, Unheld, load_model_text
from tests.gateway.next_turns import BLOCK, HOLDER, ROOT, Learner, answered, chat_answer, ids, planned, read, usage
from tests.gateway.scripted_engine import event

ANSWER = "There are nine of them: Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune, and perhaps Pluto."
QUESTION: list[dict[str, object]] = [{"role": "user", "content": "Which planets are there? " + "Think well. " * 9}]
CAPTURES = Path(__file__).parents[1] / "data" / "captures"


@pytest.fixture(scope="module")
def text() -> ModelText:
    return load_model_text(ensure_model("tiny"), renderer=Renderer.PLAIN)


def tokens_in(text: ModelText, said: str) -> int:
    return text.count_tokens(said)


def next_chain(text: ModelText, messages: list[dict[str, object]], said: str = ANSWER) -> Chain:
    """The chain of the next request of a conversation."""
    answer: dict[str, object] = {"role": "assistant", "content": said}
    view = PromptView(messages=[*messages, answer, {"role": "user", "content": "And which of them have moons?"}])
    return chain_of(ids(text, view), ROOT, BLOCK)


def in_common(one: Chain, other: Chain) -> int:
    """Blocks at the beginning of both."""
    return next(
        (n for n in range(len(one)) if one.hashes[8 * n : 8 * n + 8] != other.hashes[8 * n : 8 * n + 8]), len(one)
    )


def asked(text: ModelText, **fields: object) -> tuple[Any, Plan, dict[str, int]]:
    """A request in chat form, its plan, and the usage of `ANSWER`."""
    request = read({"messages": QUESTION, **fields})
    plan = planned(text, request.prompt)
    return request, plan, usage(plan.chain.prompt_tokens, tokens_in(text, ANSWER) + 1)


def plain(text: ModelText, **fields: object) -> Exchange:
    """A chat that was answered with `ANSWER`."""
    request, plan, counts = asked(text, **fields)
    return answered(request, plan, chat_answer(ANSWER, counts))


async def test_what_is_claimed_of_an_answer_is_what_the_next_turn_asks_for(text: ModelText) -> None:
    learner, exchange = Learner(text), plain(text)
    assert await learner.learn(exchange) == {"observed": 1}
    ((holder, chain),) = learner.observed
    held_tokens = exchange.plan.chain.prompt_tokens + tokens_in(text, ANSWER)
    assert holder == HOLDER
    assert len(chain) == held_tokens // BLOCK > len(exchange.plan.chain)
    assert chain.prompt_tokens == held_tokens
    assert in_common(chain, next_chain(text, QUESTION)) == len(chain)


def stream(text: ModelText, counts: dict[str, int]) -> bytes:
    words = [f"{'' if n == 0 else ' '}{word}" for n, word in enumerate(ANSWER.split(" "))]
    deltas = [event({"choices": [{"index": 0, "delta": {"content": word}}]}) for word in words]
    end = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join([*deltas, end, event({"choices": [], "usage": counts}), b"data: [DONE]\n\n"])


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", [Route.CHAT, Route.MESSAGES, Route.RESPONSES])
async def test_every_dialect_teaches_the_same(text: ModelText, route: Route, streamed: bool, translated: bool) -> None:
    bodies: dict[Route, dict[str, object]] = {
        Route.CHAT: {"messages": QUESTION, "stream": streamed},
        Route.MESSAGES: {"messages": QUESTION, "max_tokens": 99, "stream": streamed},
        Route.RESPONSES: {"input": QUESTION[0]["content"], "stream": streamed},
    }
    request = read(bodies[route], route)
    plan = planned(text, request.prompt)
    counts = usage(plan.chain.prompt_tokens, tokens_in(text, ANSWER) + 1)
    if translated or route is Route.CHAT:
        answer = stream(text, counts) if streamed else chat_answer(ANSWER, counts)
    else:
        answer = native(route, counts, streamed=streamed)
    learner = Learner(text)
    translated = translated and route is not Route.CHAT
    exchange = answered(request, plan, answer, streamed=streamed, translated=translated)
    assert await learner.learn(exchange) == {"observed": 1}
    assert in_common(learner.observed[0][1], next_chain(text, QUESTION)) == len(learner.observed[0][1])
    assert learner.observed[0][1].prompt_tokens == sum(counts.values()) - 1


def native(route: Route, counts: dict[str, int], *, streamed: bool) -> bytes:
    """The answer as an engine tells it that speaks messages or responses."""
    said = {"input_tokens": counts["prompt_tokens"], "output_tokens": counts["completion_tokens"]}
    if route is Route.RESPONSES:
        message = {"type": "message", "content": [{"type": "output_text", "text": ANSWER}]}
        whole = {"id": "resp_1", "status": "completed", "output": [message], "usage": said}
        return event({"type": "response.completed", "response": whole}) if streamed else json.dumps(whole).encode()
    whole = {"content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn", "usage": said}
    if not streamed:
        return json.dumps(whole).encode()
    start = {"type": "message_start", "message": {"usage": {**said, "output_tokens": 0}}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": ANSWER}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": said}
    return b"".join(map(event, (start, delta, end, {"type": "message_stop"})))


@pytest.mark.parametrize("as_ids", [False, True])
async def test_a_completion_teaches_what_follows_its_prompt(text: ModelText, as_ids: bool) -> None:
    prompt, said = "The planets of the sun are:", " " + ANSWER
    whole = ids(text, PromptView(prompt=prompt + said))
    given = ids(text, PromptView(prompt=prompt))
    numbers = [int.from_bytes(given[at : at + TOKEN_BYTES], "little") for at in range(0, len(given), TOKEN_BYTES)]
    request = read({"prompt": numbers if as_ids else prompt}, Route.COMPLETIONS)
    plan = planned(text, request.prompt)
    sampled = (len(whole) - len(given)) // TOKEN_BYTES
    choice = {"index": 0, "text": said, "finish_reason": "length"}
    body = json.dumps({"choices": [choice], "usage": usage(plan.chain.prompt_tokens, sampled)}).encode()
    learner = Learner(text)
    assert await learner.learn(answered(request, plan, body)) == {"observed": 1}
    chain = learner.observed[0][1]
    assert chain == replace(chain_of(whole, ROOT, BLOCK), hashes=chain.hashes, prompt_tokens=chain.prompt_tokens)
    assert chain_of(whole, ROOT, BLOCK).hashes.startswith(chain.hashes)
    assert chain.prompt_tokens == plan.chain.prompt_tokens + sampled - 1


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"content": ANSWER, "tool_calls": [{"function": {"name": "f"}}]}, Outcome.TOOL_CALLS),
        ({"content": None, "refusal": "No."}, Outcome.NOT_ONLY_TEXT),
        ({"content": ANSWER, "finish": "content_filter"}, Outcome.NOT_ENDED),
        ({"content": ANSWER, "finish": "length"}, Unheld.COUNT_DIFFERS),
        ({"content": ANSWER + " Yes.", "finish": "stop"}, Unheld.COUNT_DIFFERS),
        ({"content": ANSWER, "reasoning": "Well."}, Unheld.REASONING_DROPPED),
        ({"content": ANSWER[:-1] + "\ufffd"}, Unheld.UNREADABLE_TEXT),
        ({"content": ["a", "b"]}, Outcome.UNREADABLE_ANSWER),
    ],
)
async def test_an_answer_whose_tokens_are_not_certain_teaches_nothing(
    text: ModelText, body: dict[str, Any], outcome: Outcome | Unheld
) -> None:
    request, plan, counts = asked(text)
    learner = Learner(text)
    content, finish = body.pop("content"), body.pop("finish", "stop")
    exchange = answered(request, plan, chat_answer(content, counts, finish, **body))
    assert await learner.learn(exchange) == {outcome.value: 1}
    assert learner.observed == []


async def test_of_several_answers_none_teaches_anything(text: ModelText) -> None:
    request, plan, counts = asked(text)
    choices = [{"index": n, "message": {"content": ANSWER}, "finish_reason": "stop"} for n in range(2)]
    body = json.dumps({"choices": choices, "usage": counts}).encode()
    assert await Learner(text).learn(answered(request, plan, body)) == {"several_choices": 1}


@pytest.mark.parametrize(
    "change",
    [{"source": TokenSource.ENGINE}, {"source": TokenSource.BYTES}, {"source": None}, {"exact": False}, {"root": b""}],
)
async def test_without_tokens_of_a_local_tokenizer_nothing_is_learned(text: ModelText, change: dict[str, Any]) -> None:
    exchange = plain(text)
    exchange.plan = replace(exchange.plan, **change)
    assert await Learner(text).learn(exchange) == {"no_local_tokens": 1}


async def test_a_tokenizer_that_is_gone_and_an_answer_that_never_came_teach_nothing(text: ModelText) -> None:
    unanswered = plain(text)
    unanswered.tee = None
    assert await Learner(None).learn(plain(text), unanswered) == {"no_local_tokens": 2}


@pytest.mark.parametrize(
    ("more_prompt", "output", "outcome"),
    [
        (1, 30, Outcome.PROMPT_DIFFERS),
        (-1, 30, Outcome.PROMPT_DIFFERS),
        (0, 0, Outcome.NO_WHOLE_BLOCK),
        (0, None, Outcome.NO_COUNTS),
        (None, 30, Outcome.NO_COUNTS),
    ],
)
async def test_the_engines_own_counts_must_agree_and_fill_a_block(
    text: ModelText, more_prompt: int | None, output: int | None, outcome: Outcome
) -> None:
    request, plan, _ = asked(text)
    prompt_tokens = None if more_prompt is None else plan.chain.prompt_tokens + more_prompt
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": output}
    assert await Learner(text).learn(answered(request, plan, chat_answer("Hi", counts))) == {outcome.value: 1}


async def test_an_answer_without_usage_teaches_nothing(text: ModelText) -> None:
    request, plan, _ = asked(text)
    assert await Learner(text).learn(answered(request, plan, chat_answer(ANSWER, None))) == {"no_counts": 1}


@pytest.mark.parametrize("same_length", [True, False])
async def test_a_prompt_that_its_template_would_render_otherwise_by_now_teaches_nothing(
    text: ModelText, same_length: bool
) -> None:
    """The template wrote the time of day into it, say."""
    question = str(QUESTION[0]["content"]).replace("planets", "animals" if same_length else "far away planets")
    other = planned(text, PromptView(messages=[{"role": "user", "content": question}]))
    exchange = plain(text)
    assert (other.chain.prompt_tokens == exchange.plan.chain.prompt_tokens) is same_length
    counts = usage(other.chain.prompt_tokens, tokens_in(text, ANSWER) + 1)
    again = answered(exchange.request, other, chat_answer(ANSWER, counts))
    assert await Learner(text).learn(again) == {"prompt_differs": 1}


async def test_an_answer_that_diverges_within_its_first_block_teaches_nothing(tmp_path: Path) -> None:
    """Of two words the template keeps one, which completes no block."""
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content.split(',')[0] if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    text = load_model_text(ensure_model("tiny"), template, renderer=Renderer.PLAIN)
    said = "One, " + ANSWER
    request = read({"messages": [{"role": "user", "content": "Hi"}]})
    plan = planned(text, request.prompt)
    counts = usage(plan.chain.prompt_tokens, tokens_in(text, said) + 1)
    learner = Learner(text)
    assert await learner.learn(answered(request, plan, chat_answer(said, counts))) == {"no_whole_block": 1}


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ raise_exception('none') if m.role == 'assistant' else m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ strftime_now('%Y') if messages | length > 1 }}",
    ],
)
async def test_a_template_that_does_not_take_the_next_turn_teaches_nothing(tmp_path: Path, template: str) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(template)
    refusing = load_model_text(ensure_model("tiny"), path, renderer=Renderer.PLAIN)
    assert await Learner(refusing).learn(plain(refusing)) == {"template_failed": 1}


async def test_what_takes_long_teaches_the_same_from_a_thread(text: ModelText) -> None:
    quick, slow = Learner(text), Learner(text)
    await quick.learn(plain(text))
    assert await slow.learn(plain(text, padding="x" * LOOP_SAFE_BODY_BYTES)) == {"observed": 1}
    request, plan, counts = asked(text)
    wide = chat_answer(ANSWER, counts, padding="x" * LOOP_SAFE_KEPT_BYTES)
    wider = Learner(text)
    assert await wider.learn(answered(request, plan, wide)) == {"observed": 1}
    assert quick.observed == slow.observed == wider.observed


async def test_a_long_answer_is_tokenised_in_a_thread(text: ModelText) -> None:
    said = " ".join(f"Number {n} is a number." for n in range(300))
    request, plan, _ = asked(text)
    counts = usage(plan.chain.prompt_tokens, tokens_in(text, said) + 1)
    learner = Learner(text)
    assert await learner.learn(answered(request, plan, chat_answer(said, counts))) == {"observed": 1}
    assert learner.observed[0][1].prompt_tokens == sum(counts.values()) - 1


@pytest.mark.parametrize("said", ["a" * (MOST_ANSWER_CHARS + 1), "a" * MOST_KEPT_BYTES])
async def test_an_answer_that_is_too_long_teaches_nothing(text: ModelText, said: str) -> None:
    request, plan, counts = asked(text)
    assert await Learner(text).learn(answered(request, plan, chat_answer(said, counts))) == {"too_long": 1}


async def test_a_prompt_that_must_be_tokenised_anew_and_is_long_teaches_nothing(
    text: ModelText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_turn, "MOST_NEW_BYTES", 10)
    forgetful = load_model_text(ensure_model("tiny"), renderer=Renderer.PLAIN, cache_bytes=0)
    assert await Learner(forgetful).learn(plain(forgetful)) == {"too_long": 1}


async def test_what_waits_is_bounded_in_number_and_in_bytes(text: ModelText, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, exchange = Learner(text), plain(text)
    outcomes = await learner.learn(*[exchange] * (MOST_WAITING + 3))
    assert outcomes == {"observed": MOST_WAITING, "dropped": 3}
    assert exchange.tee is not None
    kept = exchange.tee.kept()
    assert kept is not None
    monkeypatch.setattr(next_turn, "MOST_WAITING_BYTES", 2 * (len(kept) + len(exchange.request.body)))
    assert await Learner(text).learn(*[exchange] * 5) == {"observed": 2, "dropped": 3}


async def test_what_was_worked_on_makes_room_again(text: ModelText, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, telemetry = plain(text), Telemetry()
    observed: asyncio.Queue[Chain] = asyncio.Queue()
    turns = NextTurns(lambda *_: text, lambda _, chain: observed.put_nowait(chain), telemetry)
    monkeypatch.setattr(next_turn, "MOST_WAITING", 1)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(turns.run())
        for _ in range(3):
            turns.offer(exchange)
            await observed.get()
        turns.close()


async def test_what_waits_when_the_gateway_stops_is_dropped(text: ModelText) -> None:
    learner, exchange = Learner(text), plain(text)
    learner.turns.offer(exchange)
    learner.turns.close()
    learner.turns.offer(exchange)
    await learner.turns.run()
    assert (learner.outcomes(), learner.observed) == ({"dropped": 2}, [])


async def test_a_fault_of_ours_is_counted_and_told_without_text(
    text: ModelText, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Learner(text)

    def fails(holder: str, chain: Chain) -> None:
        raise OSError(ANSWER)

    broken.turns = NextTurns(lambda *_: text, fails, broken.telemetry)
    with caplog.at_level(logging.ERROR, "prefixgate"):
        assert await broken.learn(plain(text), plain(text)) == {"failed": 2}
    assert [vars(record)["fields"] for record in caplog.records] == [{"error": "OSError"}] * 2
    assert ANSWER not in caplog.text


@pytest.mark.parametrize("engine", ["vllm-0.32", "llamacpp-11434"])
@pytest.mark.parametrize("name", ["chat-plain", "messages-plain", "responses-plain"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_recorded_answers_of_real_engines_teach_their_whole_text(engine: str, name: str, streamed: bool) -> None:
    recorded = json.loads((CAPTURES / f"{engine}-requests.json").read_bytes())[name]
    text = load_model_text(ensure_model("tiny")).for_engine(engine.partition("-")[0])
    request = read(recorded["body"], Route(recorded["path"]))
    plan = planned(text, request.prompt)
    answer = (CAPTURES / f"{engine}-{name}{'-stream.sse' if streamed else '.json'}").read_bytes()
    learner = Learner(text)
    exchange = answered(request, plan, answer, streamed=streamed)
    # Seven tokens were said and one ended it: with those of the prompt, 46 of 47 are held, which is no block more.
    assert await learner.learn(exchange) == {"no_whole_block": 1}
    small = replace(plan, chain=chain_of(ids(text, request.prompt), ROOT, 1))
    assert (await learner_of_single_tokens(text, exchange, small)).prompt_tokens == 46


async def learner_of_single_tokens(text: ModelText, exchange: Exchange, plan: Plan) -> Chain:
    learner = Learner(text)
    exchange.plan = plan
    assert await learner.learn(exchange) == {"observed": 1}
    return learner.observed[0][1]
