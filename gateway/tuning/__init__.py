"""Settings of an engine, tried one after the other: speed, memory and quality of each, and which are worth having.

    sweep file ─> settings ─> an engine is started, or an address taken ─> load ──────> speed  ─┐
                                                                       └─> questions ─> quality ┴─> a line of results
    results ─> judging (against the baseline) ─> pareto ─> table, JSON, SVG

`types`, `judging`, `pareto`, `table` and `plot` are pure; `trying` has the order of things, and the others ask engines,
the system or files.
"""

__all__: list[str] = []
