"""What relaying a stream costs: chunks a second of one core, and how late chunks come while many streams are open.

    core of the router    the router alone, with all that belongs to it (ours: its Valkey, ledger, tokenizer)
    core of the load      engines that write chunk by chunk (stream_backend.py), clients that count (relay_load.py)

    python -m bench.relay [--only NAME,NAME] [--levels 100,500] [--short]

unpaced   16 streams of 20 and of 500 chunks, as fast as they go. Where the core of the load is busier than 90 % it is
          the limit, and the tables say so; processor time of the router for a chunk is comparable even then.
paced     a chunk each 50 ms in 100, 500, 1,000, ... streams at once, while 20 streams go past the router: the time
          between two chunks, p99, less what it is for those 20 in the same seconds. Where those 20 are later than 5 ms
          the row is void, unless the router adds more than 10 ms to that. The knee is the last level at which a router
          adds at most 10 ms.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import uvloop

from backends.reference.model_files import ensure_model
from bench.overhead_prompts import MODEL, asks
from bench.relay_report import NAME, goals, line, page_part, plot, with_part
from bench.relay_routers import MEASURED
from bench.relay_runs import LEVELS, SHORT, Bench, Row, Spans
from bench.result import ROOT, Goal, write_result
from bench.stream_backend import streaming_engines

BODY_BYTES: Final = 2_300
ENGINES: Final = 2
PAGE: Final = ROOT / "docs" / "performance.md"
IMAGE: Final = ROOT / "docs" / "img" / NAME
_PACKAGES: Final = ("uvloop", "uvicorn", "httptools")


async def measured(names: Sequence[str], levels: Sequence[int], spans: Spans, router_core: int) -> list[Row]:
    """The rows of these routers, each told when it is there."""
    [ask] = asks({"2.3 KB": BODY_BYTES}, ensure_model(MODEL))
    usage = ask.answer()["usage"]
    assert isinstance(usage, dict)
    rows: list[Row] = []
    async with streaming_engines(MODEL, usage, ENGINES) as ports:
        bench = Bench(ask, ports, router_core, spans, levels, lambda row: print(line(asdict(row)), flush=True))
        for name in names:
            rows += await bench.measure(name)
    return rows


def write(rows: Sequence[Row], met: Sequence[Goal]) -> None:
    """Result, page and picture."""
    path = write_result("relay", [asdict(row) for row in rows], met, _PACKAGES)
    result = json.loads(path.read_text(encoding="utf-8"))
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), page_part(result)), encoding="utf-8")
    IMAGE.write_text(plot(result["rows"]), encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="routers, joined by commas; their result is not written")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)), help="open streams, joined by commas")
    parser.add_argument("--short", action="store_true", help="shorter, for a look; its result is not written")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("this takes Linux and two cores: one for the router, one for engines and clients")
    os.sched_setaffinity(0, {cores[1]})
    names = options.only.split(",") if options.only else MEASURED
    levels = [int(level) for level in options.levels.split(",")]
    spans = SHORT if options.short else Spans()
    rows = uvloop.run(measured(names, levels, spans, cores[0]))
    os.sched_setaffinity(0, cores)
    met = goals([asdict(row) for row in rows])
    print(*(goal.text() for goal in met), sep="\n")
    if not options.only and not options.short and levels == list(LEVELS):
        write(rows, met)
    return 0


if __name__ == "__main__":
    sys.exit(main())
