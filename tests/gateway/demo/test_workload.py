import json
import random
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.types import Kind, Message, PlannedRequest, Workload
from gateway.demo.workload import (
    SHARE_GROUPS,
    THINKING_PLACES,
    interleave,
    load_conversations,
    plan_workload,
    working_set,
)
from prefix_index.prompt import ModelText
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.types import TokenIds


def plan(seed: int = 1, **changes: int) -> Workload:
    settings = {"max_tokens": 10, "concurrency": 3, **changes}
    return plan_workload(
        load_conversations(),
        seed=seed,
        model="smollm2",
        max_tokens=settings["max_tokens"],
        concurrency=settings["concurrency"],
    )


class BytesTokenizer:
    """Every byte is a token: enough to count blocks by hand."""

    exact = True
    cut_tokens: Mapping[str, TokenIds] = {}

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        return TokenIds(b"".join(byte.to_bytes(4, "little") for byte in text.encode()))


def test_the_same_seed_gives_the_same_bytes_in_the_same_order() -> None:
    assert plan(seed=7) == plan(seed=7)


def test_another_seed_gives_another_order_of_the_same_requests() -> None:
    one, other = plan(seed=1).requests, plan(seed=2).requests
    assert one != other
    assert Counter(one) == Counter(other)


def test_turns_of_a_conversation_keep_their_order() -> None:
    for seed in range(5):
        seen: Counter[str] = Counter()
        for request in plan(seed).requests:
            assert request.turn == seen[request.conversation]
            seen[request.conversation] += 1


def test_each_prompt_begins_with_the_whole_prompt_of_the_turn_before() -> None:
    by_conversation: dict[str, list[PlannedRequest]] = {}
    for request in plan().requests:
        by_conversation.setdefault(request.conversation, []).append(request)
    assert min(len(turns) for turns in by_conversation.values()) >= 3
    for turns in by_conversation.values():
        for earlier, later in pairwise(turns):
            assert later.messages[: len(earlier.messages)] == earlier.messages
            assert later.messages[len(earlier.messages)].role == "assistant"


def test_the_body_carries_the_messages_and_asks_for_a_short_greedy_stream() -> None:
    request = plan().requests[0]
    body = json.loads(request.body)
    assert [Message(**message) for message in body.pop("messages")] == list(request.messages)
    assert body == {"model": "smollm2", "max_tokens": 10, "temperature": 0, "stream": True}


def test_every_tenant_talks_and_every_kind_and_language_has_its_share() -> None:
    requests = plan().requests
    kinds = Counter(request.kind for request in requests)
    assert {request.tenant for request in requests} == set(SHARE_GROUPS)
    assert all(kinds[kind] >= len(requests) / 8 for kind in Kind)
    assert {request.lang for request in requests} == {"en", "ja"}
    assert sum(request.lang == "ja" for request in requests) >= 8
    assert 60 <= len(requests) <= 70


def test_two_tenants_share_the_tools_and_all_share_the_document() -> None:
    heads: dict[Kind, set[str]] = {}
    tenants: dict[Kind, set[str]] = {}
    for request in plan().requests:
        if request.kind is not Kind.CHAT:
            heads.setdefault(request.kind, set()).add(request.messages[0].content)
            tenants.setdefault(request.kind, set()).add(request.tenant)
    assert {kind: len(texts) for kind, texts in heads.items()} == {Kind.TOOLS: 1, Kind.DOCUMENT: 1}
    assert tenants == {Kind.TOOLS: {"acme", "birch"}, Kind.DOCUMENT: {"acme", "birch", "cedar"}}
    assert SHARE_GROUPS["acme"] == SHARE_GROUPS["birch"] != SHARE_GROUPS["cedar"]


def test_conversations_can_be_cut_to_fewer_turns() -> None:
    for conversation in load_conversations(max_turns=2):
        assert [message.role for message in conversation.messages].count("user") == 2
        assert conversation.messages[-1].role == "user"


@given(
    lengths=st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 6), max_size=12), seed=st.integers(0, 2**32)
)
def test_a_shuffled_merge_keeps_counts_and_distance(lengths: dict[str, int], seed: int) -> None:
    order = interleave(lengths, random.Random(seed))
    assert Counter(order) == Counter({name: length for name, length in lengths.items() if length})
    least, most = THINKING_PLACES
    for place, name in enumerate(order):
        if name in order[max(place - least, 0) : place]:
            assert set(order[place:]) <= set(order[max(place - most, 0) : place])


def test_no_number_of_endpoints_is_in_step_with_the_order() -> None:
    distances: Counter[int] = Counter()
    for seed in range(30):
        order = [request.conversation for request in plan(seed).requests]
        for name in set(order):
            places = [place for place, one in enumerate(order) if one == name]
            distances.update(later - earlier for earlier, later in pairwise(places))
    for endpoints in (2, 3):
        share = sum(n for distance, n in distances.items() if distance % endpoints == 0) / distances.total()
        assert share == pytest.approx(1 / endpoints, abs=0.05)


def test_the_working_set_counts_a_shared_block_once_in_a_group_and_again_in_another() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", {})
    text = ModelText(BytesTokenizer(), {"default": template})

    def ask(tenant: str, content: str) -> PlannedRequest:
        return PlannedRequest(content, 0, tenant, Kind.CHAT, "en", (Message("user", content),), b"")

    requests = [ask("acme", "a" * 8), ask("birch", "a" * 8 + "b" * 5), ask("cedar", "a" * 8)]
    sizes = working_set(requests, text, model="m", block_size=4)
    assert (sizes.blocks, sizes.prompt_tokens, sizes.longest_prompt_tokens) == (2 + 1 + 2, 29, 13)


@pytest.mark.parametrize("name", ["conversations.jsonl", "shared.jsonl"])
def test_every_row_of_the_data_names_its_origin_and_a_licence_whose_text_is_there(name: str) -> None:
    data = files("gateway.demo").joinpath("data")
    rows = [json.loads(line) for line in data.joinpath(name).read_text("utf-8").splitlines()]
    assert all(row["origin"] and row["rows"] for row in rows)
    assert {row["licence"] for row in rows} == {"Apache-2.0", "MIT"}
    assert "Sierra" in data.joinpath("LICENSE-MIT").read_text("utf-8")
    assert "Apache" in data.joinpath("README.md").read_text("utf-8")


def test_the_data_is_small() -> None:
    data = files("gateway.demo").joinpath("data")
    assert sum(len(one.read_bytes()) for one in data.iterdir()) < 64 * 1024
