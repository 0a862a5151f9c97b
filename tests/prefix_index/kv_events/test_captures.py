"""What real engines said, from the frames to our chains."""

import pytest

from prefix_index.blocks import chain_of, prompt_root
from prefix_index.kv_events import (
    Arrival,
    Clear,
    Cleared,
    Message,
    Mirror,
    Observe,
    Removed,
    SequenceTracker,
    Stored,
    decode_batch,
)
from prefix_index.types import Chain, Claim, TokenIds
from tests.prefix_index.kv_events.captures import frames_of

SALTS = {None: b"nobody's", "tenant-a": b"group a", "tenant-b": b"group b"}


def root_of(adapter: str | None, salt: str | None) -> bytes:
    return prompt_root(model="smollm2", adapter=adapter, kind=b"tokens", block_size=16, salt=SALTS[salt])


def messages(name: str) -> list[Message]:
    return [Message.from_frames(frames) for frames in frames_of(name)]


def whole_prompt(stored: list[Stored]) -> TokenIds:
    return TokenIds(b"".join(event.tokens for event in stored))


def test_a_replay_is_read_to_its_end() -> None:
    replayed = [Message.from_replay(frames) for frames in frames_of("kv-events-replay")]
    assert [message and message.sequence for message in replayed] == [0, 1, 2, 3, 4, 5, None]
    assert {message.topic for message in replayed if message} == {b"kv-events"}


def test_replayed_and_live_messages_of_one_run_of_an_engine_decode_alike() -> None:
    batches = [decode_batch(message.payload) for message in messages("kv-events")]
    assert [message.sequence for message in messages("kv-events")] == [6, 7, 8, 9, 10, 11]
    assert all(batch.rank == 0 and batch.skipped == 0 and batch.at_s > 1.7e9 for batch in batches)
    stored = [event for batch in batches for event in batch.events if isinstance(event, Stored)]
    assert [len(event.hashes) for event in stored] == [2, 1, 1, 1, 2, 1]
    assert {event.block_size for event in stored} == {128}
    assert [event.salt for event in stored] == [None, None, None, None, "tenant-a", None]
    assert all(event.full and event.group == 0 and event.claim is Claim.CONFIRMED for event in stored)
    assert stored[1].parent == stored[0].hashes[-1]


@pytest.mark.parametrize("ours", [16, 128, 48])
def test_chains_of_events_are_the_chains_of_their_tokens(ours: int) -> None:
    mirror = Mirror(root_of, ours, 1000)
    batches = [decode_batch(message.payload) for message in messages("kv-events")]
    told = [change for batch in batches for change in mirror.apply(batch.events)]
    stored = [event for batch in batches for event in batch.events if isinstance(event, Stored)]
    first, longer, again, other, salted, salted_longer = stored
    assert again == longer
    prompts = [
        ([first], None),
        ([first, longer], None),
        ([first, other], None),
        ([salted], "tenant-a"),
        ([salted, salted_longer], "tenant-a"),
    ]
    expected = [chain_of(whole_prompt(prompt), root_of(None, salt), ours) for prompt, salt in prompts]
    assert [change.chain.hashes for change in told if isinstance(change, Observe)] == [each.hashes for each in expected]
    assert len(told) == len(expected)
    assert (mirror.blocks, mirror.orphans, mirror.untranslated) == (7, 0, 0)


def test_a_full_cache_evicts_tails_first_and_a_clear_comes_with_the_next_store() -> None:
    recorded = messages("kv-events-two-engines-evict-clear")[:5]
    batches = [decode_batch(message.payload) for message in recorded]
    mirror = Mirror(root_of, 32, 1000)
    told = [mirror.apply(batch.events) for batch in batches]
    assert [sum(isinstance(event, Removed) for event in batch.events) for batch in batches] == [15, 15, 11, 2, 0]
    # What is evicted here was stored before we listened, and the third batch stores the rest of the first prompt again.
    assert [[type(change) for change in changes] for changes in told] == [
        [Observe],
        [Observe],
        [],
        [Observe],
        [Clear, Observe],
    ]
    assert [type(event) for event in batches[-1].events] == [Cleared, Stored]
    first, last = told[0][0], told[-1][-1]
    assert isinstance(first, Observe)
    assert isinstance(last, Observe)
    assert first.chain.hashes.startswith(last.chain.hashes)
    assert (len(first.chain), len(last.chain), mirror.blocks) == (15, 2, 2)


def test_messages_that_the_recording_lacks_show_in_the_numbers() -> None:
    tracker = SequenceTracker()
    tracker.jump(14)
    recorded = messages("kv-events-two-engines-evict-clear")[:5]
    arrivals = [tracker.feed(message.sequence) for message in recorded]
    assert arrivals == [Arrival.IN_ORDER, Arrival.IN_ORDER, Arrival.GAP, Arrival.GAP, Arrival.GAP]
    assert tracker.expected == 17


def test_a_transferred_prefix_has_one_chain_at_both_engines() -> None:
    there, here = Mirror(root_of, 16, 1000), Mirror(root_of, 16, 1000)
    prefill, decode, more = messages("pd-kv-events")
    assert (prefill.topic, decode.topic, more.topic) == (b"prefill", b"decode", b"decode")
    (sent,) = there.apply(decode_batch(prefill.payload).events)
    (received,) = here.apply(decode_batch(decode.payload).events)
    assert sent == received
    assert isinstance(sent, Observe)
    (longer,) = here.apply(decode_batch(more.payload).events)
    assert isinstance(longer, Observe)
    assert longer.chain.hashes.startswith(sent.chain.hashes)
    assert isinstance(longer.chain, Chain)
    assert len(longer.chain) == len(sent.chain) + 2
