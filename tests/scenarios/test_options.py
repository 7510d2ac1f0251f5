"""Values of the command line: what is not a number in the range, or cannot be written, is said before a long run."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from scenarios.options import FiniteRange, output_file


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
