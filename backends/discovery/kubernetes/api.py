"""The API server, as far as EndpointSlices of one namespace go: a list in pages, and a watch of what changes after it.

    GET .../endpointslices?labelSelector=S&limit=L[&continue=T]                one object: items, resourceVersion
    GET .../endpointslices?labelSelector=S&watch=1&resourceVersion=V           a line of JSON a change, until
        &allowWatchBookmarks=true&timeoutSeconds=N                             N seconds have passed

Written from the API's documentation: https://kubernetes.io/docs/reference/using-api/api-concepts/. Token and CA are
read for each request, since both are replaced while we run.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx
import msgspec

from backends.discovery.kubernetes.slices import Meta, Slice, SliceList

PAGE_SLICES: Final = 100
"""Slices a page: Kubernetes puts a hundred endpoints into one."""
MOST_PAGE_BYTES: Final = 64 << 20
MOST_LINE_BYTES: Final = 4 << 20
"""Of one change: objects are at most 1.5 MiB where they are stored."""
ANSWER_S: Final = 30.0
"""Patience with a page, and with the head of a watch."""
BEYOND_WATCH_S: Final = 10.0
"""A watch that the server does not end when it said it would is broken."""
_GONE: Final = 410
_ADVICE: Final = {
    401: "the token is not accepted",
    403: "the service account may not list and watch endpointslices here",
    404: "there is no such namespace, or no discovery.k8s.io/v1",
}


class ApiFailed(Exception):
    """The API server did not do as asked; the text is for people. `after_s`: when it wants to be asked again."""

    def __init__(self, what: str, after_s: float | None = None) -> None:
        super().__init__(what)
        self.after_s = after_s


class ApiGone(ApiFailed):
    """What was known is too old to go on from: list again."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the API server is and who we are to it. Without a `token_file` we are nobody, as behind `kubectl proxy`."""

    url: str
    namespace: str
    selector: str
    token_file: Path | None = None
    ca_file: Path | None = None


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Marked(msgspec.Struct, frozen=True):
    metadata: Meta


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch; `slice` is None for a bookmark, which only says how far the watch has come."""

    version: str
    slice: Slice | None = None
    deleted: bool = False


class SliceApi:
    """Lists and watches. Raises `ApiFailed` and nothing else for what goes wrong out there."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{access.namespace}/endpointslices"

    async def list(self) -> tuple[list[Slice], str]:
        """All slices, and the version from which a watch goes on."""
        slices: list[Slice] = []
        query = {"limit": str(PAGE_SLICES)}
        while True:
            async with self._asking(query, ANSWER_S) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MOST_PAGE_BYTES:
                        raise ApiFailed(f"a page of more than {MOST_PAGE_BYTES} bytes")
            page = _decoded(body, SliceList)
            slices += page.items or ()
            if not page.metadata.continue_:
                return slices, page.metadata.resource_version
            query = {**query, "continue": page.metadata.continue_}

    @asynccontextmanager
    async def watching(self, version: str, for_s: int) -> AsyncIterator[AsyncIterator[Change]]:
        """What changes after a version, for about so long. A line that breaks off is no change."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(for_s),
        }
        async with self._asking(query, for_s + BEYOND_WATCH_S) as response:
            yield _changes(response)

    @asynccontextmanager
    async def _asking(self, query: Mapping[str, str], within_s: float) -> AsyncIterator[httpx.Response]:
        access, headers = self._access, {"accept": "application/json"}
        try:
            if access.token_file is not None:
                token = await asyncio.to_thread(access.token_file.read_text)
                headers["authorization"] = f"Bearer {token.strip()}"
            verify = await asyncio.to_thread(_tls, access)
            async with (
                asyncio.timeout(within_s),
                httpx.AsyncClient(base_url=access.url, verify=verify, trust_env=False, timeout=None) as http,  # noqa: S113 - above
                http.stream(
                    "GET", self._path, params={"labelSelector": access.selector, **query}, headers=headers
                ) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    await _refuse(response)
                yield response
        except TimeoutError:
            raise ApiFailed("no answer in time") from None
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise ApiFailed(f"the connection failed ({type(error).__name__})") from None
        except (OSError, UnicodeError) as error:
            raise ApiFailed(f"its token or CA cannot be read: {getattr(error, 'strerror', None) or error}") from None


async def _changes(response: httpx.Response) -> AsyncIterator[Change]:
    rest = b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield _change(line)
        if len(rest) > MOST_LINE_BYTES:
            raise ApiGone(f"a change of more than {MOST_LINE_BYTES} bytes")


def _change(line: bytes) -> Change:
    event = _decoded(line, _Event)
    match event.type:
        case "ADDED" | "MODIFIED" | "DELETED":
            changed = _decoded(event.object, Slice)
            return Change(_version(changed.metadata), changed, event.type == "DELETED")
        case "BOOKMARK":
            return Change(_version(_decoded(event.object, _Marked).metadata))
        case "ERROR":
            status = _decoded(event.object, _Status)
            raise (ApiGone if status.code == _GONE else ApiFailed)(_in_words(status.code, status.reason))
    raise ApiGone("an event of a kind that is not known")


T = TypeVar("T")


def _decoded(data: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ApiGone("what the API server said cannot be read") from None


def _version(meta: Meta) -> str:
    if not meta.resource_version:
        raise ApiGone("a change without a version")
    return meta.resource_version


async def _refuse(response: httpx.Response) -> None:
    """Raise what a refusal means."""
    code, after = response.status_code, response.headers.get("retry-after", "")
    after_s = float(after) if after.isdecimal() else None
    raise (ApiGone if code == _GONE else ApiFailed)(_in_words(code, response.reason_phrase), after_s)


def _in_words(code: int, reason: str) -> str:
    said = f"the API server answers {code} {reason[:64]}".rstrip()
    return f"{said}: {_ADVICE[code]}" if code in _ADVICE else said


def _tls(access: ApiAccess) -> ssl.SSLContext | bool:
    if not access.url.startswith("https:"):
        return False
    return ssl.create_default_context(cafile=access.ca_file)
