"""What engines say of their own caches, in their own words, and what that means in our chains.

decode_batch     payload of vLLM or SGLang -> Batch                              (payloads)
PollDecoder      answers of TensorRT-LLM -> PolledBatch                          (trtllm)
SequenceTracker  is a message new, old, ahead of a gap, or of another process?   (sequence)
Mirror           what one cache holds, by the engine's hashes and by our chains  (mirror)
"""
