"""Fields go into and come out of a body without a change to any other byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.splice import add_fields, cut_fields, put_in_object, set_field
from gateway.errors import BadRequest

ODD_BODY = (
    b'{ "model":"m",\r\n\t"temperature" : 1.0e0, "unknown":{"b":1,"a":[ ]}, "text":"caf\\u00e9 \xe6\x97\xa5 \\"}{\\"",'
    b' "n":1, "n":2, "big":123456789012345678901234567890 } '
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=8) | st.sampled_from(["cache_salt", "priority"]), values, min_size=1)


def test_an_added_field_stands_last_and_wins_over_one_of_the_same_name() -> None:
    body = add_fields(b'{"cache_salt": "mine", "x": 1}\n', {"cache_salt": b'"ours"'})
    assert body == b'{"cache_salt": "mine", "x": 1,"cache_salt":"ours"}'
    assert json.loads(body)["cache_salt"] == "ours"


def test_what_the_client_wrote_keeps_every_byte() -> None:
    assert add_fields(ODD_BODY, {"z": b"0"}).startswith(ODD_BODY.rstrip()[:-1])


def test_a_cut_takes_every_duplicate_and_leaves_spacing_and_numbers_alone() -> None:
    body = b'{"a":1, "priority":5,"b" : 1.0e0 ,"priority" : {"x":[1]}, "c":"caf\\u00e9"}'
    assert cut_fields(body, frozenset({"priority"})) == b'{"a":1,"b" : 1.0e0,"c":"caf\\u00e9"}'


def test_a_name_written_with_escapes_is_cut_too() -> None:
    assert cut_fields(b'{"a":1,"cache\\u005fsalt":"x"}', frozenset({"cache_salt"})) == b'{"a":1}'


def test_cutting_nothing_gives_the_very_same_bytes() -> None:
    assert cut_fields(ODD_BODY, frozenset({"priority"})) == ODD_BODY


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"stream_options":{}}', b'{"stream_options":{"include_usage":true}}'),
        (b'{"stream_options": null , "b":1}', b'{"stream_options": {"include_usage":true} , "b":1}'),
        (
            b'{"stream_options":{"include_usage":false}}',
            b'{"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream_options":{},"stream_options":{}}',
            b'{"stream_options":{},"stream_options":{"include_usage":true}}',
        ),
    ],
)
def test_a_field_goes_into_the_last_inner_object_of_a_name(body: bytes, expected: bytes) -> None:
    assert put_in_object(body, "stream_options", {"include_usage": b"true"}) == expected


def test_a_body_nested_too_deeply_is_refused_and_does_not_crash() -> None:
    body = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b',"priority":1}'
    with pytest.raises(BadRequest, match="nested too deeply"):
        cut_fields(body, frozenset({"priority"}))


def test_a_number_of_any_length_is_walked_over() -> None:
    number = b"1" * 5000
    body = b'{"a":' + number + b',"priority":1}'
    assert cut_fields(body, frozenset({"priority"})) == b'{"a":' + number + b"}"


@given(objects, st.sampled_from([None, 1, 4]), st.booleans())
def test_cutting_equals_parsing_and_dropping(content: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        body.decode()
    except UnicodeDecodeError:
        return
    cut = cut_fields(body, frozenset({"cache_salt", "priority"}))
    assert json.loads(cut) == {k: v for k, v in content.items() if k not in ("cache_salt", "priority")}


@given(objects, st.dictionaries(st.sampled_from(["a", "cache_salt"]), values, min_size=1))
def test_adding_equals_parsing_and_updating(content: dict[str, Any], ours: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    added = add_fields(body, {name: json.dumps(value).encode() for name, value in ours.items()})
    assert json.loads(added) == {**content, **ours}


@given(objects, values)
def test_setting_a_field_changes_every_one_of_that_name_and_nothing_else(content: dict[str, Any], value: Any) -> None:
    body = json.dumps(content).encode()
    changed = set_field(body, "cache_salt", json.dumps(value).encode())
    assert json.loads(changed) == {name: value if name == "cache_salt" else one for name, one in content.items()}
    if "cache_salt" not in content:
        assert changed is body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{ "model" : "a" , "n":1.0}', b'{ "model" : "b" , "n":1.0}'),
        (b'{"model":"a","x":{"model":"a"},"model":null}', b'{"model":"b","x":{"model":"a"},"model":"b"}'),
        (b'{"mode\\u006c":"a"}', b'{"mode\\u006c":"b"}'),
        ('{"\u6771":"\u4eac","model":"\u00e9"}'.encode(), '{"\u6771":"\u4eac","model":"b"}'.encode()),
    ],
)
def test_a_field_is_set_where_it_stands_however_it_is_written(body: bytes, expected: bytes) -> None:
    assert set_field(body, "model", b'"b"') == expected
