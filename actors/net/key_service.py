"""The keys of a running server: which it uses, and how it comes to use others without losing a message.

A change of keys takes three steps, in this order. The new keys are on the disk, and open what is sealed for them, but
sign nothing. They are published: the directory has them beside the old ones. Then they sign. So at no time does this
server use a key that cannot be looked up, or is it addressed by one that it does not have. A peer that has not heard of
the new keys yet uses the old ones until the overlap ends. After a crash in between it is where it was, or one step
further.

Asked to, it changes them by itself when they have reached an age.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.crypto.continuity import MIN_ROTATION_S, Published
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_store import KeyRing, KeyStore
from batonpass.crypto.keys import Identity

__all__ = ["DEFAULT_OVERLAP_S", "KeyService", "KeysChanged", "KeysRefused", "NotPublishedYet"]

_log = logging.getLogger("batonpass.actors.keys")

DEFAULT_OVERLAP_S: Final = 86_400.0
"""A day: far more than directories are cached and messages live for, and time to notice that something went wrong."""

MAX_WAIT_S: Final = 3600.0


class NotPublishedYet(Exception):
    """The new keys are kept and will be used as soon as the directory has taken them; it cannot be reached now."""


class KeysChanged(Exception):
    """The keys are not of the version that was to be replaced, nor of the next one; it has the present version."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the keys are of version {version}")
        self.version: Final = version


class KeysRefused(Exception):
    """The directory does not take the new keys: another has changed those of this name."""


