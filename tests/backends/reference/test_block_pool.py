"""The block pool against a naive oracle, and its rules one by one."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.reference.block_pool import BlockPool, block_hash, root_hash
from backends.reference.types import BlockHash, BlockId

TOTAL = 6


def chain(tokens: list[int], salt: str = "") -> list[BlockHash]:
    """A chain of blocks of one token each."""
    names: list[BlockHash] = []
    for token in tokens:
        names.append(block_hash(names[-1] if names else root_hash(salt), [token]))
    return names


class PoolMachine(RuleBasedStateMachine):
    """Requests over blocks of one token: start on a prefix, grow, publish, leave. The oracle is a list of tables."""

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(TOTAL)
        self.tables: list[tuple[list[int], list[BlockId]]] = []
        self.parents: dict[BlockHash, BlockHash | None] = {}

    @precondition(lambda self: self.pool.free_blocks > 0)
    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def begin(self, tokens: list[int]) -> None:
        """A request holds the cached prefix of its tokens and computes the rest, as far as blocks go."""
        names = chain(tokens)
        for index, name in enumerate(names):
            self.parents[name] = names[index - 1] if index else None
        table = self.pool.match(names)
        assert len(table) == self.leading_run(names)
        self.pool.hold(table)
        for name in names[len(table) :]:
            if self.pool.free_blocks == 0:
                break
            table.append(self.pool.publish(self.pool.allocate(), name))
        self.tables.append((tokens[: len(table)], table))

    @precondition(lambda self: self.pool.free_blocks > 0)
    @rule()
    def begin_without_publishing(self) -> None:
        self.tables.append(([], [self.pool.allocate()]))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        _, table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(table)

    @rule()
    def forget(self) -> None:
        forgot = self.pool.forget()
        assert forgot == (not self.tables)
        if forgot:
            assert self.pool.cached_blocks == 0

    @invariant()
    def every_block_is_held_or_free(self) -> None:
        held = {block for _, table in self.tables for block in table}
        assert self.pool.held_blocks == len(held)
        assert self.pool.free_blocks + self.pool.held_blocks == TOTAL
        assert self.pool.free_among([BlockId(i) for i in range(TOTAL)]) == self.pool.free_blocks

    @invariant()
    def what_a_request_holds_is_findable_and_shared(self) -> None:
        for tokens, table in self.tables:
            if tokens:
                assert self.pool.match(chain(tokens)) == table

    @invariant()
    def who_is_cached_has_its_parent_cached(self) -> None:
        for name, parent in self.parents.items():
            if parent is not None and self.cached(name):
                assert self.cached(parent)

    def cached(self, name: BlockHash) -> bool:
        return bool(self.pool.match([name]))

    def leading_run(self, names: list[BlockHash]) -> int:
        return next((index for index, name in enumerate(names) if not self.cached(name)), len(names))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def fill(pool: BlockPool, names: list[BlockHash]) -> list[BlockId]:
    return [pool.publish(pool.allocate(), name) for name in names]


def test_tails_die_before_the_heads_they_hang_on() -> None:
    pool = BlockPool(4)
    names = chain([1, 2, 3, 4])
    pool.release(fill(pool, names))
    pool.allocate()
    pool.allocate()
    assert len(pool.match(names)) == 2
    assert pool.evicted_blocks == 2


def test_the_prefix_used_last_dies_last() -> None:
    pool = BlockPool(4)
    old, young = chain([1, 2]), chain([7, 8])
    pool.release(fill(pool, old))
    pool.release(fill(pool, young))
    touched = pool.match(old)
    pool.hold(touched)
    pool.release(touched)
    pool.allocate()
    pool.allocate()
    assert (len(pool.match(old)), len(pool.match(young))) == (2, 0)


def test_blank_blocks_are_handed_out_before_cached_ones() -> None:
    pool = BlockPool(3)
    names = chain([1])
    kept = fill(pool, names)
    blank = [pool.allocate(), pool.allocate()]
    pool.release(kept)
    pool.release(blank)
    assert {pool.allocate(), pool.allocate()} == set(blank)
    assert pool.match(names) == kept


def test_two_requests_that_computed_the_same_block_end_up_sharing_it() -> None:
    pool = BlockPool(2)
    [name] = chain([1])
    first, second = pool.allocate(), pool.allocate()
    assert pool.publish(first, name) == first
    assert pool.publish(second, name) == first
    assert (pool.held_blocks, pool.cached_blocks) == (1, 1)
    pool.release([first])
    assert pool.held_blocks == 1
    pool.release([first])
    assert pool.held_blocks == 0


def test_salts_share_no_hash() -> None:
    assert set(chain([1, 2, 3], "a")).isdisjoint(chain([1, 2, 3], "b"))
    assert set(chain([1, 2, 3], "a")).isdisjoint(chain([1, 2, 3]))


def test_a_hash_depends_on_where_the_blocks_are_cut() -> None:
    root = root_hash("")
    assert block_hash(root, [1, 2]) != block_hash(block_hash(root, [1]), [2])
