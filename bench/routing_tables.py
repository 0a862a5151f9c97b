"""The tables of the routing benchmark by their letters.

A known hit ratios   B llm-d's ladder   C, D SGLang's tests   E chat   F coding agents   G tools   H many prefixes
J several gateways   K nothing to share   L unequal endpoints   M happenings   N a thousand endpoints
"""

from collections.abc import Mapping
from typing import Final

from bench.routing_published import ladder, one_prefix, shared_prefixes
from bench.routing_reference import reference
from bench.routing_runs import TableMaker
from bench.routing_scale import SCALE
from bench.routing_traces import airline, chat, coding_agents, many_prefixes

TABLES: Final[Mapping[str, TableMaker]] = {
    "A": reference,
    "B": ladder,
    "C": shared_prefixes,
    "D": one_prefix,
    "E": chat,
    "F": coding_agents,
    "G": airline,
    "H": many_prefixes,
    **SCALE,
}
"""Each made for the full run or the short one."""
