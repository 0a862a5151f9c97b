"""Which paths of an engine are open, which keep share groups apart, and how it is asked for tokens."""

import re

import pytest

from backends.dialects import DIALECTS, OPENAI, Asked, Dialect, facts
from backends.dialects.sglang import SGLANG
from backends.dialects.types import NEWER_ROUTES, SaltForm
from backends.dialects.vllm import VLLM
from backends.types import Metering, TokenizeForm


def test_engines_are_asked_for_tokens_each_in_its_own_form() -> None:
    forms = {dialect.name: facts(dialect, {}, {}, {}).tokenize for dialect in DIALECTS}
    assert {name: form for name, form in forms.items() if form is not None} == {
        "reference": TokenizeForm.MESSAGES,
        "vllm": TokenizeForm.MESSAGES,
        "sglang": TokenizeForm.TEXT_ONLY,
        "trtllm": TokenizeForm.TEXT_ONLY,
        "llamacpp": TokenizeForm.TEMPLATE,
        "tgi": TokenizeForm.INPUTS,
    }


@pytest.mark.parametrize(
    ("version", "form"),
    [
        ("0.5.12", TokenizeForm.MESSAGES),
        ("0.5.23.post1", TokenizeForm.MESSAGES),
        ("0.5.9", TokenizeForm.TEXT_ONLY),
        (None, TokenizeForm.TEXT_ONLY),
    ],
)
def test_sglang_renders_chats_for_us_from_the_version_on_that_can(version: str | None, form: TokenizeForm) -> None:
    assert facts(SGLANG, {}, {}, {"version": version}).tokenize is form


def test_routes_are_those_every_version_has_and_those_that_answered() -> None:
    for dialect in DIALECTS:
        always = {"/v1/chat/completions"} if dialect is OPENAI else {"/v1/chat/completions", "/v1/completions"}
        assert facts(dialect, {}, {}, {}).routes == always
        assert facts(dialect, {}, {}, {}, Asked(spoken=("/v1/messages",))).routes == {*always, "/v1/messages"}
    assert [dialect.name for dialect in DIALECTS if not dialect.uncertain_routes] == ["reference", "tgi"]


STEERING = re.compile(
    r"adapter|lora|profile|cache|sleep|wake|slot|props|shutdown|weight|memory|pause|resume|abort|session|rpc|scale"
    r"|batch|generate|completion$|infill|models|metrics|server_info|internal"
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_path_that_steers_an_engine_is_open_to_tenants(dialect: Dialect) -> None:
    known = facts(dialect, {}, {}, {})
    assert known.open_paths == dialect.open_paths
    for path in known.open_paths:
        assert re.fullmatch(r"POST (/[a-z0-9_-]+)+", path)
        assert not STEERING.search(path)
    assert not {path.partition(" ")[2] for path in known.open_paths} & {*dialect.routes, *NEWER_ROUTES}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_what_only_reads_is_free_and_what_runs_the_model_is_metered(dialect: Dialect) -> None:
    reads = re.compile(r"tokeni[sz]e|input_tokens|apply-template")
    for path, metering in dialect.open_paths.items():
        assert metering is (Metering.FREE if reads.search(path) else Metering.METERED)
    if dialect.tokenize is TokenizeForm.MESSAGES:
        assert dialect.open_paths["POST /tokenize"] is Metering.FREE


@pytest.mark.parametrize(
    ("version", "heeds"),
    [
        ("0.32.0", True),
        ("0.33.1", True),
        ("1.0", True),
        ("0.31.2", False),
        ("0.9", False),
        ("dev", False),
        (None, False),
    ],
)
def test_a_salt_is_trusted_in_newer_dialects_only_where_the_version_is_known_to_heed_it(
    version: str | None, heeds: bool
) -> None:
    spoken = ("/v1/messages", "/v1/responses", "/v1/embeddings")
    known = facts(VLLM, {}, {}, {"version": version}, Asked(spoken=spoken))
    assert {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} <= known.salted_routes
    assert ({"/v1/messages", "/v1/responses"} <= known.salted_routes) is heeds


@pytest.mark.parametrize("salt", ["a", "0f" * 64, "tenant_1-"])
def test_salts_of_letters_and_digits_are_taken_by_every_engine_that_has_salts(salt: str) -> None:
    forms = [dialect.salt for dialect in DIALECTS if dialect.salt is not None]
    assert len(forms) == 4
    assert all(form.takes(salt) for form in forms)


@pytest.mark.parametrize("salt", ["", "a" * 129, "a@b", "a/b", "a\\b", "a\0"])
def test_what_vllm_answers_with_400_is_no_salt(salt: str) -> None:
    assert isinstance(VLLM.salt, SaltForm)
    assert not VLLM.salt.takes(salt)
