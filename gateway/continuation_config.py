"""The section `continuation` of the configuration: what becomes of a stream whose endpoint dies."""

from typing import Annotated

from pydantic import Field

from gateway.config_sections import Section


class Continuation(Section):
    """Streams of chats and completions that another endpoint goes on with."""

    enabled: bool = Field(False, description="Whether another endpoint goes on with a stream whose endpoint died.")
    at_most: Annotated[int, Field(ge=1, le=16)] = Field(
        2, description="How often one answer may be gone on with; then its client is told of the failure."
    )
