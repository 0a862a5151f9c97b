"""An engine whose prompts are strings, one letter a block: what it would say, and what is then to be had.

A letter and its capital are the same tokens under two names, as when an engine hashes more than it tells; "m" is a
block with media.
"""

import struct
from collections import Counter
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from prefix_index.blocks import chain_of
from prefix_index.kv_events import Moved, Removed, Stored
from prefix_index.types import Chain, Claim, TokenIds

ROOT = b"root of all letters"
CLAIMS = (Claim.CONFIRMED, Claim.HOST, Claim.DISK)


def name_of(path: str) -> int:
    """The engine's hash of the last block of a path."""
    return xxh3_64_intdigest(path.encode(), 99)


def tokens_of(prompt: str, block_size: int) -> TokenIds:
    """Each letter is a block of its own tokens."""
    ids = [ord(letter.lower()) * 1000 + at for letter in prompt for at in range(block_size)]
    return TokenIds(struct.pack(f"<{len(ids)}I", *ids))


@dataclass
class Letters:
    """The cache of such an engine, by copies in each memory and group; `counted` as the mirror has it."""

    block_size: int
    ours: int
    counted: bool = True
    copies: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    groups: dict[int, set[int]] = field(default_factory=dict)

    def chain(self, prompt: str) -> Chain:
        """Our chain of a prompt."""
        return chain_of(tokens_of(prompt, self.block_size), ROOT, self.ours)

    def store(self, path: str, first: int, level: int = 0, group: int = 0) -> Stored:
        """The blocks of a path from the one at `first` on."""
        self.groups.setdefault(level, set()).add(group)
        for end in range(first + 1, len(path) + 1):
            key = (level, group, path[:end])
            self.copies[key] = self.copies[key] + 1 if self.counted else 1
        media = tuple(letter == "m" for letter in path[first:])
        return Stored(
            hashes=tuple(name_of(path[:end]) for end in range(first + 1, len(path) + 1)),
            parent=name_of(path[:first]) if first else None,
            tokens=tokens_of(path[first:], self.block_size),
            block_size=self.block_size,
            claim=CLAIMS[level],
            has_media=media if any(media) else None,
            group=group or None,
        )

    def remove(self, path: str, level: int = 0, group: int = 0) -> Removed:
        """The last block of a path."""
        self._take(level, group, path)
        return Removed((name_of(path),), CLAIMS[level], group)

    def remove_everywhere(self, path: str) -> Removed:
        """The last block of a path, from all memories."""
        for key in [key for key in self.copies if key[2] == path]:
            del self.copies[key]
        return Removed((name_of(path),), None)

    def move(self, path: str, before: int, after: int) -> Moved:
        """The last block of a path from one memory to another, for one that is held."""
        self._take(before, 0, path)
        self.groups.setdefault(after, set()).add(0)
        key = (after, 0, path)
        self.copies[key] = self.copies[key] + 1 if self.counted else 1
        return Moved(name_of(path), CLAIMS[before], CLAIMS[after])

    def clear(self) -> None:
        """Nothing is held."""
        self.copies.clear()
        self.groups.clear()

    @property
    def held(self) -> set[str]:
        """All paths whose last block some memory holds."""
        return {path for _, _, path in self.copies}

    def run_of(self, prompt: str, farthest: int) -> int:
        """Leading blocks of ours of which no block of the engine is farther than `farthest`."""
        wanted = prompt.lower()
        paths = [path for path in self.held if wanted.startswith(path.lower()) and self._is_whole(path, farthest)]
        return max(map(len, paths), default=0) * self.block_size // self.ours

    def _is_whole(self, path: str, farthest: int) -> bool:
        return "m" not in path and all(self._level(path[:end]) <= farthest for end in range(1, len(path) + 1))

    def _level(self, path: str) -> int:
        for level, groups in sorted(self.groups.items()):
            if all(self.copies[level, group, path] for group in groups):
                return level
        return 3

    def _take(self, level: int, group: int, path: str) -> None:
        self.copies[level, group, path] -= 1
        if self.copies[level, group, path] <= 0:
            del self.copies[level, group, path]
