"""The nouns: what configurations are refused, and what is never printed."""

import pytest

from backends.errors import InvalidEndpoint, NoEndpoint
from backends.types import EndpointConfig, EndpointId, EndpointSnapshot, LoadSample

A = EndpointId("a")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:8000",
        "ftp://a",
        "http://",
        "http://user:secret@a",
        "http://a/?q=1",
        "http://a/#f",
        "http:///v1",
        "http://a:99999",
        "http://[::1",
    ],
)
def test_urls_that_cannot_work_are_refused_with_a_reason_that_does_not_print_them(url: str) -> None:
    with pytest.raises(InvalidEndpoint) as failure:
        EndpointConfig(A, url)
    assert failure.value.endpoint_id == "a"
    assert "secret" not in str(failure.value)


def test_a_base_path_is_kept_and_its_trailing_slash_dropped() -> None:
    assert EndpointConfig(A, "https://h:1/base/").url == "https://h:1/base"


def test_a_key_is_not_printed() -> None:
    assert "secret" not in repr(EndpointConfig(A, "http://h", api_key="secret"))


def test_the_age_of_a_load_is_unknown_before_the_first_sample() -> None:
    snapshot = EndpointSnapshot(A, healthy=True, generation=0)
    assert snapshot.age_s(5.0) is None
    sampled = EndpointSnapshot(A, healthy=True, generation=0, load=LoadSample(fetched_at_s=3.5))
    assert sampled.age_s(5.0) == 1.5


def test_no_endpoint_names_what_was_tried() -> None:
    assert str(NoEndpoint("m", ["a", "b"])) == "no healthy endpoint serves model m after trying a, b"
