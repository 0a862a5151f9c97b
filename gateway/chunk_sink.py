"""The way of most chunks there are: out of the engine's socket, through the tee, into the client's, in one call.

    loop --data--> connection --piece--> sink: tee.feed, is it a token?, served.write --> loop
                                           `-- no more for now: the task that waits takes over

No task is woken and nothing is awaited, which was a third of what a chunk cost while many streams are open. It goes on
until the end of the stream has come, which is held back, or the client reads slowly: what comes next waits in the
connection to the engine then, and soon in the engine.
"""

from collections.abc import Callable

from backends import Sink
from gateway.exchange import Exchange
from gateway.relay import StreamTee
from gateway.wire import ServedRequest


def chunk_sink(
    exchange: Exchange,
    stream: StreamTee,
    served: ServedRequest,
    look_for_token: Callable[[Exchange, float], None],
    monotonic: Callable[[], float],
) -> Sink:
    """What each chunk of a begun stream is given to; it raises what reading or translating a chunk raises."""
    outlet = exchange.outlet
    assert outlet is not None

    def sink(chunk: bytes) -> bool:
        passed = outlet.feed(chunk)
        if exchange.computed:
            exchange.answer_goes_on(monotonic())
        else:
            look_for_token(exchange, monotonic())
        if passed:
            served.write(passed, more=True)
        return not (stream.complete or served.is_slow)

    return sink
