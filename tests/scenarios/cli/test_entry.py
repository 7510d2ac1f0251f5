"""`baton` begins in `scenarios.cli.entry`, which loads the rest."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pytest

from batonpass.scenarios.cli import entry
from batonpass.scenarios.cli import main as cli


class _Interrupted(MetaPathFinder):
    """Somebody presses Ctrl-C while this module is being loaded."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Raises for the one module; others are found as ever."""
        if fullname == self._module:
            raise KeyboardInterrupt


def test_ctrl_c_while_it_loads_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "batonpass.scenarios.cli.main")
    monkeypatch.delattr("batonpass.scenarios.cli.main")
    monkeypatch.setattr(sys, "meta_path", [_Interrupted("batonpass.scenarios.cli.main"), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "baton: interrupted\n"


def test_what_is_loaded_runs_and_its_status_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["baton", "--no-such-flag"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 2
    assert cli.__name__ in sys.modules
