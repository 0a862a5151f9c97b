"""Chaos: faults of every kind on every part of a fleet under load, and an audit from three sides afterwards.

python -m bench.faults              singles and pairs on PostgreSQL, singles on SQLite files: 11 minutes
python -m bench.faults --quick      singles on PostgreSQL: about 3 minutes

schedule.py   which faults, by a seed          acting.py     how each is done       playing.py   one after the other
fleet.py      what runs: engines.py parts.py, the ways between them links.py namespaces.py, clocks.py disks.py
client.py     who asks                         wire.py       what passes between gateways and engines
books.py      what the ledger has              traces.py     what is left over      audit.py judging.py timeline.py
"""
