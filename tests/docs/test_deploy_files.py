"""The files of docs/deploy: alerts and panels ask for metrics that there are, and servers take what they are given.

They are validated, and run nowhere here: docs/guides/deployment.md says so.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import promql_parser
import pytest
import yaml

from batonpass.homeserver.config import HomeserverConfig
from batonpass.simserver.server.config import SimserverConfig
from tests.docs.pages import ROOT
from tests.docs.test_page_commands import why_refused

DEPLOY: Final = ROOT / "docs" / "deploy"
METRICS: Final = (ROOT / "docs" / "guides" / "metrics.md").read_text(encoding="utf-8")
KINDS: Final[dict[str, type[HomeserverConfig] | type[SimserverConfig]]] = {
    "homeserver": HomeserverConfig,
    "simserver": SimserverConfig,
}
VERSIONS: Final = ("1.29", "1.34")
# Of every target, by Prometheus itself, and of every process, by its client.
ALWAYS: Final = {"up": set[str](), "process_resident_memory_bytes": set(), "process_cpu_seconds_total": set()}
OF_TARGETS: Final = {"job", "instance"}


def promised() -> dict[str, set[str]]:
    """The series of each metric of the page, and the labels that each may have."""
    found = dict(ALWAYS)
    for name, kind, labels in re.findall(r"^\| `(batonpass_\w+)` \| (\w+) \| ([^|]*)\|", METRICS, re.M):
        named = set(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found |= {f"{name}_bucket": named | {"le"}, f"{name}_sum": named, f"{name}_count": named}
        else:
            found[name] = named
    return found


def parts_of(expression: Any) -> Iterator[Any]:
    """An expression of PromQL and all within it."""
    yield expression
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        if (within := getattr(expression, name, None)) is not None:
            yield from parts_of(within)
    for argument in getattr(expression, "args", None) or ():
        yield from parts_of(argument)


def check_query(text: str) -> None:
    """It is PromQL, and asks for metrics and labels that are told."""
    known, labels = promised(), set[str]()
    asked = set()
    for part in parts_of(promql_parser.parse(text.replace("$__rate_interval", "5m"))):
        if isinstance(part, promql_parser.VectorSelector):
            assert part.name is not None, text
            asked.add(part.name)
            assert part.name in known, f"{text}: there is no {part.name}"
            strange = {matcher.name for matcher in part.matchers.matchers} - known[part.name] - OF_TARGETS
            assert not strange, f"{text}: {part.name} has no {strange}"
        elif isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            labels |= set(part.modifier.labels)
    assert asked, text
    assert labels <= set().union(*(known[name] for name in asked)) | OF_TARGETS, text


def test_each_alert_can_fire_and_says_what_to_do() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text(encoding="utf-8"))["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 10
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        check_query(rule["expr"])
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "remedy"}
        for command in re.findall(r"\bbaton ([a-z]+(?: --?[a-z]+)?)", rule["annotations"]["remedy"]):
            assert "No such command" not in why_refused(command.split()), command
        known = set().union(*promised().values()) | OF_TARGETS
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= known


def test_what_the_page_of_metrics_says_to_alert_on_has_an_alert() -> None:
    rules = (DEPLOY / "prometheus-alerts.yml").read_text(encoding="utf-8")
    said = re.findall(r"^\| `(batonpass_\w+)` \|.*alert on", METRICS, re.M)
    assert len(said) > 3
    assert [name for name in said if name not in rules] == []


def test_a_query_for_what_is_not_told_is_noticed() -> None:
    for wrong in ("batonpass_nothing", 'batonpass_ready{member="a"}', "sum by (member) (batonpass_ready)"):
        with pytest.raises(AssertionError):
            check_query(wrong)
    with pytest.raises(ValueError, match=r"\w"):
        check_query("sum by (")


def test_each_panel_has_a_place_of_its_own_and_asks_for_what_is_told() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        across, down = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in across for y in down}
        assert across[-1] < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["targets"]
        for target in panel["targets"]:
            check_query(target["expr"])
            assert target["datasource"]["uid"] == "${datasource}"


DOCUMENTS: Final[list[dict[str, Any]]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
)


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    """The documents of a kind, by name."""
    return {one["metadata"]["name"]: one for one in DOCUMENTS if one["kind"] == kind}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_would_take_it(version: str) -> None:
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(DOCUMENTS[0] | {"nonsense": 1}, version, strict=True)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_pod_has_what_its_server_needs(kind: str, tmp_path: Path) -> None:
    wanted = of_kind("StatefulSet")[kind[0]]["spec"]
    assert wanted["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == kind
    pod = wanted["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == kind
    words = [re.sub(r"\$\(POD_IP\)", "10.0.0.1", word).replace("$(POD_NAME)", "h-1") for word in container["args"]]
    assert why_refused(words) == ""
    file = tmp_path / "server.toml"
    file.write_text(of_kind("ConfigMap")["batonpass"]["data"][Path(words[words.index("--config") + 1]).name])
    config = KINDS[kind].load(file)
    ports = {each["name"]: (each["containerPort"], each["protocol"]) for each in container["ports"]}
    assert words[words.index("--listen") + 1] == f"10.0.0.1:{ports['rest'][0]}"
    assert words[words.index("--link") + 1] == f"10.0.0.1:{ports['link'][0]}"
    assert ports["link"][1] == "UDP"
    service = of_kind("Service")[wanted["serviceName"]]["spec"]
    assert {each["name"]: (each["port"], each["protocol"]) for each in service["ports"]} == ports
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(config.directory).startswith(mounts["state"])
    secrets = {Path(value).name for name, value in config.model_dump().items() if name.endswith("_file") and value}
    volume = next(one["secret"] for one in pod["volumes"] if one["name"] == "secrets")
    given = {item["path"] for item in volume["items"]} if "items" in volume else secrets
    assert given == secrets, "what it is given is what it asks for, and no more"
    if isinstance(config, HomeserverConfig):
        members = [f"{config.instance}.h-{at}" for at in range(wanted["replicas"])]
        assert [member.name for member in config.members] == members
        assert {member.raft_port for member in config.members} == {ports["raft"][0]}
        assert wanted["podManagementPolicy"] == "Parallel", "no member is ready alone"
        budget = of_kind("PodDisruptionBudget")["homeservers"]["spec"]["minAvailable"]
        assert budget == len(members) // 2 + 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_unit_starts_its_server_and_not_again_what_is_wrong_for_good(kind: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as systemd has them
    unit.read(DEPLOY / "systemd" / f"batonpass-{kind}@.service")
    service = dict(unit["Service"])
    program, *words = service["ExecStart"].replace("%i", "alpha.h1").split()
    assert (Path(program).name, words[0]) == ("baton", kind)
    assert why_refused(words) == ""
    assert "2" in service["RestartPreventExitStatus"].split()
    assert (service["UMask"], service["StateDirectoryMode"], service["ProtectSystem"]) == ("0077", "0700", "strict")


def test_the_image_runs_baton_as_nobody_of_note_and_names_the_ports_that_are_used() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    lines = [line.split(" ", 1) for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    words = dict(lines)
    assert set(words) <= {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "ENTRYPOINT"}
    assert json.loads(words["ENTRYPOINT"]) == ["baton"]
    assert [word for word, _ in lines][-1] == "ENTRYPOINT"
    exposed = set(words["EXPOSE"].split())
    for one in of_kind("StatefulSet").values():
        pod = one["spec"]["template"]["spec"]
        assert str(pod["securityContext"]["runAsUser"]) == words["USER"]
        ports = {f"{each['containerPort']}/{each['protocol'].lower()}" for each in pod["containers"][0]["ports"]}
        assert ports <= exposed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "metrics" in project["optional-dependencies"]
    assert f"batonpass:{project['version']}" in (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
