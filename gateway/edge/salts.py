"""What becomes of a salt that a client sends itself.

    the group's salt --strip, refuse------------------> roots, engines
                     `-combine: HMAC(it, client's)----> roots, engines

A salt is both what the index tells chains apart by and what an engine is given, so there is one place where it is
decided: the tenant of a request. A client's own salt can only divide its share group further; it never leads out of it.
"""

import hmac
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from gateway.errors import BadRequest
from gateway.salt_secrets import ClientSalt
from gateway.surrogates import UNREADABLE, decode
from gateway.types import InferenceRequest

FIELD: Final = "cache_salt"
MOST_SALT_CHARS: Final = 1024
"""Of a client's own salt; engines get a digest of it."""
_DIGITS: Final = 32


class _Salted(msgspec.Struct):
    cache_salt: Any = None


_salted: Final = msgspec.json.Decoder(_Salted)


def combined_salt(salt: str, own: str) -> str:
    """The salt of a share group, divided by a client's own: 32 hex digits, as that of any group."""
    return hmac.new(b"prefixgate client salt 1" + salt.encode(), own.encode(), sha256).hexdigest()[:_DIGITS]


def with_client_salt(request: InferenceRequest, policy: ClientSalt) -> InferenceRequest:
    """The request with the salt that it is to have. O(body) where it has one of its own, else O(1).

    Raises `BadRequest` where that is refused, or is no text.
    """
    if policy is ClientSalt.STRIP or FIELD not in request.steering:
        return request
    if policy is ClientSalt.REFUSE:
        raise BadRequest("cache_salt is not taken here: the gateway keeps share groups apart itself", param=FIELD)
    own = request.foreign.body.get(FIELD) if request.foreign is not None else _own_salt(request.body)
    if own is None:
        return request
    if not isinstance(own, str) or not 0 < len(own) <= MOST_SALT_CHARS:
        raise _no_salt()
    tenant = request.tenant
    return replace(request, tenant=replace(tenant, salt=combined_salt(tenant.salt, own)))


def _own_salt(body: bytes) -> object:
    """What the body says, which was only passed over so far. Raises `BadRequest` where it cannot be read."""
    try:
        return decode(_salted, body).cache_salt
    except UNREADABLE:
        raise _no_salt() from None


def _no_salt() -> BadRequest:
    return BadRequest(f"Expected a text of 1 to {MOST_SALT_CHARS} characters", param=FIELD)
