"""From a request's body and headers to what is wanted, or to the refusal that the real engine would answer with."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.reading import Fields, chat_prompt, ids_prompt, text_prompts
from backends.simulated.serving.site import Site
from backends.simulated.serving.types import Prompt, Wanted

CHAT_IDS = ("prompt_token_ids", "input_ids")
"""Fields of a chat that stand for its rendered prompt: TensorRT-LLM's and SGLang's."""


def wanted_of(site: Site, raw: bytes, headers: Mapping[str, str], *, chat: bool) -> Wanted:
    """What is asked for, checked. Raises `Refused`."""
    face = site.face
    fields = Fields(raw, face.invalid_status, face.invalid_kind, is_lax=face.is_lax)
    _check_names(site, fields, chat=chat)
    face.check(site, fields, headers)
    adapter = face.adapter(site, fields)
    model = _model(site, fields, adapter)
    prompts = _prompts(site, fields, chat=chat)
    options = fields.mapping("stream_options") or {}
    request_id = (headers.get("x-request-id") if face.request_id_header else None) or uuid4().hex
    wanted = Wanted(
        chat=chat,
        model=model,
        prompts=prompts,
        request_id=request_id,
        fields=fields.all,
        max_tokens=_max_tokens(site, fields, chat=chat),
        n=_at_least(fields, "n", 1) or 1,
        stream=fields.flag("stream"),
        include_usage=options.get("include_usage") is True or face.default_usage(fields),
        continuous_usage=options.get("continuous_usage_stats") is True,
        ignore_eos=fields.flag("ignore_eos"),
        min_tokens=_at_least(fields, "min_tokens", 0) or 0,
        salt=(fields.text("cache_salt") or "") if face.salted else "",
        adapter=adapter,
        rank=_rank(site, fields, headers),
        return_token_ids=face.tells_token_ids and fields.flag("return_token_ids"),
    )
    return _fitted(site, wanted)


def _check_names(site: Site, fields: Fields, *, chat: bool) -> None:
    allowed = site.face.chat_fields if chat else site.face.completion_fields
    unknown = [] if allowed is None else sorted(fields.all.keys() - allowed)
    if unknown:
        message = (
            f"[{{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}'), 'msg': 'Extra inputs are not permitted'}}]"
        )
        raise fields.refuse(message, f"body.{unknown[0]}")


def _model(site: Site, fields: Fields, adapter: str | None) -> str:
    model = fields.text("model")
    if model is None:
        return site.spec.model
    key = site.face.model_key
    names = [key(name) for name in (site.spec.model, *site.spec.aliases)]
    if site.face.knows_models and adapter is None and key(model) not in names:
        known = ", ".join((site.spec.model, *site.spec.aliases, *site.adapters.known))
        raise Refused(
            404,
            f"The model `{model}` does not exist. Valid aliases: {known}.",
            kind="NotFoundError",
            param="model",
        )
    return model


def _prompts(site: Site, fields: Fields, *, chat: bool) -> tuple[Prompt, ...]:
    if not chat:
        return text_prompts(fields, site.vocabulary)
    for name in CHAT_IDS:
        if fields.all.get(name) is not None and (site.face.chat_fields is None or name in site.face.chat_fields):
            return (ids_prompt(fields, name),)
    fields.required("messages")
    return (chat_prompt(fields, site.vocabulary, is_open=site.face.is_open(fields)),)


def _max_tokens(site: Site, fields: Fields, *, chat: bool) -> int | None:
    """The newer name wins. -1 is llama.cpp's word for no limit."""
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        if name == "n_predict" and not site.face.has_slots:
            continue
        asked = fields.number(name)
        if asked == -1 and site.face.has_slots:
            return None
        if asked is not None:
            if asked < 1:
                raise Refused(400, f"{name} must be at least 1, got {asked}.", param=name)
            return asked
    return None if chat else site.face.completion_tokens


def _at_least(fields: Fields, name: str, least: int) -> int | None:
    number = fields.number(name)
    if number is not None and number < least:
        raise fields.refuse(f"{name} must be at least {least}, got {number}.", name)
    return number


def _rank(site: Site, fields: Fields, headers: Mapping[str, str]) -> int | None:
    named = site.face.rank_header
    if named is None:
        return None
    given: object = headers.get(named)
    if given is None and site.face.rank_field is not None:
        given = fields.number(site.face.rank_field)
    try:
        rank = None if given is None else int(str(given))
    except ValueError:
        return None
    if rank is not None and not 0 <= rank < site.spec.ranks:
        raise Refused(400, f"data_parallel_rank {rank} is out of range [0, {site.spec.ranks}).")
    return rank


def _fitted(site: Site, wanted: Wanted) -> Wanted:
    """Prompts that fit the context, cut where the engine cuts them; refused where it refuses them."""
    most = site.spec.max_model_len
    asked = wanted.max_tokens or 1
    longest = max(len(prompt.ids) for prompt in wanted.prompts)
    if any(max(prompt.ids, default=0) >= site.vocabulary.size for prompt in wanted.prompts):
        raise Refused(400, f"a token id is out of vocabulary, which has {site.vocabulary.size} tokens")
    if any(not prompt.ids for prompt in wanted.prompts):
        raise Refused(400, "Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if site.face.has_slots:
        asked = 1  # its answers end at the end of the context
    if longest + asked <= most:
        return wanted
    if site.face.too_long is not None:
        raise site.face.too_long(site, longest, asked)
    cut = tuple(Prompt(prompt.ids[-(most - 1) :], None) for prompt in wanted.prompts)
    return replace(wanted, prompts=cut)
