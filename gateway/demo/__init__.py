"""The demo: two real engines, three tenants, the same work twice, and what the engines and the ledger say about it.

DemoOptions     what to run                      (run)
demo_options    the same from flags              (run)
MODELS          what the engines can serve       (gateway_process)
main            run, show, exit status           (run)
run_demo        run, and tell the outcome        (run)
outcome_json    the outcome under stable names   (table)
"""

from gateway.demo.gateway_process import MODELS
from gateway.demo.run import DemoOptions, demo_options, main, run_demo
from gateway.demo.table import outcome_json
from gateway.demo.types import DemoFailed, DemoOutcome, Policy

__all__ = [
    "MODELS",
    "DemoFailed",
    "DemoOptions",
    "DemoOutcome",
    "Policy",
    "demo_options",
    "main",
    "outcome_json",
    "run_demo",
]
