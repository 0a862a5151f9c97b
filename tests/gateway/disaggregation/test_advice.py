"""What `prefixgate check` says of endpoints whose role leads nowhere."""

from backends import EndpointFacts, EndpointId, EndpointSnapshot, ServedModel
from backends.disaggregated import Role
from gateway.checking import ask_backends
from gateway.config import load_config
from gateway.disaggregation.advice import unpaired
from tests.gateway.scripted_engine import scripted_engine

P, D, BOTH = Role.PREFILL, Role.DECODE, Role.BOTH


def said(*fleet: tuple[str, Role, str, str, str]) -> list[str]:
    """Of endpoints by id, role, engine, version and model."""
    endpoints = [
        EndpointSnapshot(
            EndpointId(name),
            healthy=True,
            generation=1,
            facts=EndpointFacts(engine, models=(ServedModel(model, None),), version=version),
        )
        for name, _, engine, version, model in fleet
    ]
    return unpaired(endpoints, {name: role for name, role, *_ in fleet if role is not BOTH})


def test_pairs_of_one_build_and_model_and_endpoints_that_do_both_are_in_order() -> None:
    assert said(("p", P, "vllm", "0.32.0", "m"), ("d", D, "vllm", "0.32.0", "m"), ("b", BOTH, "tgi", "3", "m")) == []


def test_a_prefill_endpoint_without_a_counterpart_gets_no_requests() -> None:
    wanted = ["role: p gets no requests: no decode endpoint of vllm 0.32.0 serves a model of it"]
    p = ("p", P, "vllm", "0.32.0", "m")
    assert said(p) == said(p, ("b", BOTH, "vllm", "0.32.0", "m")) == wanted
    assert said(p, ("d", D, "vllm", "0.33.0", "m"))[:1] == wanted
    assert said(p, ("d", D, "vllm", "0.32.0", "n"))[:1] == wanted


def test_a_decode_endpoint_without_a_counterpart_does_both_where_its_engine_can() -> None:
    assert said(("d", D, "vllm", "0.32.0", "m"), ("s", D, "sglang", "0.5.23", "m")) == [
        "role: d has no prefill endpoint of vllm 0.32.0 with a model of its own: it computes all prompts itself",
        "role: s has no prefill endpoint of sglang 0.5.23 with a model of its own: it gets no requests",
    ]


def test_an_engine_that_hands_nothing_over_is_named() -> None:
    assert said(("p", P, "llamacpp", "b1", "m")) == [
        "role: p is prefill, and llamacpp hands nothing over: "
        "only vLLM, SGLang, TensorRT-LLM and the reference engine do"
    ]


async def test_the_command_asks_each_backend_what_it_is_first() -> None:
    async with scripted_engine() as engine:
        config = load_config(None, {}, {"backends": [{"url": engine.url, "id": "p", "role": "prefill"}]})
        _, _, problems = await ask_backends(config, {}, None)
    assert problems == ["role: p gets no requests: no decode endpoint of vllm 0.32.0 serves a model of it"]
