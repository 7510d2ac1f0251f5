"""Every public name of both clients is on the page of its client: classes, methods, properties, attributes."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import batonpass.client
from batonpass.authority.model.ownership import InputVerdict
from batonpass.homeserver.rest.allowed import ALLOWED

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
BROWSER = ROOT / "authority" / "browser"
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", flags=re.DOTALL | re.MULTILINE)
# A member of a declaration file, but for lines within a comment; parameters are deeper, or on one line with it.
MEMBER = re.compile(r"^  (?:readonly )?(\w+)\??[(:]", flags=re.MULTILINE)
EXPORTED = re.compile(r"^export (?:class|interface|function|type) (\w+)", flags=re.MULTILINE)


def words(page: str) -> set[str]:
    """All words that stand as code on a page of the reference."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return {word for code in CODE.findall(text) for word in re.findall(r"\w+", code)}


def of_python() -> Iterator[str]:
    for name in batonpass.client.__all__:
        yield name
        thing = getattr(batonpass.client, name)
        if not inspect.isclass(thing):
            continue
        own = [each for each in thing.__mro__ if each.__module__.startswith("batonpass.client")]
        members = {member for each in own for member in vars(each)}
        source = "".join(inspect.getsource(each) for each in own)
        members.update(re.findall(r"^        self\.(\w+)(?:: [^=]+)? = ", source, flags=re.MULTILINE))
        yield from (f"{name}.{member}" for member in sorted(members) if not member.startswith("_"))


def of_browser() -> Iterator[str]:
    declared = (BROWSER / "client.d.ts").read_text(encoding="utf-8")
    for block in re.split(r"^(?=export )", declared, flags=re.MULTILINE):
        for name in EXPORTED.findall(block):
            yield name
            if block.startswith(("export class", "export interface")):
                yield from (f"{name}.{member}" for member in MEMBER.findall(block) if member != "constructor")


@pytest.mark.parametrize(
    ("page", "names"), [("python-client.md", of_python), ("browser-client.md", of_browser)], ids=["python", "browser"]
)
def test_every_public_name_is_on_the_page_of_its_client(page: str, names: object) -> None:
    assert callable(names)
    found, known = list(names()), words(page)
    assert len(found) > 60
    missing = [name for name in found if name.rpartition(".")[2] not in known]
    assert not missing, f"{page} does not name {missing}"


RAISED = re.compile(r"\b(?:DoorRefused|WatchRefused|InputRefused|HomeFailure|Refused)\(\s*\"([a-z_]+)\"")
ROOMS = [
    "actors/http",
    "authority/wire",
    "authority/browser",
    "batonpass/client",
    "homeserver/door",
    "simserver/players",
]


def test_every_code_with_which_a_client_is_refused_is_on_the_page_of_codes() -> None:
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in {".py", ".js"}]
    codes = {code for path in sources for code in RAISED.findall(path.read_text(encoding="utf-8"))}
    codes |= {verdict.value for verdict in InputVerdict} - {"admitted"}
    assert len(codes) > 25
    assert codes <= words("codes.md")


def test_what_the_module_for_browsers_exports_is_declared_and_it_loads_nothing() -> None:
    source = (BROWSER / "client.js").read_text(encoding="utf-8")
    exported = set(re.findall(r"^export (?:async )?(?:class|function|const) (\w+)", source, flags=re.MULTILINE))
    declared = (BROWSER / "client.d.ts").read_text(encoding="utf-8")
    assert exported <= set(EXPORTED.findall(declared))
    for text in (source, declared):
        assert not re.findall(r"^(?:import|export .* from)|\bimport\(|\brequire\(", text, flags=re.MULTILINE)


def test_both_clients_have_a_method_for_every_request_that_a_player_may_make() -> None:
    sources = [ROOT / "batonpass" / "client" / "home.py", BROWSER / "client.js"]
    for source in sources:
        text = re.sub(r"\$?\{path\(\w+\)\}|path\(\w+\)", "/v1/entities/{}", source.read_text(encoding="utf-8"))
        asked = {re.sub(r"\$?\{[^}]*\}+", "{}", target) for target in re.findall(r"[`\"](/v1/[^`\"?]*)", text)}
        wanted = {re.sub(r"\{\w+\}", "{}", target) for _, target in ALLOWED} - {"/healthz"}
        assert wanted <= asked, source.name
