"""What pages have a reader type is typed: in a shell beside one cluster, and what is printed is what they show.

`tests.docs.not_run` has the commands of which that cannot be, and `tests/tutorial` runs those of the tutorial. The ones
that start another cluster are run up to its start.
"""

import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest
import trio
from rich.console import Console

from batonpass.authority.model.records import EntityRecord
from batonpass.authority.wire.standing import At, StandingRow
from batonpass.homeserver.node.why import Facts, explain
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.remote.connection import RemoteServer
from batonpass.scenarios.report.json_file import write_cases
from batonpass.scenarios.report.table import TABLE_WIDTH, cases_table
from tests.docs.commands import CURRENT, Command, commands
from tests.docs.not_run import NOT_RUN
from tests.docs.pages import ROOT, blocks, name_of
from tests.docs.shell import INTERRUPTED, UNTIL_CTRL_C, Ran, Shell, open_shell, without_comment
from tests.scenarios.asked import limited
from tests.scenarios.factories import make_report

TUTORIAL: Final = "docs/tutorial/first-shared-world.md"
SHOWN: Final = [one for page in CURRENT if name_of(page) != TUTORIAL for one in commands(page)]
STARTS: Final = re.compile(r"baton up\b")
# Nobody dies here: only a machine that has much else to do would end a lease.
CLUSTER: Final = (
    "baton up --dir playground --instances alpha:1 --simservers 3 --lease-term 60 "
    '--world batonpass.scenarios.arena.world:Arena --world-option \'servers=["alpha.s1", "alpha.s2", "alpha.s3"]\''
)
"""The arena without what drives in it: tests/scenarios/arena/test_start.py starts it with all."""
PLAYGROUND_URL: Final = re.compile(r"http://127\.0\.0\.1:1710[13]\b")
PLAYGROUND_S1_URL: Final = "http://127.0.0.1:17105"
# Last, since they take away what the others look at; when the cluster has ended, those of `ONCE_STOPPED`.
LAST: Final = ("docs/reference/keys.md", "docs/guides/operations.md", "docs/reference/operations.md")
ONCE_STOPPED: Final = ("baton restore", "baton put-aside")
BALL: Final = """\
curl $BATON_URL/v1/entities -H 'Content-Type: application/json' \
  -H "Authorization: Bearer $(cat $BATON_TOKEN_FILE)" -d '{"id": "alpha.ball-1", "kind": "robot", "rule": "ask",
  "spawner": "alpha.ada", "server": "alpha.s1", "params": {"driver": "alpha.ada", "p": [2000, 2000]}}'"""
"""A robot that stands on the part of alpha.s1, since its driver does nothing."""
# What the reader has by then, as the page says in other words.
BEFORE: Final = {
    "docs/explanation/followers.md": "H1=$BATON_URL",
    "docs/explanation/interaction.md": BALL.replace("ball-1", "a"),
    "docs/guides/command-line.md": """
      cp -rp playground/ada . &&
      baton player create alpha.bob --keys bob &&
      PROOF=$(baton player sign alpha.bob '{"action": "ownership", "entity": "alpha.ball-1", "want": "by_rule",
        "owner_rev": 1, "transfer_id": "wish-0001"}' --keys bob) &&
      curl $BATON_URL/v1/entities/alpha.ball-1/ownership -H 'Content-Type: application/json' \\
        -H "Authorization: Bearer $(cat $BATON_TOKEN_FILE)" -d '{"requester": "alpha.bob", "want": "by_rule",
        "owner_rev": 1, "transfer_id": "wish-0001", "proof": "'$PROOF'"}'""",
    "docs/reference/keys.md": """
      cp playground/secrets/alpha.operator-token . &&
      sed 's|playground/alpha.s1|mine|' playground/alpha.s1/config.toml > alpha.s1.toml""",
}
MODULES: Final = {
    "lamps": "README.md",
    "counters": "docs/guides/worlds.md",
    "sparks": "docs/explanation/followers.md",
    "discs": "docs/explanation/interaction.md",
}
# Of commands that need not end with 0: each status, and what is said then.
ENDS: Final[dict[str, dict[int, str]]] = {
    # By the machine that the tests run on.
    "baton doctor": {0: "", 1: ""},
    # A server that has too much to do takes nothing for a while.
    "baton drain alpha.s1": {0: "", 1: "the drain goes on"},
    "baton server remove alpha.s1": {0: "", 1: "the drain goes on"},
    "baton transfer cancel wish-0001": {1: "take wish-0001 back"},
    "baton keys forget beta.h1": {1: "no keys of beta.h1 are pinned"},
}
NOT_PRINTED: Final = {"baton keys show --url": "needs another instance whose keys are refused"}


