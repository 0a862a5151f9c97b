"""TensorRT-LLM, context first: the context server's answer carries what the generation server needs, once.

The state is opaque to all but the two engines; here it is where the context server's side channel is.
"""

import base64
from typing import Final

import msgspec

from backends.disaggregated import Role
from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Site
from backends.simulated.serving.split.channel import ask
from backends.simulated.serving.split.depot import Parked
from backends.simulated.serving.split.leg import WHOLE, Ended, Leg, More, content_of
from backends.simulated.serving.text import answer_of
from backends.simulated.serving.types import Json, Prompt, Wanted

_TYPES: Final = ("context_only", "generation_only", "context_and_generation")
_LARGEST_ID: Final = 2**63 - 1


def leg(site: Site, wanted: Wanted, prompt: Prompt) -> Leg:
    """The leg that `disaggregated_params` ask for. Raises `Refused`."""
    params = wanted.fields.get("disaggregated_params")
    if params is None:
        return WHOLE
    if not isinstance(params, dict) or params.get("request_type") not in _TYPES:
        raise Refused(400, f"disaggregated_params need a request_type of {', '.join(_TYPES)}")
    if params["request_type"] == "context_and_generation":
        return WHOLE
    if site.spec.role is Role.BOTH:
        raise Refused(400, "this server has no cache transceiver: disaggregated_params cannot be used")
    if len(wanted.prompts) * wanted.n > 1:
        raise Refused(400, "disaggregated serving takes a single prompt and n = 1")
    if params["request_type"] == "context_only":
        if wanted.stream:
            raise Refused(400, "a context_only request cannot be streamed")
        return _Context(site, wanted, prompt, params)
    return _Generation(site, wanted, prompt, params)


class _Context(Leg):
    def __init__(self, site: Site, wanted: Wanted, prompt: Prompt, params: Json) -> None:
        super().__init__(part="prefill", hold=True, one_token=True)
        self._site = site
        self._prompt = prompt
        self._content = content_of(wanted, prompt)
        self._disagg_id = params.get("disagg_request_id")
        is_number = isinstance(self._disagg_id, int) and 0 <= self._disagg_id <= _LARGEST_ID
        if self._disagg_id is not None and not is_number:
            raise Refused(400, "disagg_request_id must be an integer of 64 bits")

    async def end(self, number: int, ended: Ended) -> More:
        site = self._site
        # Ids of two engines must not be equal by chance: a decode engine knows several.
        request_id = int(site.instance[:8], 16) << 24 | number
        first = site.vocabulary.encode(answer_of(self._prompt, site.vocabulary).piece(0))
        state = {"host": site.channel.host, "port": site.channel.port, "instance": site.instance}
        params: Json = {
            "request_type": "context_only",
            "first_gen_tokens": first,
            "ctx_request_id": request_id,
            "encoded_opaque_state": base64.b64encode(msgspec.json.encode(state)).decode(),
            "draft_tokens": None,
            "disagg_request_id": self._disagg_id,
            "ctx_dp_rank": ended.rank,
            "ctx_info_endpoint": f"{site.channel.host}:{site.channel.port}",
        }
        terms = {name: params[name] for name in ("first_gen_tokens", "disagg_request_id")} | self._content
        expires_s = site.runner.clock.now_s() + site.spec.lease_s
        tokens, cached = len(self._prompt.ids), ended.tally.cached_tokens
        ended.parked = True
        site.depot.park(Parked(str(request_id), terms, tokens, cached, number, ended.rank, expires_s))
        return More({"prompt_token_ids": list(self._prompt.ids)}, {"disaggregated_params": params})


class _Generation(Leg):
    def __init__(self, site: Site, wanted: Wanted, prompt: Prompt, params: Json) -> None:
        super().__init__(part="decode", transferred=True)
        request_id, state = params.get("ctx_request_id"), params.get("encoded_opaque_state")
        if not isinstance(request_id, int) or not isinstance(state, str):
            raise Refused(400, "a generation_only request needs ctx_request_id and encoded_opaque_state")
        if prompt.text is not None:
            raise Refused(400, "a generation_only request has its prompt as the context server's prompt_token_ids")
        try:
            told = msgspec.json.decode(base64.b64decode(state, validate=True), type=Json)
            self._address = (str(told["host"]), int(str(told["port"])))
        except (ValueError, KeyError):
            raise Refused(400, "encoded_opaque_state is not one that a context server made") from None
        self._question: Json = {
            "ask": "context",
            "key": str(request_id),
            "instance": told.get("instance"),
            "first_gen_tokens": params.get("first_gen_tokens"),
            "disagg_request_id": params.get("disagg_request_id"),
            **content_of(wanted, prompt),
        }
        usage = params.get("ctx_usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        self._told = (usage, details)

    async def begin(self, rank: int) -> None:
        answer = await ask(*self._address, self._question)
        usage, details = self._told
        cached = details.get("cached_tokens") if isinstance(details, dict) else answer.get("cached_tokens")
        self.cached_tokens = cached if isinstance(cached, int) else 0
        if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
            self.prompt_tokens = usage["prompt_tokens"]


async def hand_over(site: Site, asked: Json) -> Json:
    """The answer of the context server's side channel."""
    if asked.get("instance") != site.instance:
        raise Refused(500, "the state is of another engine, or of an earlier life of this one")
    return {"cached_tokens": site.depot.take(str(asked.get("key")), asked).cached_tokens}
