"""Engines of slots, as the index must be told of them: what a prompt overwrites there is forgotten.

    prompt --place--> slot 2 of endpoint a      believed: what lay in slot 2 is forgotten
                                                not yet:  nothing, engines with a prompt cache keep it

An engine of slots is taken for one of blocks until a receipt contradicts that; from then on its slots alone are
believed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from prefix_index import Chain, SlotBook


@dataclass(slots=True)
class _Slots:
    """The slots of one holder. `believed`: whether its engine has been seen to lose what was overwritten."""

    holder: str
    book: SlotBook
    believed: bool = False


class SlotBooks:
    """The slots of all endpoints that have them. Plain calls, no I/O."""

    def __init__(self) -> None:
        self._slots: dict[str, _Slots] = {}

    def place(self, endpoint_id: str, holder: str, slots: int, chain: Chain) -> tuple[Chain, int] | None:
        """A prompt is sent to an endpoint of so many slots. What is lost by it, from which block on; None: nothing."""
        found = self._slots.get(endpoint_id)
        if found is None or found.holder != holder:
            found = self._slots[endpoint_id] = _Slots(holder, SlotBook(slots))
        lost = found.book.place(chain)
        return lost if found.believed else None

    def free(self, endpoint_id: str, chain: Chain) -> None:
        """The work on a prompt has ended: another may overwrite it."""
        found = self._slots.get(endpoint_id)
        if found is not None:
            found.book.free(chain)

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is none of the fleet any more."""
        self._slots.pop(endpoint_id, None)

    def contradicted(self, endpoint_id: str, holder: str) -> Sequence[Chain] | None:
        """An engine reported less than was expected. All that it holds, where only its slots are believed from now on;
        None where nothing changes."""
        found = self._slots.get(endpoint_id)
        if found is None or found.holder != holder or found.believed:
            return None
        found.believed = True
        return list(found.book.chains)