def not_run(one: Command) -> list[str]:
    return [begin for begin in NOT_RUN if one.text.startswith(begin)]


RUN: Final = [one for one in SHOWN if not (STARTS.match(one.text) or not_run(one))]


def as_shown(shown: str) -> re.Pattern[str]:
    """What fits an output as a page shows it: numbers and times differ, `…` is anything, alone on a line any lines."""
    parts = re.compile(r"(…|\d+(?:\.\d+)?(?: min| s\b)?|  +)")
    lines = [
        r"(?:.*\n)*" if line == "…" else "".join(map(_fits, parts.split(line))) + r" *\n" for line in shown.splitlines()
    ]
    return re.compile("".join(lines))


def _fits(part: str) -> str:
    if part == "…":
        return ".*"
    if part[:1].isdigit():
        return r"[\d.]+ \w+" if " " in part else r"[\d.]+"
    return " +" if part.startswith("  ") else re.escape(part)


def test_an_output_fits_what_a_page_shows() -> None:
    shown = as_shown('alpha.s1: 12 actors\nrest   9  3 min\n…\n{…, "tick": 7}')
    assert shown.fullmatch('alpha.s2: 7 actors   \nrest  10     2.5 s\n{1, "tick": 12}\n')
    assert shown.fullmatch('alpha.s2: 7 actors\nrest  10  1 h\nany\nmore\n{, "tick": 0}\n')
    assert not shown.fullmatch('alpha.s2: 7 servers\nrest  10  2.5 s\n{1, "tick": 12}\n')
    assert not shown.fullmatch("alpha.s1: 7 actors\nrest  10  2.5 s\n")


def wrong_with(one: Command, ran: Ran) -> str:
    """What of a command is not as its page has it; empty if all is well."""
    ends = {INTERRUPTED: ""} if UNTIL_CTRL_C.match(one.text) else {0: ""}
    ends = next((other for begin, other in ENDS.items() if one.text.startswith(begin)), ends)
    if ran.status not in ends or ends[ran.status] not in ran.printed:
        return f"status {ran.status}: {ran.printed}"
    if one.printed and not any(one.text.startswith(begin) for begin in NOT_PRINTED):
        return "" if as_shown(one.printed).fullmatch(ran.printed) else f"printed: {ran.printed}"
    return ""


