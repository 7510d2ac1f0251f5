"""An error of ours in the link to one peer ends that link, which begins again, and nothing of the others'."""

from __future__ import annotations

from typing import Any

import pytest

from batonpass.actors.link import Event, LinkExpired
from batonpass.crypto.keys import Identity
from tests.actors.net.test_endpoint import ALPHA, BETA, Directory, receive, serving, until

GAMMA = Identity.generate()
KEYS = {"alpha.s1": ALPHA.public, "beta.s1": BETA.public, "gamma.s1": GAMMA.public}


class Fault(Exception):
    """What should never have been raised."""


@pytest.mark.parametrize(
    "step",
    [
        "receive_data",
        "take",
        "has_data",
        "has_work",
        "is_unsettled",
        "next_timer",
        "datagrams_to_send",
        "next_event",
        "be_ready",
    ],
)
async def test_an_error_in_any_step_of_one_link_ends_that_link_alone(step: str) -> None:
    async with (
        serving("alpha.s1", ALPHA, Directory(KEYS)) as alpha,
        serving("beta.s1", BETA, Directory(KEYS)) as beta,
        serving("gamma.s1", GAMMA, Directory(KEYS)) as gamma,
    ):
        news: list[tuple[str, Event]] = []
        alpha.listen(lambda peer, event: news.append((peer, event)))
        for peer in (beta, gamma):
            await peer.send("alpha.s1", alpha.address, b"hello")
            assert (await receive(alpha)).peer == peer.name

        def fail(*_: Any, **__: Any) -> Any:
            raise Fault

        faulty = alpha._links["beta.s1"]
        setattr(faulty, step, fail)
        beta.post("alpha.s1", alpha.address, b"is met by the fault, or its acknowledgement is")
        while alpha._links.get("beta.s1") is faulty:
            gamma.post("alpha.s1", alpha.address, b"others")
            assert (await receive(alpha)).message != b"hello"
        assert alpha.stats["internal_errors"] == 1
        assert ("beta.s1", LinkExpired(0)) in news
        assert ("gamma.s1", LinkExpired(0)) not in news
        await gamma.send("alpha.s1", alpha.address, b"still here")
        await beta.send("alpha.s1", alpha.address, b"again")
        heard = {b""}
        while not {b"still here", b"again"} <= heard:
            heard.add((await receive(alpha)).message)
        assert alpha.is_serving


async def test_an_error_in_the_hello_of_a_stranger_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving("alpha.s1", ALPHA, Directory(KEYS)) as alpha,
        serving("beta.s1", BETA, Directory(KEYS)) as beta,
        serving("gamma.s1", GAMMA, Directory(KEYS)) as gamma,
    ):
        await gamma.send("alpha.s1", alpha.address, b"hello")
        assert (await receive(alpha)).peer == "gamma.s1"

        def fail(*_: Any) -> Any:
            raise Fault

        with monkeypatch.context() as patched:
            patched.setattr(alpha._admission, "on_hello", fail)
            beta.post("alpha.s1", alpha.address, b"let me in")
            await until(lambda: alpha.stats.get("internal_errors", 0) > 0)
            await gamma.send("alpha.s1", alpha.address, b"still here")
            assert (await receive(alpha)).message == b"still here"
        assert (await receive(alpha)).message == b"let me in", "its HELLO comes again"


async def test_an_error_with_the_keys_of_one_peer_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving("alpha.s1", ALPHA, Directory(KEYS)) as alpha,
        serving("beta.s1", BETA, Directory(KEYS)) as beta,
        serving("gamma.s1", GAMMA, Directory(KEYS)) as gamma,
    ):

        def fail(*_: Any) -> Any:
            raise Fault

        with monkeypatch.context() as patched:
            patched.setattr(alpha._peer_keys, "_on_keys", fail)
            beta.post("alpha.s1", alpha.address, b"let me in")
            await until(lambda: alpha.stats.get("internal_errors", 0) > 0)
        await gamma.send("alpha.s1", alpha.address, b"still here")
        heard = {b""}
        while not {b"still here", b"let me in"} <= heard:
            heard.add((await receive(alpha)).message)
