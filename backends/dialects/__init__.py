"""Which engine speaks, and what it says of itself. Pure: pages in, facts out."""

from collections.abc import Collection, Mapping, Sequence

from backends.dialects.llamacpp import LLAMACPP
from backends.dialects.metrics import load, names_read, scan, whole_number
from backends.dialects.openai import OPENAI
from backends.dialects.sglang import SGLANG
from backends.dialects.tgi import TGI
from backends.dialects.trtllm import TRTLLM
from backends.dialects.types import MESSAGES, RESPONSES, CacheShape, Dialect, Info, Samples
from backends.dialects.vllm import REFERENCE, VLLM
from backends.types import EndpointFacts, EventSourceFacts, ServedModel

__all__ = [
    "DIALECTS",
    "OPENAI",
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
]

DIALECTS: tuple[Dialect, ...] = (REFERENCE, VLLM, SGLANG, TRTLLM, LLAMACPP, TGI, OPENAI)


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


def served_models(models_page: object, max_model_len: int | None = None) -> tuple[ServedModel, ...]:
    """The models of a `/v1/models` page, every alias by itself; `max_model_len` where the page does not say."""
    models: dict[str, ServedModel] = {}
    for item in _items(models_page):
        name, parent = item.get("id"), item.get("parent")
        if not isinstance(name, str):
            continue
        length = whole_number(item.get("max_model_len")) or max_model_len
        base = parent if isinstance(parent, str) else None
        aliases = item.get("aliases")
        for alias in (name, *(aliases if isinstance(aliases, Sequence) and not isinstance(aliases, str) else ())):
            if isinstance(alias, str):
                models.setdefault(alias, ServedModel(alias, length, base))
    return tuple(models.values())


def facts(
    dialect: Dialect,
    models_page: object,
    samples: Samples,
    info: Info,
    spoken: Collection[str] = (),
    event_sources: tuple[EventSourceFacts, ...] = (),
) -> EndpointFacts:
    """Everything an endpoint said about itself; what it did not say stays None. `spoken`: routes it answered on."""
    shape = dialect.shape(samples, info)
    reported = info.get(dialect.cached_tokens_info_key) if dialect.cached_tokens_info_key else None
    version = info.get("version")
    blocks = None
    if shape.capacity_tokens is not None and shape.block_size is not None:
        blocks = shape.capacity_tokens // shape.block_size
    return EndpointFacts(
        engine=dialect.name,
        models=served_models(models_page, whole_number(_at(info, dialect.max_model_len_info_key))),
        version=version if isinstance(version, str) else None,
        block_size=shape.block_size,
        slots=shape.slots,
        capacity_blocks=blocks,
        capacity_tokens=shape.capacity_tokens,
        reports_cached_tokens=reported if isinstance(reported, bool) else dialect.reports_cached_tokens,
        cached_tokens_flag=dialect.cached_tokens_flag,
        has_tokenize=dialect.has_tokenize,
        routes=dialect.routes.union(spoken),
        salted_routes=_salted(dialect, version, dialect.routes.union(spoken)),
        open_paths=dialect.open_paths,
        event_sources=event_sources,
    )


def _salted(dialect: Dialect, version: object, routes: frozenset[str]) -> frozenset[str]:
    """The routes among `routes` on which this version keeps share groups apart. Embeddings leave nothing to share."""
    if not dialect.supports_cache_salt:
        return frozenset()
    parts = version.split(".")[:2] if isinstance(version, str) else []
    if not all(part.isdecimal() for part in parts):
        parts = []
    numbers = tuple(map(int, parts))
    if dialect.salted_everywhere_since is not None and numbers >= dialect.salted_everywhere_since:
        return routes
    return routes - {MESSAGES, RESPONSES}


def _items(models_page: object) -> list[Mapping[str, object]]:
    data = models_page.get("data") if isinstance(models_page, Mapping) else None
    return [item for item in data if isinstance(item, Mapping)] if isinstance(data, Sequence) else []


def _at(info: Info, path: tuple[str, ...]) -> object:
    found: object = info if path else None
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
