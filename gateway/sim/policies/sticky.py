"""`sticky`: session i on endpoint i mod n, sessions numbered as they first appear.

The strongest baseline that knows nothing of prompts: no two sessions collide by chance, as they would under a hash.
`n` is how many endpoints there were when the session came; it stays where it is when others join. While its endpoint
is dead the next one takes its requests. A request of no session is a session of its own, so those go in turn.
"""

from gateway.sim.policies.parts import Composed, PolicyArgs, next_live
from gateway.sim.types import SimRequest, View


class _StickyRule:
    def __init__(self) -> None:
        self._homes: dict[str, int] = {}
        self._seen = 0

    def choose(self, request: SimRequest, view: View) -> int:
        home = self._homes.get(request.session) if request.session else None
        if home is None:
            home = self._seen % len(view.endpoints)
            self._seen += 1
            if request.session:
                self._homes[request.session] = home
        return next_live(view.endpoints, home)


def sticky(_: PolicyArgs) -> Composed:
    """By session, whatever the load. O(1); remembers every session."""
    return Composed("sticky", _StickyRule())
