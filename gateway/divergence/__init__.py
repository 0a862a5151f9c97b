"""Where the prompts of live traffic part, in what, and what that costs. Hashes, offsets and numbers: no text is kept.

Watch                 holds each prompt against the earlier ones of its key     (watching)
Earlier, Fingerprint  an earlier prompt, as block hashes and as parts           (earlier, fingerprints)
compared              the first part that differs                               (comparing)
Sketch                a part line by line: what of it was there before          (sketches)
Profiles              what is counted, by kind of call, within bounds           (profiles)
findings_of           what of it is a fault, by the rules of lint               (findings, from_ledger)
lint_router           /admin/lint                                             (pages)
"""

from gateway.divergence.types import Change, Looked, Parting, ProfileName, Sign
from gateway.divergence.watching import Watch

__all__ = ["Change", "Looked", "Parting", "ProfileName", "Sign", "Watch"]
