"""`prefixgate epp`, once its configuration is read."""

import signal
import time
from collections.abc import Mapping

from gateway.config import Config, ConfigInvalid
from gateway.epp.certificates import credentials_of
from gateway.epp.picking import EnvoyPlane
from gateway.epp.server import EppServer
from gateway.log_lines import LOGGER
from gateway.serving import run_until_stopped


def serve_epp(config: Config, environment: Mapping[str, str]) -> bool:
    """Serve until SIGTERM or Ctrl-C. False where it never started, or a part of it broke.

    Raises `ConfigInvalid` where a picker cannot do what is configured.
    """
    check_epp(config)
    signal.signal(signal.SIGHUP, lambda *_: LOGGER.warning("SIGHUP: prefixgate epp reloads no configuration"))
    plane = EnvoyPlane(config.epp, config.limits.connect_s, time.monotonic)
    return run_until_stopped(EppServer(config, environment, plane))


def check_epp(config: Config) -> None:
    """Refuse what needs our own data plane. Raises `ConfigInvalid`."""
    if config.workers > 1 or config.supervised:
        raise ConfigInvalid("workers, supervised: prefixgate epp is one process; run several of them, as replicas")
    if config.continuation.enabled:
        raise ConfigInvalid("continuation.enabled: a gateway in front cannot go on with a stream elsewhere")
    roles = [one.name for one in config.backends if one.role != "both"]
    if roles:
        raise ConfigInvalid(f"role of {', '.join(roles)}: prefixgate epp does not split requests")
    credentials_of(config.epp)
