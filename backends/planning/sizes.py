"""What fits: weights, the KV cache of a token, tokens and sequences at once. Pure.

room     = GPUs × (memory × 0.9 − 2 GB)
capacity = (room − weights) / bytes of a token
batch    = (room − weights) / bytes of a sequence
"""

from backends.models import Latent, PerHead
from backends.planning.figures import Figure
from backends.planning.machine import Machine, bytes_of

__all__ = ["capacity", "kv_per_token", "most_sequences", "weights"]


def weights(machine: Machine) -> Figure:
    """Bytes of the parameters, as they lie in memory."""
    bits = bytes_of(machine.weight_bits) * 8
    return Figure("weights", machine.weight_bytes, "B", f"{machine.model.params:.4g} parameters × {bits:g} bits / 8")


def kv_per_token(machine: Machine) -> Figure:
    """Bytes that one more token keeps where nothing is out of a window yet, all copies."""
    model, number_bytes = machine.model, bytes_of(machine.kv_bits)
    match model.cached:
        case PerHead(kv_heads, size):
            kept = f"2 × {model.layer_count} layers × {kv_heads} KV heads × {size}"
        case Latent(rank, rotary):
            kept = f"{model.layer_count} layers × ({rank} + {rotary})"
    copies = "" if machine.kv_copies == 1 else f" × {machine.kv_copies:g} copies"
    return Figure("KV cache of a token", machine.kv_bytes(1), "B", f"{kept} × {number_bytes:g} bytes{copies}")


def capacity(machine: Machine) -> Figure:
    """Tokens that the KV cache holds; 0 where the weights do not fit. Of a model with windows, as if it had none: the
    least that it holds."""
    token = kv_per_token(machine).value
    tokens = max(0.0, machine.room_bytes - machine.weight_bytes) // token
    how = f"({machine.room_bytes / 1e9:.4g} GB of room − {machine.weight_bytes / 1e9:.4g} GB) / {token:,.0f} B"
    return Figure("tokens in the KV cache", tokens, "tokens", how)


def most_sequences(machine: Machine, tokens: int) -> Figure:
    """Sequences of so many tokens that fit at once, paged, so that nothing is wasted; 0 where none does.

    Raises `ValueError` below one token.
    """
    if tokens < 1:
        raise ValueError("a sequence has at least one token")
    one = machine.kv_bytes(tokens)
    count = max(0.0, machine.room_bytes - machine.weight_bytes) // one
    how = f"({machine.room_bytes / 1e9:.4g} − {machine.weight_bytes / 1e9:.4g}) GB / {one / 1e9:.4g} GB a sequence"
    return Figure("sequences at once", count, "sequences", how)
