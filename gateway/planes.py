"""Who carries the calls to engines: we ourselves, or a data plane in front of us that asks where they are to go.

OwnPlane     request --> pipeline --> our client --> engine
another's    request --> pipeline --> what it is told (gateway/epp) --> its own connections --> engine
"""

from typing import Protocol

from backends import Engines
from gateway.fleet import Fleet
from gateway.model_routes import Serves
from gateway.pipeline_parts import PipelineOptions


class DataPlane(Protocol):
    """What the composition root asks of who carries the calls."""

    def engines(self, own: Engines, fleet: Fleet) -> Engines:
        """What sends the requests of clients; `own` sends all others."""

    def options(self, options: PipelineOptions) -> PipelineOptions:
        """What holds for every request there."""

    def serving(self, pipeline: Serves) -> Serves:
        """What answers requests, by this pipeline."""

    def trouble(self) -> str | None:
        """What does not work as it should; None where all does."""


class OwnPlane:
    """Our own connections."""

    def engines(self, own: Engines, fleet: Fleet) -> Engines:
        """As they are."""
        return own

    def options(self, options: PipelineOptions) -> PipelineOptions:
        """As they are."""
        return options

    def serving(self, pipeline: Serves) -> Serves:
        """As it is."""
        return pipeline

    def trouble(self) -> str | None:
        """None of its own."""
        return None
