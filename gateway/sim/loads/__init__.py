"""Loads: recorded traces, generators of published workloads, and the ways requests arrive."""
