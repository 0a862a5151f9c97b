"""Salts: what a client sends itself, and another secret while the gateway serves."""

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Config, ConfigInvalid, load_config, salt_secrets
from gateway.edge.auth import Authenticator, KeysFileInvalid, group_salt, load_keys, new_key, open_to_all
from gateway.edge.salts import combined_salt
from gateway.salt_rotation import SaltRotation
from gateway.salt_secrets import SaltSecrets
from tests.gateway.conftest import StartGateway
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, answer_json, scripted_engine

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}]}
GROUP = group_salt("default", b"")


def salts_of(engine: ScriptedEngine) -> list[str | None]:
    return [json.loads(body).get("cache_salt") for body in engine.bodies]


async def ask(client: httpx.AsyncClient, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
    return await client.post(path, json=CHAT | more)


@pytest.mark.parametrize("policy", [None, "strip"])
async def test_a_clients_salt_is_taken_out_unless_configured(policy: str | None, start_gateway: StartGateway) -> None:
    flags = {} if policy is None else {"client_salt": policy}
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, **flags)
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            assert (await ask(client, cache_salt="mine")).status_code == 200
            assert (await ask(client, cache_salt={"not": "a text"})).status_code == 200
    assert salts_of(engine) == [GROUP, GROUP]


async def test_a_salt_can_divide_a_groups_cache_and_never_leads_out_of_it(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="combine")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            expected = [
                (await ask(client, **more)).headers["x-prefixgate-cached-tokens"]
                for more in (
                    {},
                    {"cache_salt": "a"},
                    {"cache_salt": "a"},
                    {"cache_salt": "b"},
                    {"cache_salt": None},
                    {},
                )
            ]
            refused = [await ask(client, cache_salt=salt) for salt in ("", 7, ["a"], "x" * 1025)]
            translated = await client.post("/v1/messages", json=CHAT | {"max_tokens": 5, "cache_salt": "a"})
    a, b = combined_salt(GROUP, "a"), combined_salt(GROUP, "b")
    assert salts_of(engine) == [GROUP, a, a, b, GROUP, GROUP, a]
    # The index tells them apart as the engine does.
    assert [value != "0" for value in expected] == [False, False, True, False, True, True]
    assert {(answer.status_code, answer.json()["error"]["param"]) for answer in refused} == {(400, "cache_salt")}
    assert translated.status_code == 200


async def test_a_salt_that_no_number_can_be_is_the_clients_mistake(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="combine")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            for salt in (b"1e999", b"[" * 5000 + b"]" * 5000):
                body = json.dumps(CHAT).encode()[:-1] + b', "cache_salt": ' + salt + b"}"
                refused = await client.post("/v1/chat/completions", content=body)
                assert refused.status_code == 400, refused.text
    assert engine.bodies == []


async def test_an_engine_without_a_salt_takes_no_requests_whose_salt_would_count_for_nothing(
    start_gateway: StartGateway,
) -> None:
    async with scripted_engine(answer_chat("Hi"), owner="llamacpp") as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="combine")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            assert (await ask(client, cache_salt="mine")).status_code == 503
            assert "e0" in str((await client.get("/health")).json()["degraded"]["isolation"])
    assert not any(b"/v1/chat/completions" in request for request in engine.requests)


async def test_a_clients_salt_can_be_refused(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="refuse")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            refused, taken = await ask(client, cache_salt="mine"), await ask(client)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "cache_salt")
    assert (taken.status_code, salts_of(engine)) == (200, [GROUP])


async def test_where_nobody_is_kept_apart_no_salt_is_sent_either(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="combine", isolation="none")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            assert (await ask(client, cache_salt="mine")).status_code == 200
    assert salts_of(engine) == [None]


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_salts_of_two_groups_or_two_clients_are_never_the_same(one: str, other: str) -> None:
    salts = {
        combined_salt(group_salt("a", b"s"), one),
        combined_salt(group_salt("b", b"s"), one),
        combined_salt(group_salt("a", b"t"), one),
        group_salt("a", b"s"),
    }
    assert len(salts) == 4
    assert (combined_salt("s", one) == combined_salt("s", other)) == (one == other)
    assert all(set(salt) <= set("0123456789abcdef") and len(salt) == 32 for salt in salts), "what every engine takes"


