"""What other replicas did to holders, read off the registry that comes with each match.

    registry before   {a: 17, b: 20}
    registry now      {a: 17, b: 41}     b was cleared since, by us or by another replica, and seated anew

A *generation* is the tick at which a holder was seated; it ends with `clear`. Writes carry the generation that they
were made under, so that what was seen before a restart does not count after it.
"""

from prefix_index.redis_wire import Registry


class Generations:
    """The latest registry of one shard, and the endings that this replica caused and has not seen come back."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._ended_here: set[str] = set()
        self.births = 0
        """How often Redis was seen to have lost everything."""

    def learn(self, registry: Registry) -> list[str]:
        """Take over a newer registry; returns the holders whose generation another replica ended.

        Nobody, where Redis lost everything: then nothing was ended.
        """
        before, self._registry = self._registry, registry
        if registry is before:
            return []
        if registry.born != before.born:
            self._ended_here.clear()
            self.births += bool(before.born)
            return []
        changed = [
            holder
            for holder, generation in before.generations.items()
            if registry.generations.get(holder) != generation
        ]
        ended_elsewhere = [holder for holder in changed if holder not in self._ended_here]
        self._ended_here.difference_update(changed)
        return ended_elsewhere

    def of(self, holder: str) -> int | None:
        """The generation that a write made now belongs to; None where it is not known, or has just ended here."""
        return None if holder in self._ended_here else self._registry.generations.get(holder)

    def end(self, holder: str) -> int | None:
        """This replica ends the generation of a holder; returns which, None where it is not known."""
        generation = self.of(holder)
        if holder in self._registry.generations:
            self._ended_here.add(holder)
        return generation
