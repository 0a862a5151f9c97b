"""Requests changed on their way, where their tenant has agreed, so that more of them is found in caches.

fixed, How, Fixed      the change itself: pure       (fixing, with places, lines, days, edits)
"""

from gateway.fixes.fixing import fixed
from gateway.fixes.types import ALL_FIXES, SAFE_FIXES, Fix, Fixed, How, Mode, ToolsOrder, VolatileTo

__all__ = ["ALL_FIXES", "SAFE_FIXES", "Fix", "Fixed", "How", "Mode", "ToolsOrder", "VolatileTo", "fixed"]
