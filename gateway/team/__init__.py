"""What the workers of one gateway say to each other, by way of their supervisor: see `gateway/workers`."""

__all__: list[str] = []
