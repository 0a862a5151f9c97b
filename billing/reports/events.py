"""Usage as events for metering and billing systems: CloudEvents 1.0 (OpenMeter), and Lago's events. JSON lines.

    settled request  --> one CloudEvent, id = the id of its row
                     --> one event of Lago for each kind of token, transaction_id = the id of its row and the kind
    correction       --> one event, its id that of its row

An event of a row is the same bytes each time: sent again, its id makes the receiver drop it. What has not ended is no
event yet, so a period is sent again once it has. Unknown counts are left out, not sent as 0.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection, RowMapping

from billing.reports.query import Query
from billing.reports.rows import amount_fields, correction_rows, settled_rows
from billing.reports.tokens_by_kind import tokens_by_kind
from billing.when import from_us

SOURCE: Final = "prefixgate"
USAGE_TYPE: Final = "prefixgate.usage"
CORRECTION_TYPE: Final = "prefixgate.correction"
LAGO_TOKENS: Final = "prefixgate_tokens"
LAGO_CORRECTION: Final = "prefixgate_correction"
_MICROSECONDS = 10**6
_AMOUNTS = ("full", "charged")


def cloud_events(connection: Connection, query: Query) -> Iterator[str]:
    """A line for each request that has ended and each correction, in order. Lazy. https://cloudevents.io, 1.0.2."""
    for row in settled_rows(connection, query):
        if row["state"] is not None:
            yield _cloud_event(USAGE_TYPE, row["request_id"], row["opened_at_us"], row["tenant_id"], _data(row))
    for row in correction_rows(connection, query):
        about = {name: row[name] for name in ("request_id", "model", "kind", "reason", "currency")}
        data = _known(about | {"key": row["key_id"]} | amount_fields(row, _AMOUNTS))
        yield _cloud_event(CORRECTION_TYPE, row["correction_id"], row["made_at_us"], row["tenant_id"], data)


def lago_events(connection: Connection, query: Query) -> Iterator[str]:
    """Lines for `POST /api/v1/events/batch`, whose subscriptions are the tenants. Lazy.

    A request without a known token has no event.
    """
    for row in settled_rows(connection, query):
        if row["state"] is None:
            continue
        for kind, tokens in tokens_by_kind(row).items():
            about = {"model": row["model"], "key": row["key_id"], "kind": kind.value, "tokens": tokens}
            properties = _known(about | {"state": row["state"], "price_id": row["price_id"]})
            yield _lago(LAGO_TOKENS, f"{row['request_id']}:{kind.value}", row["opened_at_us"], row, properties)
    for row in correction_rows(connection, query):
        about = {name: row[name] for name in ("request_id", "model", "kind", "reason", "currency")}
        properties = _known(about | amount_fields(row, _AMOUNTS))
        yield _lago(LAGO_CORRECTION, row["correction_id"], row["made_at_us"], row, properties)


def _data(row: RowMapping) -> dict[str, object]:
    same = ("model", "route", "state", "verdict", "job_id", "end_user", "price_id", "currency")
    counts = ("prompt_tokens", "cached_tokens", "discounted_tokens", "cache_write_tokens", "output_tokens")
    about = {"key": row["key_id"]} | {name: row[name] for name in (*same, *counts, "reasoning_tokens")}
    kinds = {f"{kind.value}_tokens": tokens for kind, tokens in tokens_by_kind(row).items()}
    tags = {"tags": json.loads(row["tags"])} if row["tags"] else {}
    flags = {"flags": row["flags"].split(",")} if row["flags"] else {}
    amounts = amount_fields(row, _AMOUNTS)
    return _known(about | {f"billed_{name}": tokens for name, tokens in kinds.items()} | amounts) | tags | flags


def _known(values: Mapping[str, Any]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _cloud_event(type_: str, id_: str, at_us: int, subject: str, data: Mapping[str, object]) -> str:
    return _line(
        {
            "specversion": "1.0",
            "type": type_,
            "source": SOURCE,
            "id": id_,
            "time": from_us(at_us).isoformat(timespec="microseconds"),
            "subject": subject,
            "datacontenttype": "application/json",
            "data": data,
        }
    )


def _lago(code: str, id_: str, at_us: int, row: RowMapping, properties: Mapping[str, object]) -> str:
    seconds, rest = divmod(at_us, _MICROSECONDS)
    return _line(
        {
            "transaction_id": id_,
            "external_subscription_id": row["tenant_id"],
            "code": code,
            "timestamp": f"{seconds}.{rest // 1000:03d}",
            "properties": properties,
        }
    )


def _line(event: Mapping[str, object]) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"
