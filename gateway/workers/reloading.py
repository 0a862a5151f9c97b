"""What a changed configuration may change while the gateway runs, and what waits for a restart. Pure.

Workers are replaced, so what they alone read may change. The supervisor stays: the sockets, the ledger with its prices,
and the place of the index that all workers share are as they were at its start.
"""

from typing import Any, Final

from gateway.config import Config

FIXED: Final = (
    "listen",
    "workers",
    "supervised",
    "prices_file",
    "index.redis_url",
    "index.embedded",
    "index.dir",
    "ledger.path",
    "ledger.url",
    "ledger.password_file",
    "ledger.password_env",
    "ledger.sync",
    "ledger.on_ledger_down",
    "ledger.spool",
    "ledger.spool_max_bytes",
    "ledger.takeover_s",
)
"""Keys, and a section as a whole."""


def taken_over(running: Config, read: Config) -> tuple[Config, list[str]]:
    """The configuration as read, but for what cannot change; and the keys of that which were changed all the same.

    Raises `ValueError` where the two do not fit together.
    """
    old, new = running.model_dump(mode="json"), read.model_dump(mode="json")
    kept = [key for key in FIXED if _at(old, key) != _at(new, key)]
    for key in kept:
        section, _, name = key.rpartition(".")
        (new[section] if section else new)[name] = _at(old, key)
    return Config.model_validate(new), kept


def _at(tree: dict[str, Any], key: str) -> object:
    section, _, name = key.rpartition(".")
    return (tree[section] if section else tree)[name]