class KeyService:
    """The keys kept in `store`, of the server called `name`, and the identity in force.

    Serve it; `identity` is what to sign and open with at any moment. With `rotate_every_s`, keys of that age are
    replaced; the old ones overlap for a day, or as long as that if it is shorter.

    Raises KeyFileError when the keys cannot be used, ValueError for a `rotate_every_s` below `MIN_ROTATION_S`.
    """

    def __init__(self, name: str, store: KeyStore, clock: Clock, *, rotate_every_s: float = math.inf) -> None:
        if rotate_every_s < MIN_ROTATION_S:
            raise ValueError(f"keys are rotated every {MIN_ROTATION_S:.0f} s at most, not every {rotate_every_s} s")
        self._rotate_every_s: Final = rotate_every_s
        self._not_before_s = -math.inf
        self.name: Final = name
        self._store: Final = store
        self._clock: Final = clock
        self._ring = store.claim(name)
        self._identity = self._ring.identity.valid_at(clock.unix_s())
        self._published_version = 0
        self._refusal: KeysRefused | None = None
        self._users: list[Callable[[Identity], object]] = []
        self._lock: Final = trio.Lock()
        self._work = trio.Event()
        self._done = trio.Event()

    @property
    def identity(self) -> Identity:
        """The keys to sign with and to open with, now."""
        return self._identity

    @property
    def ring(self) -> KeyRing:
        """The keys that are kept, their version, and the statements that lead to them."""
        return self._ring

    @property
    def is_published(self) -> bool:
        """Whether the directory has the newest keys."""
        return self._published_version == self._ring.version

    def use(self, user: Callable[[Identity], object]) -> None:
        """Call `user` with the identity whenever it becomes another; it must not raise."""
        self._users.append(user)

    async def rotate(
        self, overlap_s: float = DEFAULT_OVERLAP_S, *, version: int | None = None, timeout_s: float = 10.0
    ) -> KeyRing:
        """Sign with new keys; the old ones are good for `overlap_s` more. Returns when the directory has them.

        With `version`, keys of that version are replaced, and if those are of the next one, that was done already.

        Raises:
            KeysChanged: the keys are of another version than these two.
            ValueError: too many generations overlap already.
            NotPublishedYet: after `timeout_s`; it continues by itself.
            KeysRefused: the directory has other keys for this name.
        """
        now_s = self._clock.unix_s()

        def change() -> KeyRing:
            if version is not None and self._ring.version == version + 1:
                return self._ring
            if version is not None and self._ring.version != version:
                raise KeysChanged(self._ring.version)
            return self._store.rotate(self.name, now_s=now_s, overlap_s=overlap_s)

        return await self._change(change, timeout_s)

    async def revoke(self, kid: str, *, timeout_s: float = 10.0) -> KeyRing:
        """Revoke the generation of the key `kid` for ever, at once on this side; new keys take the place of current.

        Raises KeyError when it is neither current nor retiring, and otherwise as `rotate`.
        """
        now_s = self._clock.unix_s()
        return await self._change(lambda: self._store.revoke(self.name, kid, now_s=now_s), timeout_s)

    async def serve(
        self,
        publish: Callable[[Published], Awaitable[Published]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Publish the keys, then whatever becomes of them, and let go of those whose overlap is over; until cancelled.

        `publish` returns what the directory then shows, once it does, and raises KeysRefused when it never will.
        Started when the keys were published for the first time; raises KeysRefused when that was refused.
        """
        await self._publish(publish)
        task_status.started()
        while True:
            self._work = trio.Event()
            if not self.is_published and self._refusal is None:
                try:
                    await self._publish(publish)
                except KeysRefused as error:
                    _log.critical("%s keeps the keys it had: %s", self.name, error)
                    self._refusal = error
                self._tell()
                continue
            with trio.move_on_after(self._until_next_change_s()):
                await self._work.wait()
            self._rotate_when_due()
            self._take(self._identity.valid_at(self._clock.unix_s()))

    async def _change(self, change: Callable[[], KeyRing], timeout_s: float) -> KeyRing:
        async with self._lock:
            ring = change()
            if ring is not self._ring:
                self._take(self._before_publishing(ring.identity))
            self._ring, self._refusal = ring, None
            self._work.set()
            with trio.move_on_after(timeout_s):
                while not self.is_published and self._refusal is None:
                    await self._done.wait()
            if self._refusal is not None:
                raise self._refusal
            if not self.is_published:
                raise NotPublishedYet(f"version {ring.version} of the keys of {self.name} is not in the directory yet")
            return ring

    def _before_publishing(self, new: Identity) -> Identity:
        """The new keys open messages already; those that the directory has keep signing, unless they are revoked."""
        old_kid = self._identity.public.signing_kid
        if old_kid == new.public.signing_kid or old_kid in new.public.revoked:
            return new
        return new.led_by(old_kid, expires_at_s=round(self._clock.unix_s() + 10 * DEFAULT_OVERLAP_S))

    async def _publish(self, publish: Callable[[Published], Awaitable[Published]]) -> None:
        ring = self._ring
        shown = await publish(ring.published)
        if ring is not self._ring:
            return  # they have changed meanwhile: what is in force now is published next
        if shown.version != ring.version:
            try:
                self._ring = ring = self._store.adopt(shown)
            except ValueError as error:
                raise KeysRefused(str(error)) from error
            _log.warning("%s: its keys are version %d in the directory: an operator set them", self.name, ring.version)
        self._published_version = ring.version
        self._take(ring.identity.valid_at(self._clock.unix_s()))

    def _take(self, identity: Identity) -> None:
        if identity is self._identity:
            return
        self._identity = identity
        for user in self._users:
            user(identity)

    def _tell(self) -> None:
        done, self._done = self._done, trio.Event()
        done.set()

    def _rotate_when_due(self) -> None:
        """Begin a rotation if the keys are old enough, and no other change of them is under way; it is published by the
        caller.
        """
        now_s = self._clock.unix_s()
        if now_s < self._due_at_s() or not self.is_published or self._lock.locked():
            return
        overlap_s = min(DEFAULT_OVERLAP_S, self._rotate_every_s)
        try:
            ring = self._store.rotate(self.name, now_s=now_s, overlap_s=overlap_s)
        except (KeyFileError, OSError, ValueError) as error:
            self._not_before_s = now_s + MIN_ROTATION_S
            _log.error("%s keeps its keys, though they are old: %s", self.name, error)
            return
        _log.info("%s has keys of version %d: the ones before were old enough", self.name, ring.version)
        self._ring, self._refusal = ring, None
        self._take(self._before_publishing(ring.identity))

    def _due_at_s(self) -> float:
        if self._rotate_every_s == math.inf:
            return math.inf
        try:
            made_at_s = self._store.made_at_s(self._ring)
        except KeyFileError as error:
            _log.error("%s keeps its keys, however old: %s", self.name, error)
            return math.inf
        return max(made_at_s + self._rotate_every_s, self._not_before_s)

    def _until_next_change_s(self) -> float:
        ends = [one.expires_at_s for one in self._identity.retiring]
        soonest_s = min(min(ends, default=math.inf), self._due_at_s())
        return min(max(soonest_s - self._clock.unix_s(), 0.1), MAX_WAIT_S)
