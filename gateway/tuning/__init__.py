"""Settings of an engine, tried one after the other: speed, memory and quality of each, and which are worth having.

    sweep file ─> settings ─> an engine is started, or an address taken ─> load ──────> speed  ─┐
                                                                       └─> questions ─> quality ┴─> a line of results
    results ─> judging (against the baseline) ─> pareto ─> table, JSON, SVG

`types`, `judging`, `pareto`, `table` and `plot` are pure; `engine`, `memory`, `asking` and `trying` ask.
"""

__all__: list[str] = []
