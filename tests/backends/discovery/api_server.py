"""A Kubernetes API server on a real port, as far as EndpointSlices of one namespace go: strict, and told to misbehave.

Written from the documented API (api-concepts: lists in pages, watches, bookmarks, 410 Gone), since no cluster is at
hand. What it is asked in another way than the documentation allows, it refuses as a real one does, or more strictly:
`violations` has what was wrong.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

NAMESPACE = "inference"
PATH = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
LIST_QUERY = {"labelSelector", "limit", "continue", "resourceVersion"}
WATCH_QUERY = {"labelSelector", "watch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds"}
Object = dict[str, Any]
KIND = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}


@dataclass(eq=False)
class _Watch:
    writer: asyncio.StreamWriter
    selector: dict[str, str]
    bookmarks: bool
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def line(self, kind: str, thing: Object) -> bytes:
        return json.dumps({"type": kind, "object": thing}).encode() + b"\n"

    def send(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))


class ApiServer:
    """`put` and `delete` change the cluster; each change is a version, and goes to every watch."""

    def __init__(self, token: str | None = "t0ken") -> None:
        self.token = token
        self.url = ""
        self.version = 100
        self.slices: dict[str, Object] = {}
        self.history: list[tuple[int, str, Object]] = []
        self.oldest = 0
        """Changes up to this version are forgotten: who wants to go on from there gets 410."""
        self.gone_as_event = True
        """A watch from a forgotten version: 200 and an event that says so, or a plain 410."""
        self.failure: tuple[int, str, Mapping[str, str]] | None = None
        self.watches: set[_Watch] = set()
        self.asked: list[dict[str, str]] = []
        self.violations: list[str] = []
        self.news = asyncio.Condition()

    async def put(self, name: str, endpoints: list[Object], **given: Any) -> None:
        """A slice is made or changed."""
        labels = {"kubernetes.io/service-name": "vllm", **given.pop("labels", {})}
        kind = "MODIFIED" if name in self.slices else "ADDED"
        self.version += 1
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": 1, "labels": labels}
        meta |= {"resourceVersion": str(self.version), "annotations": given.pop("annotations", {})}
        thing = {"addressType": "IPv4", "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}], **given}
        self.slices[name] = {**KIND, "metadata": meta, "endpoints": endpoints, **thing}
        await self._tell(kind, self.slices[name])

    async def delete(self, name: str) -> None:
        """A slice is deleted."""
        self.version += 1
        thing = self.slices.pop(name)
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}}
        await self._tell("DELETED", thing)

    async def bookmark(self) -> None:
        """Say to all who want it how far they have come."""
        thing: Object = {**KIND, "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}
        for watch in self.watches:
            if watch.bookmarks:
                watch.send(watch.line("BOOKMARK", thing))
        await self._drain()

    def forget_history(self) -> None:
        """Compact the store."""
        self.history.clear()
        self.oldest = self.version

    async def break_off(self, mid_line: bool = True) -> None:
        """Cut every watch, in the middle of a line or between two."""
        for watch in tuple(self.watches):
            if mid_line and self.slices:
                watch.send(watch.line("MODIFIED", next(iter(self.slices.values())))[:40])
            with suppress(ConnectionError):
                await watch.writer.drain()
            watch.writer.transport.abort()
            watch.ended.set()

    async def expire(self) -> None:
        """Tell every watch that its version is too old."""
        self.forget_history()
        for watch in tuple(self.watches):
            watch.send(watch.line("ERROR", _status(410, "Expired", "too old resource version")))
        await self._drain()

    async def end_watches(self) -> None:
        """As at the end of their time."""
        for watch in tuple(self.watches):
            watch.ended.set()

    async def until_watched(self, times: int = 1) -> None:
        """Wait until there were so many watches in all, and one is there."""
        async with asyncio.timeout(15), self.news:
            await self.news.wait_for(
                lambda: sum("watch" in query for query in self.asked) >= times and bool(self.watches)
            )

    async def _tell(self, kind: str, thing: Object) -> None:
        self.history.append((self.version, kind, thing))
        for watch in self.watches:
            if _matches(thing, watch.selector):
                watch.send(watch.line(kind, thing))
        await self._drain()

    async def _drain(self) -> None:
        for watch in tuple(self.watches):
            with suppress(ConnectionError):
                await watch.writer.drain()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in fields)}
                method, target, _ = line.split(" ")
                if not await self._answer(method, target, headers, writer):
                    break
        writer.close()

    async def _answer(self, method: str, target: str, headers: Mapping[str, str], writer: asyncio.StreamWriter) -> bool:
        query = dict(parse_qsl(urlsplit(target).query, keep_blank_values=True, strict_parsing=True))
        async with self.news:
            self.asked.append(query)
            self.news.notify_all()
        refusal = self._refusal(method, urlsplit(target).path, headers, query)
        if refusal is not None:
            code, reason, extra = refusal
            _plain(writer, code, _status(code, reason, reason), extra)
        elif "watch" in query:
            await self._watch(query, writer)
            return False
        else:
            _plain(writer, *self._page(query), {})
        await writer.drain()
        return True

    def _refusal(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> tuple[int, str, Mapping[str, str]] | None:
        wrong = {
            "method": method != "GET",
            "path": path != PATH,
            "accept": "application/json" not in headers.get("accept", ""),
            "query": bool(query.keys() - (WATCH_QUERY if "watch" in query else LIST_QUERY)),
            "a watch from nowhere": "watch" in query and not query.get("resourceVersion", "").isdecimal(),
            "a watch without an end": "watch" in query and not query.get("timeoutSeconds", "").isdecimal(),
            "a page without a limit": "watch" not in query and not query.get("limit", "").isdecimal(),
        }
        self.violations += [name for name, is_wrong in wrong.items() if is_wrong]
        if any(wrong.values()):
            return 400, "BadRequest", {}
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return 401, "Unauthorized", {}
        return self.failure

    def _page(self, query: Mapping[str, str]) -> tuple[int, Object]:
        version, start = self.version, 0
        if "continue" in query:
            version, start = json.loads(base64.b64decode(query["continue"]))
            if version < self.oldest:
                return 410, _status(410, "Expired", "The provided continue parameter is too old")
        selector = _selector(query)
        found = [one for _, one in sorted(self.slices.items()) if _matches(one, selector)]
        limit = int(query["limit"])
        meta = {"resourceVersion": str(version)}
        if start + limit < len(found):
            meta["continue"] = base64.b64encode(json.dumps([version, start + limit]).encode()).decode()
        items = found[start : start + limit]
        kind = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1"}
        return 200, {**kind, "metadata": meta, "items": items}

    async def _watch(self, query: Mapping[str, str], writer: asyncio.StreamWriter) -> None:
        since, selector = int(query["resourceVersion"]), _selector(query)
        expired = _status(410, "Expired", "too old resource version")
        if since < self.oldest and not self.gone_as_event:
            _plain(writer, 410, expired, {})
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        watch = _Watch(writer, selector, query.get("allowWatchBookmarks") == "true")
        if since < self.oldest:
            watch.send(watch.line("ERROR", expired))
        else:
            for version, kind, thing in self.history:
                if version > since and _matches(thing, selector):
                    watch.send(watch.line(kind, thing))
            self.watches.add(watch)
            async with self.news:
                self.news.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(int(query["timeoutSeconds"])):
                    await watch.ended.wait()
            self.watches.discard(watch)
        writer.write(b"0\r\n\r\n")
        with suppress(ConnectionError):
            await writer.drain()


@asynccontextmanager
async def api_server(token: str | None = "t0ken", tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    """Run one until the block ends; what it was asked must have been in order."""
    api = ApiServer(token)
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=tls)
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        await api.break_off(mid_line=False)
    assert api.violations == []


def endpoint(address: str, pod: str | None = None, **conditions: bool | None) -> Object:
    """One endpoint as the controller writes it."""
    target = {} if pod is None else {"targetRef": {"kind": "Pod", "name": pod, "namespace": NAMESPACE, "uid": pod}}
    said = {"ready": True, "serving": True, "terminating": False, **conditions}
    return {"addresses": [address], "conditions": said, "nodeName": "node-1", "zone": "z", **target}


def _selector(query: Mapping[str, str]) -> dict[str, str]:
    return dict(term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term)


def _matches(thing: Object, selector: Mapping[str, str]) -> bool:
    labels = thing["metadata"]["labels"]
    return all(labels.get(name) == value for name, value in selector.items())


def _status(code: int, reason: str, message: str) -> Object:
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**kind, "message": message, "reason": reason, "code": code}


def _plain(writer: asyncio.StreamWriter, code: int, content: Object, extra: Mapping[str, str]) -> None:
    body = json.dumps(content).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **extra}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {code} {content.get('reason', 'OK')}\r\n{head}\r\n".encode() + body)
