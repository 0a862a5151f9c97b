"""Everything around the answers: pages, refusals as real engines were seen to refuse, tokens, the control port."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.dialects import facts, load, names_read, recognise, scan
from backends.reference.model_files import ensure_model
from backends.simulated import EngineSpec
from backends.simulated.serving import DIALECTS, ServerSpec, SimulatedServer
from backends.simulated.serving.__main__ import main
from tests.backends.simulated.serving.battery import BATTERY, MODEL, asked_of

FAST = 500.0
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Where? " * 40}], "max_tokens": 4}

REFUSED = {
    "vllm": {
        400: "usage without a stream; two choices, greedy; no choice; a limit in words; no messages; no role; "
        "no content; messages that are a text; an empty salt; a salt with a slash; a salt of 129; "
        "a salt that is a number; continued, and nothing said of the prompt's end; "
        "continued, with a prompt for a new message; a temperature below 0; a top_p above 1; "
        "a top_k below -1; more tokens than at most; rank 5; "
        "no text; no texts; an id that is none; an id below 0; a text that is too long; broken JSON; a list; nothing",
        404: "another model; nowhere; got nowhere; props; a rendered chat",
        405: "a chat that is got",
    },
    "llamacpp": {
        400: "two choices, greedy; no choice; a limit in words; no messages; messages that are a text; no text; "
        "no texts; continued, and nothing said of the prompt's end; continued, with a prompt for a new message; "
        "two assistants' last words; an id that is none; an id below 0; a text that is too long; broken JSON; a list; "
        "nothing",
        404: "a chat that is got; nowhere; got nowhere; version",
        500: "no role",
    },
}
"""What vLLM 0.32.0 and llama.cpp 11434 answered with an error; to the rest of the battery they said 200."""

SIZES = {"vllm": EngineSpec(block_size=32), "llamacpp": EngineSpec(block_size=1, capacity_blocks=32_768, max_running=1)}

PAGES = {
    "vllm": ("/health", "/ping", "/version", "/load", "/v1/models", "/metrics", "/kv_event_sources"),
    "sglang": ("/health", "/ready", "/v1/models", "/server_info", "/model_info", "/v1/loads", "/metrics"),
    "trtllm": ("/health", "/version", "/v1/models", "/metrics", "/prometheus/metrics"),
    "tgi": ("/health", "/v1/models", "/info", "/metrics"),
    "llamacpp": ("/health", "/v1/models", "/props", "/slots", "/metrics", "/lora-adapters"),
    "ollama": ("/", "/v1/models", "/api/tags", "/api/ps", "/api/version"),
    "openai": ("/v1/models",),
}
METRICS = {"trtllm": "/prometheus/metrics", "ollama": None, "openai": None}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, SimulatedServer]]:
    made = {name: SimulatedServer(ServerSpec(dialect=name, model="m", speed=FAST)) for name in DIALECTS}
    for one in made.values():
        one.start()
    yield made
    for one in made.values():
        one.kill()


def get(server: SimulatedServer, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=30)


def post(server: SimulatedServer, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=30)


@pytest.mark.parametrize("dialect", REFUSED)
def test_what_a_real_engine_was_seen_to_refuse_is_refused_with_its_status(dialect: str) -> None:
    statuses = {name: code for code, names in REFUSED[dialect].items() for name in names.split("; ")}
    spec = ServerSpec(dialect=dialect, model=MODEL, engine=SIZES[dialect], speed=200, tokenizer=ensure_model("tiny"))
    with SimulatedServer(spec) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        told = {name: asked_of(http, one).status for name, one in BATTERY.items()}
    assert told == {name: statuses.get(name, 200) for name in BATTERY}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_page_is_there_and_others_are_not(servers: dict[str, SimulatedServer], dialect: str) -> None:
    server = servers[dialect]
    assert [get(server, path).status_code for path in PAGES[dialect]] == [200] * len(PAGES[dialect])
    assert get(server, "/v1/nowhere").status_code == 404
    wrong = post(server, "/v1/models", {}).status_code
    assert wrong == (404 if dialect in ("llamacpp", "ollama") else 405)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_gateway_knows_each_for_what_it_is_and_reads_its_load(
    servers: dict[str, SimulatedServer], dialect: str
) -> None:
    server = servers[dialect]
    path = METRICS.get(dialect, "/metrics")
    before = "" if path is None else get(server, path).text
    models = get(server, "/v1/models").json()
    found = recognise(models, before)
    if dialect != "ollama":  # is told by a page of its own
        assert found.name == dialect
    assert "m" in {one.id.partition(":")[0] for one in facts(found, models, {}, {}).models}
    if path is None:
        return
    post(server, "/v1/chat/completions", CHAT)
    sample = load(found, scan(get(server, path).text, names_read(found)), 1.0)
    assert (sample.running, sample.waiting) == (0, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_engine_that_is_not_ready_says_so_where_it_has_a_page_for_it(dialect: str) -> None:
    with SimulatedServer(ServerSpec(dialect=dialect, model="m", speed=FAST)) as server:
        server.change(not_ready=True)
        status = get(server, "/health").status_code
        assert status == (404 if dialect in ("ollama", "openai") else 503)
        assert post(server, "/v1/chat/completions", CHAT).status_code == 200


def test_an_engine_without_metrics_has_no_such_page() -> None:
    for dialect, path in (("vllm", "/metrics"), ("sglang", "/metrics"), ("trtllm", "/prometheus/metrics")):
        with SimulatedServer(ServerSpec(dialect=dialect, has_metrics=False)) as server:
            assert get(server, path).status_code == 404


def test_tokens_are_told_in_each_engines_form(servers: dict[str, SimulatedServer]) -> None:
    text, messages = "one two three", CHAT["messages"]
    vllm = post(servers["vllm"], "/tokenize", {"prompt": text}).json()
    assert (vllm["count"], len(vllm["tokens"])) == (3, 3)
    prompt_tokens = post(servers["vllm"], "/v1/chat/completions", CHAT).json()["usage"]["prompt_tokens"]
    for dialect in ("vllm", "sglang"):
        assert post(servers[dialect], "/tokenize", {"messages": messages}).json()["count"] == prompt_tokens
        assert post(servers[dialect], "/tokenize", {}).status_code == 400
    assert post(servers["vllm"], "/detokenize", {"tokens": vllm["tokens"]}).json() == {"prompt": text}
    assert post(servers["sglang"], "/v1/tokenize", {"prompt": text}).json()["tokens"] == vllm["tokens"]
    assert post(servers["trtllm"], "/_internal/tokenize", {"prompt": text}).json()["tokens"] == vllm["tokens"]
    llamacpp = servers["llamacpp"]
    pieces = post(llamacpp, "/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
    assert "".join(one["piece"] for one in pieces) == text
    assert post(llamacpp, "/detokenize", {"tokens": vllm["tokens"]}).json() == {"content": text}
    rendered = post(llamacpp, "/apply-template", {"messages": messages}).json()["prompt"]
    assert rendered.endswith("<|im_start|>assistant\n")
    tgi = post(servers["tgi"], "/tokenize", {"inputs": text}).json()
    assert [one["id"] for one in tgi] == vllm["tokens"]
    whole = post(servers["tgi"], "/chat_tokenize", {"messages": messages}).json()
    assert (whole["templated_text"], len(whole["tokenize_response"])) == (rendered, prompt_tokens)


def test_ollama_knows_a_model_with_and_without_its_tag(servers: dict[str, SimulatedServer]) -> None:
    for name, status in (("m", 200), ("m:latest", 200), ("m:8b", 404)):
        assert post(servers["ollama"], "/v1/chat/completions", {**CHAT, "model": name}).status_code == status
        assert post(servers["ollama"], "/api/show", {"model": name}).status_code == status


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 2},
        {"lora_request": {}},
        {"lora_request": "a"},
        {"stream_options": {"include_usage": True}},
        {"cache_salt": 5},
    ],
)
def test_tensorrt_llm_refuses_values_that_make_no_sense(
    servers: dict[str, SimulatedServer], wrong: dict[str, object]
) -> None:
    assert post(servers["trtllm"], "/v1/chat/completions", {**CHAT, **wrong}).status_code == 400


def test_tensorrt_llm_streams_usage_where_stream_options_do_not_say_no(servers: dict[str, SimulatedServer]) -> None:
    def streamed(**more: object) -> str:
        return post(servers["trtllm"], "/v1/chat/completions", {**CHAT, "stream": True, **more}).text

    assert "usage" not in streamed()
    assert "usage" in streamed(stream_options={})
    assert "usage" not in streamed(stream_options={"include_usage": False})


def test_the_control_port_changes_faults_and_tells_what_was_computed() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=FAST, control_port=0)) as server:
        control = f"http://{server.spec.host}:{server.spec.control_port}"
        post(server, "/v1/chat/completions", CHAT)
        assert httpx.post(f"{control}/faults", json={"slow": 3}, timeout=30).json()["slow"] == 3
        faults = httpx.get(f"{control}/faults", timeout=30).json()
        assert faults == httpx.get(f"{control}/state", timeout=30).json()["faults"]
        [record] = httpx.get(f"{control}/requests", timeout=30).json()
        assert (record["outcome"], record["output_tokens"], record["part"]) == ("length", 4, "whole")
        for wrong in ({"tired": 1}, [1], {"slow": "very"}):
            assert httpx.post(f"{control}/faults", json=wrong, timeout=30).status_code == 400


def test_a_server_that_is_not_running_says_so_and_one_that_runs_is_not_started_twice() -> None:
    server = SimulatedServer(ServerSpec(model="m"))
    with pytest.raises(RuntimeError):
        server.state()
    with server:
        url, lives = server.url, server.lives
        server.start()
        assert (server.url, server.lives) == (url, lives)
    server.kill()
    assert not server.is_alive()


def test_a_dialect_that_nobody_speaks_and_a_port_that_is_taken_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with SimulatedServer(ServerSpec(model="m")) as server:
        arguments = ["--port", str(server.spec.port), "--preset", "llama_8b_h100", "--block-size", "8"]
        assert main(arguments) == 1
    assert "in use" in capsys.readouterr().err
    assert main(["--faults", '{"tired": true}']) == 1
    with pytest.raises(SystemExit):
        main(["--dialect", "klingon"])


def test_parts_of_a_message_and_tools_are_words_of_the_prompt(servers: dict[str, SimulatedServer]) -> None:
    def prompt_tokens(content: object, **more: object) -> int:
        body = {**CHAT, "messages": [{"role": "user", "content": content}], **more}
        return int(post(servers["openai"], "/v1/chat/completions", body).json()["usage"]["prompt_tokens"])

    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert prompt_tokens(parts) == prompt_tokens("one\ntwo")
    assert prompt_tokens("one", tools=[{"type": "function", "function": {"name": "f"}}]) > prompt_tokens("one")


def test_a_template_that_refuses_a_chat_refuses_it_here() -> None:
    with SimulatedServer(ServerSpec(model="m", speed=FAST, tokenizer=ensure_model("tiny"))) as server:
        body = {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
        assert post(server, "/v1/chat/completions", body).status_code == 400
