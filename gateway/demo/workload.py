"""What the tenants ask, in which order: data and a seed become requests. Pure but for reading the package's data.

    conversation      system | user 0 | answer 0 | user 1 | answer 1 | user 2
    turn 0            [------------]
    turn 1            [---------------------------------]
    turn 2            [-----------------------------------------------------]      each prompt begins with the last one

    order of a run    a0 b0 c0 b1 a1 d0 c1 a2 ...       shuffled by the seed, turns of a conversation in order

History is made of the data's own answers, not of what the model said, so that two runs send the same bytes and differ
only in where these are computed. All conversations stay open until near the end: between two turns of one, many others
want the same memory, as in a real fleet. That order knows nothing of the number of endpoints.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Final

from gateway.demo.types import Conversation, Kind, Message, PlannedRequest, WorkingSet, Workload
from prefix_index import HASH_BYTES, chain_of, prompt_root
from prefix_index.prompt import ModelText, PromptView

SHARE_GROUPS: Final[Mapping[str, str]] = {"acme": "partners", "birch": "partners", "cedar": "cedar"}
"""Tenants and who may share a cache: two of them together, the third alone."""

THINKING_PLACES: Final = (5, 8)
"""Least and most places in the order between two turns of a conversation: people read before they answer."""


def load_conversations(*, max_turns: int | None = None) -> tuple[Conversation, ...]:
    """The conversations of the package, each with the text that stands in front of its kind, cut to `max_turns`."""
    shared = {str(row["id"]): str(row["text"]) for row in _rows("shared.jsonl")}
    return tuple(_conversation(row, shared, max_turns) for row in _rows("conversations.jsonl"))


def plan_workload(
    conversations: Sequence[Conversation], *, seed: int, model: str, max_tokens: int, concurrency: int
) -> Workload:
    """All turns of all conversations in the order of `seed`. The same arguments give the same bytes."""
    turns = {one.id: _turns(one, model, max_tokens) for one in conversations}
    order = interleave({name: len(requests) for name, requests in turns.items()}, random.Random(seed))  # noqa: S311
    upcoming = {name: iter(requests) for name, requests in turns.items()}
    return Workload(seed, concurrency, tuple(next(upcoming[name]) for name in order))


def interleave(lengths: Mapping[str, int], rng: random.Random) -> list[str]:
    """A shuffled merge: each name as often as its length says, and not again while it thinks, if others are left.

    How long it thinks is drawn anew for each place, an even number of places as likely as an odd one. Names with more
    left are likelier, so that all of them last until near the end. O(places × names).
    """
    left = {name: length for name, length in lengths.items() if length > 0}
    order: list[str] = []
    while left:
        thinking = set(order[-rng.randint(*THINKING_PLACES) :])
        able = [name for name in left if name not in thinking] or list(left)
        name = rng.choices(able, weights=[left[one] for one in able])[0]
        order.append(name)
        left[name] -= 1
        if not left[name]:
            del left[name]
    return order


def working_set(requests: Iterable[PlannedRequest], text: ModelText, *, model: str, block_size: int) -> WorkingSet:
    """Distinct blocks of all prompts, histories with their answers included, each share group's counted on its own."""
    blocks: set[bytes] = set()
    lengths: list[int] = []
    for request in requests:
        encoding = text.begin(PromptView(messages=[_as_json(message) for message in request.messages]))
        encoding.compute()
        root = prompt_root(
            model=model,
            adapter=None,
            kind=b"tokens",
            block_size=block_size,
            salt=SHARE_GROUPS[request.tenant].encode(),
        )
        chain = chain_of(encoding.finish(), root, block_size)
        hashes = chain.hashes
        blocks.update(hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))
        lengths.append(chain.prompt_tokens)
    return WorkingSet(len(blocks), block_size, sum(lengths), max(lengths))


def _turns(conversation: Conversation, model: str, max_tokens: int) -> list[PlannedRequest]:
    ends = [at for at, message in enumerate(conversation.messages, 1) if message.role == "user"]
    return [
        PlannedRequest(
            conversation=conversation.id,
            turn=turn,
            tenant=conversation.tenant,
            kind=conversation.kind,
            lang=conversation.lang,
            messages=conversation.messages[:end],
            body=_body(conversation.messages[:end], model, max_tokens),
        )
        for turn, end in enumerate(ends)
    ]


def _body(messages: Iterable[Message], model: str, max_tokens: int) -> bytes:
    body = {
        "model": model,
        "messages": [_as_json(message) for message in messages],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
    }
    return json.dumps(body, ensure_ascii=False).encode()


def _as_json(message: Message) -> dict[str, object]:
    return {"role": message.role, "content": message.content}


def _conversation(row: Mapping[str, object], shared: Mapping[str, str], max_turns: int | None) -> Conversation:
    messages = [Message(one["role"], one["content"]) for one in row["messages"]]  # type: ignore[attr-defined]  # a list
    kind = Kind(str(row["kind"]))
    if kind is not Kind.CHAT:
        messages.insert(0, Message("system", shared[kind.value]))
    users = [at for at, message in enumerate(messages) if message.role == "user"][:max_turns]
    return Conversation(str(row["id"]), str(row["tenant"]), kind, str(row["lang"]), tuple(messages[: users[-1] + 1]))


def _rows(name: str) -> list[dict[str, object]]:
    text = files("gateway.demo").joinpath("data", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
