"""Lines of a server's log that programs read."""

import json
import logging
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors import set_log_metadata
from batonpass.actors.core.log_metadata import LogMetadata
from batonpass.authority.node.spans import trace_id
from batonpass.scenarios.cli.log_lines import JsonLogLines


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    LogMetadata().filter(record)
    line = JsonLogLines("alpha.s1").format(record)
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


def said(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("batonpass.x", logging.INFO, "x.py", 1, text, args, None)


def test_a_line_says_who_says_it_and_what_it_is_about() -> None:
    set_log_metadata(transfer="wish-0001", actor="ball")
    try:
        line = line_of(said("%s stays: %d", "alpha.e1", 3))
    finally:
        set_log_metadata(transfer=None, actor=None)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "batonpass.x",
        "server": "alpha.s1",
        "message": "alpha.e1 stays: 3",
        "transfer": "wish-0001",
        "trace_id": f"{trace_id('wish-0001'):032x}",
        "actor": "ball",
    }


def test_an_error_has_its_traceback() -> None:
    record = said("it failed")
    try:
        raise ValueError("for a reason")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: for a reason" in line_of(record)["error"]


@given(text=st.text(), key=st.text(), value=st.text())
def test_whatever_is_said_or_set_it_is_one_line_that_keeps_its_own_keys(text: str, key: str, value: str) -> None:
    record = said("%s", text)
    record.metadata = {key: value, "server": value, "level": value}
    line = line_of(record)
    assert (line["message"], line["server"], line["level"]) == (text, "alpha.s1", "INFO")
    assert line[key] == value or key in {"server", "level", "message", "time", "logger"}
