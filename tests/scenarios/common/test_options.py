"""Values of the command line: what is not a number in the range, or cannot be written, is said before a long run."""

import sys
import tempfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from batonpass import scenarios
from batonpass.scenarios.common.options import FiniteRange, json_file_option, output_file


@click.command()
@click.option("--seconds", type=FiniteRange(0.0, 10.0))
@click.option("--out", type=click.Path(path_type=Path), callback=output_file)
def command(seconds: float | None, out: Path | None) -> None:
    click.echo(f"{seconds} {out}")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "11", "soon"])
def test_a_number_outside_of_the_range_is_wrong_usage(text: str) -> None:
    result = CliRunner().invoke(command, ["--seconds", text])
    assert result.exit_code == 2
    assert text in result.output


@pytest.mark.parametrize("text", ["0", "2.5", "10"])
def test_a_number_in_the_range_is_taken(text: str) -> None:
    result = CliRunner().invoke(command, ["--seconds", text])
    assert (result.exit_code, result.output) == (0, f"{float(text)} None\n")


def test_a_file_in_a_directory_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--out", str(tmp_path / "nowhere" / "report.json")])
    assert result.exit_code == 2
    assert "nowhere" in result.output


def test_a_file_that_can_be_written_is_taken(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--out", str(tmp_path / "report.json")])
    assert result.exit_code == 0


@click.command()
@json_file_option()
@click.option("--fails", is_flag=True)
@click.argument("word", default="none")
def measuring(json_file: Path | None, fails: bool, word: str) -> None:
    sys.stdout.write("a table\n")
    if fails:
        raise click.ClickException("nothing could be measured")
    if json_file is not None:
        json_file.write_text('{"p50_ms": 3}\n', encoding="utf-8")


@pytest.mark.parametrize("arguments", [["--json"], ["--json", "-"], ["--json=-", "word"]])
def test_json_without_a_file_is_all_that_comes_from_stdout(arguments: list[str]) -> None:
    result = CliRunner().invoke(measuring, arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, '{"p50_ms": 3}\n', "a table\n")


def test_json_with_a_file_is_written_there_and_the_table_shown(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(measuring, ["--json", str(file)])
    assert (result.exit_code, file.read_text()) == (0, '{"p50_ms": 3}\n')
    assert result.stdout == f"a table\nJSON report: {file}\n"
    assert CliRunner().invoke(measuring, ["--json", str(tmp_path / "nowhere" / "x")]).exit_code == 2


def test_where_nothing_is_written_nothing_but_what_went_wrong_is_shown() -> None:
    result = CliRunner().invoke(measuring, ["--json", "--fails"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing could be measured" in result.stderr


def test_a_file_of_an_earlier_run_is_not_said_to_be_this_ones(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("{}", encoding="utf-8")
    result = CliRunner().invoke(measuring, ["--json", str(file), "--fails"])
    assert (result.exit_code, result.stdout) == (1, "a table\n")


def test_only_the_option_says_where_the_json_is() -> None:
    """A command that did so would name a file that is gone, when it is for stdout."""
    folder = Path(scenarios.__path__[0])
    saying = [file.name for file in folder.rglob("*.py") if "JSON report:" in file.read_text(encoding="utf-8")]
    assert saying == ["options.py"]


def test_wrong_usage_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert CliRunner().invoke(measuring, ["--json", "--", "one", "two"]).exit_code == 2
    assert list(tmp_path.iterdir()) == []
