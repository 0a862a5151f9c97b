"""Who answers: the engine, its version, its model, and the room of its KV cache, by what it says of itself."""

import asyncio
from typing import Final

from msgspec import Struct

from backends.errors import InvalidEndpoint, ProbeFailed
from backends.health import Probe, http_client
from backends.types import EndpointConfig, EndpointId
from gateway.tuning.errors import SettingFailed

_WITHIN_S: Final = 60.0


class Identity(Struct, frozen=True):
    """`engine` is the name of its dialect; None, as all else but the model, where it told nothing."""

    model: str
    engine: str | None = None
    version: str | None = None
    kv_tokens: int | None = None


async def who(url: str, model: str | None, api_key: str | None) -> Identity:
    """Ask for the pages that engines have. Raises `SettingFailed` where nobody answers, or no model is named."""
    try:
        config = EndpointConfig(EndpointId("address"), url, api_key=api_key)
    except InvalidEndpoint as error:
        raise SettingFailed(str(error)) from None
    try:
        async with http_client(config) as http, asyncio.timeout(_WITHIN_S):
            _, facts = await Probe(config, http).detect()
    except (ProbeFailed, TimeoutError) as error:
        if model is not None:  # it may have no list of models, and answer all the same
            return Identity(model)
        raise SettingFailed(f"{url} does not list its models: {str(error) or 'no answer'}") from None
    if model is None and not facts.models:
        raise SettingFailed(f"{url} lists no model: name one in the sweep")
    return Identity(
        model=model or facts.models[0].id,
        engine=facts.engine,
        version=facts.version,
        kv_tokens=facts.capacity_tokens,
    )
