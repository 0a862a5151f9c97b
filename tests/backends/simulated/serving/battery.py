"""Requests of every kind, sensible or not: what real engines say to them is what simulated ones have to say."""

from dataclasses import dataclass, field
from typing import Any

import httpx

MODEL = "demo-model"
"""As the real engines of `tests/engines` call theirs."""

CHAT, TEXT, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"
USER: list[dict[str, Any]] = [{"role": "user", "content": "Where are the books on gravity?"}]
OPEN = [*USER, {"role": "assistant", "content": "On shelf"}]
WITH_USAGE = {"include_usage": True}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. A body of None is a GET, one of bytes goes as it is."""

    path: str
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """What came: the status, and the names of all fields, with those inside lists and objects."""

    status: int
    names: frozenset[str]


def chat(headers: dict[str, str] | None = None, **more: object) -> Asked:
    return Asked(CHAT, {"model": MODEL, "messages": USER, "max_tokens": 4, "temperature": 0, **more}, headers or {})


def text(**more: object) -> Asked:
    return Asked(TEXT, {"model": MODEL, "prompt": "Hello world", "max_tokens": 4, "temperature": 0, **more})


BATTERY: dict[str, Asked] = {
    "plain": chat(),
    "streamed": chat(stream=True),
    "streamed with usage": chat(stream=True, stream_options=WITH_USAGE),
    "usage on each chunk": chat(stream=True, stream_options={**WITH_USAGE, "continuous_usage_stats": True}),
    "usage without a stream": chat(stream_options=WITH_USAGE),
    "two choices, greedy": chat(n=2),
    "no choice": chat(n=0),
    "both limits": chat(max_completion_tokens=2),
    "a limit in words": chat(max_tokens="x"),
    "another model": chat(model="nope"),
    "no messages": Asked(CHAT, {"model": MODEL}),
    "messages that are a text": chat(messages="x"),
    "no role": chat(messages=[{"content": "x"}]),
    "no content": chat(messages=[{"role": "user", "content": None}]),
    "a role of one's own": chat(messages=[{"role": "boss", "content": "x"}]),
    "parts": chat(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
    "a field of one's own": chat(prompt_cache_key="x"),
    "an empty salt": chat(cache_salt=""),
    "a salt with a slash": chat(cache_salt="a/b"),
    "a salt of 129": chat(cache_salt="x" * 129),
    "a salt of 128": chat(cache_salt="x" * 128),
    "a salt that is a number": chat(cache_salt=5),
    "a priority": chat(priority=1),
    "continued, and nothing said of the prompt's end": chat(messages=OPEN, continue_final_message=True),
    "continued, with a prompt for a new message": chat(
        messages=OPEN, continue_final_message=True, add_generation_prompt=True
    ),
    "continued": chat(messages=OPEN, continue_final_message=True, add_generation_prompt=False),
    "an assistant's last word": chat(messages=OPEN),
    "two assistants' last words": chat(messages=[*OPEN, OPEN[-1]]),
    "a temperature below 0": chat(temperature=-1),
    "a top_p above 1": chat(top_p=2),
    "a top_k below -1": chat(top_k=-5),
    "more tokens than at most": chat(min_tokens=9),
    "to the limit": chat(ignore_eos=True),
    "a transfer that nobody can do": chat(kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False}),
    "a tool": chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    "an adapter that is not there": chat(lora=[{"id": 5, "scale": 1}]),
    "a slot": chat(id_slot=0),
    "rank 0": chat({"x-data-parallel-rank": "0"}),
    "rank 5": chat({"x-data-parallel-rank": "5"}),
    "a rank in words": chat({"x-data-parallel-rank": "x"}),
    "a text": text(),
    "a text, streamed": text(stream=True, stream_options=WITH_USAGE),
    "no text": Asked(TEXT, {"model": MODEL}),
    "two texts": text(prompt=["a", "b"]),
    "token ids": text(prompt=[5, 6, 7]),
    "token ids of two": text(prompt=[[5, 6], [7]]),
    "no texts": text(prompt=[]),
    "an id that is none": text(prompt=[10**7]),
    "an id below 0": text(prompt=[-3]),
    "a text that is too long": text(prompt="hello " * 9000),
    "broken JSON": Asked(CHAT, b"{"),
    "a list": Asked(CHAT, b"[]"),
    "nothing": Asked(CHAT, b""),
    "a chat that is got": Asked(CHAT),
    "nowhere": Asked("/v1/nowhere", {}),
    "got nowhere": Asked("/nowhere"),
    "health": Asked("/health"),
    "models": Asked("/v1/models"),
    "version": Asked("/version"),
    "props": Asked("/props"),
    "tokens of a text": Asked(TOKENIZE, {"model": MODEL, "prompt": "Hello 123", "content": "Hello 123"}),
    "tokens of a chat": Asked(TOKENIZE, {"model": MODEL, "messages": USER}),
    "text of tokens": Asked("/detokenize", {"model": MODEL, "tokens": [19556]}),
    "a rendered chat": Asked("/apply-template", {"messages": USER}),
}


def asked_of(http: httpx.Client, one: Asked) -> Told:
    """Send it, and take down what came."""
    headers = {"content-type": "application/json", **one.headers}
    if one.body is None:
        answer = http.get(one.path, headers=one.headers)
    elif isinstance(one.body, bytes):
        answer = http.post(one.path, content=one.body, headers=headers)
    else:
        answer = http.post(one.path, json=one.body, headers=headers)
    names: set[str] = set()
    for body in _bodies(answer):
        names |= _names(body, "")
    return Told(answer.status_code, frozenset(names))


def _bodies(answer: httpx.Response) -> list[Any]:
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        lines = [line[6:].strip() for line in answer.text.split("\n") if line.startswith("data: ")]
        return [httpx.Response(200, text=line).json() for line in lines if line != "[DONE]"]
    return [answer.json()] if kind.startswith("application/json") else []


def _names(value: object, prefix: str) -> set[str]:
    found: set[str] = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            found |= {f"{prefix}{name}"} | _names(inner, f"{prefix}{name}.")
    elif isinstance(value, list):
        for inner in value:
            found |= _names(inner, f"{prefix}[].")
    return found
