"""An operator gives a server new keys: nothing keeps him out, and whoever hears of it late is not misled."""

from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.errors import Refused
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust.key_pinning import published
from batonpass.crypto.continuity import MAX_OWN_VERSION, Published, Statement, sign_again, sign_reset, sign_successor
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.public_keys import MAX_REVOKED
from batonpass.homeserver.config import PeerConfig
from batonpass.homeserver.names import federation as federation_module
from batonpass.homeserver.server.main import run as run_homeserver
from tests.homeserver.names.test_keys import always, operator_of
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until

NAME = "alpha.s9"


class Rogue(Server):
    """A server, or whoever has its keys, that publishes whatever it likes."""

    def __init__(self, home: Home, name: str = NAME) -> None:
        super().__init__(home, name)
        self.identity = self.sealer.identity
        self.shown = Published(1, self.identity.public)

    def next(self, keys: PublicIdentity, fresh: Identity | None = None) -> Published:
        """Sign the next version, and go on from it."""
        now_s = self.home.clock.unix_s()
        token = sign_successor(self.name, self.shown, keys, signer=self.identity.generations[0], now_s=now_s)
        self.shown = Published(self.shown.version + 1, keys, (*self.shown.statements, token)[-16:])
        self.identity = fresh or self.identity
        return self.shown

    def revoke(self) -> None:
        fresh = Identity.generate()
        changed = self.identity.without(self.identity.public.signing_kid, now_s=self.home.clock.unix_s(), fresh=fresh)
        self.next(changed.public, changed)

    def body(self, shown: Published) -> dict[str, Any]:
        more: dict[str, Any] = {"version": shown.version, "statements": list(shown.statements)}
        return self.registration(signer=self.identity, keys=shown.keys.to_jwks(), **more)


async def reset(home: Home, name: str, keys: PublicIdentity) -> dict[str, Any]:
    body = {"keys": keys.to_jwks()["keys"], "reason": "robbed"}
    row: dict[str, Any] = await home.api.do("POST", f"/v1/directory/{name}/reset", body, headers=operator_of(home))
    return row


