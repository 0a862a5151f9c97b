"""Job ids, end users and tags: what is taken, what is refused, and what goes no further."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.labels import MOST_SETS, MOST_TAGS, OVERFLOW, Labeller, read_tags
from gateway.edge.upstream import upstream_headers
from gateway.errors import BadRequest
from gateway.types import Headers, KeyId, Labels, Route, Tenant, TenantId
from tests.gateway.edge.test_reading import CHAT, read

ACME = Tenant(TenantId("acme"), KeyId("acme-1"), "acme", "5a17")
UMBRA = Tenant(TenantId("umbra"), KeyId("umbra-1"), "umbra", "77")
LABELLER = Labeller(b"s3cret")


def labels_of(*headers: tuple[bytes, bytes], user: str | None = None, tenant: Tenant = ACME) -> Labels:
    return LABELLER.labels(headers, tenant, user)


def test_a_request_that_says_nothing_has_no_labels() -> None:
    assert labels_of((b"content-type", b"application/json")) == Labels()


def test_a_job_id_is_taken_as_it_is() -> None:
    assert labels_of((b"x-prefixgate-job-id", b" run:2026-11/7f3@eu ")).job_id == "run:2026-11/7f3@eu"


@pytest.mark.parametrize("said", [b"", b"-run", b"a b", b"a" * 129, "zürich".encode(), b"a\x00", b"=1+1", b"a,b"])
def test_a_job_id_that_breaks_its_rule_is_refused_without_being_repeated(said: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        labels_of((b"x-prefixgate-job-id", said))
    assert refused.value.param == "x-prefixgate-job-id"
    assert "zürich" not in str(refused.value)


@pytest.mark.parametrize("header", [b"x-prefixgate-job-id", b"x-prefixgate-tags"])
def test_a_header_that_stands_twice_is_refused(header: bytes) -> None:
    with pytest.raises(BadRequest, match="twice"):
        labels_of((header, b"a=b"), (header, b"a=b"))


def test_an_end_user_is_a_hash_that_depends_on_the_secret_and_the_tenant() -> None:
    hashed = labels_of(user="ann@example.com").end_user
    assert hashed is not None
    assert len(hashed) == 32
    assert int(hashed, 16)
    assert labels_of(user="ann@example.com").end_user == hashed
    assert labels_of(user="bob@example.com").end_user != hashed
    assert labels_of(user="ann@example.com", tenant=UMBRA).end_user != hashed
    assert Labeller(b"another").labels((), ACME, "ann@example.com").end_user != hashed


def test_an_empty_user_is_nobody() -> None:
    assert labels_of(user="").end_user is None


@pytest.mark.parametrize(
    ("route", "body", "user"),
    [
        (Route.CHAT, CHAT + b',"user":"ann"}', "ann"),
        (Route.CHAT, CHAT + b',"safety_identifier":"ann"}', "ann"),
        (Route.CHAT, CHAT + b',"user":"ann","safety_identifier":"bob"}', "ann"),
        (Route.CHAT, CHAT + b',"user":"a\\ud83dn"}', "a\ufffdn"),
        (Route.CHAT, CHAT + b',"user":7}', None),
        (Route.CHAT, CHAT + b',"user":null}', None),
        (Route.CHAT, CHAT + b',"metadata":{"user_id":"ann"}}', None),
        (Route.COMPLETIONS, b'{"model":"m","prompt":"Hi","user":"ann"}', "ann"),
        (Route.EMBEDDINGS, b'{"model":"m","input":"Hi","user":"ann"}', "ann"),
        (Route.RESPONSES, b'{"model":"m","input":"Hi","user":"ann"}', "ann"),
        (Route.MESSAGES, CHAT + b',"max_tokens":5,"metadata":{"user_id":"ann"}}', "ann"),
        (Route.MESSAGES, CHAT + b',"max_tokens":5,"metadata":{"user_id":null}}', None),
        (Route.MESSAGES, CHAT + b',"max_tokens":5}', None),
    ],
)
def test_the_end_user_is_found_where_each_dialect_says_it(route: Route, body: bytes, user: str | None) -> None:
    assert read(body, route).user == user


def test_a_request_shows_nobody_its_user() -> None:
    assert "ann@example" not in repr(read(CHAT + b',"user":"ann@example.com"}'))


def test_tags_are_names_and_values() -> None:
    assert labels_of((b"x-prefixgate-tags", b"team=search, env = prod eu")).tags == {"team": "search", "env": "prod eu"}


def test_tags_of_the_key_stand_and_win() -> None:
    tagged = replace(ACME, tags={"plan": "gold", "env": "prod"})
    assert labels_of(tenant=tagged).tags == {"plan": "gold", "env": "prod"}
    said = (b"x-prefixgate-tags", b"plan=free, team=search")
    assert labels_of(said, tenant=tagged).tags == {"plan": "gold", "env": "prod", "team": "search"}


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"team",
        b"team=",
        b"=x",
        b"Team=x",
        b"team=a,team=b",
        b"team==x",
        b"a" * 33 + b"=x",
        b"a=" + b"x" * 65,
        b"a=\xe9",
        b",".join(b"t%d=x" % n for n in range(MOST_TAGS + 1)),
    ],
)
def test_tags_that_break_their_rule_are_refused(said: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        labels_of((b"x-prefixgate-tags", said))
    assert refused.value.param == "x-prefixgate-tags"


def test_a_tenant_cannot_make_ever_new_tags_and_takes_nothing_from_another_by_trying() -> None:
    labeller = Labeller(b"")

    def tags(number: int, tenant: Tenant) -> object:
        return labeller.labels(((b"x-prefixgate-tags", b"n=%d" % number),), tenant, None).tags

    assert [tags(number, ACME) for number in range(MOST_SETS)] == [{"n": str(number)} for number in range(MOST_SETS)]
    assert tags(MOST_SETS, ACME) == OVERFLOW
    assert tags(7, ACME) == {"n": "7"}
    assert tags(MOST_SETS, UMBRA) == {"n": str(MOST_SETS)}


@given(st.binary(max_size=80))
def test_whatever_is_said_tags_are_within_their_bounds_or_refused(said: bytes) -> None:
    try:
        tags = read_tags(said)
    except BadRequest:
        return
    assert 1 <= len(tags) <= MOST_TAGS
    assert all(len(name) <= 32 and len(value) <= 64 for name, value in tags.items())
    assert len(json.dumps(tags)) < 1000


def test_no_engine_is_told_what_is_said_to_the_books() -> None:
    headers: Headers = ((b"x-prefixgate-job-id", b"run"), (b"x-prefixgate-tags", b"a=b"), (b"x-other", b"1"))
    assert [name for name, _ in upstream_headers(read(CHAT + b"}", headers=headers))] == [b"x-other", b"x-request-id"]


def test_a_body_with_a_user_that_is_no_utf8_is_no_json() -> None:
    with pytest.raises(BadRequest):
        read(CHAT + b',"user":"\xff"}')
