"""The answers that are being written: one token each a step, and how far one can see without looking at each step.

    step n stores the token at position `known + n - joined` of each answer, so it needs a new block where that is a
    multiple of the block size: answers with equal (known - joined) mod block size need theirs in the same steps.

    phases[p]: answers of phase p         step n: phases[-n mod size] new blocks
    ends:      heap of (last step, age)   context of step n: offset + answers * n

So neither a step nor a leap over many of them looks at single answers. Joining and leaving are O(log answers), the
blocks of a leap are one sum over a slice.
"""

from bisect import bisect_right
from heapq import heappop, heappush

from backends.simulated.requests import Active


class Decoding:
    """The set of answers being written, and the count of steps in which they were."""

    __slots__ = ("_block_size", "_ends", "_offset", "_phases", "answers", "step")

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._phases: list[int] = [0] * block_size
        self._ends: list[tuple[int, int, Active]] = []
        self._offset = 0
        self.answers = 0
        self.step = 0

    @property
    def context_tokens(self) -> int:
        """Tokens that the next step reads for all answers together."""
        return self._offset + self.answers * self.step

    def join(self, one: Active) -> None:
        """The answer takes part from the next step on."""
        one.joined_step = self.step
        self.answers += 1
        self._offset += one.known + 1 - self.step
        self._phases[(one.known - self.step) % self._block_size] += 1
        heappush(self._ends, (self.step + one.output_tokens - one.written, one.order, one))

    def leave(self, one: Active) -> None:
        """The answer takes no further part; its count of written tokens is brought up to date."""
        joined = one.joined_step
        assert joined is not None, "it takes part"
        self.answers -= 1
        self._offset -= one.known + 1 - joined
        self._phases[(one.known - joined) % self._block_size] -= 1
        one.written += self.step - joined
        one.known += self.step - joined
        one.joined_step = None

    def stored_tokens(self, one: Active) -> int:
        """Tokens of an answer's context whose keys and values are in its blocks now."""
        return one.known if one.joined_step is None else one.known + self.step - one.joined_step

    def new_blocks(self, steps: int) -> int:
        """Blocks that the next `steps` steps need in all."""
        size = self._block_size
        cycles, rest = divmod(steps, size)
        last = -self.step % size + 1  # phases are gone through downwards
        first = last - rest
        if first >= 0:
            some = sum(self._phases[first:last])
        else:
            some = sum(self._phases[:last]) + sum(self._phases[first + size :])
        return cycles * self.answers + some

    def steps_within(self, blocks: int, most: int) -> int:
        """How many steps, `most` at most, need no more than so many new blocks."""
        if self.new_blocks(most) <= blocks:
            return most
        return bisect_right(range(1, most + 1), blocks, key=self.new_blocks)

    def steps_to_end(self) -> int:
        """Steps until the first answer is complete. There is an answer."""
        while True:
            end, order, one = self._ends[0]
            if self._takes_part(one, order):
                return end - self.step
            heappop(self._ends)

    def pop_complete(self) -> Active | None:
        """An answer whose last token is out, the oldest first; it still takes part. None: no other."""
        while self._ends and self._ends[0][0] <= self.step:
            _, order, one = heappop(self._ends)
            if self._takes_part(one, order):
                return one
        return None

    @staticmethod
    def _takes_part(one: Active, order: int) -> bool:
        return one.order == order and one.joined_step is not None