async def test_a_server_that_has_revoked_all_it_can_is_reset(alpha: Home) -> None:
    rogue, route = Rogue(alpha), ("PUT", f"/v1/servers/{NAME}")
    await alpha.api.do(*route, rogue.body(rogue.shown))
    for turn in range(1, MAX_REVOKED // 2 + 1):
        rogue.revoke()
        if turn % 16 == 0:
            await alpha.api.do(*route, rogue.body(rogue.shown))
    new = Identity.generate()
    row = await reset(alpha, NAME, new.public)
    assert {entry["kid"] for entry in row["keys"]["revoked"]} == rogue.identity.public.kids
    rogue.revoke = lambda: None  # type: ignore[method-assign]
    await alpha.api.refused(409, "key_conflict", *route, rogue.body(rogue.shown))


async def test_a_server_revokes_nothing_that_it_never_had(alpha: Home) -> None:
    rogue, route = Rogue(alpha), ("PUT", f"/v1/servers/{NAME}")
    await alpha.api.do(*route, rogue.body(rogue.shown))
    mine, others = Identity.generate(), Identity.generate().public.kids
    keys = PublicIdentity(mine.public.signing, mine.public.agreement, (), dict.fromkeys(others, 1))
    await alpha.api.refused(409, "key_conflict", *route, rogue.body(rogue.next(keys, mine)))


async def test_a_first_row_that_nobody_could_follow_is_not_entered(alpha: Home) -> None:
    rogue, route = Rogue(alpha), ("PUT", f"/v1/servers/{NAME}")
    keys = rogue.identity.public
    fake = Statement(NAME, MAX_OWN_VERSION + 1, keys.digest, keys.signing, "0" * 64, 0, "because")
    highest = sign_again(fake, signer=rogue.identity, signer_id="alpha.h1")
    for version, statements in ((2, ()), (2, ("nonsense",)), (MAX_OWN_VERSION + 1, (highest,))):
        await alpha.api.refused(409, "key_conflict", *route, rogue.body(Published(version, keys, statements)))


async def test_a_row_that_is_not_sound_is_reset_all_the_same(alpha: Home) -> None:
    """One that an earlier version of this program let in."""
    thief, new = Identity.generate().public, Identity.generate().public
    row = DirectoryRow(name=NAME, role=Role.SIMSERVER, keys=thief.to_jwks(), version=2, statements=("nonsense",))
    await alpha.node.store.submit("directory.register", row=row.to_data(), follows=None)
    assert (await reset(alpha, NAME, new))["version"] == 3
    assert alpha.node.federation.pins.accept(await _row(alpha, NAME), now_s=0.0).kids == new.kids


async def test_a_server_that_changes_its_keys_all_the_time_does_not_keep_its_operator_out(alpha: Home) -> None:
    rogue, route = Rogue(alpha), ("PUT", f"/v1/servers/{NAME}")
    await alpha.api.do(*route, rogue.body(rogue.shown))
    answers: list[int] = []
    is_over = False

    async def publish() -> None:
        while not is_over:
            fresh = Identity.generate()
            answer = await alpha.api.call(*route, rogue.body(rogue.next(fresh.public, fresh)))
            answers.append(answer.status_code)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(publish)
        await until(lambda: answers.count(200) >= 3)
        new = Identity.generate().public
        try:
            assert (await reset(alpha, NAME, new))["version"] > 3
        finally:
            is_over = True
    assert PublicIdentity.from_jwks_untrusted((await _row(alpha, NAME)).keys).kids == new.kids


async def test_a_member_whose_copy_is_of_before_a_reset_lets_in_whoever_was_reset(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was started from a snapshot; what it refused then, a server took for its end."""
    before, after = Rogue(alpha), Rogue(alpha)
    await before.register()
    old = await _row(alpha, NAME)
    await reset(alpha, NAME, after.identity.public)
    store, asked = alpha.node.store, list[str]()
    find, fresh = store.find_row, store.fresh

    async def find_behind(name: str) -> DirectoryRow | None:
        return await find(name) if "fresh" in asked else old

    async def catch_up() -> None:
        await fresh()
        asked.append("fresh")

    monkeypatch.setattr(store, "find_row", find_behind)
    monkeypatch.setattr(store, "fresh", catch_up)
    assert (await after.register())["version"] == 2
    asked.clear()
    route = ("PUT", f"/v1/servers/{NAME}")
    await alpha.api.refused(409, "key_conflict", *route, before.registration())
    assert asked == ["fresh"], "refused by what it is now"


async def test_a_homeserver_with_other_keys_than_its_directory_has_says_so_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose directory was lost."""
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        async with served(config):
            pass
        kept = [path for path in config.directory.rglob("*") if "keys" in path.name]
        assert kept, sorted(config.directory.rglob("*"))
        for path in kept:
            path.rename(path.with_name("moved-away"))
        with trio.fail_after(60), pytest.raises(Refused) as refused:
            await run_homeserver(config)
    assert "baton keys reset alpha.h1" in str(refused.value)
    assert not [record for record in caplog.records if record.exc_info], "nothing failed; it was refused"


async def _row(home: Home, name: str) -> DirectoryRow:
    row = await home.node.store.newer_row(name)
    assert row is not None
    return row


async def test_a_simulation_server_follows_a_reset_also_after_its_homeserver_has_other_keys(
    alpha: Home,
) -> None:
    home = (await alpha.simserver("alpha.s1")).home
    rogue, other = Rogue(alpha), Rogue(alpha, "alpha.s8")
    await rogue.register()
    await other.register()
    assert await home.keys_of(NAME) == rogue.identity.public
    assert await home.keys_of("alpha.s8") == other.identity.public
    new = Identity.generate().public
    await reset(alpha, NAME, new)
    await reset(alpha, "alpha.s8", new)
    seen = await home.keys_of(NAME, max_age_ns=0)
    assert seen is not None
    assert seen.kids == new.kids
    await alpha.api.do("POST", "/v1/keys/rotate", {"overlap_s": 60}, headers=operator_of(alpha))
    seen = await home.keys_of("alpha.s8", max_age_ns=0)
    assert seen is not None
    assert seen.kids == new.kids
    assert home.pins.counts["keys_reset"] == 2
    assert not home.pins.conflicts


async def test_other_instances_follow_a_reset_late_and_do_not_believe_the_thief_of_a_former_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thief answers for the directory as well, and knows the federation secret."""
    monkeypatch.setattr(federation_module, "FRESH_NS", 0)
    monkeypatch.setattr(federation_module, "ROW_TTL_NS", 0)
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        async with served(near) as alpha, served(far) as beta:
            stolen = beta.node.sealer.identity
            first, second = Rogue(beta, "beta.s1"), Rogue(beta, "beta.s2")
            await first.register()
            await second.register()
            look = alpha.node.directory
            for rogue in (first, second):
                assert await look.keys_of(rogue.name) == rogue.identity.public
            assert await look.keys_of("beta.h1") == stolen.public

            new = Identity.generate().public
            await reset(beta, "beta.s1", new)
            await beta.api.do("POST", "/v1/keys/rotate", {"overlap_s": 60}, headers=operator_of(beta))
            alpha.clock.ahead_s = beta.clock.ahead_s = 61.0

            # Alpha has pinned the key that was stolen, and has not looked since.
            row, thief = await _row(beta, "beta.s2"), Identity.generate().public
            token = sign_reset(
                "beta.s2", published(row), thief, signer=stolen, signer_id="beta.h1", now_s=1, reason="a lie"
            )
            lie = row.changed(keys=thief.to_jwks(), version=2, statements=(token,))
            true_rows = beta.node.store.find_row

            async def lying(name: str) -> DirectoryRow | None:
                return lie if name == "beta.s2" else await true_rows(name)

            beta.node.key_reset.shown = lambda row, now_s: row  # type: ignore[method-assign]
            beta.node.store.find_row = lying  # type: ignore[method-assign]
            assert await look.keys_of("beta.s2") == second.identity.public
            why = (await alpha.api.get("/v1/keys"))["conflicts"]["beta.s2"]
            assert "ended 1 s ago" in why or "replaced by" in why
            # Nor if the homeserver's own row is kept back: what it shows then does not follow on the one before.
            beta.node.store.find_row = always(lie)  # type: ignore[method-assign]
            assert await look.keys_of("beta.s2") == second.identity.public

            # The true reset, long after the key it was signed with has ended.
            del beta.node.key_reset.shown, beta.node.store.find_row
            seen = await look.keys_of("beta.s1")
            assert seen is not None
            assert seen.kids == new.kids
