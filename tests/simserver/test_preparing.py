"""Who leaves alone and directly has signed and sealed before it stands still, if nothing happened to it since."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import System
from authority.certificates import PassCertificate
from authority.epoch import Fence
from authority.messages import DirectHandoff
from authority.ownership import Ownership
from crypto import jose
from crypto.keys import Identity
from simserver import passes
from simserver.departing import Plan
from simserver.holdings import Holding
from tests.simserver.stage import ADA, BALL
from tests.simserver.test_departures import HERE, IDENTITY, THERE, Scene

PLAN = Plan("transfer-1", BALL, THERE, direct=True)


@pytest.fixture
def scene(system: System, autojump_clock: MockClock) -> Scene:
    scene = Scene(system)
    scene.mail.is_near = True
    return scene


async def delegated(scene: Scene, entity: str = BALL) -> Holding:
    """An entity that may be passed on, and nobody was passed lately."""
    await trio.sleep(2 * passes._QUIET_NS / 1e9)
    holding = scene.holdings.spawn(entity, "ball", {}, Fence(1), Ownership(ADA, 1))
    holding.delegated(("grant",), (HERE, THERE), holding.fence)
    return holding


def sent(scene: Scene) -> DirectHandoff:
    (message,) = [message for _, message in scene.mail.sent if isinstance(message, DirectHandoff)]
    said = PassCertificate.from_claims_untrusted(jose.verify_untrusted(message.chain[-1], sender=IDENTITY.public))
    assert (said.tick, said.state_hash, said.fence) == (message.tick, message.state_hash, message.fence)
    return message


async def turn() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_it_is_simulated_until_all_is_signed_and_sealed_and_that_leaves_with_the_freeze(scene: Scene) -> None:
    told: list[tuple[Any, ...]] = []
    scene.departures.passes.signed = lambda *signed: told.append(signed)
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        assert (holding.life.frozen, len(scene.mail.ahead), scene.mail.sent, told) == (False, 1, [], [])
        assert scene.departures.is_under_way(BALL)
        await turn()
        assert (holding.life.frozen, scene.departures.is_leaving(BALL)) == (True, True)
        assert scene.mail.left == scene.mail.ahead == [sent(scene)]
        assert [token for token, *_ in told] == [sent(scene).chain[-1]]
        # Repeated, it is sealed anew, with the same pass.
        await trio.sleep(1)
        (_, first), (_, second), *_ = [one for one in scene.mail.sent if isinstance(one[1], DirectHandoff)]
        assert (scene.mail.left[1], first.chain) == (None, second.chain)


async def test_what_happens_to_it_meanwhile_goes_with_it(scene: Scene) -> None:
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        holding.life.take_input(ADA, 1, 1, b"late")
        before = scene.mail.ahead[0].state_hash
        await turn()
        assert (scene.mail.left, sent(scene).state_hash == before) == ([None], False)
        assert sent(scene).state_hash == scene.stage.custody.to_data()[0]["ended_hash"]


@pytest.mark.parametrize("is_of_use", [True, False])
async def test_the_trace_says_when_its_preparation_began(scene: Scene, is_of_use: bool) -> None:
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        if not is_of_use:
            holding.life.take_input(ADA, 1, 1, b"late")
        await turn()
    preparing, frozen = (scene.mail.traces[0].at(label) for label in ("preparing", "frozen"))
    assert preparing is not None
    assert frozen is not None
    assert (preparing < frozen, scene.mail.left[0] is not None) == (True, is_of_use)


async def test_another_grant_that_comes_meanwhile_is_passed_on(scene: Scene) -> None:
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        holding.delegated(("renewed",), (HERE, THERE), holding.fence)
        await turn()
        assert (scene.mail.left, sent(scene).chain[0]) == ([None], "renewed")


async def test_who_has_left_meanwhile_is_not_handed_over(scene: Scene) -> None:
    await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        scene.holdings.drop(BALL)
        await turn()
        assert (scene.mail.sent, scene.departures.is_under_way(BALL)) == ([], False)


async def test_who_leaves_while_others_do_shares_a_signature_instead(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        await delegated(scene, f"alpha.{name}")
    async with scene.served():
        for name in "abc":
            # However slow the machine is, the one before has left a moment ago.
            monkeypatch.setattr(passes, "_QUIET_NS", 0 if name == "a" else 2**62)
            scene.departures.begin(Plan(f"transfer-{name}", f"alpha.{name}", THERE, direct=True))
        assert len(scene.mail.ahead) == 1
        assert [entity for entity in ("alpha.a", "alpha.b", "alpha.c") if scene.departures.is_leaving(entity)] == [
            "alpha.b",
            "alpha.c",
        ]
        await turn()
        tokens = {message.entity: message.chain[-1].partition("~")[0] for _, message in scene.mail.sent}
        assert (set(tokens), len(set(tokens.values()))) == ({"alpha.a", "alpha.b", "alpha.c"}, 2)


async def test_what_was_signed_with_a_key_that_was_replaced_since_is_signed_again(scene: Scene) -> None:
    told: list[tuple[Any, ...]] = []
    scene.departures.passes.signed = lambda *signed: told.append(signed)
    await delegated(scene)
    fresh = IDENTITY.without(IDENTITY.public.signing_kid, now_s=1.0, fresh=Identity.generate())
    async with scene.served():
        scene.departures.begin(PLAN)
        scene.departures._sealer.change_identity(fresh)
        await turn()
    ((token, _signer, kid, _said),) = told
    assert jose.peek_key_untrusted(token) == kid == fresh.public.signing_kid
    assert (len(scene.mail.ahead), scene.mail.left) == (1, [None])


async def test_what_cannot_be_prepared_leaves_without(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    holding = await delegated(scene)
    monkeypatch.setattr(scene.mail, "seal_ahead", lambda *_: 1 / 0)
    async with scene.served():
        scene.departures.begin(PLAN)
        await turn()
        assert (holding.life.frozen, scene.mail.left) == (True, [None])
        assert scene.counts["internal_error"] == 1
        sent(scene)


async def test_while_nobody_serves_it_is_frozen_at_once_and_what_was_forgotten_can_be_ordered_again(
    scene: Scene,
) -> None:
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
    assert not holding.life.frozen
    async with scene.served():
        assert not scene.departures.is_under_way(BALL)
    scene.departures.begin(PLAN)
    assert (holding.life.frozen, len(scene.mail.ahead)) == (True, 1)
