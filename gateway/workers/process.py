"""The process of one worker: started by the supervisor with its lines and sockets, and told the rest over the line.

python -P -m gateway.workers.process LINE LEDGER LISTENING...        descriptors that it inherits
"""

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from billing.ledger_frames import HEAD_BYTES, length_of
from gateway.app import Gateway
from gateway.config import Config, process_environment
from gateway.log_lines import set_up_logging
from gateway.serving import Server, run_until_stopped, server_config
from gateway.serving.collector import calm_collector
from gateway.serving.huge_pages import use_huge_pages
from gateway.team.member import Team
from gateway.team.messages import Terms, decode


class WorkerServer(Server):
    """Tells the supervisor once it takes connections, in place of an announcement."""

    def __init__(self, settings: Config, environment: Mapping[str, str], team: Team) -> None:
        super().__init__(server_config(settings, environment, Gateway(settings, environment, team)))
        self._team = team

    @property
    def announces_end(self) -> bool:
        """Where another worker has its slot, the gateway goes on; without a supervisor nothing can be billed."""
        return not self._team.goes_unannounced

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        if self.started:
            calm_collector()
            use_huge_pages()
            self._team.ready()


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM, or until the supervisor is gone. 3 where it could not start or a part of it failed."""
    line, ledger_line, *listening = (_inherited(int(argument)) for argument in arguments)
    terms = _terms(line)
    settings = Config.model_validate_json(terms.config)
    set_up_logging(settings.log_level)
    team = Team(line, ledger_line, terms, stop=lambda: os.kill(os.getpid(), signal.SIGTERM))
    server = WorkerServer(settings, process_environment(), team)
    return 0 if run_until_stopped(server, listening) else 3


def _inherited(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _terms(line: socket.socket) -> Terms:
    """The first thing that the supervisor says, and nothing behind it."""
    line.setblocking(True)
    length = line.recv(HEAD_BYTES, socket.MSG_WAITALL)
    payload = line.recv(length_of(length), socket.MSG_WAITALL) if length else b""
    if not payload:
        sys.exit(0)  # the supervisor is gone already
    terms = decode(payload)
    assert isinstance(terms, Terms), "the supervisor states its terms first"
    line.setblocking(False)
    return terms


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
