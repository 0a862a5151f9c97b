"""Addresses of KV events: who binds, where ranks are, what an engine says of itself."""

import json

import pytest

from prefix_index.errors import EventSourceInvalid
from prefix_index.kv_events.sources import EventSource, source_of_engine, url_of_rank
from tests.prefix_index.kv_events.captures import CAPTURES


@pytest.mark.parametrize(
    ("url", "bind", "is_bound"),
    [
        ("tcp://*:5557", None, True),
        ("tcp://[::]:5557", None, True),
        ("tcp://engine:5557", None, False),
        ("ipc:///run/kv", None, False),
        ("tcp://127.0.0.1:5557", True, True),
        ("tcp://[fd00::7]:5557", False, False),
    ],
)
def test_we_bind_where_the_engine_connects(url: str, bind: bool | None, is_bound: bool) -> None:
    assert EventSource(url, bind=bind).is_bound is is_bound


@pytest.mark.parametrize(
    "url",
    [
        "",
        "5557",
        "tcp://",
        "tcp://engine",
        "tcp://engine:",
        "tcp://engine:0",
        "tcp://:5557",
        "tcp://e:70000",
        "http://engine:5557",
        "inproc://kv",
        "ipc://",
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(EventSourceInvalid) as refused:
        EventSource(url)
    assert refused.value.url == url


@pytest.mark.parametrize(("url", "topic"), [("tcp://e\0:5557", ""), ("ipc://\ud800", ""), ("tcp://e:5557", "\ud800")])
def test_what_nobody_could_write_is_refused(url: str, topic: str) -> None:
    with pytest.raises(EventSourceInvalid) as refused:
        EventSource(url, topic=topic)
    assert str(refused.value).encode()


def test_a_replay_is_asked_for_at_the_engine() -> None:
    with pytest.raises(EventSourceInvalid, match="name the engine's host"):
        EventSource("tcp://engine:5557", "tcp://*:5558")


def test_ranks_publish_at_consecutive_ports() -> None:
    source = EventSource("tcp://engine:5557", "tcp://engine:5657", "kv")
    assert source.of_rank(2) == EventSource("tcp://engine:5559", "tcp://engine:5659", "kv", rank=2)
    assert source.of_rank(2).of_rank(1).of_rank(0) == source
    assert url_of_rank("ipc:///run/kv", 0) == "ipc:///run/kv"
    for url in ("ipc:///run/kv", "tcp://engine:65535"):
        with pytest.raises(EventSourceInvalid):
            url_of_rank(url, 1)


def test_what_a_real_engine_says_of_its_socket_is_turned_round() -> None:
    recorded = json.loads((CAPTURES / "vllm-0.32-kv_event_sources.json").read_text())["0"]
    assert source_of_engine(recorded, "127.0.0.1") == EventSource(
        "tcp://127.0.0.1:18101", "tcp://127.0.0.1:18201", "kv-events", bind=True
    )


@pytest.mark.parametrize(
    ("endpoint", "replay", "expected"),
    [
        ("tcp://*:5557", "tcp://*:5558", EventSource("tcp://gpu-1:5557", "tcp://gpu-1:5558", bind=False)),
        ("tcp://[::1]:5557", None, EventSource("tcp://[::1]:5557", bind=True)),
        ("tcp://gateway:5557", None, EventSource("tcp://*:5557", bind=True)),
        ("tcp://[::]:5557", None, EventSource("tcp://gpu-1:5557", bind=False)),
        ("ipc:///run/kv", "ipc:///run/replay", EventSource("ipc:///run/kv", "ipc:///run/replay", bind=False)),
    ],
)
def test_an_engine_that_binds_is_reached_at_its_host_and_one_that_connects_is_awaited(
    endpoint: str, replay: str | None, expected: EventSource
) -> None:
    assert source_of_engine({"endpoint": endpoint, "replay_endpoint": replay}, "gpu-1") == expected


def test_an_engine_that_publishes_nothing_has_no_source() -> None:
    assert source_of_engine({"enable_kv_cache_events": False, "endpoint": "tcp://*:5557"}, "h") is None
    assert source_of_engine({}, "h") is None
    found = source_of_engine({"endpoint": "tcp://*:5557"}, "fd00::7", rank=1)
    assert found == EventSource("tcp://[fd00::7]:5557", rank=1, bind=False)
