"""The URL of the index: all its forms, what is no such URL, and that its password is told to nobody."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.errors import RedisAddressInvalid
from prefix_index.redis_address import Place, RedisAccess, Shape, read_address
from prefix_index.redis_clients import connect, connect_one
from prefix_index.redis_cluster import ClusterClient


@pytest.mark.parametrize(
    ("url", "shape", "tls", "places", "service", "db"),
    [
        ("redis://h", Shape.SINGLE, False, (("h", 6379),), "", 0),
        ("rediss://u:p@h.example:7000/3", Shape.SINGLE, True, (("h.example", 7000),), "", 3),
        ("redis://[::1]:7000/0?ssl_check_hostname=no", Shape.SINGLE, False, (("::1", 7000),), "", 0),
        (
            "redis+sentinel://a,b:7,[::1]/index/2",
            Shape.SENTINEL,
            False,
            (("a", 26379), ("b", 7), ("::1", 26379)),
            "index",
            2,
        ),
        ("rediss+sentinel://:p@a/my%20index", Shape.SENTINEL, True, (("a", 26379),), "my index", 0),
        ("redis+cluster://a,b:7", Shape.CLUSTER, False, (("a", 6379), ("b", 7)), "", 0),
        ("rediss+cluster://u@a:1/0", Shape.CLUSTER, True, (("a", 1),), "", 0),
        ("unix:///run/redis.sock?db=1", Shape.SINGLE, False, (), "", 0),
        ("unix://u:p@/run/redis.sock", Shape.SINGLE, False, (), "", 0),
    ],
)
def test_all_forms_are_read(
    url: str, shape: Shape, tls: bool, places: tuple[tuple[str, int], ...], service: str, db: int
) -> None:
    address = read_address(url)
    assert (address.shape, address.tls, address.service, address.db) == (shape, tls, service, db)
    assert address.places == tuple(Place(*place) for place in places)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://redis", "must start with"),
        ("redis", "must start with"),
        ("redis+ring://a", "must start with"),
        ("unix+cluster:///a", "must start with"),
        ("redis://a,b", "takes one host"),
        ("redis://", "no HOST:PORT"),
        ("redis://a:0", "no HOST:PORT"),
        ("redis://a:65536", "no HOST:PORT"),
        ("redis+cluster://a,,b", "host 2 of the URL"),
        ("redis://a/x", "number of a database"),
        ("redis+cluster://a/1", "only the database 0"),
        ("redis+sentinel://a", "name of the service"),
        ("redis+sentinel://a/s/x", "number of a database"),
        ("redis+cluster://a?db=1", "take options after a question mark"),
        ("redis://a?db=x", "only these are understood"),
        ("redis://a?protocol=3", "only these are understood"),
        ("redis://a?password=x", "only these are understood"),
        ("unix://run/redis.sock", "absolute path"),
        ("redis://u:a#b@h", "%23"),
    ],
)
def test_what_is_no_such_url_is_named(url: str, why: str) -> None:
    with pytest.raises(RedisAddressInvalid, match=why):
        read_address(url)


SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+cluster", "unix", "http")
TEXT = st.text(st.sampled_from("abc:@/?#,[]%"), max_size=12)


@given(st.sampled_from(SCHEMES), TEXT, TEXT)
def test_no_text_of_ours_holds_a_password(scheme: str, before: str, after: str) -> None:
    url = f"{scheme}://{before}:hunter2@{after}"
    try:
        told = repr(read_address(url))
    except RedisAddressInvalid as error:
        told = str(error)
    assert "hunter2" not in told


def test_a_login_is_percent_encoded() -> None:
    address = read_address("redis://a%40b:c%2Fd%25@h")
    assert (address.username, address.password) == ("a@b", "c/d%")
    address = read_address("unix://a:b@/run/redis.sock")
    assert (address.username, address.password) == ("a", "b")


def test_one_password_is_enough() -> None:
    with pytest.raises(RedisAddressInvalid, match="given twice"):
        connect("redis://:one@h", RedisAccess(password="two"))


def test_access_is_shown_without_its_passwords() -> None:
    shown = repr(RedisAccess("u", "hunter2", None, "hunter3", Path("ca.pem")))
    assert "hunter" not in shown
    assert "ca.pem" in shown


def test_a_cluster_has_a_client_of_its_own() -> None:
    assert isinstance(connect("redis+cluster://a"), ClusterClient)
    with pytest.raises(RedisAddressInvalid, match="not one server"):
        connect_one("redis+cluster://a")
