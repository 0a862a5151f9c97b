"""The commands that have a module of their own: each reads its arguments, calls what does the work, and prints it."""

__all__: list[str] = []
