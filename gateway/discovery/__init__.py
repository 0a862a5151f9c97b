"""Discovery as the gateway uses it: sources by configuration, members by what they say, endpoints by the admin API."""

__all__: list[str] = []
