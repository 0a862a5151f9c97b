"""Faults planted into real conversations: what lint finds of them, and what it says of the same ones left alone.

    conversations of the corpora --(left alone)----------------> pairs of calls with nothing wrong
                                 --(one fault planted)---------> pairs of calls with that fault

Each pair is a first call and a later one of the same key: the same tools and system prompt, another question. Nothing
here was written with the rules in mind but the planting itself, which is a line a fault.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from bench.lint_examples import DATA, Example

Body = dict[str, Any]
Pair = tuple[Body, Body]
Plant = Callable[[Body, Body, random.Random], None]
FILES: Final = ("tools_bfcl", "agent_tau_airline", "agent_sweagent", "tools_glaive_en", "chat_mtbench_ja")
_LEAST_SYSTEM_CHARS: Final = 128
_LEAST_MESSAGES: Final = 5
_FEW_CHARS: Final = 24


def planted() -> Iterator[Example]:
    """Every conversation left alone, and with each fault that it has room for."""
    rng = random.Random(7)
    for name, chat in _chats():
        pair = _pair(chat)
        already = frozenset({("under-block", "")}) if _is_short(chat) else frozenset()
        yield _example(name, pair, already)
        for rule, (fits, plant) in PLANTS.items():
            if fits(chat):
                first, later = deepcopy(pair)
                plant(first, later, rng)
                yield _example(f"{name} {rule}", (first, later), already | {(rule, "")})


def _chats() -> Iterator[tuple[str, Body]]:
    for name in FILES:
        for line in gzip.decompress((DATA / "corpora" / f"{name}.jsonl.gz").read_bytes()).splitlines():
            row = json.loads(line)
            yield row["id"], row["request"]


def _pair(chat: Body) -> Pair:
    """A call, and the next turn of its conversation."""
    later = deepcopy(chat)
    later["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And what is next?"}]
    return deepcopy(chat), later


def _example(name: str, pair: Pair, finds: frozenset[tuple[str, str]]) -> Example:
    return Example(name, "captured.jsonl", "\n".join(json.dumps(one, ensure_ascii=False) for one in pair), finds)


def _is_short(chat: Body) -> bool:
    """Whether the system prompt is a few words, and no tools come with it: that is a fault by itself."""
    first = chat["messages"][0]
    return first["role"] == "system" and len(first["content"]) < _FEW_CHARS and not chat.get("tools")


def _has_system(chat: Body) -> bool:
    first = chat["messages"][0]
    text = first.get("content")
    return first["role"] == "system" and isinstance(text, str) and len(text) >= _LEAST_SYSTEM_CHARS


def _has_tools(chat: Body) -> bool:
    return len({json.dumps(one) for one in chat.get("tools") or ()}) > 1


def _is_long(chat: Body) -> bool:
    texts = [one.get("content") for one in chat["messages"]]
    return len(texts) >= _LEAST_MESSAGES and len(set(map(str, texts))) == len(texts)


def _heads(make: Callable[[random.Random], str]) -> Plant:
    """A line at the head of the system prompt, another one in each call."""

    def plant(first: Body, later: Body, rng: random.Random) -> None:
        line = other = make(rng)
        while other == line:
            other = make(rng)
        for body, head in ((first, line), (later, other)):
            body["messages"][0]["content"] = f"{head}\n{body['messages'][0]['content']}"

    return plant


def _tool_order(first: Body, later: Body, rng: random.Random) -> None:
    while later["tools"] == first["tools"]:
        rng.shuffle(later["tools"])


def _tool_drift(first: Body, later: Body, rng: random.Random) -> None:
    tool = later["tools"][0]["function"]
    tool["description"] = f"{tool.get('description', '')} Revised."


def _tool_gone(first: Body, later: Body, rng: random.Random) -> None:
    del later["tools"][0]


def _cut(first: Body, later: Body, rng: random.Random) -> None:
    begin = 1 if later["messages"][0]["role"] == "system" else 0
    del later["messages"][begin : begin + 2]


def _model(first: Body, later: Body, rng: random.Random) -> None:
    first["model"], later["model"] = "big", "big-2026-03-01"


def _salt(first: Body, later: Body, rng: random.Random) -> None:
    first["cache_salt"], later["cache_salt"] = "one", "other"


def _clock(rng: random.Random) -> str:
    hour, minute, second = (rng.randrange(10, 24), rng.randrange(10, 60), rng.randrange(10, 60))
    return f"Current time: 2026-03-{rng.randrange(10, 28)} {hour}:{minute}:{second}"


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return f"Request {digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _long_enough(chat: Body) -> bool:
    return len(json.dumps(chat)) > 400


PLANTS: Final[Mapping[str, tuple[Callable[[Body], bool], Plant]]] = {
    "time-before-fixed": (_has_system, _heads(_clock)),
    "date-before-fixed": (
        _has_system,
        _heads(lambda rng: f"Today is 2026-{rng.randrange(10, 13)}-{rng.randrange(10, 28)}."),
    ),
    "uuid-before-fixed": (_has_system, _heads(_uuid)),
    "epoch-before-fixed": (_has_system, _heads(lambda rng: f"ts={rng.randrange(1_700_000_000, 1_800_000_000)}")),
    "counter-before-fixed": (_has_system, _heads(lambda rng: f"Request #{rng.randrange(1, 9999)}")),
    "tool-order": (_has_tools, _tool_order),
    "tool-schema-drift": (_has_tools, _tool_drift),
    "tool-set-change": (_has_tools, _tool_gone),
    "history-cut": (_is_long, _cut),
    "model-flip": (_long_enough, _model),
    "salt-change": (_long_enough, _salt),
}
"""By rule: which conversations have room for it, and how it is planted."""
