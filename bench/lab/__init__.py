"""What `make bench-engine` measures, a module for each theme; `bench/engine_lab.py` is the table of them."""

__all__: list[str] = []
