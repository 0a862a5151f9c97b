"""`prefixgate lint`: `command.py` reads its arguments; files, traffic, the model's side, costs and forms beside it."""

from gateway.commands.linting.command import lint

__all__ = ["lint"]
