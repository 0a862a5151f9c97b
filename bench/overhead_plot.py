"""The picture of docs/performance.md: requests a second of one core, a bar a router, and what each adds at one call.

33 KB   nginx         ==============================  9,800 /s   + 0.07 ms
        SMG ...       =====  1,810 /s   + 0.72 ms
"""

import math
from collections.abc import Sequence
from typing import Final

from bench.overhead_report import DIRECT, NGINX, OURS_NAME, SHOWN, Figures, Row
from bench.svg import LIGHT, WIDTH, label, picture

NAME: Final = "overhead.svg"
TITLE: Final = "One core, 16 connections: requests a second; ms added at one connection"
CONNECTIONS: Final = 16
_BAR, _GAP, _LEFT, _RIGHT, _TOP = 18, 34, 190, 170, 62
_OURS, _OTHERS, _CEILING = 0, 1, len(LIGHT) - 1


def plot(rows: Sequence[Row]) -> str:
    """The picture as SVG; "" where nothing of it was measured."""
    figures = Figures(rows)
    parts, y = [label(16, 24, TITLE, "title")], float(_TOP)
    for size in SHOWN:
        found = {
            who: rate
            for who in figures.routers(size)
            if who != DIRECT and not math.isnan(rate := figures.of(who, size, CONNECTIONS, "requests_per_s"))
        }
        if not found:
            continue
        parts.append(label(16, y - 8, f"bodies of {size}", "name"))
        scale = (WIDTH - _LEFT - _RIGHT) / max(found.values())
        for who, rate in found.items():
            parts += _bar(who, rate, figures.added_ms(who, size, "p50_us"), y, scale)
            y += _BAR
        y += _GAP
    return picture(int(y - _GAP + 16), parts, TITLE) if len(parts) > 1 else ""


def _bar(who: tuple[str, str], rate: float, added_ms: float, y: float, scale: float) -> list[str]:
    colour = _OURS if who[0] == OURS_NAME else _CEILING if who == NGINX else _OTHERS
    added = "" if math.isnan(added_ms) else f"   + {added_ms:.2f} ms"
    return [
        label(_LEFT - 8, y + _BAR - 5, " ".join(who).strip(), "end"),
        f'<rect class="f{colour}" x="{_LEFT}" y="{y:.0f}" width="{rate * scale:.1f}" height="{_BAR - 3}"/>',
        label(_LEFT + rate * scale + 8, y + _BAR - 5, f"{rate:,.0f} /s{added}", ""),
    ]
