"""The section `ui` of the configuration: the dashboard."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator

from gateway.config_sections import Section

LEAST_TOKEN_CHARACTERS: Final = 16
"""Of a token that nobody guesses."""
_TAKEN: Final = ("/admin", "/health", "/metrics", "/prefixgate", "/ready", "/v1")


class Ui(Section):
    """The dashboard. Without a token there is none."""

    token_file: Path | None = Field(None, description="Token of the dashboard; without it there is none.")
    path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)+$", max_length=200)] = Field(
        "/ui", description="Where it is, as the gateway is asked for it."
    )
    session_s: Annotated[float, Field(ge=60, le=30 * 24 * 3600)] = Field(
        12 * 3600.0, description="How long a login lasts, seconds."
    )
    max_viewers: Annotated[int, Field(ge=1, le=1000)] = Field(
        32, description="Most open dashboards that are kept up to date, in one process."
    )

    @field_validator("path")
    @classmethod
    def _is_free(cls, path: str) -> str:
        if any(f"{path}/".startswith(f"{taken}/") for taken in _TAKEN):
            raise ValueError(f"{path} is a path of the gateway already")
        return path
