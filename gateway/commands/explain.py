"""`prefixgate explain`: why a request went where it went, and what came of it, as a running gateway remembers it.

The terms are printed as the gateway names them, so a gateway with another cost is explained by its own.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.admin_client import Gateway, TokenFile, as_gateways_say, ask, asked
from gateway.command_line.answers import print_json
from gateway.command_line.words import number, percent, seconds
from gateway.scheduling import place_name
from gateway.terminal import AsJson, ConfigFile
from gateway.terminal_tables import wide_console

_CHOSEN = "->"
_ADAPTERS = "adapter_"
"""Terms that only requests for an adapter have."""

Data = Mapping[str, Any]


def explain(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of its answer, also in the log and the ledger.")],
    as_json: AsJson = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """Why a request went where it went: every endpoint's cost in seconds, term by term, and what came of it.

    Exit 1 where the gateway has no such request among its last ones, or is away; 2 where it cannot be asked.
    """
    of = asked(gateway, token_file, config)
    found = ask("GET", f"/admin/requests/{quote(request_id, safe='')}", {}, of)
    if as_json:
        print_json(found)
        return
    with as_gateways_say(of, ": --json shows it"):
        lines, is_settled = [*headline(found)], found["outcome"] is not None
        lines += missed(found)
        tables = [costs(found), knowledge(found), filtered(found), outcome(found)]
    shown = [table for table in tables if table.row_count]
    console = wide_console(*shown)
    for line in lines:
        _say(console, line)
    for table in shown:
        console.print(table)
    if not is_settled:
        _say(console, "it is not settled yet")


def headline(found: Data) -> Iterable[str]:
    """The request, the choice and the reason, a line each."""
    prompt = "unknown" if found["prompt_tokens"] is None else f"{found['prompt_tokens']:,}"
    yield f"request {found['request_id']} of {found['tenant']}, {found['model']}, {found['opened_at']}"
    if found.get("route_rule") is not None:
        yield f"asked for as {found['model_asked']}: {found['route_rule']}"
    yield f"prompt: {prompt} tokens ({found['token_source']}), {found['blocks']:,} blocks"
    yield f"sent to {_place(found)}, {found['reason']}: {found['why']}"
    if "split" in found:
        yield _of_two(found["split"])
    if "observed" in found:
        watched = found["observed"]
        yield f"the policy that is only watched would have sent it to {_place(watched)}, {watched['reason']}"


def _of_two(split: Data) -> str:
    alone = split["unsplit_cost_s"]
    other = "nobody could do both" if alone is None else f"{seconds(alone)} s at one endpoint"
    two, carried = seconds(split["split_cost_s"]), number(split["carried_tokens"])
    where = f"{split['prefill_endpoint']}, {split['reason']}"
    return f"prompt computed at {where}: {two} s at two endpoints, {other}; {carried} tokens carried"


_WHY_MISSED = {
    "cold": "nothing of it was known anywhere, and this key had sent none of it before",
    "evicted": "it had been there, and the engine has it no longer",
    "expired": "it had been there, so long ago that the index has forgotten it",
    "restarted": "the engine that had it has started anew",
    "routed_elsewhere": "another endpoint had more of it",
    "tokens_degraded": "its tokens are not counted as the engine counts them, so nothing could be known",
    "unknown": "its tokens are not known, so nothing could be known of it",
}


def missed(found: Data) -> Iterable[str]:
    """Why less of the prompt was cached than could have been, a line; nothing where it was not, or nobody knows."""
    ended = found["outcome"] or {}
    said = ended.get("miss_reason")
    if said is None:
        return
    reason, _, position = said.partition(":")
    lost = ended.get("lost_tokens")
    loss = "" if lost is None else f"; {lost:,} tokens lost"
    if reason == "prompt_changed":
        yield f"missed: the prompt changed at token {int(position):,} ({ended.get('changed_segment') or 'later'}){loss}"
    else:
        yield f"missed: {reason}, {_WHY_MISSED.get(reason, 'by a gateway of another version')}{loss}"


def _place(decided: Data) -> str:
    """Where a request was sent: an endpoint, or a rank of it. Gateways of another version do not say which."""
    rank = decided.get("rank")
    return str(decided["endpoint"]) if rank is None else place_name(decided["endpoint"], rank)


def costs(found: Data) -> Table:
    """Who could have been chosen and what it would have cost, term by term; cheapest first."""
    terms = found["terms"]
    said = dict.fromkeys(name for one in terms.values() for name in one if _is_term(name))
    names = [name for name in said if not name.startswith(_ADAPTERS) or any(one.get(name) for one in terms.values())]
    words = (name.removesuffix("_s").replace("_", " ") for name in names)
    table = Table("", "seconds at", "cost", *words)
    for endpoint in _cheapest_first(found):
        one, is_chosen = terms[endpoint], endpoint == _place(found)
        cells = (_CHOSEN if is_chosen else "", endpoint, seconds(one["cost_s"]))
        others_s = (seconds(one.get(name)) for name in names)
        table.add_row(*map(escape, cells), *others_s, style="bold" if is_chosen else None)
    others = found["others"]
    if others["count"]:
        table.caption = f"and {others['count']:,} more, from {others['least_cost_s']:.3f} s on"
    return table


def knowledge(found: Data) -> Table:
    """What the terms were computed from, in tokens."""
    table = Table(
        *("tokens at", "matched", "survival", "on average", "expected"),
        *("queue", "lately", "KV use", "tokens/s"),
    )
    for endpoint in _cheapest_first(found):
        fact = found["candidates"][endpoint]
        table.add_row(
            *(escape(endpoint), number(fact["matched_tokens"]), _survival(found["terms"][endpoint], fact)),
            *map(number, (fact["cached_tokens"], fact["expected_cached_tokens"], fact["queued_tokens"])),
            *(number(fact["recent_tokens"]), percent(fact["kv_use"])),
            number(fact["speed"]["prefill_tokens_per_s"]),
        )
    return table


def filtered(found: Data) -> Table:
    """Who could not have been chosen, and why."""
    words = found["filtered_why"]
    table = Table("left out", "because", "")
    for endpoint, why in found["filtered"].items():
        table.add_row(*map(escape, (endpoint, why, words.get(why, ""))))
    for why, count in found["filtered_others"].items():
        table.add_row(*map(escape, (f"and {count:,} more", why, words.get(why, ""))))
    return table


def outcome(found: Data) -> Table:
    """What came of it: as thought at the decision, and as it was."""
    table = Table("what came of it", "thought", "was")
    ended = found["outcome"]
    if ended is None:
        return table
    table.add_row("state", "", escape(ended["state"]))
    cached = (found["expected_cached_tokens"], ended["reported_cached_tokens"])
    table.add_row("cached tokens", *map(number, cached))
    table.add_row("first token, s", seconds(ended["predicted_ttft_s"]), seconds(ended["ttft_s"]))
    table.add_row("cost, s", seconds(ended["predicted_cost_s"]), seconds(ended["cost_s"]))
    table.add_row("least cost of another, s", seconds(ended["least_other_cost_s"]), "")
    table.add_row("regret, s", "", seconds(ended["regret_s"]))
    return table


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cheapest_first(found: Data) -> list[str]:
    terms = found["terms"]
    return sorted(terms, key=lambda name: terms[name]["cost_s"])


def _is_term(name: str) -> bool:
    return name.endswith("_s") and name != "cost_s"


def _survival(term: Data, fact: Data) -> str:
    """How likely what it holds is still there; where nobody looked closer it was taken to be."""
    if term["at_best"] and fact["matched_tokens"]:
        return "at best"
    return percent(fact["survival"])
