"""How a running server comes to use other keys: in three steps, whatever fails in between."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from batonpass.actors.base.clock import Clock
from batonpass.actors.net.key_service import DEFAULT_OVERLAP_S, KeysChanged, KeyService, KeysRefused, NotPublishedYet
from batonpass.crypto.continuity import Published, sign_reset
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity

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
    directory: Path, publish: Callable[[Published], Awaitable[Published]], **options: float
) -> AsyncIterator[tuple[KeyService, list[Identity]]]:
    service = KeyService("alpha.s1", KeyStore(directory), TrioClock(), **options)
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


async def test_a_rotation_of_a_named_version_may_be_repeated_and_is_done_once(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    async with serving(tmp_path, shelf.publish) as (service, _):
        shelf.is_away = trio.Event()
        with pytest.raises(NotPublishedYet):
            await service.rotate(60.0, version=1)
        shelf.is_away.set()
        rings = [await service.rotate(60.0, version=1) for _ in range(3)]
        assert {ring.version for ring in rings} == {2}
        assert (await service.rotate(60.0, version=2)).version == 3
        for version in (1, 7):
            with pytest.raises(KeysChanged) as refused:
                await service.rotate(60.0, version=version)
            assert refused.value.version == 3
        assert [one.version for one in shelf.shown] == [1, 2, 3]
        await trio.sleep(61)
        assert not service.identity.retiring
        assert (await service.rotate(60.0, version=2)).version == 3
        assert not service.identity.retiring, "keys whose overlap is over do not come back"


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


# Rotations by the server itself

MONTH_S = 30 * 86_400.0


def made_at(directory: Path, unix_s: float) -> None:
    KeyStore(directory).load_or_create()
    os.utime(directory / "signing.pem", (unix_s, unix_s))


async def test_keys_are_replaced_when_they_have_reached_their_age_and_overlap(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    made_at(tmp_path, NOW_S - MONTH_S + 1000)
    async with serving(tmp_path, shelf.publish, rotate_every_s=MONTH_S) as (service, _):
        old = service.identity.public.signing_kid
        await trio.sleep(999)
        assert service.identity.public.signing_kid == old
        await trio.sleep(2)
        assert (service.ring.version, service.is_published) == (2, True)
        assert service.identity.public.signing_kid != old
        service.identity.public.signing_key(old, NOW_S + trio.current_time())  # which is good still
        await trio.sleep(DEFAULT_OVERLAP_S)
        assert not service.identity.retiring
        await trio.sleep(MONTH_S - DEFAULT_OVERLAP_S - 10)
        assert service.ring.version == 2
        await trio.sleep(20)
        assert service.ring.version == 3
        # By hand it begins anew.
        await service.rotate(60.0)
        await trio.sleep(MONTH_S - 60)
        assert service.ring.version == 4
    async with serving(tmp_path, shelf.publish, rotate_every_s=MONTH_S) as (service, _):
        assert service.ring.version == 4
        await trio.sleep(120)
        assert service.ring.version == 5
    assert [one.version for one in shelf.shown] == [1, 2, 3, 4, 4, 5]


async def test_two_days_of_hourly_rotations_never_has_too_many_generations(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    made_at(tmp_path, NOW_S)
    async with serving(tmp_path, shelf.publish, rotate_every_s=3600.0) as (service, _):
        await trio.sleep(50 * 3600 + 60)
        assert service.ring.version == 51
        assert len(service.identity.retiring) <= 1


async def test_while_the_directory_is_away_keys_are_not_replaced_again_and_again(
    tmp_path: Path, autojump_clock: object
) -> None:
    shelf = Shelf()
    made_at(tmp_path, NOW_S)
    async with serving(tmp_path, shelf.publish, rotate_every_s=MONTH_S) as (service, _):
        old = service.identity.public.signing_kid
        shelf.is_away = trio.Event()
        await trio.sleep(2.5 * MONTH_S)
        assert (service.ring.version, service.is_published) == (2, False)
        assert service.identity.public.signing_kid == old
        shelf.is_away.set()
        await trio.sleep(7200)
        assert service.is_published
        assert service.ring.version == 3


async def test_keys_that_cannot_be_replaced_are_kept_and_tried_again(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf()
    made_at(tmp_path, NOW_S)
    tries = []

    def full(self: KeyStore, name: str, *, now_s: float, overlap_s: float) -> None:
        tries.append(now_s)
        raise KeyFileError("No space left on device")

    async with serving(tmp_path, shelf.publish, rotate_every_s=MONTH_S) as (service, _):
        with monkeypatch.context() as patch:
            patch.setattr(KeyStore, "rotate", full)
            await trio.sleep(MONTH_S + 3 * 3600 + 60)
        assert 3 <= len(tries) <= 5
        assert service.ring.version == 1
        await trio.sleep(2 * 3600)
        assert service.ring.version == 2
    assert "No space left" in caplog.text


async def test_keys_are_not_replaced_unless_asked_for_nor_too_often(tmp_path: Path, autojump_clock: object) -> None:
    shelf = Shelf()
    made_at(tmp_path, NOW_S - 1e9)
    async with serving(tmp_path, shelf.publish) as (service, _):
        await trio.sleep(MONTH_S)
        assert service.ring.version == 1
    with pytest.raises(ValueError, match="every 3600 s at most"):
        KeyService("alpha.s1", KeyStore(tmp_path), TrioClock(), rotate_every_s=60.0)
