"""A file of endpoints that is changed, broken, halved and removed while it is watched."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.discovery import Found, ListingInvalid, WatchedFile
from backends.discovery.watched_file import FRESH_S, MOST_BYTES
from tests.backends.discovery.reports import Told


def lines(data: bytes) -> Sequence[Found]:
    """A URL a line."""
    text = data.decode()
    if "broken" in text:
        raise ListingInvalid("line 1: no URL")
    return [Found(line) for line in text.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "endpoints"


def write(path: Path, *urls: str, age_s: float = 2 * FRESH_S) -> None:
    """As if it had been written some time ago."""
    path.write_text("\n".join(urls))
    then_s = path.stat().st_mtime - age_s
    os.utime(path, (then_s, then_s))


async def test_a_changed_file_is_taken_over(path: Path) -> None:
    told, source = Told(), WatchedFile("file", path, lines, poll_s=1)
    write(path, "http://a")
    await source.look(told)
    assert told.urls == ["http://a"]
    write(path, "http://a", "http://b")
    await source.look(told)
    assert told.urls == ["http://a", "http://b"]


async def test_a_file_that_cannot_be_used_leaves_what_was_known_and_says_why(path: Path) -> None:
    told, source = Told(), WatchedFile("file", path, lines, poll_s=1)
    write(path, "http://a")
    await source.look(told)
    write(path, "broken")
    await source.look(told)
    path.unlink()
    await source.look(told)
    assert told.urls == ["http://a"]
    assert told.problems == ["endpoints: line 1: no URL", "endpoints: there is no such file"]
    write(path, "http://a")
    told.listing = None
    await source.look(told)
    assert told.urls == ["http://a"]


async def test_half_a_file_that_is_being_written_takes_nobody_away(path: Path) -> None:
    told, source = Told(), WatchedFile("file", path, lines, poll_s=1)
    write(path, "http://a", "http://b")
    await source.look(told)
    write(path, "http://a", age_s=0)
    await source.look(told)
    assert told.urls == ["http://a", "http://b"]
    write(path, "http://a", "http://b", "http://c", age_s=0)
    await source.look(told)
    assert told.urls == ["http://a", "http://b"]
    await source.look(told)
    assert told.urls == ["http://a", "http://b", "http://c"]


async def test_a_second_change_that_the_time_of_the_file_does_not_show_is_seen(path: Path) -> None:
    told, source = Told(), WatchedFile("file", path, lines, poll_s=1)
    write(path, "http://a", age_s=0)
    await source.look(told)
    stat = path.stat()
    path.write_text("http://b")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    await source.look(told)
    await source.look(told)
    assert told.urls == ["http://b"]


async def test_a_file_of_our_own_that_is_not_there_yet_is_empty(path: Path) -> None:
    told = Told()
    await WatchedFile("admin", path, lines, poll_s=1, is_ours=True).look(told)
    assert told.urls == []


async def test_an_endless_file_is_not_read(path: Path) -> None:
    told = Told()
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    await WatchedFile("file", path, lines, poll_s=1).look(told)
    assert told.listing is None
    assert told.problems == [f"endpoints: it is longer than {MOST_BYTES} bytes"]
