"""Several processes that serve as one gateway, and the one that keeps them.

                          supervisor: serves no requests
      one listening       +- ledger: one writer, one lock, one spool
      socket a slot       +- private Valkey, where no other is configured
     ,------+------.      +- Crew, restarts, reloads
     |      |      |      |
    slot 0 slot 1 slot 2  |  two lines to each: for the ledger, and for everything else
     |      |      |      |
    worker worker worker -+     each a replica like any other: index, limits and loads are shared through Valkey

The kernel spreads connections over the sockets of the slots. The supervisor keeps them open, so that what comes in
while a slot has no worker waits for the next one. A worker is a fresh process (`process.py`), never a fork.

A worker that dies is replaced, at once the first time. A reload replaces them one slot after the other: the successor
takes connections from the same socket before the old one stops to. A supervisor that dies takes all workers with it:
their lines end.
"""

__all__: list[str] = []
