"""vLLM's NixlConnector, pull mode: P answers with where its blocks are, D fetches them from there.

An engine that was started without the connector (role both) ignores `kv_transfer_params`, as vLLM does. Everything else
is stricter than vLLM 0.32, which was seen to answer 200 to params that were used before or whose request, port or
number of tokens was changed, and to other block ids with another text; of another engine's id alone it said 500. Who
sends such params has gone wrong in any case, and here it shows.
"""

import asyncio
from typing import Final
from uuid import uuid4

from backends.disaggregated import Role
from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Site
from backends.simulated.serving.split.channel import ask
from backends.simulated.serving.split.depot import Parked
from backends.simulated.serving.split.leg import WHOLE, Ended, Leg, More, content_of
from backends.simulated.serving.types import Json, Prompt, Wanted

GROUPED_BLOCK_IDS: Final = (0, 24)
TOLD_TOKENS: Final = (0, 25)
PARTIAL_BLOCKS: Final = (0, 32)
"""Seen to hand over a prompt that fills no block; for older ones there is nothing to hand over then."""

CACHED_OF_PREFILL: Final = (0, 31)
"""From here on D reports what P had found; before, what it fetched counts as cached."""


def leg(site: Site, wanted: Wanted, prompt: Prompt) -> Leg:
    """The leg that `kv_transfer_params` ask for. Raises `Refused`."""
    params = wanted.fields.get("kv_transfer_params")
    if site.spec.role is Role.BOTH or not isinstance(params, dict):
        return WHOLE
    if params.get("do_remote_decode") is True:
        return _Prefill(site, wanted, prompt)
    if params.get("do_remote_prefill") is True:
        return _Decode(site, wanted, prompt, params)
    return WHOLE


def version_of(site: Site) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(part) for part in site.version.split(".")[:2])


class _Prefill(Leg):
    def __init__(self, site: Site, wanted: Wanted, prompt: Prompt) -> None:
        super().__init__(part="prefill", hold=True)
        self._site = site
        self._wanted = wanted
        self._prompt = prompt

    async def end(self, number: int, ended: Ended) -> More:
        site, tokens = self._site, len(self._prompt.ids)
        if tokens < site.runner.spec.block_size and version_of(site) < PARTIAL_BLOCKS:
            return More({"kv_transfer_params": None})
        params = self._params(number, ended)
        terms = {**params, **content_of(self._wanted, self._prompt)}
        expires_s = site.runner.clock.now_s() + site.spec.lease_s
        key = str(params["remote_request_id"])
        ended.parked = True
        site.depot.park(Parked(key, terms, tokens, ended.tally.cached_tokens, number, ended.rank, expires_s))
        site.runner.totals[ended.rank].external_queries += tokens - ended.tally.cached_tokens
        return More({"kv_transfer_params": params})

    def _params(self, number: int, ended: Ended) -> Json:
        site, version = self._site, version_of(self._site)
        tokens = len(self._prompt.ids)
        first = number * 1000 + 1
        blocks = list(range(first, first + site.runner.spec.blocks_for(tokens)))
        prefix = "chatcmpl" if self._wanted.chat else "cmpl"
        params: Json = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [blocks] if version >= GROUPED_BLOCK_IDS else blocks,
            "remote_engine_id": site.instance,
            "remote_request_id": f"{prefix}-{self._wanted.request_id}-{uuid4().hex[:8]}",
            "remote_host": site.channel.host,
            "remote_port": site.channel.port,
            "tp_size": 1,
        }
        if version >= TOLD_TOKENS:
            params["remote_num_tokens"] = tokens
        if version >= CACHED_OF_PREFILL:
            params |= {
                "dcp_size": 1,
                "pp_size": 1,
                "remote_blocks_expiry_time": None,
                "transfer_mode": "pull",
                "remote_prefill_cached_tokens": ended.tally.cached_tokens,
            }
        return params


class _Decode(Leg):
    def __init__(self, site: Site, wanted: Wanted, prompt: Prompt, params: Json) -> None:
        super().__init__(part="decode", transferred=True)
        self._site = site
        self._params = params
        self._question: Json = {**params, **content_of(wanted, prompt), "ask": "nixl"}
        self._tokens = len(prompt.ids)
        for name in ("remote_engine_id", "remote_request_id", "remote_block_ids", "remote_host", "remote_port"):
            if params.get(name) is None:
                raise Refused(500, f"KV transfer failed: {name} is missing", kind="InternalServerError")

    async def begin(self, rank: int) -> None:
        params, site = self._params, self._site
        port = params["remote_port"]
        if not isinstance(port, int):
            raise Refused(500, "KV transfer failed: remote_port is no port", kind="InternalServerError")
        # An engine whose client leaves meanwhile tells P all the same that its blocks are not needed any more.
        await asyncio.shield(ask(str(params["remote_host"]), port, self._question))
        totals = site.runner.totals[rank]
        totals.external_queries += self._tokens
        totals.external_tokens += self._tokens
        if version_of(site) >= CACHED_OF_PREFILL:
            cached = params.get("remote_prefill_cached_tokens")
            self.cached_tokens = cached if isinstance(cached, int) else 0
        else:
            self.cached_tokens = self._tokens - 1


async def hand_over(site: Site, asked: Json) -> Json:
    """The answer of P's side channel."""
    if asked.get("remote_engine_id") != site.instance:
        raise Refused(500, "the blocks are of another engine, or of an earlier life of this one")
    site.depot.take(str(asked.get("remote_request_id")), asked)
    return {}
