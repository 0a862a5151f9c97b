"""Splitting, put together from the configuration."""

import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter

from backends import Deadlines, PerfModel, Registry, UpstreamClient
from gateway.attempts import Attempts
from gateway.config import Config
from gateway.disaggregation.aside import SetAside
from gateway.disaggregation.legs import LegParts
from gateway.disaggregation.pages import disaggregation_router
from gateway.disaggregation.splitting import Splitter, SplitterParts
from gateway.disaggregation.truth import SplitTruth
from gateway.disaggregation.weighing import Weighing, WeighingParts
from gateway.exchange import Clocks
from gateway.fleet import Fleet
from gateway.perf_book import PerfBook
from gateway.receipts import Receipts
from gateway.scheduling import Chooser
from gateway.telemetry import Telemetry
from gateway.transfers import Transfers
from gateway.turns import Turns

_NOBODY: Final[AbstractSet[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class DisaggregationParts:
    """The objects that splitting works with. `choose` is a policy of its own, for prompts that are computed for others:
    what it keeps is about those alone. `worked` as in `LegParts`."""

    registry: Registry
    fleet: Fleet
    perf: PerfBook
    receipts: Receipts
    client: UpstreamClient
    telemetry: Telemetry
    clocks: Clocks
    deadlines: Deadlines
    choose: Chooser
    turns: Turns | None
    attempts: Attempts
    worked: Callable[[str, int, float], None]


class Disaggregating:
    """One per gateway; `splitter.releaser` runs beside the requests."""

    def __init__(self, config: Config, parts: DisaggregationParts) -> None:
        asked, turns, rng = config.disaggregation, parts.turns, random.Random()  # noqa: S311 - rooms and near-ties
        metrics, monotonic = parts.telemetry.splits, parts.clocks.monotonic
        prior = PerfModel(asked.transfer_base_s, asked.transfer_tokens_per_s, quad_s_per_token2=0.0)
        self.transfers = Transfers(prior, metrics, monotonic)
        weighing = Weighing(
            WeighingParts(
                parts.fleet,
                parts.receipts,
                self.transfers,
                parts.choose,
                config.scheduling.near_tie_s,
                rng.random,
                full=(lambda: _NOBODY) if turns is None else (lambda: turns.gate.full),
            )
        )
        legs = LegParts(
            parts.fleet,
            parts.perf,
            parts.receipts,
            parts.client,
            metrics,
            parts.clocks,
            parts.deadlines,
            inject_salt=config.isolation == "salt",
            turns=turns,
            worked=parts.worked,
            attempts=parts.attempts,
        )
        parts.registry.subscribe(self.new_generation)
        self._aside = SetAside(metrics, monotonic, asked.set_aside_s)
        self.splitter = Splitter(SplitterParts(weighing, legs, rng, self._aside))
        self.truth = SplitTruth(parts.perf, self.transfers, metrics)
        self.router: APIRouter = disaggregation_router(parts.fleet, self._aside, self.transfers)
        """Of the admin API."""

    def new_generation(self, endpoint_id: str, generation: int) -> None:
        """An endpoint's engine is another one now."""
        self._aside.forget(endpoint_id)
        self.transfers.new_generation(endpoint_id, generation)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._aside.forget(endpoint_id)
        self.transfers.removed(endpoint_id)
