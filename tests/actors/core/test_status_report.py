"""What the log says about a crash: as much as `format_status` allows, as briefly as a log line must be."""

from dataclasses import replace
from typing import Any

import pytest

from batonpass.actors import From, Reply, Server, ServerStatus, Stop, System
from batonpass.actors.core.status_report import NO_MESSAGE, STATUS_CHARACTERS, crash_report, formatted
from batonpass.actors.observe import sys


class Login(Server[dict[str, str]]):
    """Has something to hide."""

    def handle_cast(self, message: Any, state: dict[str, str]) -> Stop[dict[str, str]]:
        return Stop(message)

    def handle_call(self, request: Any, from_: From, state: dict[str, str]) -> Reply[dict[str, str]]:
        raise ValueError("boom")


class Discreet(Login):
    """And hides it."""

    def format_status(self, status: ServerStatus) -> ServerStatus:
        hidden = replace(status, state={**status.state, "password": "***"})
        return hidden if status.message is NO_MESSAGE else replace(hidden, message="a request")


async def crash(system: System, server: type[Server[Any]]) -> None:
    ref = await system.start(server, {"user": "ada", "password": "1815"})
    with pytest.raises(Exception, match="boom"):
        await ref.call("the request")


async def test_the_log_tells_the_last_message_and_the_state(system: System, caplog: pytest.LogCaptureFixture) -> None:
    await crash(system, Login)
    assert "its last message: 'the request'" in caplog.text
    assert "'password': '1815'" in caplog.text


async def test_format_status_keeps_secrets_out_of_the_log(system: System, caplog: pytest.LogCaptureFixture) -> None:
    await crash(system, Discreet)
    assert "its last message: 'a request'" in caplog.text
    assert "'user': 'ada'" in caplog.text
    assert "1815" not in caplog.text
    assert "the request" not in caplog.text


async def test_stopping_with_a_crash_reason_tells_the_state_too(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    ref = await system.start(Discreet, {"user": "ada", "password": "1815"})
    ref.cast("out of ink")
    assert await ref.exited() == "out of ink"
    assert "ended: 'out of ink'; its state: {'password': '***', 'user': 'ada'}" in caplog.text


@pytest.mark.parametrize("reason", ["normal", "shutdown"])
async def test_an_orderly_end_tells_nothing(system: System, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    ref = await system.start(Discreet, {})
    ref.cast(reason)
    await ref.exited()
    assert caplog.text == ""


class Broken(Login):
    def format_status(self, status: ServerStatus) -> Any:
        raise RuntimeError(f"could not hide {status.state}")


class Nonsense(Login):
    def format_status(self, status: ServerStatus) -> Any:
        return status.state


@pytest.mark.parametrize("server", [Broken(), Nonsense()])
def test_if_format_status_fails_nothing_is_shown(server: Server[Any]) -> None:
    for status in (ServerStatus("secret"), ServerStatus("secret", "secret", "secret")):
        shown = formatted(server, status)
        assert "secret" not in repr(shown)
        assert "format_status failed" in crash_report(server, status)


class Unspeakable:
    def __init__(self, text: Any) -> None:
        self.text = text

    def __repr__(self) -> Any:
        return self.text


@pytest.mark.parametrize(
    "state",
    [
        "x" * 100_000,
        [["x" * 1000] * 1000] * 1000,
        {f"key {number}" * 100: 2**5000 for number in range(1000)},
        Unspeakable("y" * 100_000),
        Unspeakable(None),
        [2**50_000],
    ],
)
def test_no_state_floods_the_log_or_breaks_it(state: Any) -> None:
    report = crash_report(Server(), ServerStatus(state, state))
    assert 20 < len(report) < 2 * STATUS_CHARACTERS + 100


def test_a_server_that_keeps_its_state_in_attributes_has_none_to_show() -> None:
    assert crash_report(Server(), ServerStatus(None)) == ""


async def test_who_looks_at_the_live_actor_sees_no_more_than_the_log(system: System) -> None:
    ref = await system.start(Discreet, {"user": "ada", "password": "1815"})
    assert sys.get_status(ref).state == {"user": "ada", "password": "***"}
