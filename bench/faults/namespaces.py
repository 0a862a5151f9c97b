"""Partitions that lose packets for real: a network namespace for each gateway, where root allows it.

    namespace of gateway-0                  here
    [ 10.77.0.2 ]--veth--[ .11 engine-0, .12 engine-1, ..., .17 valkey, .18 ledger ]   an address for each part

A part is cut off from a gateway by a neighbour that nobody is: packets to its address leave, and arrive nowhere.
Nothing is told of it: no reset, no refusal, and what waits for an answer waits.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_NOBODY: Final = "02:00:00:00:00:01"
_FIRST: Final = 11
_RANGES: Final = range(77, 127)


@dataclass(slots=True)
class Namespace:
    """That of one gateway: `number` of the run's gateways, in the range `10.<block>.<number>.0/24`."""

    name: str
    number: int
    block: int
    parts: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that is to run in it."""
        return ["ip", "netns", "exec", self.name]

    @property
    def gateway_host(self) -> str:
        """Where the gateway listens."""
        return f"10.{self.block}.{self.number}.2"

    def host_of(self, part: str) -> str:
        """The address at which a gateway in it finds a part."""
        return f"10.{self.block}.{self.number}.{_FIRST + self.parts.index(part)}"

    def lose(self, part: str) -> None:
        """Packets to a part are lost from now on."""
        self._neighbour("replace", part, "lladdr", _NOBODY, "nud", "permanent")

    def find(self, part: str) -> None:
        """They arrive again."""
        self._neighbour("del", part)

    def open(self) -> None:
        """Make it. Raises `OSError` where that is not allowed."""
        outer, inner = self._devices
        host = f"10.{self.block}.{self.number}"
        _ip("netns", "add", self.name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", self.name)
        for address in (1, *(_FIRST + at for at in range(len(self.parts)))):
            _ip("addr", "add", f"{host}.{address}/24", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", self.name, "addr", "add", f"{host}.2/24", "dev", inner)
        _ip("-n", self.name, "link", "set", inner, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def close(self) -> None:
        """Undo it, also half made."""
        for command in (("link", "del", self._devices[0]), ("netns", "del", self.name)):
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def _neighbour(self, verb: str, part: str, *more: str) -> None:
        _ip("-n", self.name, "neigh", verb, self.host_of(part), *more, "dev", self._devices[1])

    @property
    def _devices(self) -> tuple[str, str]:
        return f"{self.name}o", f"{self.name}i"


def namespaces(gateways: int, parts: Sequence[str]) -> list[Namespace] | None:
    """One for each gateway, in which each part has an address; None where they cannot be had."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return None
    block = _RANGES[os.getpid() % len(_RANGES)]
    found = [Namespace(f"pg{block}n{number}", number, block, list(parts)) for number in range(gateways)]
    try:
        for one in found:
            one.open()
    except OSError:
        for one in found:
            one.close()
        return None
    return found


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
