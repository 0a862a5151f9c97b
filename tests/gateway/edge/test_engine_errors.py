"""An engine's words are found wherever it puts them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.engine_errors import EngineError, error_in_body, error_in_chunk, read_error


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            {"error": {"message": "No.", "type": "t", "param": "p", "code": "c"}},
            EngineError("No.", "t", "p", "c"),
        ),
        ({"object": "error", "message": "No.", "type": "t", "code": 400}, EngineError("No.", "t", None, 400)),
        ({"error": "No."}, EngineError("No.")),
        ("No.", EngineError("No.")),
        ({"detail": "No."}, EngineError("No.")),
        ({"detail": {"error": "No."}}, EngineError("No.")),
        ({"detail": [{"msg": "a"}, {"loc": []}, "b"]}, EngineError("a; b")),
        ({"message": {"message": "No."}}, EngineError("No.")),
        ({"error": "Bad Request", "message": "No."}, EngineError("No.")),
        ({"error": {"message": 7, "type": 7, "param": 7, "code": [7]}}, EngineError()),
        ({"error": {"message": "No.", "code": True}}, EngineError("No.")),
        ({"error": {"error": {"error": {"error": {"error": "too deep"}}}}}, EngineError()),
        (None, EngineError()),
        (7, EngineError()),
    ],
)
def test_errors_are_read_in_every_shape(said: object, error: EngineError) -> None:
    assert read_error(said) == error
    assert error_in_body(json.dumps(said).encode()) == error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"out of memory\n", "out of memory"),
        (b"caf\xe9", "caf\ufffd"),
        (b"x" * 5000, "x" * 1000),
        (b" <html>Bad Gateway</html>", ""),
        (b"[" * 100_000, ""),
        (b"", ""),
    ],
)
def test_what_is_no_json_is_quoted_unless_it_is_a_page(body: bytes, message: str) -> None:
    assert error_in_body(body) == EngineError(message)


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(body: bytes) -> None:
    assert len(error_in_body(body).message) <= len(body)


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        ({"choices": []}, None),
        ({"choices": [], "error": None}, None),
        ({"choices": [], "error": {}}, None),
        ({"choices": [], "error": {"message": "No."}}, EngineError("No.")),
        ({"error": {}}, EngineError()),
        ({"object": "error", "message": "No."}, EngineError("No.")),
        ({"message": "no error by itself"}, None),
    ],
)
def test_a_chunk_reports_an_error_or_none(chunk: dict[str, object], error: EngineError | None) -> None:
    assert error_in_chunk(chunk) == error
