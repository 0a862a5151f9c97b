"""A prefix tree that knows one thing of each prefix: where it was sent last. The approximate tree of `smg`.

    [a b] 2 --+-- [c d] 0            match(a b c x) = endpoint 0, 3 blocks
              +-- [y z] 2

As in `prefix_index.radix` a node is found by the hash of the first block on its edge. In the order of use a parent is
newer than its children, so the oldest node is a leaf. Match and record are O(nodes on the path · log edge).
"""

from collections import OrderedDict

from prefix_index import HASH_BYTES, Chain


class _Node:
    __slots__ = ("children", "edge", "last", "name", "parent")

    def __init__(self, edge: bytes, last: int, parent: "_Node | None") -> None:
        self.name = edge[:HASH_BYTES]
        self.edge = edge
        self.last = last
        self.parent = parent
        self.children = 0


class LastHolders:
    """The last endpoint of each prefix."""

    def __init__(self) -> None:
        self.blocks = 0
        self._nodes: OrderedDict[bytes, _Node] = OrderedDict()

    def match(self, chain: Chain) -> tuple[int | None, int]:
        """The last endpoint of the longest known prefix of `chain`, and how many blocks that has."""
        path, blocks, _ = self._walk(chain.hashes)
        return (path[-1].last if path else None), blocks

    def record(self, chain: Chain, endpoint: int) -> None:
        """All of `chain` was sent to `endpoint`."""
        hashes = chain.hashes
        path, blocks, in_last = self._walk(hashes)
        if path and in_last < len(path[-1].edge):
            path[-1] = self._split(path[-1], in_last)
        rest = hashes[blocks * HASH_BYTES :]
        if rest:
            self._grow(path, rest, endpoint)
        for node in reversed(path):
            node.last = endpoint
            self._nodes.move_to_end(node.name)

    def evict(self, to_blocks: int) -> None:
        """Forget the least recently used leaves until so many blocks are left."""
        while self.blocks > to_blocks:
            _, node = self._nodes.popitem(last=False)
            self.blocks -= len(node.edge) // HASH_BYTES
            if node.parent is not None:
                node.parent.children -= 1

    def _walk(self, hashes: bytes) -> tuple[list[_Node], int, int]:
        """The nodes along a chain, the blocks they share with it, and the bytes shared with the last edge."""
        path: list[_Node] = []
        at = shared = 0
        while at < len(hashes):
            node = self._nodes.get(hashes[at : at + HASH_BYTES])
            if node is None:
                break
            path.append(node)
            shared = _common(node.edge, hashes, at)
            at += shared
            if shared < len(node.edge):
                break
        return path, at // HASH_BYTES, shared

    def _split(self, node: _Node, at: int) -> _Node:
        """Part an edge after `at` bytes; `node` stays the tail, the head is returned."""
        head = _Node(node.edge[:at], node.last, node.parent)
        head.children = 1
        node.edge = node.edge[at:]
        node.name = node.edge[:HASH_BYTES]
        node.parent = head
        self._nodes[node.name] = node
        self._nodes[head.name] = head
        return head

    def _grow(self, path: list[_Node], rest: bytes, endpoint: int) -> None:
        self.blocks += len(rest) // HASH_BYTES
        parent = path[-1] if path else None
        if parent is not None:
            if parent.last == endpoint and not parent.children:
                parent.edge += rest  # a chat that grows turn by turn stays one node
                return
            parent.children += 1
        leaf = _Node(rest, endpoint, parent)
        self._nodes[leaf.name] = leaf
        path.append(leaf)


def _common(edge: bytes, hashes: bytes, at: int) -> int:
    """Bytes that an edge shares with the chain from `at` on, at least one block; one hash equal means all before it."""
    most = min(len(edge), len(hashes) - at)
    if edge[most - HASH_BYTES : most] == hashes[at + most - HASH_BYTES : at + most]:
        return most
    low, high = 1, most // HASH_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        end = middle * HASH_BYTES
        if edge[end - HASH_BYTES : end] == hashes[at + end - HASH_BYTES : at + end]:
            low = middle
        else:
            high = middle
    return low * HASH_BYTES
