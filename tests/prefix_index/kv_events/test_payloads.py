"""One decoder for every form in which vLLM and SGLang have written their events."""

import struct
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.errors import MalformedBatch
from prefix_index.kv_events import Batch, Cleared, Message, Removed, Stored, decode_batch, payloads
from prefix_index.types import Claim, TokenIds
from tests.prefix_index.kv_events.captures import frames_of

ARRAYS = (
    "93cb3ff8000000000000929aab426c6f636b53746f726564916fc092010202c0a3475055c0c000"
    "91b0416c6c426c6f636b73436c656172656400"
)
MAPS = (
    "93cb3ff80000000000009289a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573916fb1706172656e745f626c6f636b5f"
    "68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e61"
    "6d65c0a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400"
)

Fields = dict[str, object]


def packed(*ids: int) -> TokenIds:
    return TokenIds(struct.pack(f"<{len(ids)}I", *ids))


def decoded(*events: object, rank: object = 0) -> Batch:
    return decode_batch(msgspec.msgpack.encode([1.5, list(events), rank]))


def stored(event: object) -> Stored:
    batch = decoded(event)
    assert batch.skipped == 0
    (only,) = batch.events
    assert isinstance(only, Stored)
    return only


def of_vllm(**fields: object) -> Fields:
    """An event of vLLM 0.32, two blocks of two tokens at the beginning of a prompt."""
    plain: Fields = {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": None,
        "token_ids": [10, 11, 12, 13],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None, None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    return plain | fields


@pytest.mark.parametrize("payload", [ARRAYS, MAPS], ids=["arrays", "maps"])
def test_both_forms_of_one_batch_say_the_same(payload: str) -> None:
    event = Stored((111,), None, packed(1, 2), 2, group=0)
    assert decode_batch(bytes.fromhex(payload)) == Batch(1.5, (event, Cleared()), rank=0)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None], id="vLLM 0.9, SGLang 0.4.6"),
        pytest.param(["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None, "GPU"], id="vLLM 0.10.2, SGLang 0.5.9"),
        pytest.param(["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None, "GPU", None], id="vLLM 0.14.1"),
        pytest.param(["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None, "GPU", None, [None, None]], id="vLLM 0.17"),
        pytest.param(["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None, "GPU", None, None, None], id="vLLM 0.20"),
        pytest.param(
            ["BlockStored", [1, 2], 9, [10, 11, 12, 13], 2, None, "GPU", None, None, None, "full_attention", None],
            id="vLLM 0.23",
        ),
        pytest.param(
            {
                "type": "BlockStored",
                "block_hashes": [1, 2],
                "parent_block_hash": 9,
                "token_ids": [10, 11, 12, 13],
                "block_size": 2,
                "locality": "LOCAL",
                "session_id": "s",
                "lookahead_token_ids": [[12], [14]],
                "a field of tomorrow": {"x": [1]},
            },
            id="vLLM 0.33, SGLang 0.5.22",
        ),
    ],
)
def test_a_stored_event_of_every_version(event: object) -> None:
    assert stored(event) == Stored((1, 2), 9, packed(10, 11, 12, 13), 2)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (["BlockRemoved", [1]], Removed((1,))),
        (["BlockRemoved", [1, 2], "CPU"], Removed((1, 2), Claim.HOST)),
        (["BlockRemoved", [1], "GPU", 3], Removed((1,), group=3)),
        ({"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1}, Removed((1,), group=1)),
        ({"type": "BlockRemoved", "block_hashes": [1], "locality": "REMOTE"}, Removed((1,), Claim.DISK)),
        (["AllBlocksCleared"], Cleared()),
        ({"type": "AllBlocksCleared"}, Cleared()),
    ],
)
def test_removals_and_clears_of_every_version(event: object, expected: Removed | Cleared) -> None:
    assert decoded(event).events == (expected,)


@pytest.mark.parametrize(
    ("medium", "claim"),
    [
        (None, Claim.CONFIRMED),
        ("GPU", Claim.CONFIRMED),
        ("CPU", Claim.HOST),
        ("CPU_PINNED", Claim.HOST),
        ("CPU_TIER_1", Claim.HOST),
        ("STORAGE", Claim.DISK),
        ("DISK", Claim.DISK),
        ("EXTERNAL", Claim.DISK),
        ("a medium of tomorrow", Claim.DISK),
    ],
)
def test_a_medium_is_a_claim(medium: str | None, claim: Claim) -> None:
    assert stored(of_vllm(medium=medium)).claim is claim


def test_what_is_remote_is_far_whatever_its_medium() -> None:
    assert stored(of_vllm(medium="CPU", locality="REMOTE")).claim is Claim.DISK


@pytest.mark.parametrize("rank", [None, "no rank at all"])
def test_a_batch_without_a_rank_has_none(rank: str | None) -> None:
    content = [1.5, []] if rank else [1.5, [], None]
    assert decode_batch(msgspec.msgpack.encode(content)) == Batch(1.5, (), rank=None)


def test_hashes_are_the_low_64_bits_in_all_forms() -> None:
    digest = bytes(range(32))
    event = stored(of_vllm(block_hashes=[digest, -2], parent_block_hash=digest[:16]))
    assert event.hashes == (int.from_bytes(digest[-8:], "big"), 2**64 - 2)
    assert event.parent == int.from_bytes(digest[8:16], "big")


@pytest.mark.parametrize(
    ("kind", "full"),
    [
        (None, True),
        ("full_attention", True),
        ("mla_attention", True),
        ("sink_full_attention", True),
        ("unknown", True),
        ("sliding_window", False),
        ("sliding_window_mla", False),
        ("mamba", False),
        ("chunked_local_attention", False),
        ("cross_attention", False),
        ("a kind of tomorrow", False),
    ],
)
def test_only_layers_that_need_the_whole_prefix_are_evidence(kind: str | None, full: bool) -> None:
    assert stored(of_vllm(kv_cache_spec_kind=kind)).full is full


@pytest.mark.parametrize(
    ("keys", "fields", "salt", "media"),
    [
        ([None, None], {}, None, None),
        ([[], []], {}, None, None),
        ([["s"], None], {}, "s", None),
        ([["lora", "s"], ["lora"]], {"lora_name": "lora"}, "s", None),
        ([["lora"], ["lora"]], {"lora_name": "lora"}, None, None),
        ([["same", "same"], ["same"]], {"lora_name": "same"}, "same", None),
        ([[3, "s"], [3]], {"lora_id": 3}, "s", None),
        ([[["img", 0], "s"], [["img", -2]]], {}, "s", (True, True)),
        ([None, [["img", 1]]], {}, None, (False, True)),
        ([["img", "s"], ["img"]], {}, "s", (True, True)),
        ([["img"], ["img"]], {}, None, (True, True)),
        ([["s", b"digest"], [b"digest"]], {}, "s", (True, True)),
        ([["lora", ["img", 0], "s", b"digest"], None], {"lora_name": "lora"}, "s", (True, False)),
        ([["s"]], {}, "s", None),
        ([["s"], None, ["more than blocks"]], {}, "s", None),
        ("nonsense", {}, None, None),
        (["nonsense", 5], {}, None, None),
    ],
)
def test_the_salt_and_the_media_are_told_from_their_places(
    keys: object, fields: Fields, salt: str | None, media: tuple[bool, ...] | None
) -> None:
    event = stored(of_vllm(extra_keys=keys, **fields))
    assert (event.salt, event.has_media) == (salt, media)


def test_a_string_behind_the_first_block_of_a_prompt_is_no_salt() -> None:
    event = stored(of_vllm(parent_block_hash=9, extra_keys=[["img"], None]))
    assert (event.salt, event.has_media) == (None, (True, False))


def test_an_adapter_has_its_name_or_a_number_that_no_name_has() -> None:
    assert stored(of_vllm(lora_name="sql", lora_id=3)).adapter == "sql"
    assert stored(of_vllm(lora_id=3)).adapter == "#3"
    assert stored(of_vllm()).adapter is None


def test_salts_of_sglang_in_both_of_its_forms() -> None:
    in_array = ["BlockStored", [1], None, [10, 11], 2, None, "GPU", {"cache_salt": "s"}]
    in_map = {
        "type": "BlockStored",
        "block_hashes": [1],
        "parent_block_hash": None,
        "token_ids": [10, 11],
        "block_size": 2,
        "cache_salt": "s",
        "lora_name": "sql",
    }
    assert (stored(in_array).salt, stored(in_array).adapter) == ("s", None)
    assert (stored(in_map).salt, stored(in_map).adapter) == ("s", "sql")


def test_of_pairs_with_the_next_token_the_first_is_the_token() -> None:
    event = stored(["BlockStored", [1, 2], None, [[10, 11], [11, 12], [12, 13], [13, 14]], 2, None])
    assert event.tokens == packed(10, 11, 12, 13)


def test_a_number_that_is_no_token_stands_for_a_medium() -> None:
    event = stored(of_vllm(token_ids=[10, 11, 2**40, -1]))
    assert event.has_media == (False, True)
    assert event.tokens[:8] == packed(10, 11)


@pytest.mark.parametrize(
    "event",
    [
        ["BlockMoved", 1, 2],
        {"type": "BlockMoved"},
        {"no type": 1},
        [],
        [5],
        "text",
        None,
        of_vllm(token_ids=[10, 11, 12]),
        of_vllm(token_ids=None),
        of_vllm(token_ids=[10, 11, 12, "13"]),
        of_vllm(token_ids=[[10, 11], [], [12, 13], [13, 14]]),
        of_vllm(token_ids=[[10, 11], 11, [12, 13], [13, 14]]),
        of_vllm(block_size=0, token_ids=[]),
        of_vllm(block_size="2"),
        of_vllm(block_hashes=None),
        of_vllm(block_hashes=["a", "b"]),
        of_vllm(parent_block_hash="a"),
        ["BlockStored"],
        ["BlockRemoved"],
    ],
)
def test_an_event_that_is_not_understood_is_counted_and_the_rest_stands(event: object) -> None:
    batch = decoded(["BlockRemoved", [1]], event, ["AllBlocksCleared"])
    assert batch.events == (Removed((1,)), Cleared())
    assert batch.skipped == 1


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x93", msgspec.msgpack.encode({"ts": 1.5}), msgspec.msgpack.encode([1.5]), b"\xa1\xff"]
    + [msgspec.msgpack.encode(content) for content in (["now", []], [1.5, None], [1.5, {}], 7)],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedBatch, match="not a batch of KV events"):
        decode_batch(payload)


def test_a_payload_nested_without_end_is_refused() -> None:
    with pytest.raises(MalformedBatch, match="RecursionError"):
        decode_batch(b"\x91" * 100_000)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    with suppress(MalformedBatch):
        assert decode_batch(payload).skipped >= 0


json_like = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.lists(json_like, max_size=12).map(lambda fields: ["BlockStored", *fields]) | json_like, max_size=3))
def test_no_event_fails_its_batch(events: list[object]) -> None:
    batch = decoded(*events)
    assert len(batch.events) + batch.skipped == len(events)


@given(st.dictionaries(st.sampled_from(sorted(of_vllm())[:-1]), json_like))
def test_no_field_fails_its_batch(fields: Fields) -> None:
    batch = decoded(of_vllm(**fields))
    assert len(batch.events) + batch.skipped == 1


def test_a_message_is_three_frames_with_eight_bytes_of_number() -> None:
    assert Message.from_frames([b"kv", bytes(7) + b"\x05", b"payload"]) == Message(b"kv", 5, b"payload")
    for frames in ([b"kv", bytes(8)], [b"kv", bytes(7), b""], [b"", b"kv", bytes(8), b""]):
        with pytest.raises(MalformedBatch):
            Message.from_frames(frames)


def test_a_replayed_message_may_have_a_topic_and_a_delimiter_or_neither() -> None:
    old, new = Message(b"", 1, b"p"), Message(b"kv", 1, b"p")
    number = (1).to_bytes(8, "big")
    assert Message.from_replay([b"", number, b"p"]) == old
    assert Message.from_replay([b"", b"kv", number, b"p"]) == new
    assert Message.from_replay([b"kv", number, b"p"]) == new
    assert Message.from_replay([b"", b"", number, b"p"]) == old
    assert Message.from_replay([b"", b"\xff" * 8, b""]) is None
    assert Message.from_replay(frames_of("kv-events-replay")[-1]) is None
    for frames in ([], [b""], [b"", b"kv", b"short", b"p"]):
        with pytest.raises(MalformedBatch):
            Message.from_replay(frames)


def test_events_without_end_are_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_EVENTS", 2)
    assert decoded(["AllBlocksCleared"], ["AllBlocksCleared"]).skipped == 0
    with pytest.raises(MalformedBatch, match="3 events at once"):
        decoded(*[["AllBlocksCleared"]] * 3)
