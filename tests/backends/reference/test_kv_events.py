"""Events of the cache on real sockets; what is checked of their form holds for frames recorded from vLLM 0.32 too."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import zmq

from backends.reference.__main__ import main
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.errors import EventsUnavailable
from backends.reference.event_publisher import END_OF_REPLAY, EventPublisher
from backends.reference.types import EngineConfig, KvEventsConfig
from backends.reference.weights import ModelWeights
from tests.backends.reference.kv_subscriber import Context, Frames, Subscriber, replay

CAPTURES = Path(__file__).parents[2] / "data" / "captures" / "kv_events"
TOPIC = "kv-events"
BLOCK = 16
BLOCKS = 8

PROMPT = [(31 * i * i + 17 * i + 100) % 49_000 for i in range(3 * BLOCK + 4)]
OTHER = [(29 * i * i + 11 * i + 5) % 49_000 for i in range(6 * BLOCK)]

Event = dict[str, object]


@pytest.fixture
def context() -> Iterator[Context]:
    with zmq.Context() as found:
        yield found


@contextmanager
def engine_at(url: str, replay_url: str | None, micro: ModelWeights) -> Iterator[RunningEngine]:
    events = KvEventsConfig(url, replay_url, TOPIC)
    with run_engine(EngineConfig(model="tiny", kv_blocks=BLOCKS, kv_events=events), micro) as running:
        yield running


@pytest.fixture
def engine(micro: ModelWeights, tmp_path: Path) -> Iterator[RunningEngine]:
    """An engine of 8 blocks of 16 that publishes and replays."""
    with engine_at(f"ipc://{tmp_path}/events", "tcp://127.0.0.1:0", micro) as running:
        yield running


def ask(engine: RunningEngine, prompt: list[int], *, salt: str | None = None, tokens: int = 1) -> int:
    """Complete a prompt; returns the cached tokens that were reported."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "cache_salt": salt}
    answer = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=30).raise_for_status()
    cached: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def reset(engine: RunningEngine) -> None:
    assert httpx.post(f"{engine.url}/reset_prefix_cache", timeout=30).json() == {"success": True}


def published(engine: RunningEngine, context: Context, start: int = 0) -> list[Frames]:
    """All that is still kept, from `start` on; whatever was done before is in it."""
    assert engine.engine.events is not None
    assert engine.engine.events.replay_url is not None
    return replay(context, engine.engine.events.replay_url, start)


def events_of(frames: Frames) -> list[Event]:
    _, events, _ = msgspec.msgpack.decode(frames[2])
    assert isinstance(events, list)
    return events


def recorded(name: str) -> list[Frames]:
    lines = (CAPTURES / name).read_text().splitlines()
    frames = [[bytes.fromhex(frame) for frame in json.loads(line)["frames_hex"]][-3:] for line in lines]
    return [(topic, sequence, payload) for topic, sequence, payload in frames if payload]


@pytest.fixture(
    params=[
        "reference",
        "vllm-0.32-kv-events.jsonl",
        "vllm-0.32-kv-events-replay.jsonl",
        "vllm-0.32-kv-events-two-engines-evict-clear.jsonl",
    ]
)
def frames(request: pytest.FixtureRequest, engine: RunningEngine, context: Context) -> list[Frames]:
    """What one engine published while prompts came, grew, were salted and pushed each other out."""
    if request.param != "reference":
        return recorded(request.param)
    ask(engine, PROMPT, tokens=BLOCK)
    ask(engine, PROMPT, salt="tenant-a")
    reset(engine)
    ask(engine, PROMPT)
    ask(engine, OTHER)
    return published(engine, context)


STORED = {
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
}
FIELDS = {
    "BlockStored": STORED,
    "BlockRemoved": {"type", "block_hashes", "medium", "group_idx"},
    "AllBlocksCleared": {"type"},
}


def test_a_message_is_a_topic_a_sequence_number_and_a_batch(frames: list[Frames]) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic, sequence, payload in frames:
        assert len(sequence) == 8
        at_s, events, rank = msgspec.msgpack.decode(payload)
        assert type(at_s) is float
        assert at_s > 1_700_000_000
        assert events
        assert rank == 0
        by_topic.setdefault(topic, []).append(int.from_bytes(sequence, "big"))
    for sequences in by_topic.values():
        assert sequences == sorted(set(sequences))


def test_events_are_maps_with_the_fields_of_vllm(frames: list[Frames]) -> None:
    for event in (event for one in frames for event in events_of(one)):
        assert set(event) == FIELDS[str(event["type"])]
        if event["type"] != "AllBlocksCleared":
            assert (event["medium"], event["group_idx"]) == ("GPU", 0)
            hashes = event["block_hashes"]
            assert isinstance(hashes, list)
            assert all(type(one) is int and 0 <= one < 2**64 for one in hashes)
            assert hashes


