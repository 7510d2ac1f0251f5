"""What stands beside each page: the sections of the page of contents, and their pages.

Sphinx would put the headings of all pages together for each of them, and leave them out then: half of the time it took.
"""

from collections.abc import Callable
from html import escape

from sphinx import addnodes
from sphinx.application import Sphinx

from tests.docs.site.staged import CONTENTS

__all__ = ["navigation"]


def navigation(app: Sphinx, page: str) -> Callable[..., str]:
    """What a theme calls as `toctree` for a page; it has no options here."""
    contents = CONTENTS.removesuffix(".md")

    def item(name: str) -> str:
        # Without code in it, and the rest as text.
        title, current = escape(app.env.titles[name].astext()), " current" if name == page else ""
        link = app.builder.get_relative_uri(page, name)
        return f'<li class="toctree-l1{current}"><a class="reference internal{current}" href="{link}">{title}</a></li>'

    def toctree(**options: object) -> str:
        parts = [f"<ul>{item(contents)}{item('CHANGELOG')}</ul>"]
        for node in app.env.tocs[contents].findall(addnodes.toctree):
            items = "".join(item(name) for _, name in node["entries"])
            parts.append(
                f'<p class="caption"><span class="caption-text">{escape(node["caption"])}</span></p><ul>{items}</ul>'
            )
        return "".join(parts)

    return toctree
