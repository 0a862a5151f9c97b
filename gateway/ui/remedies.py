"""What each part that works in a reduced way means, and what mends it: of every part that `/health` can name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Remedy:
    """`meaning` is what is different meanwhile; `command` is to be run where the gateway's configuration is, None where
    no command of ours mends it."""

    meaning: str
    remedy: str
    command: str | None = None


REMEDIES: Final[Mapping[str, Remedy]] = {
    "index": Remedy(
        "Each replica routes by what it has seen itself, and fewer prompts find their prefix.",
        "Bring Redis back, or give it more memory; the gateway comes back to it by itself. The command says what it "
        "finds there.",
        "prefixgate check --index --config FILE",
    ),
    "ledger": Remedy(
        "Usage waits on the local disk, or requests are refused, until it can be written.",
        "Make room on the disk of the ledger, or bring PostgreSQL back; what waits is written by itself. The command "
        "looks at the ledger from outside.",
        "prefixgate ledger show --config FILE",
    ),
    "tokenizer": Remedy(
        "Prefixes are matched by bytes, so part of what is cached is not foreseen.",
        "Name the model's tokenizer under `models`, or let its engine's `/tokenize` be reached.",
        "prefixgate check --config FILE",
    ),
    "parity": Remedy(
        "What is foreseen of these kinds of requests is not relied on.",
        "Give the gateway the tokenizer and the chat template that the engine uses. The command shows where both "
        "count otherwise.",
        "prefixgate check --config FILE",
    ),
    "isolation": Remedy(
        "These endpoints take no requests.",
        "Use an engine that takes a cache salt, put all tenants into one share group, or set `isolation: none`.",
        "prefixgate check --config FILE",
    ),
    "kv_events": Remedy(
        "What these caches hold is known from answers alone, a little later.",
        "Let the gateway reach the address that the engine publishes its KV events at, and look for the engine's flag. "
        "The command shows the state of every feed.",
        "prefixgate index show",
    ),
    "limits": Remedy(
        "Each replica counts limits and budgets alone, or requests are refused, as `quota.limits_down` says.",
        "Bring Redis back; what was counted meanwhile is told to it.",
        "prefixgate check --config FILE",
    ),
    "keys": Remedy(
        "The keys that were in force before are still in force: neither new ones nor revoked ones count.",
        "Mend the keys file; it is taken over within seconds. The command says what is wrong with it.",
        "prefixgate keys list --config FILE",
    ),
    "prices": Remedy(
        "The prices from before are still charged.",
        "Mend the price file; it is taken over within seconds. The command says what is wrong with it.",
        "prefixgate prices check --config FILE",
    ),
    "templates": Remedy(
        "The versions from before are still rendered.",
        "Mend the files, or put the templates anew. The command says what is wrong with them.",
        "prefixgate templates check --config FILE",
    ),
    "endpoints": Remedy(
        "Others take their requests, and prefixes that lie there are computed anew.",
        "Look at the engines named: each row of the fleet says why. They are tried again by themselves. The command "
        "calls every one of them once.",
        "prefixgate check --config FILE",
    ),
    "discovery": Remedy(
        "The fleet stays as it was heard of last; who is new there gets nothing.",
        "Mend the source, or what it says of the endpoint named.",
        "prefixgate check --config FILE",
    ),
    "workers": Remedy(
        "The others take their connections.",
        "Nothing: workers that died are started again. Where it goes on, the log says why they die.",
    ),
    "canary": Remedy(
        "The arm gets no requests; the others of its name take them.",
        "Mend what the arm serves, then let it go on.",
        "curl -X POST -H 'Authorization: Bearer TOKEN' 'GATEWAY/admin/routes?name=NAME&arm=ARM&stopped=false'",
    ),
    "epp": Remedy(
        "Usage is not known, so these requests are not billed, and the index learns from prompts alone.",
        "Let the gateway in front show answers: `response_body_mode: FULL_DUPLEX_STREAMED` in its filter; or refuse "
        "such requests with `epp.unseen_answers`.",
    ),
}
"""By the part, as `/health` names it."""


def health_page(degraded: Mapping[str, str]) -> dict[str, Any]:
    """What is degraded and what mends it; a part that is not known here has its reason alone."""
    return {
        "status": "degraded" if degraded else "ok",
        "degraded": [{"part": part, "why": why, **_told(part)} for part, why in sorted(degraded.items())],
    }


def _told(part: str) -> dict[str, str | None]:
    found = REMEDIES.get(part)
    if found is None:
        return {"meaning": None, "remedy": None, "command": None}
    return {"meaning": found.meaning, "remedy": found.remedy, "command": found.command}
