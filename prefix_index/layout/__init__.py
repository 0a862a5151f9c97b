"""What in a prompt changes, and in which order its parts should stand.

spots, judged_name      literals and names of what changes      (volatile, names)
Volatility, Cause       how often, and why                       (types)
"""

from prefix_index.layout.names import judged_name
from prefix_index.layout.types import Cause, Certainty, Spot, Volatility, volatility_of
from prefix_index.layout.volatile import spots

__all__ = ["Cause", "Certainty", "Spot", "Volatility", "judged_name", "spots", "volatility_of"]
