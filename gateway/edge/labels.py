"""What a client says about a request for the books alone: the run it belongs to, who asked the client, and tags.

    x-prefixgate-job-id: run-7f3        one run of an agent, of any number of calls         as it is
    x-prefixgate-tags: team=search      names and values of the client's choosing           beside the key's, which win
    "user" in the body                  who asked; Anthropic: metadata.user_id              as an HMAC only

No engine sees the headers (all of `x-prefixgate-` end here); the body goes on as it came. A header that breaks its rule
is refused with 400: dropped in silence it would be missing on a bill. Tags are columns of a roll-up, so their number is
bounded: beyond `MOST_SETS` different sets a tenant, a request is tagged `overflow` alone.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from gateway.errors import BadRequest
from gateway.types import Headers, Labels, Tenant, TenantId

JOB_ID_HEADER: Final = b"x-prefixgate-job-id"
TAGS_HEADER: Final = b"x-prefixgate-tags"
MOST_TAGS: Final = 8
MOST_SETS: Final = 256
OVERFLOW: Final = {"overflow": "true"}

_JOB_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,127}")
_TAG_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
_TAG_VALUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/@+-]{0,63}")
_USER_HASH_DIGITS: Final = 32


class Labeller:
    """Reads labels. `secret` makes the hashes of end users: without one, who guesses a name can recognise it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"prefixgate end user 1" + secret).digest()
        self._sets: dict[TenantId, set[bytes]] = {}

    def labels(self, headers: Headers, tenant: Tenant, user: str | None) -> Labels:
        """Of one request. Raises `BadRequest`, naming the header. O(headers)."""
        job_id, tags = _only(headers, JOB_ID_HEADER), _only(headers, TAGS_HEADER)
        if job_id is not None and _JOB_ID.fullmatch(job_id) is None:
            raise _refused(JOB_ID_HEADER, "must be 1 to 128 letters, digits or ._:/@+=-, a letter or digit first")
        return Labels(
            job_id=None if job_id is None else job_id.decode(),
            end_user=None if not user else self._hash(tenant.id, user),
            tags=tenant.tags if tags is None else {**self._bounded(tenant.id, tags), **(tenant.tags or {})},
        )

    def _hash(self, tenant: TenantId, user: str) -> str:
        """The same user of two tenants is two hashes: nobody can be followed from one to the other."""
        said = f"{tenant}\n{user}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()[:_USER_HASH_DIGITS]

    def _bounded(self, tenant: TenantId, text: bytes) -> Mapping[str, str]:
        tags = read_tags(text)
        seen = self._sets.setdefault(tenant, set())
        mark = repr(sorted(tags.items())).encode()
        if mark not in seen and len(seen) >= MOST_SETS:
            return OVERFLOW
        seen.add(mark)
        return tags


def read_tags(text: bytes) -> dict[str, str]:
    """`team=search, env=prod` as a mapping. Raises `BadRequest`."""
    if text.count(b",") >= MOST_TAGS:
        raise _refused(TAGS_HEADER, f"has more than {MOST_TAGS} tags")
    found: dict[str, str] = {}
    for pair in text.decode("latin-1").split(","):
        name, _, value = (part.strip() for part in pair.partition("="))
        if _TAG_NAME.fullmatch(name) is None or _TAG_VALUE.fullmatch(value) is None:
            raise _refused(
                TAGS_HEADER,
                "must be name=value, name=value: names of at most 32 of a-z 0-9 _.- that begin with a letter, values "
                "of at most 64 letters, digits, spaces or ._:/@+- that begin with a letter or digit",
            )
        if name in found:
            raise _refused(TAGS_HEADER, "names a tag twice")
        found[name] = value
    return found


def _only(headers: Headers, wanted: bytes) -> bytes | None:
    values = [value.strip() for name, value in headers if name == wanted]
    if len(values) > 1:
        raise _refused(wanted, "stands twice")
    return values[0] if values else None


def _refused(header: bytes, why: str) -> BadRequest:
    return BadRequest(f"the header {header.decode()} {why}", param=header.decode())
