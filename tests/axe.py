"""What keeps people from using a page, as axe-core finds it: the rules of WCAG 2.1, levels A and AA."""

from importlib.resources import files
from typing import Final

from selenium import webdriver

__all__ = ["violations"]

_RUN: Final = """
const done = arguments[0];
axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }).then(
  ({ violations }) => done(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 120))])),
  (error) => done([["axe failed", [String(error)]]]),
);
"""


def violations(browser: webdriver.Chrome) -> list[tuple[str, list[str]]]:
    """The rules that the page breaks as it is shown now, with the elements that break each."""
    browser.execute_script((files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script(_RUN)
    return [(rule, elements) for rule, elements in found]
