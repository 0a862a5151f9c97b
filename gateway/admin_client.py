"""How a command asks the admin API of a running gateway: where it is, its token, and what its refusals mean.

Exit codes: 1 where the gateway does not do it (it is away, or has no such thing), 2 where it cannot be asked (no token,
or another one than its own).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import httpx
import typer

from gateway.config import ConfigInvalid, Listen, admin_token
from gateway.terminal import read_config, refused

_ANSWER_S = 120.0
"""Patience with the gateway, which has 30 s for each shard of the index."""
_LOOK_S = 10.0
"""With pages that it has at hand."""
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
_HERE = frozenset({"localhost", *_LOOPBACKS.values()})
"""Asked directly, whatever proxy the environment names: its loopback is another, and it would see the token."""

Page = TypeVar("Page", dict[str, Any], list[Any])

Gateway = Annotated[
    str | None,
    typer.Option(
        "--gateway", help="Base URL of a gateway; default: where the configuration's listens, on this machine."
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the admin token; default: admin_token_file of the configuration.")
]


@dataclass(frozen=True, slots=True)
class Asked:
    """The gateway, and the token that it knows us by."""

    url: str
    token: str


def asked(gateway: str | None, token_file: Path | None, path: Path | None) -> Asked:
    """Whom to ask, by the options of a command, else by the configuration at `path`. Raises what `refused` makes."""
    found = whom(gateway, token_file, path)
    if not found.token:
        raise refused(
            "no admin token: give --token-file FILE, or admin_token_file in the configuration",
            code="admin_token_missing",
        )
    return found


def whom(gateway: str | None, token_file: Path | None, path: Path | None) -> Asked:
    """The same for pages that need no token, which is empty where there is none. Raises what `refused` makes."""
    config = read_config(path, {} if token_file is None else {"admin_token_file": token_file})
    try:
        token = admin_token(config)
    except ConfigInvalid as error:
        raise refused(error) from None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise refused("the admin token has letters that no header field can carry: is it the right file?")
    return Asked(gateway or here(config.listen), token or "")


def here(listen: Listen) -> str:
    """Where a gateway of this configuration answers on its own machine."""
    if not listen.port:
        raise refused("listen.port is 0, a free one: give --gateway URL")
    host = _LOOPBACKS.get(listen.host, listen.host)
    return f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"


def ask(method: str, path: str, query: Mapping[str, str], of: Asked) -> dict[str, Any]:
    """What the gateway answers; raises what `refused` makes where that is a refusal, to end the command."""
    said, status = _answer(method, path, query, of)
    content = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    if status != 200 or not content:
        why = content.get("detail") or "there is no admin API: it needs admin_token_file, and a gateway of this version"
        raise refused(f"{of.url} answers {status}: {why}", 1)
    return content


def look(path: str, of: Asked, kind: type[Page]) -> Page:
    """A page that says something whatever its status. Raises what `refused` makes where it is not of that kind."""
    said, status = _answer("GET", path, {}, of, _LOOK_S)
    if not isinstance(said, kind):
        raise refused(f"{of.url} answers {status} to {path}: it is no gateway, or of another version", 1)
    return said


def look_again(path: str, of: Asked, kind: type[Page]) -> Page | None:
    """The same of a gateway that had it before: None while it has not, as when it is started anew."""
    try:
        said = _sent("GET", path, {}, of, _LOOK_S).json()
    except (httpx.HTTPError, ValueError):
        return None
    return said if isinstance(said, kind) else None


@contextmanager
def as_gateways_say(of: Asked, hint: str = "") -> Iterator[None]:
    """Around whatever takes an answer for granted. Raises what `refused` makes where it has another shape."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refused(f"what {of.url} answers is of no gateway, or of another version{hint}", 1) from None


def _sent(method: str, path: str, query: Mapping[str, str], of: Asked, patience_s: float) -> httpx.Response:
    """Raises what httpx does."""
    url = of.url.rstrip("/") + path
    headers = {"authorization": f"Bearer {of.token}"} if of.token else {}
    is_here = httpx.URL(url).host in _HERE
    return httpx.request(method, url, params=dict(query), headers=headers, timeout=patience_s, trust_env=not is_here)


def _answer(
    method: str, path: str, query: Mapping[str, str], of: Asked, patience_s: float = _ANSWER_S
) -> tuple[object, int]:
    """The JSON of an answer, None where it is none, and its status."""
    gateway = of.url
    try:
        answer = _sent(method, path, query, of, patience_s)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise refused(
            f"no answer from {gateway}: {str(error) or type(error).__name__}", 1, code="gateway_away"
        ) from None
    if answer.status_code == 401:
        raise refused(f"{gateway} has another admin token", code="admin_token_wrong")
    try:
        return answer.json(), answer.status_code
    except ValueError:
        return None, answer.status_code
