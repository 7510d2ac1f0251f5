"""Who leaves directly: alone at once, with others in company."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.trust.certificates import PassCertificate
from batonpass.authority.wire.transfer import DirectHandoff
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source import pass_signing as passes
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import DepartureLimits
from tests.simserver.stage import ADA, BALL
from tests.simserver.transfer.source.test_departures import HERE, IDENTITY, THERE, Scene

PLAN = DeparturePlan("transfer-1", BALL, THERE, direct=True)


@pytest.fixture
def scene(system: System, autojump_clock: MockClock) -> Scene:
    return Scene(system)


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


def hears_what_is_signed(scene: Scene) -> list[tuple[Any, ...]]:
    """As the readers of certificates on this server."""
    told: list[tuple[Any, ...]] = []
    reader: Any = SimpleNamespace(signed=lambda *signed: told.append(signed))
    scene.ports = replace(scene.ports, certificates=reader)
    scene.limit(DepartureLimits())
    return told


async def turn() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_who_leaves_alone_is_signed_sealed_and_sent_with_the_freeze(scene: Scene) -> None:
    told = hears_what_is_signed(scene)
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        assert (holding.life.frozen, scene.departures.is_leaving(BALL)) == (True, True)
        # Whoever reads certificates here knows it when it comes back, and the chain that it goes on from.
        assert [(token, before) for token, _, _, _, before in told] == [(sent(scene).chain[-1], holding.chain)]
        # Repeated, it is sealed anew, with the same pass.
        await trio.sleep(1)
        first, second, *_ = [message for _, message in scene.mail.sent if isinstance(message, DirectHandoff)]
        assert first.chain == second.chain


async def test_what_comes_after_the_freeze_goes_with_it_later(scene: Scene) -> None:
    holding = await delegated(scene)
    async with scene.served():
        scene.departures.begin(PLAN)
        holding.life.take_input(ADA, 1, 1, b"late")
        assert sent(scene).state_hash == scene.stage.custody.to_data()[0]["ended_hash"]
        assert [item.seq for item in holding.life.take_journal()] == [1]


async def test_who_leaves_while_others_do_shares_a_signature_instead(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        await delegated(scene, f"alpha.{name}")
    async with scene.served():
        for name in "abc":
            # However slow the machine is, the one before has left a moment ago.
            monkeypatch.setattr(passes, "_QUIET_NS", 0 if name == "a" else 2**62)
            scene.departures.begin(DeparturePlan(f"transfer-{name}", f"alpha.{name}", THERE, direct=True))
        assert [message.entity for _, message in scene.mail.sent] == ["alpha.a"]
        await turn()
        tokens = {message.entity: message.chain[-1].partition("~")[0] for _, message in scene.mail.sent}
        assert (set(tokens), len(set(tokens.values()))) == ({"alpha.a", "alpha.b", "alpha.c"}, 2)


async def test_a_pass_is_signed_with_the_key_that_is_good_when_it_leaves(scene: Scene) -> None:
    told = hears_what_is_signed(scene)
    await delegated(scene)
    fresh = IDENTITY.without(IDENTITY.public.signing_kid, now_s=1.0, fresh=Identity.generate())
    scene.departures._sealer.change_identity(fresh)
    async with scene.served():
        scene.departures.begin(PLAN)
    ((token, _signer, kid, _said, _before),) = told
    assert jose.peek_key_untrusted(token) == kid == fresh.public.signing_kid
