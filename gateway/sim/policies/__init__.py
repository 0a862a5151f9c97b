"""Ways of choosing an endpoint, each from its published rule, to compare ours with."""