async def test_another_secret_takes_over_while_requests_come(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").write_text("one\n")
    (tmp_path / "next").write_text("two\n")
    first, second = (group_salt("default", secret) for secret in (b"one", b"two"))
    at = datetime(2026, 12, 1, 3, tzinfo=UTC)
    wall_s = [at.timestamp() - 0.05]
    for module in ("gateway.limits_parts", "gateway.options"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(time=lambda: wall_s[0]))
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(
            start_gateway,
            engine.url,
            salt_secret_file=tmp_path / "first",
            salt_secret_next_file=tmp_path / "next",
            salt_secret_next_from=at.isoformat(),
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            answers = [await ask(client), await ask(client)]
            wall_s[0] = at.timestamp()
            async with asyncio.timeout(20):
                while salts_of(engine)[-1] != second:
                    answers.append(await ask(client))
                    await asyncio.sleep(0.02)
            after = await ask(client)
    assert salts_of(engine)[:2] == [first, first]
    cached = [answer.headers["x-prefixgate-cached-tokens"] for answer in answers]
    assert cached[1] != "0"
    assert cached[-1] == "0", "what was cached under the old salt is matched no more"
    assert after.headers["x-prefixgate-cached-tokens"] == cached[1], "and is found again under the new one"


@pytest.mark.parametrize("keys_are_read", [True, False])
async def test_a_reading_of_keys_that_brings_old_salts_back_does_not_stand(tmp_path: Path, keys_are_read: bool) -> None:
    path, changes = tmp_path / "keys.yaml", []
    path.write_text(f"tenants:\n  - {{id: acme, keys: [{{id: acme-1, sha256: {new_key()[1]}}}]}}\n")
    secrets, now = SaltSecrets(b"one", b"two", 100.0), [0.0]

    def read() -> Authenticator:
        secret = secrets.at(now[0])
        return load_keys(path, secret) if keys_are_read else open_to_all(secret)

    known = read()
    group = "acme" if keys_are_read else "default"
    rotation = SaltRotation(known, secrets, read, lambda: changes.append(known.salts), lambda: now[0])
    await rotation.look()
    assert (known.salts, changes) == ([group_salt(group, b"one")], [])
    now[0] = 100.0
    await rotation.look()
    await rotation.look()
    assert changes == [[group_salt(group, b"two")]]
    known.take_over(load_keys(path, b"one") if keys_are_read else open_to_all(b"one"))
    await rotation.look()
    assert known.salts == [group_salt(group, b"two")]


async def test_a_keys_file_that_cannot_be_read_keeps_the_old_salts_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read() -> Authenticator:
        raise KeysFileInvalid("half written")

    known = open_to_all(b"one")
    rotation = SaltRotation(known, SaltSecrets(b"one", b"two", 0.0), read, lambda: None, lambda: 1.0)
    for _ in range(3):
        await rotation.look()
    assert known.salts == [group_salt("default", b"one")]
    assert [record.getMessage() for record in caplog.records] == [
        "the next salt secret waits: the keys file cannot be read: half written"
    ], "once, and not each second"


async def test_new_salts_that_a_change_of_the_keys_has_brought_are_told_and_what_was_warm_is_forgotten() -> None:
    known, changes, now = open_to_all(b"one"), [], [0.0]
    secrets = SaltSecrets(b"one", b"two", 100.0)
    rotation = SaltRotation(known, secrets, lambda: known, lambda: changes.append(known.salts), lambda: now[0])
    await rotation.look()
    now[0] = 100.0
    known.take_over(open_to_all(b"two"))  # the keys file was read anew at that very time
    await rotation.look()
    await rotation.look()
    assert changes == [[group_salt("default", b"two")]]


async def test_without_a_next_secret_nothing_waits() -> None:
    known = open_to_all(b"one")
    async with asyncio.timeout(5):
        await SaltRotation(known, SaltSecrets(b"one"), lambda: known, lambda: None, time.time).run()
    assert known.salts == [group_salt("default", b"one")]


@pytest.mark.parametrize("written", ["", "\n"])
def test_a_secret_that_is_empty_is_a_mistake_and_not_no_secret(written: str, tmp_path: Path) -> None:
    path, other = tmp_path / "salt", tmp_path / "other"
    path.write_text(written)
    other.write_text("s")
    later = {"salt_secret_next_from": "2099-01-01T00:00:00Z"}
    for flags in (
        {"salt_secret_file": path},
        {"salt_secret_file": other, "salt_secret_next_file": path, **later},
    ):
        config = load_config(None, {}, {"backends": [{"url": "http://e"}], **flags})
        with pytest.raises(ConfigInvalid, match=f"{path} is empty"):
            salt_secrets(config)


def test_the_next_secret_and_its_time_need_each_other(tmp_path: Path) -> None:
    (tmp_path / "next").write_text("two\n")
    for flags in ({"salt_secret_next_file": tmp_path / "next"}, {"salt_secret_next_from": "2026-12-01T03:00:00Z"}):
        with pytest.raises(ConfigInvalid, match="need each other"):
            load_config(None, {}, flags)
    with pytest.raises(ConfigInvalid, match="salt_secret_next_from"):
        load_config(None, {}, {"salt_secret_next_from": "2026-12-01T03:00:00", "salt_secret_next_file": "next"})
    both = {"salt_secret_next_file": tmp_path / "next", "salt_secret_next_from": "2026-12-01T03:00:00+01:00"}
    secrets = salt_secrets(load_config(None, {}, both))
    assert secrets.from_s == datetime(2026, 12, 1, 2, tzinfo=UTC).timestamp()
    assert (secrets.at(secrets.from_s - 1), secrets.at(secrets.from_s)) == (b"", b"two")
    assert "two" not in repr(secrets)
    assert not salt_secrets(Config()).changes


async def test_what_other_paths_of_an_engine_are_asked_has_no_salt_of_a_clients(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_json({"data": [], "usage": {"prompt_tokens": 1}})) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, client_salt="refuse")
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            refused = await client.post("/v1/completions", json={"model": "m", "prompt": "x", "cache_salt": "y"})
    assert (refused.status_code, engine.bodies) == (400, [])
