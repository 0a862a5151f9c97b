"""Which engine speaks, and what it says of itself. Pure: pages in, facts out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeGuard

from backends.dialects.event_sources import MAX_RANKS
from backends.dialects.llamacpp import LLAMACPP
from backends.dialects.metrics import load, names_read, rank_count, scan, total, whole_number
from backends.dialects.ollama import OLLAMA
from backends.dialects.openai import OPENAI
from backends.dialects.sglang import SGLANG
from backends.dialects.standings import NOTHING_ASKED, Asked, features_of
from backends.dialects.tgi import TGI
from backends.dialects.triton import TRITON
from backends.dialects.trtllm import TRTLLM
from backends.dialects.types import MESSAGES, RANKED_ROUTES, RESPONSES, CacheShape, Dialect, Info, Samples
from backends.dialects.vllm import REFERENCE, VLLM
from backends.features import Feature, Standing
from backends.types import EndpointFacts, ServedModel, TokenizeForm

__all__ = [
    "DIALECTS",
    "OPENAI",
    "Asked",
    "CacheShape",
    "Dialect",
    "Info",
    "Samples",
    "facts",
    "load",
    "names_read",
    "recognise",
    "scan",
    "served_models",
    "signed",
    "total",
]

_NUMBERS = re.compile(r"\d+(\.\d+)*")
_YES_OR_NO = {Standing.ON: True, Standing.OFF: False, Standing.NEVER: False}

DIALECTS: tuple[Dialect, ...] = (REFERENCE, VLLM, SGLANG, TRTLLM, TRITON, LLAMACPP, TGI, OLLAMA, OPENAI)
_LATEST = ":latest"
_MOST_VERSION: Final = 64
"""Characters; development versions have thirty."""


def recognise(models_page: object, metrics_text: str = "") -> Dialect:
    """The dialect of a server: by who owns its models, else by the prefix of its metrics, else the generic one."""
    owners = {owner for item in _items(models_page) if isinstance(owner := item.get("owned_by"), str)}
    for dialect in DIALECTS:
        if not owners.isdisjoint(dialect.owned_by):
            return dialect
    for dialect in DIALECTS:
        prefix = dialect.metric_prefix
        if prefix is not None and (metrics_text.startswith(prefix) or f"\n{prefix}" in metrics_text):
            return dialect
    return OPENAI


def signed(dialect: Dialect, page: object) -> bool:
    """Whether the page at the path of its signature is this engine's."""
    return dialect.signature is not None and isinstance(page, Mapping) and dialect.signature[1] in page


def served_models(models_page: object, max_model_len: int | None = None) -> tuple[ServedModel, ...]:
    """The models of a `/v1/models` page, every alias by itself; `max_model_len` where the page does not say. What is no
    name, such as an empty one, is left out."""
    models: dict[str, ServedModel] = {}
    for item in _items(models_page):
        name, parent = item.get("id"), item.get("parent")
        if not _is_name(name):
            continue
        length = whole_number(item.get("max_model_len")) or max_model_len
        base = parent if isinstance(parent, str) else None
        aliases = item.get("aliases")
        for alias in (name, *(aliases if isinstance(aliases, Sequence) and not isinstance(aliases, str) else ())):
            if _is_name(alias):
                models.setdefault(alias, ServedModel(alias, length, base))
    return tuple(models.values())


def facts(
    dialect: Dialect, models_page: object, samples: Samples, info: Info, asked: Asked = NOTHING_ASKED
) -> EndpointFacts:
    """Everything an endpoint said about itself; what it did not say stays None."""
    shape = dialect.shape(samples, info)
    version = _version(dialect, info)
    routes = dialect.routes.union(asked.spoken)
    models = served_models(models_page, whole_number(_at(info, dialect.max_model_len_info_key)))
    if dialect.short_names:
        models = _with_short_names(models, dialect, samples)
    features = features_of(dialect, samples, info, asked, models)
    blocks, ranks = None, _ranks(dialect, samples, info)
    if shape.capacity_tokens is not None and shape.block_size is not None:
        blocks = shape.capacity_tokens // shape.block_size
    return EndpointFacts(
        engine=dialect.name,
        models=models,
        version=version,
        block_size=shape.block_size,
        slots=shape.slots,
        capacity_blocks=blocks,
        capacity_tokens=shape.capacity_tokens,
        reports_cached_tokens=_YES_OR_NO.get(features[Feature.CACHED_TOKENS].standing),
        cached_tokens_flag=dialect.flags.get(Feature.CACHED_TOKENS) or None,
        tokenize=_tokenize(dialect, version),
        tokenize_path=dialect.tokenize_path,
        priority=dialect.priority,
        features=features,
        refuses=dialect.refuses,
        routes=routes,
        salted_routes=_salted(dialect, version, routes),
        open_paths=dialect.open_paths,
        event_sources=asked.event_sources,
        adapters=asked.adapters,
        ranks=ranks,
        ranked_routes=RANKED_ROUTES if ranks > 1 and _is_since(dialect.ranked_since, version) else frozenset(),
    )


def _version(dialect: Dialect, info: Info) -> str | None:
    said = info.get(dialect.version_key)
    return said[:_MOST_VERSION] if _is_name(said) else None


def _is_name(said: object) -> TypeGuard[str]:
    """Whether it can be shown to people: what engines say of themselves is printed on terminals."""
    return isinstance(said, str) and said != "" and said.isprintable()


def _tokenize(dialect: Dialect, version: str | None) -> TokenizeForm | None:
    """How it is asked for tokens: of a version too old to render chats, or one that is not told, only of texts."""
    since = dialect.tokenizes_chats_since
    return TokenizeForm.TEXT_ONLY if since is not None and not _is_since(since, version) else dialect.tokenize


def _with_short_names(models: tuple[ServedModel, ...], dialect: Dialect, samples: Samples) -> tuple[ServedModel, ...]:
    """Each model with the context length it is loaded with, and by the name without its tag where that is `:latest`."""
    lengths = {labels.get("model"): whole_number(length) for labels, length in samples.get(dialect.metrics.also[0], ())}
    known = {model.id for model in models}
    found: list[ServedModel] = []
    for model in models:
        found.append(full := replace(model, max_model_len=lengths.get(model.id)))
        short = model.id.removesuffix(_LATEST)
        if short and short not in known:
            found.append(replace(full, id=short, alias_of=model.id))
    return tuple(found)


def _ranks(dialect: Dialect, samples: Samples, info: Info) -> int:
    told = dialect.told_ranks(info)
    return rank_count(dialect, samples) if told is None or told > MAX_RANKS else told


def _is_since(since: tuple[int, ...] | None, version: object) -> bool:
    """Whether a version is that one or later; one that is not told counts as older."""
    numbers = _NUMBERS.match(version) if isinstance(version, str) else None
    return since is not None and numbers is not None and tuple(map(int, numbers.group().split("."))) >= since


def _salted(dialect: Dialect, version: object, routes: frozenset[str]) -> frozenset[str]:
    """The routes among `routes` on which this version keeps share groups apart. Embeddings leave nothing to share."""
    if dialect.salt is None:
        return frozenset()
    since = dialect.salted_everywhere_since
    return routes if since == () or _is_since(since, version) else routes - {MESSAGES, RESPONSES}


def _items(models_page: object) -> list[Mapping[str, object]]:
    data = models_page.get("data") if isinstance(models_page, Mapping) else None
    return [item for item in data if isinstance(item, Mapping)] if isinstance(data, Sequence) else []


def _at(info: Info, path: tuple[str, ...]) -> object:
    found: object = info if path else None
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
