"""Is what engines report true, and why was a prompt not cached?

    expected and reported cached tokens  --verdicts-->  Verdict, MissReason of each settlement
    the ledger's sums, the engines' own counters  --reconciling-->  Span: over-reported, under-reported, agreed
    both, of a period  --report-->  Verification  --text-->  tables and JSON

credits         what is given back where our own routing missed           columns         a miss's reason in SQL
"""

__all__: list[str] = []
