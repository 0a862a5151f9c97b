"""What every answer of the dashboard carries, and how one goes out.

The policy lets a page load what this server has and nothing else, run no script and no style that stands in a page, and
be in nobody's frame.
"""

import base64
import hashlib
import re
from typing import Final

import msgspec

from gateway.errors import GatewayError
from gateway.status import Answer
from gateway.types import Headers
from gateway.wire import Scope, Send

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_COMMON: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
SECURE: Final[Headers] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    *_COMMON,
)
"""For all that is no document of its own."""
_PRIVATE: Final = (b"cache-control", b"no-store")
_STYLE: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def json_answer(content: object, status: int = 200) -> Answer:
    """Data."""
    return Answer(status, ((b"content-type", b"application/json"), _PRIVATE, *SECURE), msgspec.json.encode(content))


def empty_answer(status: int, *headers: tuple[bytes, bytes]) -> Answer:
    """No body."""
    return Answer(status, (*headers, _PRIVATE, *SECURE), b"")


def text_answer(text: str, status: int) -> Answer:
    """A sentence."""
    return Answer(status, ((b"content-type", b"text/plain; charset=utf-8"), _PRIVATE, *SECURE), text.encode())


def error_answer(error: GatewayError) -> Answer:
    """A failure as `{"error": {"code", "message"}}`."""
    answer = json_answer({"error": {"code": error.code, "message": error.message}}, error.status)
    later = () if error.retry_after_s is None else ((b"retry-after", b"%d" % error.retry_after_s),)
    return Answer(answer.status, (*answer.headers, *later), answer.body)


def document_answer(html: str) -> Answer:
    """A document of its own, for a frame of ours: no script, only the styles that stand in it, by their hashes."""
    hashes = (base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() for style in _STYLE.findall(html))
    styles = " ".join(f"'sha256-{one}'" for one in dict.fromkeys(hashes)) or "'none'"
    policy = f"sandbox; default-src 'none'; style-src {styles}; frame-ancestors 'self'"
    fields = (
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-frame-options", b"SAMEORIGIN"),
        _PRIVATE,
        *_COMMON,
    )
    return Answer(200, fields, html.encode())


async def send_answer(answer: Answer, scope: Scope, send: Send) -> None:
    """The whole answer; of `HEAD` its head."""
    length = (b"content-length", b"%d" % len(answer.body))
    headers = answer.headers if answer.status in (204, 304) else (*answer.headers, length)
    await send({"type": "http.response.start", "status": answer.status, "headers": list(headers)})
    body = b"" if scope["method"] == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body, "more_body": False})
