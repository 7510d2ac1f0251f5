"""How a running server comes to use other keys: in three steps, whatever fails in between."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.clock import Clock
from actors.key_service import KeyService, KeysRefused, NotPublishedYet
from crypto.continuity import Published, sign_reset
from crypto.key_store import KeyStore
from crypto.keys import Identity

NOW_S = 1_700_000_000.0


class TrioClock(Clock):
    def unix_s(self) -> float:
        return NOW_S + trio.current_time()


class Shelf:
    """A directory that keeps what it is shown, unless it is away, unwilling, or somebody else has written on it."""

    def __init__(self) -> None:
        self.shown: list[Published] = []
        self.is_away = trio.Event()
        self.is_away.set()
        self.refuses = False
        self.answer: Callable[[Published], Published] = lambda keys: keys

    async def publish(self, keys: Published) -> Published:
        await self.is_away.wait()
        if self.refuses:
            raise KeysRefused("key_conflict")
        self.shown.append(keys)
        return self.answer(keys)


@asynccontextmanager
async def serving(
    directory: Path, publish: Callable[[Published], Awaitable[Published]]
) -> AsyncIterator[tuple[KeyService, list[Identity]]]:
    service = KeyService("alpha.s1", KeyStore(directory), TrioClock())
    used: list[Identity] = []
    service.use(used.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(service.serve, publish)
        yield service, used
        nursery.cancel_scope.cancel()


async def test_new_keys_open_are_published_and_then_sign(tmp_path: Path, autojump_clock: object) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, used):
        old = service.identity.public
        assert [one.keys for one in shelf.shown] == [old]
        signing_when_published: list[str] = []

        def look(keys: Published) -> Published:
            signing_when_published.append(service.identity.public.signing_kid)
            service.identity.agreement_key(keys.keys.agreement_kid, NOW_S)
            return keys

        shelf.answer = look
        ring = await service.rotate(60.0)
        assert signing_when_published == [old.signing_kid]
        assert shelf.shown[-1] == ring.published
        assert [one.public.signing_kid for one in used] == [old.signing_kid, ring.identity.public.signing_kid]
        await trio.sleep(59)
        assert service.identity.retiring
        await trio.sleep(2)
        assert not service.identity.retiring


async def test_while_the_directory_is_away_the_old_keys_sign_and_then_the_new(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        old = service.identity.public.signing_kid
        shelf.is_away = trio.Event()
        with pytest.raises(NotPublishedYet, match="version 2"):
            await service.rotate(3600.0)
        assert (service.identity.public.signing_kid, service.is_published) == (old, False)
        shelf.is_away.set()
        await trio.sleep(1)
        assert service.is_published
        assert service.identity.public.signing_kid != old


async def test_after_a_crash_before_publishing_it_goes_on_with_the_next_start(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        shelf.is_away = trio.Event()
        with pytest.raises(NotPublishedYet):
            await service.rotate(3600.0)
        ring = service.ring
    shelf.is_away.set()
    async with serving(tmp_path, shelf.publish) as (service, _):
        assert shelf.shown[-1] == ring.published
        assert service.identity.public == ring.identity.public


async def test_a_revoked_key_is_not_used_for_another_moment(tmp_path: Path, autojump_clock: object) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        old = service.identity.public.signing_kid
        shelf.is_away = trio.Event()
        with pytest.raises(NotPublishedYet):
            await service.revoke(old)
        assert service.identity.public.signing_kid != old
        assert old in service.identity.public.revoked
        with pytest.raises(KeyError):
            await service.revoke(old)


async def test_refused_keys_do_not_sign(tmp_path: Path, autojump_clock: object) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        old = service.identity.public.signing_kid
        shelf.refuses = True
        with pytest.raises(KeysRefused):
            await service.rotate(60.0)
        assert service.identity.public.signing_kid == old
    with pytest.RaisesGroup(KeysRefused):
        async with serving(tmp_path, shelf.publish):
            pass


async def test_changes_one_after_the_other_each_get_their_turn(tmp_path: Path, autojump_clock: object) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(service.rotate, 60.0)
        assert [one.version for one in shelf.shown] == [1, 2, 3, 4]
        with pytest.raises(ValueError, match="rotate again in"):
            await service.rotate(60.0)


async def test_what_an_operator_has_set_is_gone_on_from(tmp_path: Path, autojump_clock: object) -> None:
    home, lost = Identity.generate(), Identity.generate()
    shelf = Shelf()

    def reset(keys: Published) -> Published:
        revoked = lost.rotated(Identity.generate(), now_s=NOW_S, overlap_s=1).without(
            lost.public.signing_kid, now_s=NOW_S
        )
        new = replace(keys.keys, revoked=revoked.public.revoked)
        old = Published(1, lost.public)
        token = sign_reset("alpha.s1", old, new, signer=home, signer_id="alpha.h1", now_s=NOW_S, reason="lost")
        return Published(2, new, (token,))

    shelf.answer = reset
    async with serving(tmp_path, shelf.publish) as (service, _):
        assert (service.ring.version, service.is_published) == (2, True)
        assert lost.public.signing_kid in service.identity.public.revoked
        shelf.answer = lambda keys: keys
        assert (await service.rotate(60.0)).version == 3
        shelf.answer = lambda keys: Published(9, lost.public, keys.statements)
        with pytest.raises(KeysRefused, match="is kept here"):
            await service.rotate(60.0)
