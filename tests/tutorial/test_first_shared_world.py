"""Everything that the tutorial has the reader write and run is written and run, in its order, and does what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.chromium import keep_picture, start_chromium
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, limited

pytestmark = limited

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-shared-world.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE))
CONSOLES = re.findall(r"^```console\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
COMMANDS = [line[2:] for block in CONSOLES for line in block.splitlines() if line.startswith("$ ")]
ENVIRONMENT = os.environ | {"PYTEST_ADDOPTS": "-p batonpass.testing.plugin -p no:xdist -p no:cacheprovider"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reader's folder, with all files of the tutorial."""
    made = tmp_path / "mine"
    (made / "web").mkdir(parents=True)
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    return made


def run(folder: Path, *command: str) -> str:
    argv = (sys.executable, *(("-m", *command) if command[0] == "pytest" else command[1:]))
    done = subprocess.run(
        argv, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def up(folder: Path) -> Iterator[tuple[str, Callable[[str], None]]]:
    """`python up.py`, until Enter: the address that it prints, and what types a line into its terminal."""
    argv = (sys.executable, "up.py")
    with subprocess.Popen(
        argv, cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        terminal = started.stdin

        def enter(line: str) -> None:
            terminal.write(f"{line}\n")
            terminal.flush()

        try:
            yield started.stdout.readline().strip(), enter
        finally:
            enter("")
            terminal.close()
            assert started.wait(PATIENCE_S) == 0


def test_every_block_of_the_tutorial_is_a_file_or_a_command_that_is_run_here() -> None:
    assert len(re.findall(r"^```\w+$", TEXT, flags=re.MULTILINE)) == len(FILES) + len(CONSOLES)
    assert list(FILES) == [
        "floor.py",
        "test_floor.py",
        "up.py",
        "drive.py",
        "web/index.html",
        "web/floor.js",
        "test_break.py",
    ]
    assert COMMANDS == [
        "pytest test_floor.py",
        "mkdir web",
        "python up.py",
        "python drive.py ADDRESS",
        "pytest test_break.py",
    ]


def test_without_servers(folder: Path) -> None:
    assert "1 passed" in run(folder, "pytest", "test_floor.py")
    # As the reader is asked to try.
    wrong = FILES["floor.py"].replace('return {"at": at,', 'state["at"][0] = at[0]\n        return {"at": at,')
    assert wrong != FILES["floor.py"]
    (folder / "floor.py").write_text(wrong, encoding="utf-8")
    with pytest.raises(AssertionError, match="has changed the state that it was given"):
        run(folder, "pytest", "test_floor.py")


def test_a_server_is_killed(folder: Path) -> None:
    assert "1 passed" in run(folder, "pytest", "test_break.py")


def without_numbers(text: str) -> list[str]:
    """Of servers the numbers matter."""
    return [re.sub(r"(?<![\w.])\d+", "N", line) for line in text.splitlines()]


def test_driven_from_python_and_in_a_browser(folder: Path, tmp_path: Path) -> None:
    (console,) = [block for block in CONSOLES if "drive.py" in block]
    with up(folder) as (address, enter):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/play/#[\w.~-]+", address)
        told = run(folder, "python", "drive.py", address)
        begun, *servers, stands = without_numbers(console)[1:]
        first, *seen, last = without_numbers(told)
        # A watch tells the latest state, and may begin when the robot has come to the next server already.
        assert (first, last, seen) == (begun, stands, servers[-len(seen) :])
        again = run(folder, "python", "drive.py", address)
        assert without_numbers(again) == [without_numbers(told)[0], *without_numbers(told)[-2:]], "it is who it was"
        browser = start_chromium(tmp_path / "chromium", size="980,830")
        try:
            browser.get(address)
            says = browser.find_element(By.ID, "says")
            wait = WebDriverWait(browser, PATIENCE_S)

            def shows(text: str) -> Callable[[object], bool]:
                return lambda _: text in says.text

            # Twenty robots, the one that Python has driven, and one's own.
            wait.until(shows("22 robots. Yours is at alpha.s2."))
            keep_picture(browser, "first-shared-world")
            ActionChains(browser).key_down(Keys.ARROW_RIGHT).perform()
            wait.until(shows("Yours is at alpha.s3."))
            ActionChains(browser).key_up(Keys.ARROW_RIGHT).perform()
            browser.refresh()
            says = browser.find_element(By.ID, "says")
            wait.until(shows("22 robots. Yours is at alpha.s3."))
            complaints = browser.get_log("browser")  # type: ignore[no-untyped-call]
            assert [each for each in complaints if each["level"] == "SEVERE"] == []
            enter("alpha.s3")
            wait.until(shows("Yours waits for a server"))
            wait.until(lambda _: re.search(r"Yours is at alpha\.s[12]\.", says.text))
            browser.get("about:blank")
            browser.get(address.partition("#")[0] + "#no.invitation")
            browser.execute_script("localStorage.clear(); location.reload()")
            wait.until(lambda _: browser.find_element(By.ID, "says").text.startswith("bad_invitation: "))
        finally:
            browser.quit()
