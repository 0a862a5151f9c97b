"""What every part is composed in."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from gateway.admission import Admission
from gateway.config import Config
from gateway.exchange import Clocks
from gateway.planes import DataPlane
from gateway.team.member import Team
from gateway.telemetry import Telemetry

Work = Callable[[], Coroutine[object, object, None]]
"""What runs until the server stops."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Given from outside. `draining`: whether balancers are told that the gateway stops; `stopping`: whether nothing
    more is accepted. `team` is of a gateway of several workers, of which this is one."""

    config: Config
    environment: Mapping[str, str]
    telemetry: Telemetry
    admission: Admission
    clocks: Clocks
    plane: DataPlane
    team: Team | None
    draining: Callable[[], bool]
    stopping: Callable[[], bool]
