"""The gateway: the HTTP edge, the ten steps of a request, and the commands. The only room that knows the others."""

__all__: list[str] = []
