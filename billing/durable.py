"""Which records have their row already: what is written again after a commit whose answer was lost, or from a spool."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Column, Connection, select, tuple_

from billing.schema import corrections, engine_samples, requests
from billing.types import Correction, EngineSample, OpenedRequest
from billing.when import to_us
from billing.writer import Record

Key = tuple[str, ...]
_MOST_IDS = 500


def key_of(record: Record) -> Key:
    """What tells a record from every other."""
    if isinstance(record, EngineSample):
        return ("sample", record.endpoint_id, str(to_us(record.sampled_at)))
    return (type(record).__name__, id_of(record))


def id_of(record: Record) -> str:
    """The name of a record, as an error says it."""
    if isinstance(record, EngineSample):
        return record.endpoint_id
    return record.correction_id if isinstance(record, Correction) else record.request_id


def durable(connection: Connection, records: Sequence[Record]) -> set[Key]:
    """The keys of those that are in the ledger, settlements apart."""
    opened = [record.request_id for record in records if isinstance(record, OpenedRequest)]
    corrected = [record.correction_id for record in records if isinstance(record, Correction)]
    there: set[Key] = {(OpenedRequest.__name__, id_) for id_ in _there(connection, requests.c.request_id, opened)}
    there |= {(Correction.__name__, id_) for id_ in _there(connection, corrections.c.correction_id, corrected)}
    samples = [(one.endpoint_id, to_us(one.sampled_at)) for one in records if isinstance(one, EngineSample)]
    at = (engine_samples.c.endpoint_id, engine_samples.c.sampled_at_us)
    if samples:
        found = connection.execute(select(*at).where(tuple_(*at).in_(samples)))
        there |= {("sample", endpoint_id, str(at_us)) for endpoint_id, at_us in found}
    return there


def _there(connection: Connection, column: Column[str], ids: Sequence[str]) -> Iterable[str]:
    for first in range(0, len(ids), _MOST_IDS):
        yield from connection.execute(select(column).where(column.in_(ids[first : first + _MOST_IDS]))).scalars()
