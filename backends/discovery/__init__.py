"""Where endpoints are found, and which of them belong to the fleet; see docs/discovery.md."""

from backends.discovery.listings import Reporter, Standing
from backends.discovery.membership import Action, ComeBack, Hold, Join, Leave, Membership, Move, Purge, Wanted
from backends.discovery.types import Found, Report, Source, Traits
from backends.discovery.watched_file import ListingInvalid, WatchedFile

__all__ = [
    "Action",
    "ComeBack",
    "Found",
    "Hold",
    "Join",
    "Leave",
    "ListingInvalid",
    "Membership",
    "Move",
    "Purge",
    "Report",
    "Reporter",
    "Source",
    "Standing",
    "Traits",
    "Wanted",
    "WatchedFile",
]
