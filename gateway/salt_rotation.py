"""A new secret behind the cache salts takes over, while the gateway serves.

    until its time   all replicas know both, and use the first
    from then on     keys are read anew with the next one: other salts, other roots; old caches are matched no more
    afterwards       `salt_secret_file` holds what was the next one, and nothing has to happen at once any more

What was computed under the old salts is not removed: nobody names it any longer, so engines and index let it go as
what was not used for longest. Answers that are under way end with the salt with which they began.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.edge.auth import Authenticator, KeysFileInvalid, group_salt
from gateway.log_lines import LOGGER
from gateway.salt_secrets import SaltSecrets

LOOK_S: Final = 1.0
"""How often it is seen whether a reading of keys that had begun before has brought old salts back."""
LONGEST_SLEEP_S: Final = 30.0
"""The wall clock may be set while this sleeps."""


class SaltRotation:
    """`rebuilt` reads the keys with the secret in force, in a thread; `changed` is called once they are taken over."""

    def __init__(
        self,
        authenticator: Authenticator,
        secrets: SaltSecrets,
        rebuilt: Callable[[], Authenticator],
        changed: Callable[[], None],
        wall_s: Callable[[], float],
    ) -> None:
        self._authenticator = authenticator
        self._secrets = secrets
        self._rebuilt = rebuilt
        self._changed = changed
        self._wall_s = wall_s
        self._in_force = secrets.at(wall_s())
        self._said: str | None = None

    async def run(self) -> None:
        """Take the next secret over at its time, until cancelled; returns at once where there is none."""
        while self._secrets.changes:
            left_s = self._secrets.from_s - self._wall_s()
            await asyncio.sleep(min(max(left_s, LOOK_S if left_s <= 0 else 0.0), LONGEST_SLEEP_S))
            if self._secrets.from_s <= self._wall_s():
                await self.look()

    async def look(self) -> None:
        """Take over the salts of the secret in force, where others are known. O(share groups)."""
        known, secret = self._authenticator, self._secrets.at(self._wall_s())
        if known.salts == sorted({group_salt(group, secret) for group in known.share_groups}):
            if secret != self._in_force:  # a change of the keys file has brought its salts before this look
                self._is_in_force(secret)
            return
        try:
            newer = await asyncio.to_thread(self._rebuilt)
        except KeysFileInvalid as error:
            if str(error) != self._said:  # and not at each look
                LOGGER.error("the next salt secret waits: the keys file cannot be read: %s", error)
            self._said = str(error)
            return
        known.take_over(newer)
        self._is_in_force(secret)

    def _is_in_force(self, secret: bytes) -> None:
        self._in_force, self._said = secret, None
        self._changed()
        share_groups = len(self._authenticator.share_groups)
        LOGGER.info("the next salt secret is in force", extra={"fields": {"share_groups": share_groups}})
