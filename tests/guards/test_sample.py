"""What mutants are drawn of is there, and what no test needs to notice is of the code as it stands."""

import subprocess
from pathlib import Path

import pytest

from tests.guards.guards import ROOT
from tests.guards.sampled import CORES, EQUIVALENT, Core, changed_lines, near_tests
from tests.guards.tree_copy import changed


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_a_core_has_modules_and_tests_some_of_which_import_them(core: Core) -> None:
    files = core.files(ROOT)
    assert files
    for room in core.rooms:
        assert any(file.startswith(room) for file in files), room
    for folder in core.tests:
        assert list((ROOT / folder).rglob("test_*.py")), folder
    assert any(near_tests(ROOT, file, core.tests) for file in files)


def test_a_mutant_that_need_not_be_noticed_is_one_of_the_code_and_says_why() -> None:
    for mutant in EQUIVALENT:
        lines = [line.strip() for line in (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()]
        assert mutant.line in lines, mutant
        assert mutant.instead not in ("", mutant.line), mutant
        assert len(mutant.why) > 20, mutant


def test_of_all_tests_those_are_near_that_name_the_module() -> None:
    near = near_tests(ROOT, "authority/wire/senders.py", ("tests/authority",))
    assert "tests/authority/wire/test_senders.py" in near
    assert "tests/authority/test_fence.py" not in near


def test_changed_lines_are_those_that_a_commit_did_not_have(tmp_path: Path) -> None:
    def git(*args: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(("git", *who, *args), cwd=tmp_path, check=True, capture_output=True)

    file = tmp_path / "a.py"
    file.write_text("1\n2\n3\n4\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    file.write_text("1\nnew\n3\nnew\nnew\n")
    assert changed_lines(tmp_path, "a.py", "HEAD") == {2, 4, 5}
    file.write_text("1\n2\n3\n4\n")
    assert changed_lines(tmp_path, "a.py", "HEAD") == set()


def test_a_file_that_was_changed_is_as_it_was_and_nothing_compiled_of_the_change_is_left(tmp_path: Path) -> None:
    file, compiled = tmp_path / "a.py", tmp_path / "__pycache__" / "a.cpython-311.pyc"
    file.write_text("1")
    compiled.parent.mkdir()
    compiled.touch()
    with changed(file, "2"):
        assert file.read_text() == "2"
        assert not compiled.exists()
        compiled.touch()
    assert file.read_text() == "1"
    assert not compiled.exists()
