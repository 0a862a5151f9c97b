"""How a life ends while clients come."""

import subprocess
import sys

ENDS_UNDER_CLIENTS = """
import gc, socket, threading, time, warnings
from backends.simulated.serving import ServerSpec, SimulatedServer

said = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: said.append(str(message))

def come(port, over, kept):
    while not over.is_set() and len(kept) < 500:
        try:
            kept.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        except OSError:
            pass

for life in range(12):
    over, kept = threading.Event(), []
    with SimulatedServer(ServerSpec(speed=5.0)) as server:
        clients = [threading.Thread(target=come, args=(server.spec.port, over, kept)) for _ in range(3)]
        for client in clients:
            client.start()
        while len(kept) < 40:
            time.sleep(0.001)
    over.set()
    for client in clients:
        client.join()
    for one in kept:
        one.close()
gc.collect()
print(len(said), *said[:3])
"""
"""In a process of its own: in this one, loops of tests close what is left."""


def test_no_connection_is_left_open_by_a_server_that_ends_while_clients_come() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_UNDER_CLIENTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