def test_stored_blocks_come_with_their_tokens_and_only_the_first_of_a_prompt_with_its_salt(
    frames: list[Frames],
) -> None:
    salts: set[str] = set()
    for event in (event for one in frames for event in events_of(one) if event["type"] == "BlockStored"):
        hashes, tokens, block_size, extra_keys = (
            event[name] for name in ("block_hashes", "token_ids", "block_size", "extra_keys")
        )
        assert isinstance(hashes, list)
        assert isinstance(tokens, list)
        assert isinstance(block_size, int)
        assert isinstance(extra_keys, list)
        assert len(tokens) == len(hashes) * block_size
        assert all(type(token) is int and 0 <= token < 2**32 for token in tokens)
        assert len(extra_keys) == len(hashes)
        assert all(keys is None for keys in extra_keys[1:])
        if extra_keys[0] is not None:
            assert event["parent_block_hash"] is None
            [salt] = extra_keys[0]
            salts.add(salt)
        assert (event["lora_id"], event["lora_name"], event["kv_cache_spec_kind"]) == (None, None, "full_attention")
    assert salts <= {"tenant-a", "tenant-b"}


def test_what_had_to_go_is_removed_before_what_took_its_place_is_stored(frames: list[Frames]) -> None:
    for one in frames:
        kinds = [str(event["type"]) for event in events_of(one)]
        order = ["AllBlocksCleared", "BlockRemoved", "BlockStored"]
        assert kinds == sorted(kinds, key=order.index)
        for event in events_of(one):
            assert event["type"] != "BlockRemoved" or len(list_of(event, "block_hashes")) == 1


def list_of(event: Event, field: str) -> Sequence[int]:
    found = event[field]
    assert isinstance(found, list)
    return found


def test_blocks_of_an_answer_are_told_behind_those_of_its_prompt(engine: RunningEngine, context: Context) -> None:
    ask(engine, PROMPT, tokens=2 * BLOCK)
    batches = [events_of(one) for one in published(engine, context)]
    assert [len(events) for events in batches] == [1, 1, 1]
    first, second, third = (events[0] for events in batches)
    assert list_of(first, "token_ids") == PROMPT[: 3 * BLOCK]
    assert first["parent_block_hash"] is None
    assert list_of(second, "token_ids")[:4] == PROMPT[3 * BLOCK :]
    assert second["parent_block_hash"] == list_of(first, "block_hashes")[-1]
    assert third["parent_block_hash"] == list_of(second, "block_hashes")[-1]
    assert ask(engine, PROMPT) == 3 * BLOCK
    assert len(published(engine, context)) == 3


def test_a_salt_is_told_and_shares_no_hash(engine: RunningEngine, context: Context) -> None:
    ask(engine, PROMPT)
    ask(engine, PROMPT, salt="tenant-a")
    [plain], [salted] = (events_of(one) for one in published(engine, context))
    assert plain["token_ids"] == salted["token_ids"]
    assert set(list_of(plain, "block_hashes")).isdisjoint(list_of(salted, "block_hashes"))
    assert plain["extra_keys"] == [None] * 3
    assert salted["extra_keys"] == [["tenant-a"], None, None]


def test_evictions_are_told_tails_first_and_the_survivors_are_what_is_reused(
    engine: RunningEngine, context: Context
) -> None:
    ask(engine, PROMPT)
    ask(engine, OTHER)
    [stored], events = (events_of(one) for one in published(engine, context))
    names = list_of(stored, "block_hashes")
    assert [event["type"] for event in events] == ["BlockRemoved", "BlockStored"]
    assert list_of(events[0], "block_hashes") == [names[-1]]
    assert ask(engine, PROMPT) == 2 * BLOCK


def test_an_emptied_cache_is_told_at_once_and_a_refusal_to_empty_it_is_not(
    engine: RunningEngine, context: Context
) -> None:
    ask(engine, PROMPT)
    reset(engine)
    assert [events_of(one) for one in published(engine, context, 1)] == [[{"type": "AllBlocksCleared"}]]
    with httpx.stream(
        "POST", f"{engine.url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 70, "stream": True}, timeout=30
    ) as answer:
        next(answer.iter_lines())
        refused = httpx.post(f"{engine.url}/reset_prefix_cache", timeout=30).json()["success"]
    kinds = {event["type"] for one in published(engine, context, 2) for event in events_of(one)}
    assert refused is ("AllBlocksCleared" in kinds)


@pytest.mark.parametrize("who_binds", ["engine", "subscriber"])
def test_whoever_listens_hears_every_batch_in_order(
    who_binds: str, context: Context, micro: ModelWeights, tmp_path: Path
) -> None:
    with Subscriber(context, TOPIC) as subscriber:
        url = subscriber.bind() if who_binds == "subscriber" else f"ipc://{tmp_path}/events"
        with engine_at(url, None, micro) as engine:
            if who_binds == "engine":
                subscriber.connect(url)
            resets = 0
            while not subscriber.hears(within_ms=50):
                reset(engine)
                resets += 1
            ask(engine, PROMPT)
            heard = [subscriber.batch()]
            while int.from_bytes(heard[-1][1], "big") < resets:
                heard.append(subscriber.batch())
            assert [int.from_bytes(one[1], "big") for one in heard][-1] == resets
            assert len(heard) == resets + 1 - int.from_bytes(heard[0][1], "big")
            assert {one[0] for one in heard} == {TOPIC.encode()}
            [stored] = events_of(heard[-1])
            assert stored["token_ids"] == PROMPT[: 3 * BLOCK]


