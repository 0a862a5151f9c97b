"""Answers of TensorRT-LLM, read poll by poll."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.blocks import chain_of
from prefix_index.errors import MalformedBatch
from prefix_index.kv_events import Forget, Mirror, Moved, Observe, PollDecoder, PolledBatch, Removed, Stored, trtllm
from prefix_index.types import Claim, TokenIds

Json = dict[str, object]


def packed(*ids: int) -> TokenIds:
    return TokenIds(struct.pack(f"<{len(ids)}I", *ids))


def block(name: object, *ids: object, level: object = 0, **more: object) -> Json:
    tokens = [{"type": "unique_token", "token_id": each, "token_extra_id": 0} for each in ids]
    return {"type": "stored_block", "block_hash": name, "tokens": tokens, "cache_level": level, "priority": 35, **more}


def stored(*blocks: object, parent: object = None, **more: object) -> Json:
    return {"type": "stored", "parent_hash": parent, "blocks": list(blocks), **more}


def removed(*names: object) -> Json:
    return {"type": "removed", "block_hashes": list(names)}


def updated(name: object, old: object, new: object) -> Json:
    level = {"type": "event_diff", "new_value": new, "old_value": old}
    return {"type": "updated", "block_hash": name, "cache_level": level, "priority": None}


def poll(decoder: PollDecoder, *data: object, first: int = 0, entry: Json | None = None) -> tuple[PolledBatch, ...]:
    entries = [{"event_id": number, "data": each, **(entry or {})} for number, each in enumerate(data, first)]
    return decoder.decode_poll(json.dumps(entries).encode())


def events(decoder: PollDecoder, *data: object, entry: Json | None = None) -> tuple[object, ...]:
    (batch,) = poll(decoder, *data, entry=entry)
    assert batch.skipped == 0
    return batch.events


CREATED = {"type": "created", "num_blocks_per_cache_level": [100, 10]}


def test_an_empty_answer_has_no_batches() -> None:
    assert PollDecoder(4).decode_poll(b"[]") == ()


def test_a_prompt_is_stored_moved_and_removed() -> None:
    decoder = PollDecoder(2)
    first = stored(block(1, 10, 11), block(2, 12, 13, level=1))
    assert events(decoder, CREATED, first, updated(1, 0, 1), removed(1, 2)) == (
        Stored((1,), None, packed(10, 11), 2),
        Stored((2,), 1, packed(12, 13), 2, claim=Claim.HOST),
        Moved(1, Claim.CONFIRMED, Claim.HOST),
        Removed((1, 2), None),
    )


def test_levels_are_gpu_host_and_disk() -> None:
    claims = [
        event.claim
        for level in (0, 1, 2)
        for event in events(PollDecoder(1), stored(block(1, 5, level=level)))
        if isinstance(event, Stored)
    ]
    assert claims == [Claim.CONFIRMED, Claim.HOST, Claim.DISK]


def test_runs_of_ids_and_ranks_are_batches_of_their_own() -> None:
    entries = [
        {"event_id": 3, "attention_dp_rank": 0, "data": removed(1)},
        {"event_id": 8, "attention_dp_rank": 1, "data": removed(2)},
        {"event_id": 4, "attention_dp_rank": 0, "data": removed(3)},
        {"event_id": 6, "attention_dp_rank": 0, "data": removed(4)},
        {"event_id": 9, "attention_dp_rank": 1, "data": {"type": "tomorrow"}},
        {"event_id": 1, "attention_dp_rank": "no rank", "data": removed(5)},
    ]
    assert PollDecoder(4).decode_poll(json.dumps(entries).encode()) == (
        PolledBatch(3, 4, (Removed((1,), None), Removed((3,), None)), 0),
        PolledBatch(8, 9, (Removed((2,), None),), 1, skipped=1),
        PolledBatch(6, 6, (Removed((4,), None),), 0),
        PolledBatch(1, 1, (Removed((5,), None),), None),
    )


def test_a_partial_block_and_its_removal_are_left_out() -> None:
    decoder = PollDecoder(4)
    assert events(decoder, stored(block(1, 1, 2, 3, 4), block(2, 5, 6)), removed(2)) == (
        Stored((1,), None, packed(1, 2, 3, 4), 4),
    )
    assert events(decoder, removed(2, 1)) == (Removed((2, 1), None),)
    assert events(decoder, stored(block(3, 5), parent=1)) == ()
    assert events(decoder, removed(1, 3)) == (Removed((1,), None),)


def test_ranks_have_partial_blocks_of_their_own() -> None:
    decoder = PollDecoder(4)
    assert events(decoder, stored(block(2, 5)), entry={"attention_dp_rank": 0}) == ()
    assert events(decoder, removed(2), entry={"attention_dp_rank": 1}) == (Removed((2,), None),)
    assert events(decoder, removed(2), entry={"attention_dp_rank": 0}) == ()


def test_only_so_many_partial_blocks_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trtllm, "MAX_PARTIAL_BLOCKS", 2)
    decoder = PollDecoder(4)
    assert events(decoder, *(stored(block(name, 5)) for name in (1, 2, 3))) == ()
    assert events(decoder, removed(1, 2, 3)) == (Removed((1,), None),)


def test_the_block_size_is_learned_from_the_longest_that_can_be_whole() -> None:
    decoder = PollDecoder()
    assert events(decoder, stored(block(1, 1, 2), block(2, 3))) == (Stored((1,), None, packed(1, 2), 2),)
    assert events(decoder, stored(block(3, 1, 2, 3))) == ()
    assert events(decoder, stored(block(4, 1, 2, 3, 4))) == (Stored((4,), None, packed(1, 2, 3, 4), 4),)
    assert events(decoder, stored(block(5, 1, 2))) == ()


def test_only_the_widest_window_counts() -> None:
    decoder = PollDecoder(1)
    assert events(decoder, CREATED, entry={"window_size": 512}) == ()
    assert events(decoder, CREATED, entry={"window_size": 4096}) == ()
    assert events(decoder, stored(block(1, 5)), removed(1), entry={"window_size": 512}) == ()
    assert len(events(decoder, stored(block(1, 5)), removed(1), entry={"window_size": 4096})) == 2


def test_adapters_salts_and_media_are_said() -> None:
    decoder = PollDecoder(1)
    image = {"type": "mm_key", "hash": "ab", "start_offset": 0}
    data = stored(block(1, 5), block(2, 6, mm_keys=[image]), lora_name="sql", cache_salt="s")
    expected = Stored((1, 2), None, packed(5, 6), 1, "sql", "s", has_media=(False, True))
    assert events(decoder, data) == (expected,)
    assert events(decoder, stored(block(3, 7), parent=2, cache_salt="s")) == (Stored((3,), 2, packed(7), 1),)
    virtual = block(4, 5)
    virtual["tokens"] = [{"token_id": 5, "token_extra_id": 77}]
    assert events(decoder, stored(virtual)) == (Stored((4,), None, packed(5), 1, has_media=(True,)),)


def test_hashes_come_as_numbers_or_as_digits_of_a_digest() -> None:
    digest = "ff" * 24 + "0123456789abcdef"
    data = stored(block(digest, 5), block(-1, 6), parent=digest)
    assert events(PollDecoder(1), data) == (
        Stored((0x0123456789ABCDEF, 2**64 - 1), 0x0123456789ABCDEF, packed(5, 6), 1),
    )


def test_a_new_priority_moves_nothing() -> None:
    priority = {"type": "event_diff", "new_value": 1, "old_value": 0}
    data = {"type": "updated", "block_hash": 1, "cache_level": None, "priority": priority}
    assert events(PollDecoder(1), data) == ()


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"type": "tomorrow"},
        {"type": "stored"},
        stored("no block"),
        stored(block("no hash", 5)),
        stored(block(None, 5)),
        stored(block("-1", 5)),
        stored(block("0_1", 5)),
        stored(block(1.5, 5)),
        stored(block(1, "no token")),
        stored(block(1, -5)),
        stored(block(1, 5, level=3)),
        stored(block(1, 5, level=None)),
        stored({"block_hash": 1}),
        stored(block(1, 5), parent="no hash"),
        {"type": "removed"},
        removed("no hash"),
        removed("-1"),
        updated(1, 0, 9),
        updated("no hash", 0, 1),
    ],
)
def test_an_event_that_is_not_understood_is_counted_and_the_rest_stands(data: object) -> None:
    (batch,) = poll(PollDecoder(1), removed(8), data, removed(9))
    assert batch == PolledBatch(0, 2, (Removed((8,), None), Removed((9,), None)), None, skipped=1)


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"{}", b"null", b'["text"]', b'[{"data": {}}]', b'[{"event_id": "1"}]', b'"\xff"']
)
def test_what_is_no_list_of_events_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBatch, match="not a batch of KV events"):
        PollDecoder().decode_poll(body)


anything = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"event_id": st.integers(0, 9)}, optional={"data": anything, "window_size": anything}))
def test_no_event_fails_its_poll(entry: Json) -> None:
    (batch,) = PollDecoder(1).decode_poll(json.dumps([entry]).encode())
    assert batch.first == entry["event_id"]


@given(anything, anything, anything, anything)
def test_no_field_fails_its_poll(name: object, token: object, level: object, parent: object) -> None:
    data = (stored(block(name, token, level=level), parent=parent), removed(name), updated(name, level, level))
    (batch,) = poll(PollDecoder(1), *data)
    assert len(batch.events) + batch.skipped <= len(data)


def test_polls_become_chains() -> None:
    decoder, mirror = PollDecoder(32), Mirror(lambda adapter, salt: b"root", 16, 100, counted=False)
    ids = list(range(70))
    prompt = stored(block(1, *ids[:32]), block(2, *ids[32:64]), block(3, *ids[64:]))
    (batch,) = poll(decoder, CREATED, prompt)
    chain = chain_of(packed(*ids[:64]), b"root", 16)
    assert mirror.apply(batch.events) == [Observe(chain, Claim.CONFIRMED)]
    (batch,) = poll(decoder, updated(2, 0, 1), removed(3), first=2)
    assert mirror.apply(batch.events) == [Forget(chain, 2, Claim.CONFIRMED), Observe(chain, Claim.HOST)]
    (batch,) = poll(decoder, removed(2), first=4)
    assert mirror.apply(batch.events) == [Forget(chain, 2, Claim.HOST)]
