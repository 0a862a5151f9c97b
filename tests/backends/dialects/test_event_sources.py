"""Where engines say that they publish events of their cache, and what that means for who subscribes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.dialects import DIALECTS
from backends.dialects.sglang import SGLANG
from backends.dialects.types import no_event_sources
from backends.dialects.vllm import REFERENCE, VLLM
from backends.types import EventSourceFacts, EventSourceKind

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
HOST = "vllm-0.models"


def vllm(page: object, host: str = HOST) -> tuple[EventSourceFacts, ...]:
    return VLLM.event_sources(page, {}, host)


def sglang(settings: object, host: str = HOST) -> tuple[EventSourceFacts, ...]:
    return SGLANG.event_sources(None, {"kv_events": settings}, host)


def rank(endpoint: object, replay_endpoint: object = None, **more: object) -> dict[str, object]:
    settings = {"endpoint": endpoint, "replay_endpoint": replay_endpoint, "publisher": "zmq", "topic": "kv"}
    return {"0": {"enable_kv_cache_events": True, **settings, **more}}


def test_the_recorded_vllm_connects_to_us_and_its_replays_are_where_it_says() -> None:
    recorded = json.loads((CAPTURES / "vllm-0.32-kv_event_sources.json").read_text())
    [source] = vllm(recorded, "127.0.0.1")
    assert source == EventSourceFacts(0, "tcp://*:18101", "tcp://127.0.0.1:18201", "kv-events", EventSourceKind.ZMQ)
    assert source.is_bound


@pytest.mark.parametrize(
    ("said", "replay_said", "host", "url", "replay_url"),
    [
        ("tcp://*:5557", "tcp://*:5558", HOST, f"tcp://{HOST}:5557", f"tcp://{HOST}:5558"),
        ("tcp://*:5557", "tcp://0.0.0.0:5558", "10.0.0.7", "tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558"),
        ("tcp://[::]:5557", None, "fd00::7", "tcp://[fd00::7]:5557", None),
        ("tcp://gateway.prod:5557", "tcp://*:5558", HOST, "tcp://*:5557", f"tcp://{HOST}:5558"),
        ("tcp://127.0.0.1:5557", None, "127.0.0.1", "tcp://*:5557", None),
        ("tcp://localhost:5557", None, "localhost", "tcp://*:5557", None),
        # A port that the system chose: the address is the engine's own, though without a wildcard.
        ("tcp://10.0.0.7:41233", None, "10.0.0.7", "tcp://10.0.0.7:41233", None),
        ("tcp://10.0.0.7:41233", "tcp://10.0.0.7:41234", HOST, "tcp://10.0.0.7:41233", "tcp://10.0.0.7:41234"),
        ("ipc:///run/kv", "ipc:///run/replay", HOST, "ipc:///run/kv", "ipc:///run/replay"),
    ],
)
def test_an_address_is_turned_to_how_it_is_reached_from_here(
    said: str, replay_said: str | None, host: str, url: str, replay_url: str | None
) -> None:
    assert vllm(rank(said, replay_said), host) == (EventSourceFacts(0, url, replay_url, "kv"),)


def test_ranks_come_in_their_order_each_with_its_own_port() -> None:
    page = {str(r): rank(f"tcp://*:{5557 + r}")["0"] for r in (10, 2, 0)}
    assert [(one.rank, one.url) for one in vllm(page)] == [
        (0, f"tcp://{HOST}:5557"),
        (2, f"tcp://{HOST}:5559"),
        (10, f"tcp://{HOST}:5567"),
    ]


@pytest.mark.parametrize(
    "page",
    [
        None,
        {},
        [],
        "tcp://*:5557",
        {"0": None},
        {"sources": []},
        {"-1": rank("tcp://*:5557")["0"]},
        {"9999": rank("tcp://*:5557")["0"]},
        {"²": rank("tcp://*:5557")["0"]},
        rank(None),
        rank(5557),
        rank(""),
        rank("ipc://"),
        rank("inproc://kv"),
        rank("tcp://*"),
        rank("tcp://*:0"),
        rank("tcp://*:99999"),
        rank("tcp://:5557"),
        rank("tcp://[::1"),
        rank("http://*:5557"),
        rank("tcp://*:5557", publisher="null"),
        rank("tcp://*:5557", enable_kv_cache_events=False),
    ],
)
def test_what_says_nothing_that_can_be_reached_is_no_source(page: object) -> None:
    assert vllm(page) == ()


def test_a_topic_or_replay_that_cannot_be_read_does_not_hide_the_source() -> None:
    assert vllm(rank("tcp://*:5557", 17, topic=None)) == (EventSourceFacts(0, f"tcp://{HOST}:5557"),)


def test_an_older_description_without_publisher_and_switch_is_taken_for_a_source() -> None:
    assert vllm({"0": {"endpoint": "tcp://*:5557"}}) == (EventSourceFacts(0, f"tcp://{HOST}:5557"),)


SGLANG_EVENTS: dict[str, object] = {
    "publisher": "zmq",
    "endpoint_host": "*",
    "endpoint_port_base": 5557,
    "topic": "kv",
    "block_size": 64,
    "dp_size": 2,
    "replay_endpoint_port_base": 5657,
}


def test_sglangs_ranks_stand_at_ports_in_a_row() -> None:
    assert sglang(SGLANG_EVENTS) == (
        EventSourceFacts(0, f"tcp://{HOST}:5557", f"tcp://{HOST}:5657", "kv"),
        EventSourceFacts(1, f"tcp://{HOST}:5558", f"tcp://{HOST}:5658", "kv"),
    )


@pytest.mark.parametrize(
    ("said", "host", "url"),
    [
        ("0.0.0.0", HOST, f"tcp://{HOST}:5557"),
        ("[::]", HOST, f"tcp://{HOST}:5557"),
        ("gateway", HOST, "tcp://*:5557"),
        ("10.0.0.7", "10.0.0.7", "tcp://10.0.0.7:5557"),
    ],
)
def test_sglangs_host_says_who_connects(said: str, host: str, url: str) -> None:
    settings = SGLANG_EVENTS | {"endpoint_host": said, "dp_size": 1, "replay_endpoint_port_base": None}
    assert sglang(settings, host) == (EventSourceFacts(0, url, None, "kv"),)


@pytest.mark.parametrize(
    "settings",
    [
        None,
        "zmq",
        {},
        SGLANG_EVENTS | {"publisher": None},
        SGLANG_EVENTS | {"endpoint_host": None},
        SGLANG_EVENTS | {"endpoint_host": ""},
        SGLANG_EVENTS | {"endpoint_port_base": "5557"},
        SGLANG_EVENTS | {"endpoint_port_base": True},
        SGLANG_EVENTS | {"endpoint_port_base": 65_536},
        SGLANG_EVENTS | {"dp_size": 0},
        SGLANG_EVENTS | {"dp_size": 10**9},
        SGLANG_EVENTS | {"dp_size": None},
    ],
)
def test_what_sglang_does_not_publish_is_no_source(settings: object) -> None:
    assert sglang(settings) == ()


def test_ranks_beyond_the_last_port_are_left_out() -> None:
    assert len(sglang(SGLANG_EVENTS | {"endpoint_port_base": 65_535})) == 1


def test_only_engines_that_say_where_are_asked() -> None:
    assert [one.name for one in DIALECTS if one.event_sources is not no_event_sources] == [
        "reference",
        "vllm",
        "sglang",
    ]
    assert {one.name for one in DIALECTS if one.event_sources_path} == {"reference", "vllm"}
    assert REFERENCE.event_sources_path == VLLM.event_sources_path == "/kv_event_sources"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.just("tcp://*:5557"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from([*SGLANG_EVENTS, "endpoint", "replay_endpoint", "enable_kv_cache_events"])


@given(page=st.dictionaries(st.sampled_from(["0", "1", "x"]), st.dictionaries(KEYS, JSON)), host=st.text(max_size=9))
def test_nothing_an_engine_says_raises(page: dict[str, dict[str, object]], host: str) -> None:
    for source in (*vllm(page, host), *(one for settings in page.values() for one in sglang(settings, host))):
        assert source.rank >= 0
        assert source.url.startswith(("tcp://", "ipc://"))