def test_a_replay_starts_where_it_is_asked_to_and_goes_back_as_far_as_the_buffer(
    context: Context, micro: ModelWeights, tmp_path: Path
) -> None:
    events = KvEventsConfig(f"ipc://{tmp_path}/events", "tcp://127.0.0.1:0", TOPIC, buffer_batches=3)
    with run_engine(EngineConfig(model="tiny", kv_blocks=BLOCKS, kv_events=events), micro) as engine:
        for _ in range(5):
            reset(engine)
        assert sequences(published(engine, context, 0)) == [2, 3, 4]
        assert sequences(published(engine, context, 4)) == [4]
        assert sequences(published(engine, context, 5)) == []


def sequences(batches: list[Frames]) -> list[int]:
    return [int.from_bytes(sequence, "big") for _, sequence, _ in batches]


def test_a_request_for_a_replay_that_is_none_is_not_answered(engine: RunningEngine, context: Context) -> None:
    reset(engine)
    assert engine.engine.events is not None
    assert engine.engine.events.replay_url is not None
    with context.socket(zmq.DEALER) as asker:
        asker.setsockopt(zmq.LINGER, 0)
        asker.setsockopt(zmq.RCVTIMEO, 20_000)
        asker.connect(engine.engine.events.replay_url)
        for wrong in ([b""], [b"", b"12"], [b"x", bytes(8)], [b"", bytes(8), b""]):
            asker.send_multipart(wrong)
        asker.send_multipart([b"", (1).to_bytes(8, "big")])
        assert asker.recv_multipart() == [b"", b"", END_OF_REPLAY, b""]


def test_a_started_engine_begins_at_zero_again(context: Context, micro: ModelWeights, tmp_path: Path) -> None:
    for _ in range(2):
        with engine_at(f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay", micro) as engine:
            reset(engine)
            assert sequences(published(engine, context)) == [0]


def test_where_events_are_is_answered_as_vllm_does(engine: RunningEngine, shared: RunningEngine) -> None:
    answer = httpx.get(f"{engine.url}/kv_event_sources").json()
    said = json.loads((CAPTURES.parent / "vllm-0.32-kv_event_sources.json").read_text())
    assert answer.keys() == said.keys()
    assert answer["0"].keys() == said["0"].keys()
    assert answer["0"]["endpoint"].startswith("ipc://")
    assert int(answer["0"]["replay_endpoint"].removeprefix("tcp://127.0.0.1:")) > 0
    assert httpx.get(f"{shared.url}/kv_event_sources").json() == {}


def test_a_publisher_that_does_not_come_after_loses_batches_and_shows_the_gap(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.reference.event_publisher.HIGH_WATER_BATCHES", 2)
    may_run = threading.Event()
    run = EventPublisher._run

    def late(publisher: EventPublisher, *sockets: object) -> None:
        may_run.wait()
        run(publisher, *sockets)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(EventPublisher, "_run", late)
    publisher = EventPublisher(KvEventsConfig(f"ipc://{tmp_path}/events", "tcp://127.0.0.1:0"))
    publisher.publish(b"before anybody could listen")
    publisher.start()
    for _ in range(100):
        publisher.publish(b"batch")
    may_run.set()
    assert publisher.replay_url is not None
    kept: list[int] = []
    while not kept or kept[-1] <= 100:
        publisher.publish(b"another")
        kept = sequences(replay(context, publisher.replay_url, 0))
    before = [sequence for sequence in kept if sequence <= 100]
    assert before == list(range(1, len(before) + 1))
    assert 0 < len(before) < 100
    publisher.stop()
    publisher.stop()


@pytest.mark.parametrize("url", ["tcp://nowhere", "udp://127.0.0.1:1", "tcp://203.0.113.1:5557"])
def test_an_address_that_is_none_is_a_reason_not_to_start(url: str) -> None:
    publisher = EventPublisher(KvEventsConfig("tcp://127.0.0.1:1", url))
    with pytest.raises(EventsUnavailable, match="cannot publish cache events at"):
        publisher.start()
    publisher.stop()


def test_the_command_says_what_it_cannot_publish_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "tiny", "--port", "0", "--kv-events", f"ipc://{tmp_path}/no/such/folder"]
    assert main([*options, "--kv-events-topic", "kv"]) == 1
    assert "cannot publish cache events at ipc://" in capfd.readouterr().err
    assert main(["--model", "tiny", "--kv-events-replay", "tcp://*:0"]) == 1
    assert "need --kv-events" in capfd.readouterr().err


def test_a_buffer_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer_batches"):
        KvEventsConfig("tcp://*:0", buffer_batches=0)
