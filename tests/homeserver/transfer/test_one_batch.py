"""Whatever old authorities ask about hand-overs is answered by one step of the log, also what came by a chain."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Decline, HandoffAbort, Message, Report
from tests.authority.log import BALL, FAR, OTHER, S1, S2, S3
from tests.homeserver.batched import (
    THIRD,
    Home,
    alone,
    handoff,
    log_of_three,
    opened,
    passed_to_and_fro,
    report,
    together,
    told,
)


def abort(transfer_id: str, entity: str, **changes: Any) -> OpenedMessage:
    fields = {"transfer_id": transfer_id, "entity": entity, "source": S1, "target": S2, "epoch": 1, "sub": 0}
    return opened(HandoffAbort.model_validate(fields | {"reason": "target_failed"} | changes))


def decline(transfer_id: str, entity: str) -> OpenedMessage:
    fields = {"transfer_id": transfer_id, "entity": entity, "source": S1, "target": S2, "reason": "busy"}
    return opened(Decline.model_validate(fields))


def handed_on(home: Home, entity: str, *, breaks: bool = False, source: str = S1) -> OpenedMessage:
    """The request to hand over what came by two direct passes; a chain that `breaks` lacks the first of them."""
    passed = passed_to_and_fro(home, entity, 2)[1].message
    assert isinstance(passed, Report)
    chain = passed.chain
    number = {BALL: 1, OTHER: 2, THIRD: 3}[entity]
    chain = [chain[0], chain[2]] if breaks else chain
    return handoff(f"t-00000{number}", entity, S3, source=source, sub=2, chain=chain)


async def test_what_is_handed_over_given_up_declined_and_reported_is_one_step() -> None:
    home = Home(log_of_three())
    home.kept.log.run("transfer.propose", transfer_id="t-000003", entity=THIRD, target=S2, requester="")
    messages = [handoff("t-000001"), abort("t-000002", OTHER), decline("t-000003", THIRD), report("t-000001")]
    answers = await together(home, messages)
    assert home.kept.submitted == ["transfer.each"]
    assert [answer.type for answer in answers] == ["no_answer", "handoff_reply", "report_reply", "report_reply"]
    assert answers[1].outcome == "refused"


async def test_what_came_by_chains_is_in_the_same_step_as_the_rest() -> None:
    home = Home(log_of_three())
    messages = [handed_on(home, BALL), handed_on(home, OTHER), handoff("t-000003", THIRD)]
    assert [answer.why for answer in await together(home, messages)] == ["elsewhere"] * 3
    assert home.kept.submitted == ["transfer.each"]
    assert [home.kept.log.rows.entity(name).authority for name in (BALL, OTHER, THIRD)] == [S3, S3, S2]


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_chain_comes_to_the_same_alone_and_together(breaks: bool) -> None:
    answers: list[list[dict[str, Any]]] = []
    rows = []
    for how in (alone, together):
        home = Home(log_of_three())
        messages = [handed_on(home, BALL, breaks=breaks), handoff("t-000003", THIRD)]
        answers.append([told(answer) for answer in await how(home, messages)])
        rows.append({name: home.kept.log.rows.entity(name).authority for name in (BALL, THIRD)})
    assert answers[0] == answers[1]
    assert rows[0] == rows[1] == {BALL: S1 if breaks else S3, THIRD: S2}
    assert answers[0][0].get("reason", "") == ("no_delegation" if breaks else "")


async def test_where_others_have_to_be_asked_who_signed_a_chain_the_rest_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, silent = Home(log_of_three()), trio.Event()
    chained = handed_on(home, BALL, source=FAR)
    signer = home.directory.signer

    async def slow(name: str, kid: str) -> Any:
        await trio.testing.wait_all_tasks_blocked()
        assert home.kept.log.rows.entity(OTHER).authority == S2, "it has gone already"
        silent.set()
        return await signer(name, kid)

    monkeypatch.setattr(home.directory, "signer", slow)
    answers: list[Message] = await together(home, [chained, handoff("t-000002", OTHER), handoff("t-000003", THIRD)])
    assert silent.is_set()
    assert home.kept.submitted[0] == "transfer.each"
    assert len(answers) == 3
