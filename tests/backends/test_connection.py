"""One connection on a clock and a socket that the test turns by hand: deadlines without timers, and back-pressure."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from backends.connection import IDLE_CONNECTION_S, READ_BUFFER_BYTES, Connection, Failure
from backends.types import Headers

SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Timer:
    at_s: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Loop:
    """Time passes by `go_to`, which calls what is due."""

    now_s: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at_s, call))
        return self.timers[-1]

    @property
    def armed(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled and timer.at_s >= self.now_s]

    def go_to(self, until_s: float) -> None:
        while due := sorted((timer for timer in self.armed if timer.at_s <= until_s), key=lambda timer: timer.at_s):
            self.now_s = due[0].at_s
            due[0].cancelled = True
            due[0].call()
        self.now_s = until_s


@dataclass
class Socket:
    """What was done to a transport, in order."""

    done: list[str] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, several: tuple[bytes, ...]) -> None:
        self.written.append(b"".join(several))

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def abort(self) -> None:
        self.done.append("abort")


@dataclass
class Desk:
    """The owner of the connection and the receiver of its answers."""

    told: list[object] = field(default_factory=list)
    unread_bytes: int = 0

    def give_back(self, connection: Connection) -> None:
        self.told.append("back")

    def forget(self, connection: Connection) -> None:
        self.told.append("forget")

    def vacate(self) -> None:
        self.told.append("vacate")

    def has_closed(self, connection: Connection) -> None:
        self.told.append("closed")

    def head_came(self, status: int, headers: Headers) -> None:
        self.told.append(status)

    def arrived(self, piece: bytes) -> None:
        self.unread_bytes += len(piece)
        self.told.append(piece)

    def completed(self) -> None:
        self.told.append("end")

    def failed(self, failure: Failure) -> None:
        self.told.append(failure)


@dataclass
class Scene:
    loop: Loop
    sock: Socket
    desk: Desk
    connection: Connection

    def begin(self, first_byte_s: float = 600, body: bytes = b"") -> None:
        self.desk.told.clear()
        self.desk.unread_bytes = 0
        self.connection.begin(self.desk, b"head ", body, first_byte_s, bodiless=False)


@pytest.fixture
def scene() -> Scene:
    loop, sock, desk = Loop(), Socket(), Desk()
    connection = Connection(cast(asyncio.AbstractEventLoop, loop), desk)
    connection.has_place = True
    connection.connection_made(cast(asyncio.BaseTransport, sock))
    return Scene(loop, sock, desk, connection)


def test_a_thousand_answers_need_a_few_timers(scene: Scene) -> None:
    for _ in range(1000):
        scene.begin()
        scene.connection.data_received(SIZED)
        assert scene.desk.told == [200, b"ok", "back", "end"]
        scene.loop.go_to(scene.loop.now_s + 0.01)
    assert len(scene.loop.timers) <= 2 + 10 / IDLE_CONNECTION_S * 2
    assert len(scene.loop.armed) == 1


def test_a_request_goes_out_in_one_write(scene: Scene) -> None:
    for size in (0, 1000, 100_000, 1_000_000):
        scene.sock.written.clear()
        scene.begin(body=b"x" * size)
        assert scene.sock.written == [b"head " + b"x" * size]
        scene.connection.data_received(SIZED)


def test_silence_before_the_head_is_a_failure_when_its_time_has_come(scene: Scene) -> None:
    scene.begin(first_byte_s=10)
    scene.loop.go_to(105)
    scene.connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20")
    scene.loop.go_to(109.9)
    assert scene.desk.told == []
    scene.loop.go_to(110.1)
    assert scene.desk.told == ["forget", "vacate", Failure.SILENT]
    assert scene.sock.done == ["abort"]


def test_after_the_head_silence_counts_only_while_somebody_waits(scene: Scene) -> None:
    scene.begin(first_byte_s=10)
    scene.connection.data_received(CHUNKED)
    scene.loop.go_to(500)
    assert scene.desk.told == [200]
    scene.connection.expire_after(5)
    scene.loop.go_to(504.9)
    scene.connection.data_received(b"1\r\nx\r\n")
    scene.loop.go_to(900)
    assert scene.desk.told == [200, b"x"]
    scene.connection.expire_after(5)
    scene.connection.expire_never()
    scene.loop.go_to(1000)
    assert scene.desk.told == [200, b"x"]
    scene.connection.expire_after(5)
    scene.loop.go_to(1005.1)
    assert scene.desk.told == [200, b"x", "forget", "vacate", Failure.SILENT]


def test_bytes_that_are_no_body_do_not_count_as_progress(scene: Scene) -> None:
    scene.begin()
    scene.connection.data_received(CHUNKED + b"5;")
    scene.connection.expire_after(5)
    while scene.desk.told == [200]:
        assert scene.loop.now_s < 105
        scene.loop.go_to(scene.loop.now_s + 0.6)
        scene.connection.data_received(b"x")
    assert scene.desk.told == [200, "forget", "vacate", Failure.SILENT]


def test_a_shorter_patience_comes_before_the_timer_that_was_armed(scene: Scene) -> None:
    scene.begin(first_byte_s=600)
    scene.connection.data_received(CHUNKED)
    scene.connection.expire_after(0.5)
    scene.loop.go_to(100.6)
    assert scene.desk.told[-1] is Failure.SILENT


def test_an_idle_connection_grows_old_and_a_busy_one_does_not(scene: Scene) -> None:
    scene.begin()
    scene.connection.data_received(SIZED)
    scene.loop.go_to(103)
    scene.begin()
    scene.loop.go_to(150)
    assert scene.desk.told == []
    scene.connection.data_received(SIZED)
    scene.loop.go_to(150 + IDLE_CONNECTION_S - 0.1)
    assert scene.sock.done == []
    scene.loop.go_to(150 + IDLE_CONNECTION_S + 0.1)
    assert scene.sock.done == ["abort"]


def test_a_slow_reader_stops_the_socket_and_a_fast_one_does_not(scene: Scene) -> None:
    scene.begin()
    scene.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * READ_BUFFER_BYTES)
    assert scene.sock.done == []
    scene.connection.data_received(b"x")
    scene.connection.data_received(b"x")
    assert scene.sock.done == ["pause"]
    scene.desk.unread_bytes = 0
    scene.connection.resume()
    assert scene.sock.done == ["pause", "resume"]
    scene.connection.data_received(b"x" * 1000)
    assert scene.sock.done == ["pause", "resume"]


def test_a_connection_goes_back_with_its_socket_being_read(scene: Scene) -> None:
    scene.begin()
    scene.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 99_999)
    scene.connection.data_received(b"x")
    assert scene.sock.done == ["pause", "resume"]
    assert scene.desk.told[-2:] == ["back", "end"]


def test_a_long_body_is_written_as_the_socket_takes_it_and_no_further(scene: Scene) -> None:
    body = bytes(1_500_000)

    def write_one_piece(data: bytes) -> None:
        scene.sock.written.append(bytes(data))
        if len(scene.sock.written) > 1:
            scene.connection.pause_writing()

    cast(Any, scene.sock).write = write_one_piece
    scene.begin(body=body)
    assert len(scene.sock.written) == 2
    while sum(map(len, scene.sock.written)) < len(body):
        before = len(scene.sock.written)
        scene.connection.resume_writing()
        assert len(scene.sock.written) == before + 1
    assert b"".join(scene.sock.written) == b"head " + body
    scene.connection.resume_writing()
    scene.connection.data_received(SIZED)
    assert scene.desk.told == [200, b"ok", "back", "end"]


def test_a_stale_connection_keeps_its_place_for_the_one_in_its_stead(scene: Scene) -> None:
    scene.begin()
    scene.connection.data_received(SIZED)
    scene.begin()
    scene.connection.eof_received()
    scene.connection.connection_lost(None)
    assert scene.desk.told == ["forget", Failure.STALE, "closed"]
    assert scene.connection.has_place
    scene.connection.abort()
    scene.connection.abort()
    assert scene.desk.told == ["forget", Failure.STALE, "closed", "vacate"]


@pytest.mark.parametrize("so_far", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_one_byte_of_an_answer_and_the_request_is_not_sent_again(scene: Scene, so_far: bytes) -> None:
    scene.begin()
    scene.connection.data_received(SIZED)
    scene.begin()
    scene.connection.data_received(so_far)
    scene.connection.connection_lost(ConnectionResetError())
    assert scene.desk.told == ["forget", "vacate", Failure.LOST, "closed"]


def test_a_place_is_given_up_once_however_it_ends(scene: Scene) -> None:
    scene.begin()
    scene.connection.abort()
    scene.connection.data_received(SIZED)
    scene.connection.eof_received()
    scene.connection.connection_lost(None)
    scene.connection.abort()
    assert scene.desk.told == ["forget", "vacate", "closed"]
    assert scene.loop.armed == []


def test_a_request_on_a_connection_that_has_died_already_is_lost(scene: Scene) -> None:
    scene.connection.connection_lost(ConnectionResetError())
    scene.begin()
    assert scene.desk.told == [Failure.LOST]
