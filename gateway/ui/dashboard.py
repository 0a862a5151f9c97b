"""The dashboard as an ASGI application: who may look, and at what. Everything is read only.

PATH            --> PATH/ (relative, so that it works behind a prefix)
PATH/           --> index.html, without data       static/NAME  its files
POST login      --> a cookie                       POST logout  it is taken back
with the cookie --> events                         a stream: `viewers.py`
                    api/NAME                       data: `pages.py`
                    invoices/TENANT/MONTH.html     a document for a frame
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from gateway.errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    MethodNotAllowed,
    NotFound,
    NotLoggedIn,
    TooManyLogins,
    WrongToken,
)
from gateway.log_lines import LOGGER
from gateway.product_version import product_version
from gateway.status import Answer
from gateway.ui.answers import (
    SECURE,
    document_answer,
    empty_answer,
    error_answer,
    json_answer,
    send_answer,
)
from gateway.ui.asked import Asked
from gateway.ui.files import INDEX, StaticFiles
from gateway.ui.pages import Pages
from gateway.ui.session import COOKIE, Guesses, Sessions
from gateway.ui.viewers import Viewers
from gateway.ui_metrics import UiMetrics
from gateway.wire import Receive, Scope, Send

_MOST_LOGIN_BYTES: Final = 4096
_JSON: Final = b"application/json"


class _Login(msgspec.Struct, frozen=True):
    token: str


@dataclass(frozen=True, slots=True)
class DashboardParts:
    """What it is made of. `path` is where it is asked for; `invoice` makes a document of TENANT/MONTH."""

    path: str
    sessions: Sessions
    guesses: Guesses
    files: StaticFiles
    pages: Pages
    viewers: Viewers
    metrics: UiMetrics
    wall: Callable[[], datetime]
    invoice: Callable[[str, Asked], Awaitable[str]]


class Dashboard:
    """Serves all paths under `path`; what goes wrong in another way than it foresees is raised to the edge."""

    def __init__(self, parts: DashboardParts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        try:
            answer = await self._answer(scope, receive, send)
        except GatewayError as error:
            answer = error_answer(error)
        if answer is not None:
            await send_answer(answer, scope, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """The answer; None where it has been given already."""
        path, method = scope["path"].removeprefix(self._parts.path), scope["method"]
        if path in ("/login", "/logout"):
            if method != "POST":
                raise MethodNotAllowed(f"{path} takes POST, not {method}")
            return await self._login(scope, receive) if path == "/login" else _logged_out(scope)
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(f"the dashboard only reads: {path[:200]} takes GET, not {method}")
        if path == "":
            last = self._parts.path.rpartition("/")[2]
            return empty_answer(307, (b"location", f"{last}/".encode()))
        if path == "/" or path.startswith("/static/"):
            return self._file(scope, path.removeprefix("/static/") if path != "/" else INDEX)
        return await self._private(path, scope, receive, send)

    async def _private(self, path: str, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        until_s, parts = self._session(scope), self._parts
        if path == "/events" and scope["method"] == "GET":
            await parts.viewers.serve(scope, receive, send, lambda: parts.wall().timestamp() >= until_s)
            return None
        if path == "/api/session":
            until = datetime.fromtimestamp(until_s, UTC).isoformat()
            return json_answer({"as_of": parts.wall().isoformat(), "until": until, "version": product_version()})
        if path.startswith("/invoices/") and path.endswith(".html"):
            asked = Asked(scope["query_string"], frozenset({"document"}))
            return document_answer(await parts.invoice(path.removeprefix("/invoices/").removesuffix(".html"), asked))
        page = parts.pages.find(path.removeprefix("/api/")) if path.startswith("/api/") else None
        if page is None:
            raise NotFound(f"there is nothing at {path[:200]}")
        return json_answer(await page.make(Asked(scope["query_string"], page.known)))

    def _file(self, scope: Scope, name: str) -> Answer:
        found = self._parts.files.find(name)
        if found is None:
            raise NotFound(f"there is no file {name[:200]!r}")
        caching = ((b"etag", found.etag), (b"cache-control", b"no-cache"))
        seen = b"".join(value for field, value in scope["headers"] if field == b"if-none-match")
        if found.etag in (one.strip().removeprefix(b"W/") for one in seen.split(b",")):
            return Answer(304, (*caching, *SECURE), b"")
        return Answer(200, ((b"content-type", found.content_type), *caching, *SECURE), found.content)

    def _session(self, scope: Scope) -> float:
        """When the session ends. Raises `NotLoggedIn`."""
        until_s = self._parts.sessions.until_s(_cookie(scope))
        if until_s is None:
            raise NotLoggedIn("log in first")
        return until_s

    async def _login(self, scope: Scope, receive: Receive) -> Answer:
        """Raises `TooManyLogins`, `WrongToken`, and `BadRequest` for what is no login."""
        parts = self._parts
        address = scope["client"][0] if scope["client"] else ""
        wait_s = parts.guesses.wait_s(address)
        if wait_s:
            parts.metrics.logins("too_many").inc()
            raise TooManyLogins("too many wrong tokens were tried: wait before the next one", int(wait_s) + 1)
        given = await _given_token(scope, receive)
        if not parts.sessions.is_token(given):
            parts.guesses.wrong(address)
            parts.metrics.logins("wrong_token").inc()
            LOGGER.warning("wrong token at the dashboard", extra={"fields": {"address": address}})
            raise WrongToken("this is not the token of the dashboard")
        parts.metrics.logins("let_in").inc()
        return empty_answer(204, _cookie_field(scope, parts.sessions.begin()))


def _logged_out(scope: Scope) -> Answer:
    """Who sends no cookie has none to give back: a page of another site, whose form ends here, logs nobody out."""
    if not _cookie(scope):
        return empty_answer(204)
    return empty_answer(204, _cookie_field(scope, "", "; Max-Age=0"))


def _cookie_field(scope: Scope, value: str, more: str = "") -> tuple[bytes, bytes]:
    """Without a path of its own a cookie is for the folder it was set in: whatever prefix is before it."""
    secure = "; Secure" if _is_https(scope) else ""
    return b"set-cookie", f"{COOKIE}={value}; HttpOnly; SameSite=Strict{secure}{more}".encode()


def _is_https(scope: Scope) -> bool:
    """As whoever ends TLS before us says; a client that lies about it harms its own cookie alone."""
    said = b"".join(value for name, value in scope["headers"] if name == b"x-forwarded-proto")
    return scope["scheme"] == "https" or said.split(b",")[0].strip().lower() == b"https"


def _cookie(scope: Scope) -> str:
    """The value of our cookie; empty where there is none. Of several the first: that of the longest path."""
    found = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    for part in found.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


async def _given_token(scope: Scope, receive: Receive) -> str:
    kind = b"".join(value for name, value in scope["headers"] if name == b"content-type")
    if kind.split(b";")[0].strip().lower() != _JSON:
        raise BadRequest("a login is JSON, with its content-type")
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _MOST_LOGIN_BYTES:
            raise BodyTooLarge("a login is shorter")
        more = message.get("more_body", False)
    try:
        return msgspec.json.decode(bytes(body), type=_Login).token
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest('a login is {"token": "..."}') from None
