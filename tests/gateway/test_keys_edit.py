"""The keys file changed by command: whole or not at all, secrets shown once; and taken over at run time."""

import asyncio
import hashlib
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import cli
from gateway.edge.auth import Authenticator, KeysFileInvalid, load_keys
from gateway.errors import Unauthorized
from gateway.keys_edit import KeyWish, create_key, revoke_key, rotate_key
from tests.gateway.conftest import StartGateway, start
from tests.gateway.limited import DIGEST, KEY, OTHER_KEY, bearer, keys_file
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.until import until

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
COMMENTED = f"""# Who may call, and why.
tenants:
  - id: acme   # the big one
    keys: [{{id: acme-1, sha256: {DIGEST}}}]   # from the first day
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


def at(authenticator: Authenticator, now: datetime) -> Authenticator:
    authenticator._clock_s = now.timestamp
    return authenticator


def works(path: Path, key: str, now: datetime = NOW) -> bool:
    try:
        at(load_keys(path, b""), now).tenant_of(((b"x-api-key", key.encode()),))
    except Unauthorized:
        return False
    return True


def test_a_key_is_made_with_its_tenant_and_file_and_is_nowhere_in_it(path: Path) -> None:
    made = create_key(path, KeyWish("acme"), NOW)
    assert works(path, made.key)
    text = path.read_text()
    assert made.key not in text
    assert hashlib.sha256(made.key.encode()).hexdigest() in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.key not in repr(made)
    assert create_key(path, KeyWish("acme"), NOW).key_id == "acme-2"


def test_comments_and_keys_of_others_stay(path: Path) -> None:
    path.write_text(COMMENTED)
    create_key(path, KeyWish("globex", fields={"budgets": [{"amount": 5, "per": "day"}]}), NOW)
    text = path.read_text()
    for comment in ("# Who may call, and why.", "# the big one", "# from the first day"):
        assert comment in text
    assert works(path, KEY)


def test_a_revoked_key_works_no_more_and_stays_in_the_file(path: Path) -> None:
    path.write_text(COMMENTED)
    revoke_key(path, "acme-1")
    assert not works(path, KEY)
    assert DIGEST in path.read_text()
    with pytest.raises(KeysFileInvalid, match="is revoked"):
        rotate_key(path, "acme-1", timedelta(hours=1), NOW)


def test_a_rotated_key_keeps_its_id_and_the_old_one_works_for_the_time_of_grace(path: Path) -> None:
    path.write_text(COMMENTED)
    second = rotate_key(path, "acme-1", timedelta(hours=1), NOW)
    third = rotate_key(path, "acme-1", timedelta(hours=2), NOW + timedelta(minutes=30))
    assert (second.key_id, third.key_id) == ("acme-1", "acme-1")
    for minutes, expected in ((59, [True, True, True]), (61, [False, True, True]), (151, [False, False, True])):
        found = [works(path, key, NOW + timedelta(minutes=minutes)) for key in (KEY, second.key, third.key)]
        assert found == expected
    rotate_key(path, "acme-1", timedelta(0), NOW + timedelta(days=1))
    assert "retiring" not in path.read_text()


def test_a_key_ends_when_it_says(path: Path) -> None:
    made = create_key(path, KeyWish("acme", fields={"expires_at": "2026-12-01T00:00:00Z"}), NOW)
    assert works(path, made.key, datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    assert not works(path, made.key, datetime(2026, 12, 1, tzinfo=UTC))


def test_a_change_that_no_gateway_could_use_changes_nothing(path: Path) -> None:
    path.write_text(COMMENTED)
    with pytest.raises(KeysFileInvalid, match="time zone"):
        create_key(path, KeyWish("acme", fields={"budgets": [{"amount": 1, "per": "day", "time_zone": "Mars/X"}]}), NOW)
    assert path.read_text() == COMMENTED
    assert list(path.parent.iterdir()) == [path]


def test_changes_at_the_same_time_are_all_made(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create_key(path, KeyWish("acme"), NOW), range(24)))
    assert len({one.key_id for one in made}) == 24
    assert all(works(path, one.key) for one in made)


def test_the_commands_show_a_key_once_and_lists_show_no_secret(path: Path) -> None:
    run = CliRunner().invoke
    options = ["--expires", "90d", "--model", "llama-*", "--budget", "500/month@Asia/Tokyo", "--rpm", "60"]
    created = run(cli, ["keys", "create", "acme", "--file", str(path), *options, "--tag", "team=search"])
    assert created.exit_code == 0, created.output
    key = created.output.partition("shown only now:  ")[2].split()[0]
    assert works(path, key, datetime.now(UTC))
    for arguments in (["list"], ["list", "--json"], ["revoke", "acme-1"]):
        shown = run(cli, ["keys", *arguments, "--file", str(path)])
        assert shown.exit_code == 0
        assert key not in shown.output
        assert hashlib.sha256(key.encode()).hexdigest() not in shown.output
    (row,) = json.loads(run(cli, ["keys", "list", "--json", "--file", str(path)]).output)
    assert (row["state"], row["prefix"]) == ("revoked", key[:8])
    assert row["budgets"] == [{"amount": "500", "per": "month", "time_zone": "Asia/Tokyo", "currency": None}]
    assert (row["scopes"]["models"], row["limits"], row["name"]) == (["llama-*"], {"requests_per_minute": 60}, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "a b"], "is no name"),
        (["create", "acme", "--budget", "lots"], "is no budget"),
        (["create", "acme", "--expires", "soon"], "neither a date"),
        (["create", "acme", "--tpm", "0"], "tokens_per_minute"),
        (["revoke", "nobody"], "there is no key"),
        (["rotate", "acme-1", "--grace", "long"], "no span of time"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_and_changes_nothing(
    path: Path, arguments: list[str], complaint: str
) -> None:
    path.write_text(COMMENTED)
    done = CliRunner().invoke(cli, ["keys", *arguments, "--file", str(path)])
    assert done.exit_code == 2
    assert complaint in done.output
    assert path.read_text() == COMMENTED


async def until_status(client: httpx.AsyncClient, url: str, key: str, status: int) -> None:
    await until(lambda: client.get(f"{url}/v1/models", headers=bearer(key)), lambda found: found.status_code == status)


async def test_a_running_gateway_takes_a_changed_file_over_and_an_invalid_one_not(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    path = keys_file(tmp_path)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, keys_file=path, keys_poll_s=0.05)
        await until_status(client, gateway.url, KEY, 200)
        await asyncio.to_thread(revoke_key, path, "acme-1")
        await until_status(client, gateway.url, KEY, 401)
        made = await asyncio.to_thread(create_key, path, KeyWish("globex"), datetime.now(UTC))
        await until_status(client, gateway.url, made.key, 200)
        whole = path.read_text()
        path.write_text(whole.replace("id: globex", "id: acme"))
        async with asyncio.timeout(10):
            while "keys" not in (health := (await client.get(f"{gateway.url}/health")).json()["degraded"]):
                await asyncio.sleep(0.02)
        assert "acme" not in health["keys"]
        await until_status(client, gateway.url, made.key, 200)
        path.write_text(whole)
        await until(lambda: client.get(f"{gateway.url}/health"), lambda found: "keys" not in found.json()["degraded"])
        await until_status(client, gateway.url, OTHER_KEY, 200)
        assert gateway.metric("prefixgate_keys_reloads_total", outcome="invalid") == 1


@pytest.mark.parametrize(
    "text",
    [
        f"tenants: [{{id: a, keys: [{{id: k, sha256: {DIGEST}, expires_at: 2026-02-30}}]}}]",
        "[" * 5000,
        f"tenants: [{{id: a, limits: {{concurrent: {'9' * 5000}}}, keys: []}}]",
        "",
    ],
)
async def test_a_date_that_is_none_in_the_changed_file_does_not_stop_the_gateway(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient, text: str
) -> None:
    path = keys_file(tmp_path)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, keys_file=path, keys_poll_s=0.05)
        await until_status(client, gateway.url, KEY, 200)
        path.write_text(text)
        await until(lambda: client.get(f"{gateway.url}/health"), lambda found: "keys" in found.json()["degraded"])
        await until_status(client, gateway.url, KEY, 200)
        listed = await asyncio.to_thread(CliRunner().invoke, cli, ["keys", "list", "--file", str(path)])
        assert listed.exit_code == 2
        assert "Traceback" not in listed.output
