"""Loads out of published specifications: each file says what is published, and what of it is ours.

Every generator is a function of a seed and of a frozen dataclass with its numbers; the defaults are the published ones.
"""

__all__: list[str] = []
