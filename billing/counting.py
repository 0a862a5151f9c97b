"""Numbers of things in sentences. Pure."""


def counted(count: int, one: str, several: str = "") -> str:
    """`1 request`, `2,000 requests`; `several` where it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
