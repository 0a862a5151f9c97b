"""What an engine of slots holds: not blocks of many prompts, but the last prompt of each slot.

    2 slots      | A B C D |   | X Y |           oldest first
    next: A B E  | X Y |   | A B E |             the most alike gives way to it: C D are gone, A B was reused
    next: P Q    | A B E |   | P Q |             none is alike: the oldest gives way, X Y are gone

llama.cpp works so: a request takes, of the slots that are idle, the one whose sequence shares most of its prompt, where
that is more than a tenth; else the one that was used longest ago. What was in the slot beyond the shared prefix is
overwritten. Counted in its tokens, such a cache looks large, yet two conversations that take turns in one slot never
find each other's prefix.

(It may keep overwritten sequences in the host's memory, and says nothing about it. So a slot book only says what was
overwritten; whether that is believed is decided by what the engine reports.)

Costs: O(slots · log blocks) a prompt; keeps the chain of one prompt for each slot.
"""

from dataclasses import dataclass

from prefix_index.blocks import common_blocks
from prefix_index.types import Chain

SIMILARITY = 0.1
"""Share of a prompt that must be in a slot for it to be taken on that account: `--slot-prompt-similarity`."""


@dataclass(slots=True)
class _Slot:
    """What one slot holds, and whether a request of ours is being served from it."""

    chain: Chain
    busy: bool = True


class SlotBook:
    """The chains in the slots of one endpoint, as far as this process sent them there."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"an engine has at least one slot, not {slots}")
        self._most = slots
        self._slots: list[_Slot] = []

    @property
    def chains(self) -> tuple[Chain, ...]:
        """What the slots hold, the one used longest ago first."""
        return tuple(slot.chain for slot in self._slots)

    def place(self, chain: Chain) -> tuple[Chain, int] | None:
        """Put a prompt where the engine will put it; the slot is busy until `free`.

        Returns what is overwritten: a chain, and the first of its blocks that no slot holds any more; None where
        nothing is lost.
        """
        given_up = self._taken_by(chain)
        self._slots.append(_Slot(chain))
        if given_up is None:
            return None
        kept = max(common_blocks(given_up.hashes, slot.chain.hashes) for slot in self._slots)
        return (given_up, kept) if kept < len(given_up) else None

    def free(self, chain: Chain) -> None:
        """A request with this prompt has ended; nothing where its slot was given away meanwhile."""
        slot = next((slot for slot in self._slots if slot.busy and slot.chain is chain), None)
        if slot is not None:
            slot.busy = False

    def _taken_by(self, chain: Chain) -> Chain | None:
        """Remove a slot, and return its chain, for the prompt to take its place; None where one is empty still."""
        idle = [slot for slot in self._slots if not slot.busy]
        alike = [common_blocks(chain.hashes, slot.chain.hashes) * chain.block_size for slot in idle]
        most = max(alike, default=0)
        if most > SIMILARITY * chain.prompt_tokens:
            taken = idle[alike.index(most)]
        elif len(self._slots) < self._most:
            return None
        else:  # where all are busy the engine lets the request wait, most likely for the one that began first
            taken = (idle or self._slots)[0]
        self._slots.remove(taken)
        return taken.chain
