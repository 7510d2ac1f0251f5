"""How long until the instance accepts a write again: asked of all members at once, again and again."""

import secrets
from typing import Final

import trio

from batonpass.scenarios.chaos.instance import PATIENCE_S, Instance, NotInTime
from batonpass.scenarios.chaos.link import MemberGone, MemberSilent, NotAccepted
from batonpass.scenarios.chaos.member import ROOT_NAME

__all__ = ["next_accepted_write"]

_GROUP: Final = "probe"
_RETRY_S: Final = 0.005


async def next_accepted_write(instance: Instance) -> float:
    """Wait until any member accepts a write that is submitted from now on; the time (of trio's clock) of that.

    Raises:
        NotInTime: none did.
    """
    accepted_at: list[float] = []
    client = f"probe/{secrets.token_hex(8)}"

    async def probe(name: str, everybody: trio.CancelScope) -> None:
        arguments = {"path": [ROOT_NAME, _GROUP, name], "value": client}
        while True:
            try:
                await instance.ask(
                    name,
                    "submit",
                    within_s=PATIENCE_S,
                    procedure="chaos.write",
                    args=arguments,
                    command_id=[f"{client}/{name}", 0],
                    timeout_s=PATIENCE_S,
                )
            except (MemberGone, MemberSilent, NotAccepted):
                await trio.sleep(_RETRY_S)
                continue
            accepted_at.append(trio.current_time())
            everybody.cancel()

    with trio.move_on_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for name in instance.names:
                nursery.start_soon(probe, name, nursery.cancel_scope)
    if not accepted_at:
        raise NotInTime(f"no member accepted a write within {PATIENCE_S:g} s")
    return accepted_at[0]
