"""The memory of a process in huge pages."""

import mmap
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.serving.huge_pages import HUGE_BYTES, Mapping, MiB, mappings, use_huge_pages, whole_pages

SMAPS = """\
55d0c0000000-55d0c0a00000 rw-p 00000000 00:00 0                          [heap]
Size:              10240 kB
Rss:               10240 kB
AnonHugePages:         0 kB
7f0000000000-7f0004000000 rw-p 00000000 00:00 0
Rss:                 128 kB
7f0010000000-7f0010400000 rw-p 00000000 00:00 0                          [anon:python]
Rss:                4096 kB
7f0020000000-7f0020400000 r-xp 00001000 fe:00 4711                       /usr/lib/some where.so
Rss:                4096 kB
7f0030000000-7f0030400000 rw-p 00000000 fe:00 4711                       /usr/lib/some where.so
Rss:                4096 kB
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
Rss:                8192 kB
"""


def test_memory_of_its_own_that_is_in_use_is_worth_it_and_files_stacks_and_reserves_are_not() -> None:
    found = list(mappings(SMAPS.splitlines(keepends=True)))
    assert len(found) == 6
    assert [hex(one.start) for one in found if one.is_worth_it] == ["0x55d0c0000000", "0x7f0010000000"]
    assert found[0] == Mapping(0x55D0C0000000, 0x55D0C0A00000, 10 * MiB, private_data=True)


@given(st.integers(0, 4 * HUGE_BYTES), st.integers(0, 4 * HUGE_BYTES))
def test_whole_pages_lie_in_the_mapping_and_nothing_whole_is_left_out(start: int, size: int) -> None:
    pages = whole_pages(Mapping(start, start + size, size, private_data=True))
    within = [at for at in range(0, 9 * HUGE_BYTES, HUGE_BYTES) if start <= at and at + HUGE_BYTES <= start + size]
    assert list(pages) == within


def test_what_is_in_memory_is_the_same_afterwards() -> None:
    with mmap.mmap(-1, 8 * MiB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = os.urandom(MiB) * 8
        before = bytes(memory)
        now_bytes = use_huge_pages()
        assert memory[:] == before
    assert now_bytes % HUGE_BYTES == 0
    assert now_bytes >= 6 * MiB or not _kernel_has_them()


def _kernel_has_them() -> bool:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return enabled.exists() and "[never]" not in enabled.read_text() and (major, minor) >= (6, 1)
