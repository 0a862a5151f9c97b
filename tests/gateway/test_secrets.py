"""R of the acceptance scenarios: no key, no secret and no prompt text in any log, table, metric, page or error."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.member import Member
from gateway.demo.processes import clean_environment
from gateway.edge.auth import new_key
from tests.gateway.scripted_engine import USAGE, answer_chat, answer_json, chat_stream, delta, scripted_engine
from tests.hostile import Behaviour, Peer, reset_before_first_byte, stream

PROMPT = "the heron of Zanzibar flies at midnight"
ANSWER = "a pelican named Marguerite answers"
PERSON = "jane.doe@example.com"
ADMIN, SALT, ENGINE_KEY, REDIS_WORD = "admin-token-8c1f", "salt-secret-77aa", "sk-engine-5d2e", "redis-word-99"
WRONG_KEY = "pg-this-is-nobodys-key-31337"
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": PROMPT}],
    "user": PERSON,
    "tools": [{"type": "function", "function": {"name": "f", "description": PROMPT, "parameters": {}}}],
}


async def _falls_over(peer: Peer) -> None:
    """A server error that repeats what it was sent, key and prompt, as some do."""
    request = await peer.read_request()
    body = json.dumps({"error": {"message": request.decode()}}).encode()
    await peer.send(
        b"HTTP/1.1 500 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )


def _scripts() -> list[Behaviour]:
    refusal = {"error": {"message": f"cannot make sense of {PROMPT}", "type": "invalid_request_error"}}
    return [
        answer_chat(ANSWER),
        stream(*chat_stream(ANSWER, ANSWER)),
        stream(delta(ANSWER), end=False),
        answer_json(refusal, 400),
        answer_json({"choices": "nonsense " + ANSWER, "usage": {"prompt_tokens": PROMPT}}),
        _falls_over,
        reset_before_first_byte,
        answer_json({"usage": USAGE, "id": ANSWER, "choices": [{"message": {"content": ANSWER}}]}),
    ]


def _configure(home: Path, url: str, port: int, digest: str) -> Path:
    (home / "admin").write_text(ADMIN)
    (home / "salt").write_text(SALT)
    (home / "engine").write_text(ENGINE_KEY)
    keys = {"tenants": [{"id": "acme", "keys": [{"id": "acme-1", "sha256": digest}]}]}
    (home / "keys.yaml").write_text(yaml.safe_dump(keys))
    (home / "prices.yaml").write_text(
        "currency: USD\nprices:\n"
        "  - {model: m, input_per_mtok: 3, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2020-01-01}\n"
    )
    settings = {
        "listen": {"host": "127.0.0.1", "port": port},
        "backends": [{"id": "e0", "url": url, "api_key_file": str(home / "engine")}],
        "keys_file": str(home / "keys.yaml"),
        "salt_secret_file": str(home / "salt"),
        "admin_token_file": str(home / "admin"),
        "prices_file": str(home / "prices.yaml"),
        "ledger": {"path": str(home / "ledger.db"), "chain_tokens": 16},
        "index": {"embedded": False},
        "poll_interval_s": 0.2,
        "log_level": "debug",
    }
    config = home / "gateway.yaml"
    config.write_text(yaml.safe_dump(settings))
    return config


async def _call(http: httpx.AsyncClient, key: str, path: str, body: object) -> str:
    """The text of what comes back, which may be cut."""
    headers = {"authorization": f"Bearer {key}", "x-api-key": key, "content-type": "application/json"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        return (await http.post(f"{path}?key={key}", content=content, headers=headers)).text
    except httpx.HTTPError:
        return ""


async def _everything(http: httpx.AsyncClient, key: str) -> list[str]:
    """All that can be asked, well and badly; gives the errors that the gateway itself made."""
    for streams in (False, True, True, False, False, False, False, False):
        await _call(http, key, "/v1/chat/completions", CHAT | {"stream": streams})
    await _call(
        http, key, "/v1/messages", {"model": "m", "max_tokens": 9, "system": PROMPT, "messages": CHAT["messages"][1:]}
    )
    await _call(http, key, "/v1/responses", {"model": "m", "input": PROMPT, "instructions": PROMPT})
    await _call(http, key, "/v1/completions", {"model": "m", "prompt": PROMPT})
    return [
        await _call(http, WRONG_KEY, "/v1/chat/completions", CHAT),
        await _call(http, key, "/v1/chat/completions", {**CHAT, "model": "unknown"}),
        await _call(http, key, "/v1/chat/completions", json.dumps(CHAT).encode()[:-5]),
        await _call(http, key, "/v1/chat/completions", {**CHAT, "messages": PROMPT}),
        await _call(http, key, "/v1/responses", {"model": "m", "input": PROMPT, "previous_response_id": PROMPT}),
        await _call(http, key, "/no/such/path", CHAT),
    ]


async def _pages(http: httpx.AsyncClient) -> list[str]:
    """Everything that a running gateway shows to its operator."""
    headers = {"authorization": f"Bearer {ADMIN}"}
    paths = ["/metrics", "/health", "/ready"]
    document = (await http.get("/admin/openapi.json", headers=headers)).json()
    paths += [path for path, methods in document["paths"].items() if "get" in methods and "{" not in path]
    shown = [(await http.get(path, headers=headers)).text for path in paths]
    refused = await http.get("/admin/parity", headers={"authorization": f"Bearer {WRONG_KEY}"})
    return [*shown, refused.text]


async def test_r_no_secret_and_no_prompt_text_is_in_any_log_table_metric_page_or_error(tmp_path: Path) -> None:
    key, digest = new_key()
    home = tmp_path / "home"
    home.mkdir()
    async with scripted_engine(*_scripts()) as engine:
        port = free_port()
        config = _configure(home, engine.url, port, digest)
        command = (sys.executable, "-m", "gateway", "serve", "-c", str(config))
        gateway = Member("gateway", command, tmp_path, clean_environment())
        try:
            await gateway.start()
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                errors = await _everything(http, key)
                pages = await _pages(http)
            files = {path.name: path.read_bytes() for path in home.glob("ledger.db*")}
        finally:
            await gateway.stop()
        assert ENGINE_KEY.encode() in engine.requests[0]
        assert all(key.encode() not in request.partition(b"\r\n")[2] for request in engine.requests)
    log = b"".join(path.read_bytes() for path in tmp_path.glob("gateway.*.log"))
    files |= {path.name: path.read_bytes() for path in home.glob("ledger.db*")}
    assert b'"message":"request"' in log
    assert any(b"acme-1" in content for content in files.values())
    places = {"log": log, "pages": "\n".join(pages).encode(), "errors": "\n".join(errors).encode(), **files}
    secrets = (key, WRONG_KEY, ADMIN, SALT, ENGINE_KEY, PROMPT, ANSWER, PERSON)
    found = [(secret, place) for secret in secrets for place, content in places.items() if secret.encode() in content]
    assert found == []
