"""What several engines have alike: pages of health, version and models, and usage with its cached tokens."""

from collections.abc import Iterable, Sequence

from backends.simulated.serving.face import Moment, Reply, Site, plain_usage
from backends.simulated.serving.types import Json, Tally


def health(site: Site) -> Reply:
    """No body: 200, or 503 while it is not ready."""
    return Reply(status=503 if site.faults.not_ready else 200)


def version(site: Site) -> Reply:
    """`{"version"}`."""
    return Reply({"version": site.version})


def models(site: Site, owner: str, names: Iterable[str] | None = None) -> Reply:
    """OpenAI's list, without anything of an engine's own; of `names`, else of the model and its aliases."""
    listed = (site.spec.model, *site.spec.aliases) if names is None else names
    items = [{"id": name, "object": "model", "created": site.created, "owned_by": owner} for name in listed]
    return Reply({"object": "list", "data": items})


def usage_with_cached(site: Site, tallies: Sequence[Tally], moment: Moment) -> Json:
    """Cached tokens are always told."""
    cached = sum(one.cached_tokens for one in tallies)
    return {**plain_usage(site, tallies, moment), "prompt_tokens_details": {"cached_tokens": cached}}
