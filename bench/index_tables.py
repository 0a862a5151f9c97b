"""The rows of the index benchmark for people."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

Row = dict[str, object]

_COSTS = {
    "server": "match.command_us",
    "CPU": "match.cpu_us",
    "p50": "match.client_us.p50",
    "p99": "match.client_us.p99",
    "client/s": "match.client_per_s",
    "server/s": "match.server_per_s",
    "turn": "turn.command_us",
    "its CPU": "turn.cpu_us",
    "new": "new.command_us",
    "new CPU": "new.cpu_us",
    "wait": "new.longest_wait_us",
}
_IN_PROCESS = {"p50": "match_us.p50", "p99": "match_us.p99", "turn": "turn_us.p50", "new": "new_us.p50"}
_MEMORY = {"used": "used_bytes_per_block", "resident": "resident_bytes_per_block", "load s": "load_s"}


def value(row: Row, path: str) -> float | None:
    """A figure of a row, by the keys on the way to it; None where it has none."""
    found: object = row
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) else None


def figure(rows: Sequence[Row], design: str, holders: int, size: int | None, path: str) -> float:
    """The figure of a design on the server; `size` is None for what does not depend on it. Raises LookupError."""
    wanted = ("server", design, holders, size)
    for row in rows:
        found = value(row, path)
        if (row.get("where"), row.get("design"), row.get("holders"), row.get("size")) == wanted and found is not None:
            return found
    raise LookupError(f"{path} of {design}, {holders} holders, {size} blocks")


def cost_table(rows: Sequence[Row]) -> Table:
    """What a match and an observation cost, size by size."""
    table = _table("bench-index; microseconds; turn, new: observations; wait: of a neighbour meanwhile, at most")
    for head in ("holders", "blocks", "design", *_COSTS):
        table.add_column(head, justify="right", no_wrap=True)
    before = None
    for row in sorted((row for row in rows if "size" in row), key=_order):
        paths = _COSTS if row["where"] == "server" else {head: _IN_PROCESS.get(head, "") for head in _COSTS}
        if before not in (None, _order(row)):
            table.add_section()
        before = _order(row)
        name = f"{row['design']}{'' if row['where'] == 'server' else ', in process'}"
        cells = [_cell(value(row, path)) for path in paths.values()]
        table.add_row(f"{row['holders']}", f"{row['size']:,}", name, *cells)
    return table


def memory_table(rows: Sequence[Row]) -> Table:
    """What a stored block takes."""
    table = _table("bytes for each distinct block")
    for head in ("holders", "blocks", "design", *_MEMORY):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        if "used_bytes_per_block" in row or "resident_bytes_per_block" in row:
            where = "" if row["where"] == "server" else ", in process"
            name = f"{row.get('design') or row.get('variant')}{where}"
            cells = [_cell(value(row, path)) for path in _MEMORY.values()]
            table.add_row(f"{row.get('holders', '')}", _cell(value(row, "stored_blocks")), name, *cells)
    return table


def _order(row: Row) -> tuple[float, ...]:
    return (value(row, "holders") or 0.0, value(row, "size") or 0.0)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def _cell(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"
