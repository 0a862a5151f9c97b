"""What engines answer beside text: their usage and their errors, recorded ones and ones after their documentation."""

import json
from pathlib import Path

import pytest

from billing import UsageMerger
from gateway.edge.engine_errors import EngineError, error_in_body
from gateway.relay import StreamTee
from gateway.stream_format import format_of
from gateway.types import Route

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*-err-*.json")), ids=lambda path: path.stem)
def test_every_recorded_refusal_gives_its_words(path: Path) -> None:
    error = error_in_body(path.read_bytes())
    assert error.message
    assert error.type or path.stem == "vllm-0.32-err-embeddings"


@pytest.mark.parametrize(
    ("engine", "said", "error"),
    [
        (
            "SGLang",
            {"object": "error", "message": "The request queue is full.", "type": "x", "param": None, "code": 503},
            EngineError("The request queue is full.", "x", None, 503),
        ),
        ("SGLang /generate", {"error": {"message": "No."}}, EngineError("No.")),
        (
            "TensorRT-LLM validation",
            {"error": "Extra inputs are not permitted"},
            EngineError("Extra inputs are not permitted"),
        ),
        (
            "vLLM up to 0.10.0",
            {"object": "error", "message": "No.", "type": "BadRequestError", "param": None, "code": 400},
            EngineError("No.", "BadRequestError", None, 400),
        ),
        ("vLLM without its key", {"error": "Unauthorized"}, EngineError("Unauthorized")),
        ("TGI", {"error": "Model is overloaded", "error_type": "overloaded"}, EngineError("Model is overloaded")),
        (
            "llama.cpp, loading",
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            EngineError("Loading model", "unavailable_error", None, 503),
        ),
        (
            "Ollama",
            {"error": {"message": 'model "x" not found', "type": "not_found_error", "param": None, "code": None}},
            EngineError('model "x" not found', "not_found_error"),
        ),
        ("Ollama's own paths", {"error": 'model "x" not found'}, EngineError('model "x" not found')),
    ],
)
def test_refusals_are_read_in_the_form_of_each_engine(engine: str, said: object, error: EngineError) -> None:
    assert error_in_body(json.dumps(said).encode()) == error, engine


PLAIN = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}


@pytest.mark.parametrize(
    ("engine", "usage", "cached_tokens"),
    [
        ("vLLM without its flag", {**PLAIN, "prompt_tokens_details": None}, None),
        ("vLLM up to 0.23, nothing cached", PLAIN, None),
        ("vLLM from 0.24", {**PLAIN, "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 96}}, 0),
        ("SGLang", {**PLAIN, "reasoning_tokens": 0, "prompt_tokens_details": {"cached_tokens": 64}}, 64),
        ("SGLang without its flag", {**PLAIN, "reasoning_tokens": 0, "prompt_tokens_details": None}, None),
        ("TensorRT-LLM", {**PLAIN, "prompt_tokens_details": {"cached_tokens": 37}}, 37),
        ("llama.cpp", {**PLAIN, "prompt_tokens_details": {"cached_tokens": 99}}, 99),
        ("TGI", PLAIN, None),
        ("Ollama", PLAIN, None),
        ("DeepSeek", {**PLAIN, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, 64),
    ],
)
def test_cached_tokens_are_what_each_engine_says_and_unknown_where_it_says_nothing(
    engine: str, usage: dict[str, object], cached_tokens: int | None
) -> None:
    merger = UsageMerger()
    merger.add(usage)
    found = merger.result().usage
    assert found is not None
    assert (found.prompt_tokens, found.output_tokens, found.cached_tokens) == (100, 5, cached_tokens), engine


def test_sglangs_chunk_of_details_before_its_usage_is_no_usage() -> None:
    usage = {**PLAIN, "prompt_tokens_details": {"cached_tokens": 64}}
    tee = StreamTee(format_of(Route.CHAT), keep_usage=True)
    for chunk in (
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"choices": [], "sglext": {"cached_tokens_details": {"device": 64, "host": 0}}},
        {"choices": [], "usage": usage},
    ):
        tee.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    tee.feed(b"data: [DONE]\n\n")
    tee.held()
    found = tee.usage.result().usage
    assert found is not None
    assert found.cached_tokens == 64
