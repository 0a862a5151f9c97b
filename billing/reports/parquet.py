"""Rows as a Parquet file, in batches: memory is that of one. Needs the extra `parquet`.

Amounts and rates are decimals of 38 digits with 12 places, so that sums over the file are exact as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from billing.errors import ReportInvalid

_BATCH_ROWS = 10_000
_DIGITS, _PLACES = 38, 12


def write_parquet(
    path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]], kinds: Mapping[str, type]
) -> int:
    """Write rows, and say how many. A column is a text unless `kinds` has int, float or Decimal for it; times are
    texts in ISO form. Raises `ReportInvalid` where the extra is missing, `OSError` for the file."""
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise ReportInvalid("parquet", "needs the extra: pip install '.[parquet]' in a checkout") from None
    types: dict[type, Any] = {int: arrow.int64(), float: arrow.float64(), Decimal: arrow.decimal128(_DIGITS, _PLACES)}
    schema = arrow.schema([(name, types.get(kinds.get(name, str), arrow.string())) for name in columns])
    written = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            written += len(batch)
            data = [[_value(row.get(name), kinds.get(name, str)) for row in batch] for name in columns]
            writer.write_batch(arrow.record_batch(data, schema=schema))
    return written


def _batches(rows: Iterable[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH_ROWS)):
        yield batch


def _value(value: object, kind: type) -> object:
    return Decimal(value) if kind is Decimal and isinstance(value, str) else value
