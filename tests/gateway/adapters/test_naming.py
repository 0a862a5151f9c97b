"""Adapters by whatever name their clients use, and as each engine must be told."""

import json
from dataclasses import replace

import pytest

from backends import ServedModel
from gateway.adapter_config import Adapter, Adapters
from gateway.adapters import adapter_of, form_at, forms_of, named
from gateway.edge.upstream import outgoing
from gateway.errors import BadRequest, Forbidden
from gateway.sim.ours import REQUEST
from gateway.types import InferenceRequest, Scopes

MODELS = {
    "m": ServedModel("m"),
    "sql": ServedModel("sql", parent="m"),
    "law": ServedModel("law", parent="m"),
    "other:8b": ServedModel("other:8b"),
    "short": ServedModel("short", alias_of="m"),
}
CHAT = "/v1/chat/completions"


def asking(model: str, **fields: object) -> InferenceRequest:
    """A chat for a model, with further fields."""
    adapter = json.dumps(fields) if fields else None
    body = json.dumps({"model": model, "messages": [], **fields}).encode()
    return replace(REQUEST, model=model, adapter=adapter, body=body, stream=False)


@pytest.mark.parametrize(
    "request_",
    [
        asking("sql"),
        asking("m:sql"),
        asking("short:sql"),
        asking("m", lora_path="sql"),
        asking("sql", lora_path="sql"),
        asking("m:sql", lora_path="sql"),
    ],
)
def test_an_adapter_is_the_model_of_its_name_however_it_is_said(request_: InferenceRequest) -> None:
    found = named(request_, MODELS.get)
    assert (found.model, found.adapter, found.asked_model) == ("sql", None, request_.model)
    assert adapter_of(found.model, MODELS.get) == "sql"


@pytest.mark.parametrize(
    "request_",
    [
        asking("m"),
        asking("other:8b"),
        asking("m:unknown"),
        asking("sql:m"),
        asking("other:8b:sql"),
        asking("m:"),
        asking("m", lora_path="unknown"),
        asking("m", lora=[{"id": 0, "scale": 1}]),
        asking("m", adapter_id="sql"),
    ],
)
def test_what_names_no_adapter_of_the_model_is_left_as_it_is(request_: InferenceRequest) -> None:
    assert named(request_, MODELS.get) is request_


@pytest.mark.parametrize(
    "request_",
    [
        asking("sql", lora_path="law"),
        asking("m:sql", lora_path="law"),
        asking("m", lora_path="sql", adapter_id=""),
        asking("m", lora_path="sql", lora=0),
        asking("m", lora_path=["sql"]),
        asking("m", lora_path=[None, "sql"]),
        asking("sql", lora_path="unknown"),
        asking("other:8b", lora_path="sql"),
        asking("sql", lora_path=""),
    ],
)
def test_no_adapter_is_had_at_the_price_of_another_model(request_: InferenceRequest) -> None:
    with pytest.raises(BadRequest, match="name one adapter, as the model") as refused:
        named(request_, MODELS.get)
    assert refused.value.param == "lora_path"


@pytest.mark.parametrize("model", ["m", "sql"])
def test_an_adapter_that_has_a_name_and_a_price_is_not_had_by_its_number(model: str) -> None:
    by_number = asking(model, lora=[{"id": 0, "scale": 1}])
    with pytest.raises(BadRequest, match="have names") as refused:
        named(by_number, MODELS.get, ("m",))
    assert refused.value.param == "lora"
    assert named(by_number, MODELS.get, ("another",)) is by_number


@pytest.mark.parametrize("written", ["sql", "m:sql"])
def test_a_field_of_another_engine_leaves_the_adapter_that_the_model_names(written: str) -> None:
    found = named(asking(written, adapter_id="x"), MODELS.get)
    assert (found.model, adapter_of(found.model, MODELS.get)) == ("sql", "sql")
    assert found.adapter is not None, "it keeps prefixes apart"


def test_a_directory_of_the_engine_is_not_for_clients_to_name() -> None:
    with pytest.raises(BadRequest) as refused:
        named(asking("m", lora_request={"lora_name": "a", "lora_int_id": 1, "lora_path": "/etc"}), MODELS.get)
    assert refused.value.param == "lora_request"
    assert "/etc" not in str(refused.value)


@pytest.mark.parametrize("request_", [asking("m:sql"), asking("m", lora_path="sql")])
def test_a_key_for_the_base_model_alone_gets_no_adapter_of_it(request_: InferenceRequest) -> None:
    tenant = replace(request_.tenant, scopes=Scopes(models=frozenset({"m*"})))
    with pytest.raises(Forbidden):
        named(replace(request_, tenant=tenant), MODELS.get)
    tenant = replace(request_.tenant, scopes=Scopes(models=frozenset({"m*", "sql"})))
    assert named(replace(request_, tenant=tenant), MODELS.get).model == "sql"


KNOWN = [Adapter(name="sql", model="m", path="/adapters/sql", number=3, scale=0.5)]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm", {"model": "sql"}),
        ("tgi", {"model": "sql"}),
        ("openai", {"model": "sql"}),
        ("sglang", {"model": "sql", "lora_path": "sql"}),
        (
            "trtllm",
            {"model": "m", "lora_request": {"lora_name": "sql", "lora_int_id": 3, "lora_path": "/adapters/sql"}},
        ),
        ("llamacpp", {"model": "m", "lora": [{"id": 3, "scale": 0.5}]}),
    ],
)
@pytest.mark.parametrize(
    "written", [asking("sql"), asking("m:sql"), asking("m", lora_path="sql"), asking("sql", lora_path="sql")]
)
def test_each_engine_is_told_in_its_own_way(engine: str, said: dict[str, object], written: InferenceRequest) -> None:
    request = named(written, MODELS.get)
    form = form_at(engine, "sql", "m", CHAT, forms_of(KNOWN))
    sent = outgoing(request, natively=True, inject_salt=False, adapter=form)
    assert json.loads(sent.body) == {"messages": [], **said}
    assert sent.body.count(b'"lora_path"') == json.dumps(said).count('"lora_path"')


def test_an_engine_that_needs_no_more_than_the_name_gets_the_clients_bytes() -> None:
    request = asking("sql")
    form = form_at("vllm", "sql", "m", CHAT, forms_of(KNOWN))
    assert form is None
    assert outgoing(request, natively=True, inject_salt=False, adapter=form).body is request.body


def test_sglang_is_told_by_the_models_name_where_it_takes_no_field() -> None:
    form = form_at("sglang", "sql", "m", "/v1/messages", {})
    assert form is not None
    assert (form.model, form.fields) == ("m:sql", {})


def test_sglang_does_not_take_an_adapter_with_a_colon_in_its_name_for_another_one() -> None:
    form = form_at("sglang", "sql:v2", "m", CHAT, {})
    assert form is not None
    assert (form.model, form.fields) == ("m", {"lora_path": b'"sql:v2"'})


@pytest.mark.parametrize(
    "tree",
    [
        {"known": [{"name": "a", "model": "m", "path": "/a"}]},
        {"known": [{"name": "a", "model": "m", "path": "/a", "number": 0}]},
        {"known": [{"name": "a", "model": "m", "number": 1 << 31}]},
        {"known": [{"name": "a", "model": "m"}, {"name": "a", "model": "other"}]},
        {"load_s": 0},
        {"slots": 0},
    ],
)
def test_what_cannot_be_told_to_an_engine_is_refused_at_the_start(tree: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"adapter|known|load_s|slots"):
        Adapters.model_validate(tree)
