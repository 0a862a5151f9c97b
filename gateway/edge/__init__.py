"""The client side: dialects, keys, and what may be put into or taken out of a body."""

__all__: list[str] = []
