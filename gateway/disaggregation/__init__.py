"""Requests at two endpoints: one computes the prompt, another answers.

weighing.py    does it pay, and between whom
splitting.py   what the dispatcher asks: prepare, send beside, give up
legs.py        the prefill leg, from its body to its receipt
releasing.py   what nobody fetches is freed
truth.py       whose cached tokens are billed, and whose are disputed
setup.py       all of it, from the configuration
"""
