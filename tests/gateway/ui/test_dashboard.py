"""The dashboard over real HTTP: who is let in, what each answer carries, what can be asked for."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.config import ConfigInvalid, load_config, ui_token
from gateway.ui.files import StaticFiles
from gateway.ui.session import COOKIE, MOST_WRONG, Sessions
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.ui.looking import TOKEN, cookie_of, looking, token_in
from tests.until import until

PAGES = ("api/session", "api/fleet", "api/traffic", "api/prefixes", "api/decisions", "api/tenants", "api/findings")
PRIVATE = (*PAGES, "api/health", "api/decisions/x", "api/invoices/acme/2026-11", "invoices/acme/2026-11.html", "events")


@pytest.fixture
async def gateway(start_gateway: StartGateway, tmp_path: Path) -> RunningGateway:
    async with scripted_engine(answer_chat("Hi")) as engine:
        return await start(start_gateway, engine.url, ui__token_file=token_in(tmp_path), ui__max_viewers=2)


async def test_without_a_token_one_sentence_says_how_to_turn_it_on(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine, httpx.AsyncClient() as client:
        url = (await start(start_gateway, engine.url)).url
        for path in ("/ui", "/ui/", "/ui/api/fleet", "/ui/login"):
            answer = await client.get(f"{url}{path}")
            assert (answer.status_code, "ui.token_file" in answer.text) == (404, True)
        assert (await client.get(f"{url}/uis")).json()["error"]["code"] == "not_found"


async def test_nothing_is_told_to_who_has_not_logged_in(gateway: RunningGateway) -> None:
    stranger = Sessions("another-token-of-somebody", 3600, time.time).begin()
    expired = Sessions(TOKEN, 3600, lambda: time.time() - 3601).begin()
    for cookie in ("", "1.2.3.4", stranger, expired):
        async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/", cookies={COOKIE: cookie}) as client:
            for answer in [await client.get(path) for path in PRIVATE]:
                assert answer.json() == {"error": {"code": "not_logged_in", "message": "log in first"}}
                assert answer.status_code == 401


async def test_who_logs_in_may_look_until_the_cookie_is_taken_back(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        for path in PAGES:
            assert (await client.get(path)).status_code == 200, path
        left = await client.post("logout")
        assert (left.status_code, COOKIE in client.cookies) == (204, False)
        assert (await client.get("api/fleet")).status_code == 401


async def test_a_form_on_another_site_logs_nobody_out(gateway: RunningGateway) -> None:
    async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/") as client:
        answer = await client.post("logout", headers={"origin": "https://elsewhere.example"}, data={"a": "b"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (204, False)


async def test_the_cookie_is_for_the_dashboard_alone(gateway: RunningGateway) -> None:
    async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/") as client:
        plain = await client.post("login", json={"token": TOKEN})
        https = await client.post("login", json={"token": TOKEN}, headers={"x-forwarded-proto": "https"})
        assert {cookie.path for cookie in client.cookies.jar} == {"/ui"}
    fields = plain.headers["set-cookie"].split("; ")[1:]
    assert fields == ["HttpOnly", "SameSite=Strict"]
    assert https.headers["set-cookie"].split("; ")[1:] == [*fields, "Secure"]


async def test_a_tampered_cookie_is_none(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        version, until, nonce, signature = cookie_of(client).split(".")
        later = f"{version}.{int(until) + 3600}.{nonce}.{signature}"
        for tampered in (later, f"{later}x", f"{version}.{until}.{nonce}.", ""):
            client.cookies.clear()
            answer = await client.get("api/fleet", headers={"cookie": f"{COOKIE}={tampered}"})
            assert answer.status_code == 401


async def test_the_admin_token_opens_nothing_and_the_cookie_opens_no_admin_api(
    start_gateway: StartGateway, tmp_path: Path, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file, ui__token_file=token_in(tmp_path))
        async with looking(gateway.url) as client:
            cookie = {"cookie": f"{COOKIE}={cookie_of(client)}"}
            assert (await client.get(f"{gateway.url}/admin/endpoints", headers=cookie)).status_code == 401
            client.cookies.clear()
            assert (await client.post("login", json={"token": "letmein"})).status_code == 401
            bearer = {"authorization": "Bearer letmein"}
            assert (await client.get("api/fleet", headers=bearer)).status_code == 401


async def test_guessing_is_slowed_down(gateway: RunningGateway) -> None:
    async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/") as client:
        for _ in range(MOST_WRONG):
            answer = await client.post("login", json={"token": "a-guess"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "wrong_token")
            assert "set-cookie" not in answer.headers
        late = await client.post("login", json={"token": TOKEN})
    assert (late.status_code, late.json()["error"]["code"]) == (429, "too_many_logins")
    assert 0 < int(late.headers["retry-after"]) <= 61
    metric = gateway.metric
    counts = await asyncio.to_thread(
        lambda: [metric("prefixgate_ui_logins_total", outcome=one) for one in ("let_in", "wrong_token", "too_many")]
    )
    assert counts == [0, MOST_WRONG, 1]


async def test_what_is_no_login_is_refused(gateway: RunningGateway) -> None:
    given = [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"token": 1}', "application/json", 400),
        (b'{"token": "\xff"}', "application/json", 400),
        (b"token=x", "application/x-www-form-urlencoded", 400),
        (b'{"token": "x"}', "text/plain", 400),
        (b'{"token": "%b"}' % (b"x" * 5000), "application/json", 413),
    ]
    async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/") as client:
        for content, kind, status in given:
            answer = await client.post("login", content=content, headers={"content-type": kind})
            assert answer.status_code == status, content


async def test_every_answer_forbids_what_a_page_need_not_do(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        paths = ("", "static/app.js", "api/fleet", "api/nothing", "static/nothing", "api/traffic?range=9h")
        for answer in [await client.get(path) for path in paths]:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] in ("no-store", "no-cache")


async def test_files_are_not_sent_again_to_who_has_them(gateway: RunningGateway) -> None:
    async with httpx.AsyncClient(base_url=f"{gateway.url}/ui/") as client:
        first = await client.get("static/base.css")
        again = await client.get("static/base.css", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
        other = await client.get("static/base.css", headers={"if-none-match": '"x"'})
        head = await client.head("static/base.css")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(first.content)))


async def test_no_path_leads_out_of_the_folder(gateway: RunningGateway) -> None:
    """Over plain sockets: clients tidy up such paths."""
    outside = (
        "../setup.py",
        "%2e%2e/setup.py",
        "..%2fsetup.py",
        "%2fetc/passwd",
        "/etc/passwd",
        "base.css%00",
        ".",
        "",
    )
    for path in (*(f"static/{name}" for name in outside), "../ui/setup.py"):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(gateway.url).port)
        writer.write(f"GET /ui/{path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        assert answer.split(b" ")[1] in (b"401", b"404"), path
        assert b"def ui_of" not in answer
        assert b"root:" not in answer


def test_no_link_out_of_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret")
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "run.sh").write_text("a program")
    (folder / "own.txt").write_text("")
    assert StaticFiles(folder).names == ["own.txt"]


async def test_everything_but_a_login_only_reads(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        for path in ("", "static/base.css", "api/fleet", "events"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                answer = await client.request(method, path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


QUESTIONS = (
    "api/fleet?x=1",
    "api/traffic?range=1y",
    "api/prefixes?top=0",
    "api/prefixes?top=1000",
    "api/decisions?limit=x",
    "api/decisions?limit=1&limit=2",
    "api/tenants?days=1&month=2026-11",
    "api/tenants?days=400",
    "api/tenants?month=13",
    "api/traffic?" + "&".join(f"a{number}=1" for number in range(50)),
)


async def test_a_question_that_is_none_is_refused(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        for path in QUESTIONS:
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), path


async def test_it_works_behind_any_prefix(start_gateway: StartGateway, tmp_path: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, ui__token_file=token_in(tmp_path), ui__path="/llm/look")
        async with looking(gateway.url, "/llm/look") as client:
            assert (await client.get("api/fleet")).status_code == 200
            assert {cookie.path for cookie in client.cookies.jar} == {"/llm/look"}
            redirect = await client.get(f"{gateway.url}/llm/look")
            assert (redirect.status_code, redirect.headers["location"]) == (307, "look/")
            page = await client.get("")
            assert b'="/' not in page.content
            assert (await client.get(f"{gateway.url}/ui/")).status_code == 404


async def test_hundreds_who_look_are_refused_in_words(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        cookie = f"{COOKIE}={cookie_of(client)}"
        head = f"GET /ui/events HTTP/1.1\r\nhost: here\r\ncookie: {cookie}\r\n\r\n".encode()
        port = httpx.URL(gateway.url).port
        readers = []
        for _ in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            readers.append((await reader.readline(), reader, writer))
        statuses = [line.split(b" ")[1] for line, _, _ in readers]
        assert statuses == [b"200"] * 2 + [b"429"] * 198
        _, reader, _ = readers[-1]
        assert b"ui.max_viewers" in await reader.readuntil(b'"}}')
        for _, _, writer in readers:
            writer.close()
        await until(lambda: asyncio.to_thread(gateway.metric, "prefixgate_ui_viewers"), lambda count: count == 0)


async def test_a_stream_ends_when_the_gateway_stops(start_gateway: StartGateway, tmp_path: Path) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, ui__token_file=token_in(tmp_path), limits__drain_s=20)
        async with looking(gateway.url) as client, client.stream("GET", "events") as answer:
            lines = answer.aiter_lines()
            async with asyncio.timeout(20):
                async for line in lines:
                    if line == "event: snapshot":
                        break
                gateway.server.should_exit = True
                said = [line async for line in lines]
    assert said[-2:] == ['data: {"reason":"draining"}', ""]


def test_a_token_that_can_be_guessed_or_is_the_admins_is_refused(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_text("123456789012345\n")
    long.write_text(f"{TOKEN}\n")

    def token(**flags: object) -> str | None:
        given = {name.replace("__", "."): value for name, value in flags.items()}
        return ui_token(load_config(None, {}, {"backends": [{"url": "http://here"}], **given}))

    assert token() is None
    assert token(ui__token_file=long) == TOKEN
    with pytest.raises(ConfigInvalid, match="16 characters"):
        token(ui__token_file=short)
    with pytest.raises(ConfigInvalid, match="is the admin token"):
        token(ui__token_file=long, admin_token_file=long)
    with pytest.raises(ConfigInvalid, match="cannot read"):
        token(ui__token_file=tmp_path / "gone")


@pytest.mark.parametrize("path", ["/", "ui", "/ui/", "/admin", "/v1/ui", "/metrics", "/u i", "/ui?x"])
def test_a_path_that_is_taken_or_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"ui\.path"):
        load_config(None, {}, {"backends": [{"url": "http://here"}], "ui.path": path})


async def test_a_viewer_that_does_not_read_holds_up_nobody(gateway: RunningGateway) -> None:
    async with looking(gateway.url) as client:
        head = f"GET /ui/events HTTP/1.1\r\nhost: here\r\ncookie: {COOKIE}={cookie_of(client)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            silent.sendall(head)
            async with client.stream("GET", "events") as answer, asyncio.timeout(20):
                names = [line async for line in _some(answer, 2)]
            assert names == ["event: snapshot", "event: delta"]


async def _some(answer: httpx.Response, count: int) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            yield line
            count -= 1
            if not count:
                return
