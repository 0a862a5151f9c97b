"""Ollama.

Sources: its API pages and the OpenAI-compatible part of its source, 0.5 to 0.14. It owns its models under their
namespace (`library`), so it is told by `/api/ps`, which lists the models in memory. A model stays there for some
minutes after its last request (`keep_alive`); what leaves takes its cache along, and that is all we can see of it:
no metrics, no start time, no count of slots. A name without a tag means `:latest`. The context that a model was loaded
with stands on that page since 0.11; a model that is not in memory has none yet, and what is longer is cut, not refused.

Its chats and completions report whole prompts and nothing of what was cached; its `/v1/responses` write a constant 0
there, which would pass for a report. So that path and `/v1/messages` are not used: such requests go as chats. Unknown
fields are ignored, salts among them. What its own API can do to models (`/api/pull`, `/api/delete`, ...) stays shut.
"""

from collections.abc import Mapping, Sequence

from backends.dialects.metrics import whole_number
from backends.dialects.types import EMBEDDINGS, Dialect, LoadPage, MetricNames, Samples, Series
from backends.features import Feature

_LOADED = "models in memory"


def _read(page: object) -> Samples:
    """The models in memory, each with its context in tokens, 0 where it is not told."""
    models = page.get("models") if isinstance(page, Mapping) else None
    if not isinstance(models, Sequence) or isinstance(models, str):
        return {}
    return {_LOADED: [one for model in models if (one := _loaded(model)) is not None]}


def _loaded(model: object) -> Series | None:
    name = model.get("name") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(name, str):
        return None
    return ({"model": name}, float(whole_number(model.get("context_length")) or 0))


def _awake(samples: Samples) -> frozenset[str] | None:
    if _LOADED not in samples:
        return None
    return frozenset(labels["model"] for labels, _ in samples[_LOADED])


OLLAMA = Dialect(
    name="ollama",
    signature=("/api/ps", "models"),
    metrics=MetricNames(started=(), also=(_LOADED,)),
    metrics_path=None,
    load_page=LoadPage("/api/ps", _read),
    awake=_awake,
    health_paths=("/api/version",),
    info_paths=("/api/version",),
    reports_cached_tokens=False,
    flags={Feature.PREFIX_CACHING: ""},
    short_names=True,
    uncertain_routes=(EMBEDDINGS,),
)
