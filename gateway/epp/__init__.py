"""The endpoint picker: gateways that are built on Envoy ask where a request is to go, and show us what became of it.

    client --> gateway in front ==ext-proc==> Stream --ASGI--> edge --> pipeline --> EnvoyPlane.send
                     |                          |                                        |
                     |   <-- header, metadata,  `------------------- Picked <------------'
                     |       body as the engine is to get it
                     `--> engine --> gateway in front ==head, body==> Feed --> UpstreamResponse --> pipeline --> ledger
                                          ^                                                            |
             client <---------------------'<== head, body, and the end once it is billed ==============='

To the edge a stream is a request of a client (`ServedRequest`), to the pipeline a connection to an engine (`Line`). So
everything between the two is that of `prefixgate serve`: keys, limits, index, decision, ledger, receipts. What differs:
the call is made once, by another, who may not show what came of it (`answering`).

    types     its nouns        messages  read and written, of protocol      fields  what of a head is to be changed
    stream    one request      request_body  until it is whole                  feed    the answer as a connection
    replies   what is told     asking    the reply to the request, by mode      answering ... to the answer, by mode
    picking   the decision as addresses: fallbacks, subsets, who served         addresses names looked up
    server    gRPC, its health, TLS, drain                                      certificates  self-signed

Needs the extra `epp`.
"""

from gateway.epp.picking import EnvoyPlane
from gateway.epp.server import EppServer

__all__ = ["EnvoyPlane", "EppServer"]
