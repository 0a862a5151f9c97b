"""Who drafts, as it is configured."""

from backends.reference.errors import ModelUnsupported
from backends.reference.model_files import ensure_model
from backends.reference.speculation.draft_model import ModelDrafter, first_layers
from backends.reference.speculation.drafts import Drafter
from backends.reference.speculation.lookup import LookupDrafter
from backends.reference.types import DraftMethod, EngineConfig, SpeculationConfig
from backends.reference.weights import ModelWeights, load_weights, moved


def new_drafter(config: EngineConfig, wanted: SpeculationConfig, weights: ModelWeights, max_positions: int) -> Drafter:
    """Who drafts for a model of `weights`. Raises what `ensure_model` and `load_weights` raise, and `ModelUnsupported`
    for a draft model of another vocabulary."""
    if wanted.method is DraftMethod.LOOKUP:
        return LookupDrafter()
    drafting = weights
    if wanted.model is not None:
        drafting = moved(load_weights(ensure_model(wanted.model)), weights.embedding.device)
        if drafting.shape.vocab != weights.shape.vocab:
            raise ModelUnsupported("vocab_size", drafting.shape.vocab)
    if wanted.layers is not None:
        drafting = first_layers(drafting, wanted.layers)
    return ModelDrafter(drafting, kv_blocks=config.kv_blocks, block_size=config.block_size, max_positions=max_positions)
