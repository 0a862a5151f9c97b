"""What stands at the end of each help: an example or two, and where the exit codes are told."""

from typing import Final

EXAMPLES: Final = {
    "serve": ("prefixgate serve --backend http://gpu-a:8000 --backend http://gpu-b:8000", "prefixgate serve -c p.yaml"),
    "epp": ("prefixgate epp -c prefixgate.yaml --grpc-port 9002",),
    "init": (
        "prefixgate init --backend http://gpu-a:8000",
        "prefixgate init --backend http://gpu-a:8000 --tenant acme --admin",
    ),
    "demo": ("prefixgate demo --quick", "prefixgate demo --model tiny --json demo.json"),
    "check": ("prefixgate check -c prefixgate.yaml", "prefixgate check --backend http://gpu-a:8000 --no-proof --json"),
    "completion": ("prefixgate completion bash",),
    "status": ("prefixgate status", "prefixgate status --gateway http://gpu-a:8080 --watch"),
    "explain": ("prefixgate explain 0190f2c4-6f3a-7d51-9c2e-2f1f8f0a7b11",),
    "index show": ("prefixgate index show",),
    "index top": ("prefixgate index top --top 5",),
    "index clear": ("prefixgate index clear --endpoint gpu-a-8000",),
    "report": (
        "prefixgate report --month 2026-11 --by tenant,model",
        "prefixgate report --month 2026-11 --format focus-1.4 -o focus.csv",
    ),
    "cost": ("prefixgate cost --month 2026-11 --costs costs.yaml", "prefixgate cost --month 2026-11 --sheet tenants"),
    "jobs": ("prefixgate jobs --month 2026-11 --tenant acme --most 10",),
    "verify": ("prefixgate verify --month 2026-11",),
    "fixes": ("prefixgate fixes --month 2026-11", "prefixgate fixes --try request.json --route chat"),
    "invoice draft": ("prefixgate invoice draft acme 2026-11 --out invoices",),
    "invoice issue": ("prefixgate invoice issue --all 2026-11 --out invoices",),
    "invoice credit": ("prefixgate invoice credit 2026-0001 --reason 'outage of 14 November' --amount 12.50",),
    "invoice list": ("prefixgate invoice list --tenant acme",),
    "invoice show": ("prefixgate invoice show 2026-0001 --json",),
    "invoice close-period": ("prefixgate invoice close-period 2026-11",),
    "ledger show": ("prefixgate ledger show --ledger prefixgate.db",),
    "ledger verify": ("prefixgate ledger verify",),
    "ledger rebuild": ("prefixgate ledger rebuild",),
    "ledger migrate": ("prefixgate ledger migrate -c prefixgate.yaml",),
    "ledger archive": ("prefixgate ledger archive --to archive --keep-months 12",),
    "ledger restore": ("prefixgate ledger restore --month 2026-10 --from archive",),
    "prices check": ("prefixgate prices check --prices prices.yaml",),
    "prices show": ("prefixgate prices show --tenant acme --at 2026-12-01", "prefixgate prices show --apis"),
    "keys create": ("prefixgate keys create acme --file keys.yaml --expires 90d --budget 500/month",),
    "keys list": ("prefixgate keys list --file keys.yaml",),
    "keys rotate": ("prefixgate keys rotate acme-1 --file keys.yaml --grace 24h",),
    "keys revoke": ("prefixgate keys revoke acme-1 --file keys.yaml",),
    "keys new": ("prefixgate keys new acme --id acme-2",),
    "lint": (
        "prefixgate lint src prompts --calls-per-day 100000 --price-per-mtok 3:0.3",
        "prefixgate lint captured.jsonl --sarif",
    ),
    "simulate": (
        "prefixgate simulate --trace trace.jsonl --endpoints 8",
        "prefixgate simulate --from-ledger 2026-11 --policy prefixgate --policy rr",
    ),
    "measure": (
        "prefixgate measure http://gpu-a:8000 --prompt 2000 --output 200 --ttft 1 --itl 0.05",
        "prefixgate measure --from 2026-11-30T09:00 --to 2026-11-30T12:00 --ttft 1",
    ),
    "tune": ("prefixgate tune sweep.yaml --svg sweep.svg", "prefixgate tune sweep.yaml --dry-run"),
    "plan": (
        "prefixgate plan llama-3.1-70b --prompt 2000 --cached 0.6 --output 300 --load 20 --ttft 2 --itl 0.05",
        "prefixgate plan qwen3-32b --gpu h100 --gpus 2 --per-gpu-hour 2.50 --utilisation 0.5 --api 0.60:2.40",
    ),
    "templates show": ("prefixgate templates show support.yaml", "prefixgate templates show prompt.j2 --syntax jinja"),
    "templates check": ("prefixgate templates check --templates templates",),
}
"""By command, as typed after `prefixgate`."""


def ending_of(path: str) -> str | None:
    """The last lines of the help of the command at `path`; None of a group."""
    examples = EXAMPLES.get(path)
    if examples is None:
        return None
    return "\n\n".join([*(f"Example:  {one}" for one in examples), "Exit codes and JSON: docs/cli.md"])
