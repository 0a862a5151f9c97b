"""SGLang's rooms: two legs meet in them, and whatever else is asked of them is refused."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.backends.simulated.serving.split.pairs import (
    FAST,
    TEXT,
    Pair,
    cached,
    chat,
    pair_of,
    said,
)


@pytest.fixture
def bootstrap() -> Iterator[Pair]:
    with pair_of("sglang") as pair:
        yield pair


def both(
    pair: Pair, prefill_more: dict[str, Any], decode_more: dict[str, Any]
) -> tuple[httpx.Response, httpx.Response]:
    answers: dict[str, httpx.Response] = {}
    thread = threading.Thread(target=lambda: answers.update(prefill=chat(pair[0], **prefill_more)))
    thread.start()
    answers["decode"] = chat(pair[1], **decode_more)
    thread.join(30)
    return answers["prefill"], answers["decode"]


def room(pair: Pair, number: int, **more: Any) -> dict[str, Any]:
    port = pair[0].side_port
    return {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": number, **more}


def test_two_legs_meet_in_a_room_whichever_comes_first_and_the_answer_is_the_decode_engines(bootstrap: Pair) -> None:
    for number in (7, 2**63 - 1):
        prefill, decode = both(bootstrap, room(bootstrap, number), room(bootstrap, number))
        assert said(decode) == TEXT
        assert prefill.json()["usage"]["completion_tokens"] == 1
    assert cached(decode) == decode.json()["usage"]["prompt_tokens"] - 1  # found at the prefill engine
    info = httpx.get(f"{bootstrap[0].url}/server_info", timeout=30).json()
    assert (info["disaggregation_mode"], info["disaggregation_bootstrap_port"]) == ("prefill", bootstrap[0].side_port)


def test_a_leg_alone_waits_and_fails() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:  # 0.1 of our seconds
        for server in pair:
            alone = chat(server, **room(pair, 1 if server is pair[0] else 2))
            assert (alone.status_code, "timed out" in alone.text) == (500, True)


def test_a_room_that_the_prefill_engine_gave_up_is_of_no_use() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:
        assert chat(pair[0], **room(pair, 1)).status_code == 500
        assert "given up" in chat(pair[1], **room(pair, 1)).text


def test_wrong_rooms_hosts_and_ports_are_refused() -> None:
    with pair_of("sglang", lease_s=50.0) as pair:
        good = room(pair, 1)
        assert [one.status_code for one in both(pair, good, {**good, "bootstrap_room": 2})] == [500, 500]
        assert chat(pair[1], **{**good, "bootstrap_port": 1}).status_code == 500
        assert chat(pair[0], **{**good, "bootstrap_port": 1}).status_code == 400
        for wrong in (
            {"bootstrap_room": -1},
            {"bootstrap_room": "x"},
            {"bootstrap_room": None},
            {"bootstrap_host": ""},
        ):
            assert [chat(server, **{**good, **wrong}).status_code for server in pair] == [400, 400]


def test_a_room_is_used_once(bootstrap: Pair) -> None:
    both(bootstrap, room(bootstrap, 5), room(bootstrap, 5))
    assert "in use" in chat(bootstrap[0], **room(bootstrap, 5)).text
    assert "fetched before" in chat(bootstrap[1], **room(bootstrap, 5)).text


def test_an_engine_of_a_split_pair_answers_nobody_alone_and_another_ignores_rooms(bootstrap: Pair) -> None:
    for server in bootstrap:
        assert chat(server).status_code == 400
    with SimulatedServer(ServerSpec(dialect="sglang", model="m", speed=FAST)) as plain:
        assert said(chat(plain, **room(bootstrap, 3))) == TEXT


def test_who_asks_for_no_room_is_refused_and_who_asks_nothing_harms_nobody(bootstrap: Pair) -> None:
    at = ("127.0.0.1", bootstrap[0].side_port)
    for line, refusal in ((b'{"ask":"room"}\n', "None is no bootstrap_room"), (b"what?\n", None), (b"", None)):
        with socket.create_connection(at, 30) as asking:
            asking.sendall(line)
            asking.shutdown(socket.SHUT_WR)
            told = asking.makefile("rb").read()
        assert (json.loads(told)["refused"] if told else None) == refusal
    assert [one.status_code for one in both(bootstrap, room(bootstrap, 9), room(bootstrap, 9))] == [200, 200]
