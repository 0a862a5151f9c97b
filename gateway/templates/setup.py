"""Kept templates as configured."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter

from gateway.config import Config, ConfigInvalid
from gateway.telemetry import Telemetry
from gateway.templates.calls import TemplateCalls
from gateway.templates.file import TemplateFileInvalid
from gateway.templates.pages import template_router
from gateway.templates.store import TemplateStore, watch_templates


@dataclass(frozen=True, slots=True)
class Templates:
    """What serves templates; without a folder nothing calls any."""

    store: TemplateStore | None
    calls: TemplateCalls | None
    router: APIRouter
    watch: Callable[[], Coroutine[object, object, None]]


def templates_of(config: Config, telemetry: Telemetry) -> Templates:
    """Raises `ConfigInvalid` for a folder that cannot be used."""
    store, calls = None, None
    if config.templates_dir is not None:
        try:
            store = TemplateStore(config.templates_dir, telemetry.templates)
        except TemplateFileInvalid as error:
            raise ConfigInvalid(str(error)) from None
        calls = TemplateCalls(store, telemetry.templates, config.limits.max_body_bytes)
    return Templates(store, calls, template_router(store), partial(watch_templates, store, config.templates_poll_s))
