"""Ids of endpoints that were found: the same wherever and whenever the same endpoint is found, and never long.

http://10.0.0.7:8000/base  ->  10.0.0.7-8000-base      of more than 64 characters: cut, with a digest at the end
"""

import hashlib
import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

MOST_CHARS: Final = 64
_DIGEST_CHARS: Final = 8
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@lru_cache(maxsize=8192)
def normal_url(url: str) -> str:
    """One text for all ways to write an address; the text itself where it is none. O(its length)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return url
    if not host or parts.scheme not in _DEFAULT_PORTS:
        return url
    host = host.rstrip(".")
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}:{port or _DEFAULT_PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def name_of(text: str) -> str:
    """A name that metrics, headers and files take, out of any text; bounded, and equal for equal texts only, as far as
    it can be: what is cut or replaced is told apart by a digest."""
    name = _NO_NAME.sub("-", text).lstrip("._-")
    if name and name == text and len(name) <= MOST_CHARS:
        return name
    return with_digest(name, text)


def name_of_url(url: str) -> str:
    """An id made from an address: host, port and path, bounded."""
    name = _NO_NAME.sub("-", url.partition("://")[2].rstrip("/")).strip("-")
    return name if name and name[0].isalnum() and len(name) <= MOST_CHARS else with_digest(name, url)


def with_digest(name: str, of: str) -> str:
    """A name that is another one for each `of`."""
    digest = hashlib.sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name.lstrip('._-')[: MOST_CHARS - _DIGEST_CHARS - 1] or 'endpoint'}-{digest}"
