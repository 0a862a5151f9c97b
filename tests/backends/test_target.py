"""How a request begins: where it goes, what it says of itself, and that nothing in it ends a line."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidEndpoint
from backends.target import Target, request_head, target_of
from backends.types import EndpointConfig, EndpointId, UpstreamRequest


def target(url: str, api_key: str | None = None) -> Target:
    return target_of(EndpointConfig(EndpointId("a"), url, api_key=api_key))


def read_back(head: bytes) -> h11.Request:
    """The request as another implementation reads it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(head)
    event = server.next_event()
    assert isinstance(event, h11.Request)
    return event


@pytest.mark.parametrize(
    ("url", "host", "port", "named"),
    [
        ("http://a", "a", 80, b"a"),
        ("http://A.example:80", "a.example", 80, b"a.example"),
        ("https://a.example", "a.example", 443, b"a.example"),
        ("https://a:80", "a", 80, b"a:80"),
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, b"127.0.0.1:8000"),
        ("http://[::1]:8000/v1", "::1", 8000, b"[::1]:8000"),
        ("http://[fe80::1%eth0]", "fe80::1%eth0", 80, b"[fe80::1]"),
        ("http://bücher.example", "xn--bcher-kva.example", 80, b"xn--bcher-kva.example"),
    ],
)
def test_an_address_is_read_from_the_url_and_named_in_host(url: str, host: str, port: int, named: bytes) -> None:
    where = target(url)
    assert (where.host, where.port, where.tls) == (host, port, url.startswith("https"))
    assert (b"host", named) in read_back(request_head(where, UpstreamRequest("GET", "/x"))).headers


def test_a_host_that_no_resolver_takes_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(InvalidEndpoint):
        target(f"http://{'ü' * 70}.example")


def test_path_query_and_base_path_are_sent_as_they_are() -> None:
    where = target("http://a/base/path/")
    for path in ("/v1/x?a=%2F&b=%20c", "/v1/x?", "//x", "/%ff", "/x?y=http://z/../"):
        assert read_back(request_head(where, UpstreamRequest("POST", path))).target == b"/base/path" + path.encode()


_names = st.text("abcXYZ-_09!#", min_size=1, max_size=10).map(lambda text: b"x-" + text.encode())
_values = st.binary(max_size=20).map(lambda value: value.translate(None, bytes([*range(0x20), 0x7F])).strip(b" "))


@given(st.lists(st.tuples(_names, _values), max_size=8), st.sampled_from(["own", None]), st.binary(max_size=30))
def test_fields_arrive_in_order_with_their_bytes_unchanged(
    fields: list[tuple[bytes, bytes]], api_key: str | None, body: bytes
) -> None:
    head = request_head(target("http://a", api_key), UpstreamRequest("POST", "/x", tuple(fields), body))
    read = read_back(head)
    key = [] if api_key is None else [(b"authorization", b"Bearer own")]
    assert list(read.headers) == [
        (b"host", b"a"),
        (b"accept-encoding", b"identity"),
        *key,
        *((name.lower(), value) for name, value in fields),
        (b"content-length", b"%d" % len(body)),
    ]
    assert read.http_version == b"1.1"


@pytest.mark.parametrize(("method", "says"), [("GET", False), ("HEAD", False), ("POST", True), ("PUT", True)])
def test_the_lack_of_a_body_is_said_where_one_is_expected(method: str, says: bool) -> None:
    head = request_head(target("http://a"), UpstreamRequest(method, "/x"))
    assert (b"content-length: 0\r\n" in head) == says


@pytest.mark.parametrize("bad", ["\r", "\n", "\r\nx: y", "\0", "\r\n\r\nGET /other HTTP/1.1\r\n"])
def test_nothing_can_end_a_line_of_the_head(bad: str) -> None:
    where = target("http://a")
    for request in (
        UpstreamRequest("POST", f"/x{bad}"),
        UpstreamRequest(f"POST{bad}", "/x"),
        UpstreamRequest("POST", "/x", ((b"x-a", b"1" + bad.encode()),)),
        UpstreamRequest("POST", "/x", ((b"x-a" + bad.encode(), b"1"),)),
        UpstreamRequest("POST", "/x", ((b"connection", b"x-b"), (b"x-a", bad.encode()))),
    ):
        with pytest.raises(ValueError, match="cannot be sent"):
            request_head(where, request)


@pytest.mark.parametrize("path", ["/x y", "/x HTTP/1.1", "/€"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be sent|latin-1"):
        request_head(target("http://a"), UpstreamRequest("POST", path))