def test_what_is_not_run_is_on_a_page_and_has_a_reason() -> None:
    assert [begin for begin in NOT_RUN if not any(begin in not_run(one) for one in SHOWN)] == []
    assert [one.place for one in SHOWN if len(not_run(one)) > 1] == []
    assert [begin for begin in (*ENDS, *NOT_PRINTED) if not any(one.text.startswith(begin) for one in RUN)] == []
    named = {path for reason in NOT_RUN.values() for path in re.findall(r"tests/[\w/.]*\w", reason)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_commands_are_shown_in_blocks_of_the_console_alone() -> None:
    begins = re.compile(r"(?:\$|baton|export|curl|make) ")
    others = [block for page in CURRENT for block in blocks(page) if block.language != "console"]
    assert [f"{block.page}:{block.line}" for block in others if begins.match(block.text)] == []
    assert len(RUN) > 50


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the modules that the pages have a reader write, in which nothing else was imported."""
    for name, page in MODULES.items():
        source = next(block.text for block in blocks(ROOT / page) if block.language == "python")
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_clusters_of_pages_have_worlds_and_all_else_that_they_need(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is run up to the point at which servers would be started."""
    started: list[ClusterSpec] = []

    def not_started(_: object, spec: ClusterSpec, *__: object) -> int:
        started.append(spec)
        return 0

    monkeypatch.setattr(trio, "run", not_started)
    shown = [one for one in SHOWN if STARTS.match(one.text)]
    for one in shown:
        arguments = shlex.split(one.text.replace("\\\n", " "), comments=True)[1:]
        status, said = run_command(arguments), capsys.readouterr()
        assert (status, said.out, said.err) == (0, "", ""), f"{one.place}: {said.err}"
    assert len(started) == len(shown)
    assert {spec.world for spec in started} >= {"lamps:Lamps", "counters:Counters", None}


def typed(shell: Shell, one: Command) -> str:
    """A command as the reader of this cluster types it: with its addresses, and what another command has printed."""
    text = PLAYGROUND_URL.sub("$BATON_URL", one.text).replace(PLAYGROUND_S1_URL, shell.environment["S1_URL"])
    if one.page == "docs/explanation/followers.md":
        # Keys of her own: those of alpha.ada are made already.
        text = text.replace("ada", "eve")
    # Millimetres; the world of a cluster that plays nothing has micrometres.
    text = text.replace("--radius 2000000", "--radius 20000")
    if "NJ7S22-" in text:
        key = "$(baton keys show --url $BATON_URL --json | jq -r .current.signing_kid)"
        text = re.sub(r"NJ7S22-[\w-]+", key, text)
    return text.replace("revoke ID", "revoke $(baton invite ls --json | jq -r '.[0].id')")


def wrong_on(shell: Shell, page: str, shown: list[Command]) -> dict[str, str]:
    """Type what a page shows; which of it did not do what the page says."""
    before = [BEFORE[page].strip()] if page in BEFORE else []
    ran = shell.run([*before, *(typed(shell, one) for one in shown)])
    wrong = {f"{page}, before": str(one) for one in ran[: len(before)] if one.status}
    for one, what in zip(shown, ran[len(before) :], strict=True):
        why = wrong_with(one, what)
        if why:
            wrong[f"{one.place}: {one.text}"] = why
    return wrong


@limited
def test_what_pages_have_a_reader_type_does_what_they_say(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.json", make_report())
    once: dict[str, Command] = {one.printed + without_comment(one.text): one for one in reversed(RUN)}
    wrong: dict[str, str] = {}
    with open_shell(tmp_path) as shell:
        with shell.beside(CLUSTER, until="Ctrl-C ends it") as printed:
            told = "".join(printed)
            urls = dict(re.findall(r"^ *(alpha\.\w+) .*?(http://\S+)", told, flags=re.MULTILINE))
            shell.environment.update(
                {
                    "BATON_URL": urls["alpha.h1"],
                    "S1_URL": urls["alpha.s1"],
                    "BATON_TOKEN_FILE": "playground/secrets/alpha.client-token",
                    "BATON_OPERATOR_TOKEN_FILE": "playground/secrets/alpha.operator-token",
                }
            )
            # What `baton up` says is to be tried; the last line is a watch.
            for tried in re.findall(r"^  (\S(?:.*\\\n)*.*)\n", told.partition("Try:")[2], flags=re.MULTILINE)[:-1]:
                shell.said(tried)
            shell.said(BALL)
            for page in sorted({one.page for one in once.values()}, key=lambda name: (name in LAST, name)):
                shown = [
                    one for one in RUN if one.page == page and once[one.printed + without_comment(one.text)] is one
                ]
                wrong |= wrong_on(shell, page, [one for one in shown if not one.text.startswith(ONCE_STOPPED)])
        wrong |= wrong_on(shell, "", [one for one in RUN if one.text.startswith(ONCE_STOPPED)])
    assert not wrong, "\n".join(f"{place}\n    {what}" for place, what in wrong.items())


def test_why_an_entity_does_not_run_is_told_as_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = [one for one in SHOWN if one.text.startswith("baton why")]
    waits = (
        "its home instance has not decided yet whether beta.s1 gets it (asked 9 times); "
        "last: no homeserver of alpha answered"
    )
    row = StandingRow(
        entity="alpha.ball-1", at=At.FROZEN, transfer_id="6f0c…", phase="requested", since_ms=12_400, why=waits
    )
    record = EntityRecord(
        id=row.entity, kind="ball", master="alpha.ada", owner="alpha.ada", authority="alpha.s1", epoch=3
    )
    why = explain(Facts(entity=row.entity, record=record, row=row))
    view = asdict(why) | {"runs": False, "since_s": 12.4, "epoch": record.epoch, "told_by": "alpha.h1"}
    monkeypatch.setattr(RemoteServer, "call", lambda *_: view)
    assert run_command([*shlex.split(shown.text)[1:], "--url", "http://[::1]:9"]) == 1
    assert capsys.readouterr().out == shown.printed + "\n"


def test_the_readme_shows_the_table_of_a_run_as_it_is_printed() -> None:
    (shown,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "text"]
    console = Console(file=io.StringIO(), width=TABLE_WIDTH)
    console.print(cases_table(make_report()))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.split("\n")[0].split() == next(line.split() for line in printed.splitlines() if "formula" in line)
    for line in shown.split("\n\n")[1].splitlines():
        assert line in printed
