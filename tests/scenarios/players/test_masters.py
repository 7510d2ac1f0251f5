"""A master answers by a function of the user's: once a question, in the order given, signed."""

from typing import Any, cast

import pytest

from batonpass.actors.base.clock import Clock
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.scenarios.players.masters import Master, Question
from batonpass.scenarios.players.rest_client import ApiFailure

ADA = "alpha.ada"


class At1000(Clock):
    def unix_s(self) -> float:
        return 1000.0


class Instance:
    """Questions that wait, and the answers that came; some may be lost on the way or refused."""

    def __init__(self, *waiting: str) -> None:
        self.waiting = list(waiting)
        self.answers: list[tuple[str, bool]] = []
        self.bodies: list[dict[str, Any]] = []
        self.looks: list[str] = []
        self.fails_with = ""

    async def call(self, _instance: str, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if method == "GET":
            assert path == f"/v1/players/{ADA}/asks"
            self.looks.append(params["seen"])
            fields = {"entity": "alpha.ball", "requester": "alpha.bob", "target": "alpha.s2", "stay": False}
            fields |= {"master_rev": 3}
            return [{"transfer_id": transfer_id} | fields for transfer_id in self.waiting]
        if self.fails_with:
            raise ApiFailure(self.fails_with, "not now")
        transfer_id = path.split("/")[3]
        self.answers.append((transfer_id, body["allow"]))
        self.bodies.append(body)
        self.waiting.remove(transfer_id)
        return {}


class Judge:
    """Says what it was told to say, and counts how often it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, question: Question) -> Any:
        self.asked.append(question.transfer_id)
        return self.answers[question.transfer_id]


def master(instance: Instance, judge: Judge, identity: Identity | None = None) -> Master:
    client: Any = instance
    return Master(ADA, identity or Identity.generate(), client, judge, At1000())


async def test_it_answers_by_the_users_function_in_the_order_given() -> None:
    instance, judge, identity = Instance("one", "two"), Judge(one=True, two=False), Identity.generate()
    await master(instance, judge, identity).answer_all("alpha")
    assert instance.answers == [("one", True), ("two", False)]
    said = jose.verify_untrusted(instance.bodies[0]["proof"], sender=identity.public)
    assert said == {"action": "answer", "transfer_id": "one", "allow": True, "master_rev": 3, "expires_at_s": 1060.0}
    assert {name: instance.bodies[0][name] for name in ("by", "allow", "master_rev")} == {
        "by": ADA,
        "allow": True,
        "master_rev": 3,
    }


async def test_an_answer_that_was_lost_is_sent_again_without_asking_the_function_again() -> None:
    instance, judge = Instance("one"), Judge(one=True)
    ada = master(instance, judge)
    instance.fails_with = "unreachable"
    await ada.answer_all("alpha")
    instance.fails_with = ""
    await ada.answer_all("alpha")
    assert (instance.answers, judge.asked) == ([("one", True)], ["one"])


async def test_a_question_that_was_cancelled_meanwhile_does_not_keep_the_next_waiting() -> None:
    instance, judge = Instance("one", "two"), Judge(one=True, two=True)
    instance.fails_with = "too_late"
    await master(instance, judge).answer_all("alpha")
    assert judge.asked == ["one", "two"]


async def test_without_an_answer_the_question_waits_until_its_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    instance, judge = Instance("one", "two"), Judge(one=None)  # it does not know "two", and raises
    ada = master(instance, judge)
    for _ in range(2):
        await ada.answer_all("alpha")
    assert (instance.answers, judge.asked) == ([], ["one", "two"])
    assert instance.looks == ["", "one,two"], "nobody waits for what there will be no answer to"
    assert "could not decide" in caplog.text


async def _coroutine() -> bool:
    return True


@pytest.mark.parametrize("said", [1, "no", object(), "coroutine"])
async def test_what_is_no_answer_leaves_this_question_without_one_and_no_other(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    instance, judge = Instance("one", "two"), Judge(two=True)
    judge.answers["one"] = _coroutine() if said == "coroutine" else said
    ada = master(instance, judge)
    for _ in range(2):
        await ada.answer_all("alpha")
    assert (instance.answers, judge.asked) == ([("two", True)], ["one", "two"])
    assert "True, False or None" in caplog.text


async def test_a_function_that_panics_has_not_decided(caplog: pytest.LogCaptureFixture) -> None:
    class Panic(BaseException):
        """As code in Rust raises."""

    def panics(_question: Question) -> bool:
        raise Panic

    instance = Instance("one")
    await master(instance, cast(Any, panics)).answer_all("alpha")
    assert instance.answers == []
    assert "could not decide" in caplog.text
