"""The settings of Sphinx for the site: no foreign hosts, and every dangling link is a fault."""

from typing import Any, Final

from sphinx.application import Sphinx

from tests.docs.site.docstrings import as_rst
from tests.docs.site.navigation import navigation

# Sphinx reads settings by these names.
project: Final = "batonpass"
copyright: Final = "the batonpass maintainers, under the MIT licence"
extensions: Final = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc: Final = "README"
html_theme: Final = "furo"
html_title: Final = "batonpass"
html_additional_pages: Final = {"index": "index.html"}
templates_path: Final = ["templates"]
highlight_language: Final = "none"
html_copy_source: Final = False
html_show_sphinx: Final = False
# Quotes and dashes are as they are written; and looking for them took a tenth of the time.
smartquotes: Final = False
myst_heading_anchors: Final = 6
autodoc_typehints: Final = "signature"
autodoc_typehints_format: Final = "short"
autodoc_member_order: Final = "bysource"
python_use_unqualified_type_names: Final = True
# Headings of changelogs leave a level out, and lines of consoles go on over several: both are as they should be.
suppress_warnings: Final = ["myst.header", "misc.highlighting_failure"]


def _process(app: Sphinx, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def _beside(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    context["toctree"] = navigation(app, page)


def setup(app: Sphinx) -> None:
    """What Sphinx calls with each docstring and each page."""
    # Before napoleon, which sees to the arguments.
    app.connect("autodoc-process-docstring", _process, priority=400)
    # Before the theme, which calls it.
    app.connect("html-page-context", _beside, priority=400)
