"""The client side: dialects, keys, and the ASGI application that carries traffic."""

__all__: list[str] = []
