"""Where endpoints are found, and which of them belong to the fleet; see docs/discovery.md."""

from backends.discovery.dns_name import DnsName
from backends.discovery.listings import Reporter, Standing
from backends.discovery.lookups import Looked, LookUp, LookupFailed, RecordLookup, SystemLookup
from backends.discovery.membership import Action, ComeBack, Hold, Join, Leave, Membership, Move, Purge, Wanted
from backends.discovery.types import Found, Report, Source, Traits
from backends.discovery.watched_file import ListingInvalid, WatchedFile

__all__ = [
    "Action",
    "ComeBack",
    "DnsName",
    "Found",
    "Hold",
    "Join",
    "Leave",
    "ListingInvalid",
    "LookUp",
    "Looked",
    "LookupFailed",
    "Membership",
    "Move",
    "Purge",
    "RecordLookup",
    "Report",
    "Reporter",
    "Source",
    "Standing",
    "SystemLookup",
    "Traits",
    "Wanted",
    "WatchedFile",
]
