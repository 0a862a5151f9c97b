"""What a token cost, and what is left of what was paid for it. For the operator alone."""
