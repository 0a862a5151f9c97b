"""A fleet whose processes may be killed, and what is looked at while they are: for every benchmark that does it.

member.py  index_server.py  fleet.py    one process, the server of the index, all of them with the clients' way to them
client.py  types.py                     who asks, and what it saw
script.py  timeline.py                  what is done when, and what a run looked like around it
ledgers.py  audit.py                    what the ledgers hold, held against what clients saw
"""

__all__: list[str] = []
