"""A small model with latent attention and a mixture of experts: what a token leaves in the cache, and who computes it.

    hidden --norm--> attention --> + --norm--> experts --> + --> ...      a layer
                     |   ^
                     v   | rows of all tokens so far
                     cache: one row a token and layer, of the attention's own width

attention.py  latent attention (MLA), plain and absorbed, and grouped attention (MHA, GQA) to hold it against
experts.py    a router, experts, and one that all tokens pass
model.py      layers of both, over rows in blocks
training.py   a few steps on bytes of a text

Shape and weights are our own, in float32, for reading and measuring: models of others are not loaded, and the engine
does not serve this one.
"""

from backends.reference.latent.attention import Attention, GroupedAttention, LatentAttention, absorbed, expanded
from backends.reference.latent.experts import Experts, busiest, mixture, routed
from backends.reference.latent.model import LatentModel, LatentShape, PagedRows, decoded, new_model, scores
from backends.reference.latent.training import bits_per_byte, trained

__all__ = [
    "Attention",
    "Experts",
    "GroupedAttention",
    "LatentAttention",
    "LatentModel",
    "LatentShape",
    "PagedRows",
    "absorbed",
    "bits_per_byte",
    "busiest",
    "decoded",
    "expanded",
    "mixture",
    "new_model",
    "routed",
    "scores",
    "trained",
]
