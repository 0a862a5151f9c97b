"""A lab beside the engine: techniques of serving as small strategies, proven equal to the plain engine or measured.

    weights     grids, gptq, scaling --> products --> matrices    numbers of fewer bits, and products with them
                calibration                                       what the inputs of each matrix look like
                recipes                                           the forms that need no calibration, by name
    KV cache    contiguous                                        a stretch a request, where the engine has blocks
    batching    static_batches                                    all begin together, and end together
    judging     loop, reservation, quality                        runs any of them; waste; perplexity, agreement

Nothing here is in the engine's hot path, and the engine has no branch for it: a technique is a decoder, a batcher or a
set of weights that takes the place of the engine's own. Everything runs where the weights lie.
"""

__all__: list[str] = []
