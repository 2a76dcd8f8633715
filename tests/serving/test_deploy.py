"""The systemd unit and the Helm chart start the service with options that it has."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from itemfold.cli.app import app
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.processes.supervisor import EXIT_TIMEOUT_S

DEPLOY = Path(__file__).parents[2] / "deploy"


def parse(arguments: list[str]) -> dict:
    """The options of `itemfold serve` as it would read them; raises if one is unknown."""
    command = get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    serve = command.get_command(None, "serve")
    return serve.make_context("serve", list(arguments), resilient_parsing=False).params


def test_the_systemd_unit_starts_and_reloads_the_service():
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read(DEPLOY / "itemfold.service")
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("itemfold", "serve")
    options = parse(arguments)
    assert (options["port"], options["metrics_port"]) == (8000, 9100)
    assert options["runs"] == ["shop=/srv/itemfold/runs/current"]
    assert shlex.split(service["ExecReload"])[1:] == ["-HUP", "$MAINPID"]
    assert int(service["TimeoutStopSec"]) > Limits().shutdown_s + EXIT_TIMEOUT_S
    assert service["KillMode"] == "mixed"  # workers are stopped by their supervisor
    assert int(service["LimitNOFILE"]) > Limits().max_connections
    assert "/root" not in "".join(service.values())


def render(template: str, values: dict) -> str:
    """A template of the chart, as far as it uses values, ranges over lists and toYaml."""
    yaml = pytest.importorskip("yaml")

    def value(path: str) -> object:
        found: object = {"Values": values, "Release": {"Name": "shop"}}
        for part in path.strip(".").split("."):
            found = found[part]  # type: ignore[index]
        return found

    def repeat(match: re.Match[str]) -> str:
        return "".join(match[2].replace("{{ . }}", str(one)) for one in value(match[1]))

    def as_yaml(match: re.Match[str]) -> str:
        lines = yaml.safe_dump(value(match[1])).splitlines()
        return "".join(f"\n{' ' * int(match[2])}{line}" for line in lines)

    text = re.sub(r" *{{- range (\S+) }}\n(.*?) *{{- end }}\n", repeat, template, flags=re.DOTALL)
    text = re.sub(r"\s*{{- toYaml (\S+) \| nindent (\d+) }}", as_yaml, text)
    text = re.sub(r"{{ (\.[\w.]+) }}", lambda match: str(value(match[1])), text)
    assert "{{" not in text, text
    return text


def test_the_chart_renders_to_a_deployment_of_the_service():
    yaml = pytest.importorskip("yaml")
    chart = yaml.safe_load((DEPLOY / "helm" / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["name"]) == ("v2", "itemfold")
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    values["limits"] = ["max_wait_s=0.5", "max_body=2000000"]
    templates = sorted((DEPLOY / "helm" / "templates").iterdir())
    found = {}
    for path in templates:
        document = yaml.safe_load(render(path.read_text(), values))
        found[document["kind"]] = document
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = parse(container["args"])
    assert Limits.parse(options["limit"]).max_wait_s == 0.5
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": options["port"], "metrics": options["metrics_port"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert pod["spec"]["terminationGracePeriodSeconds"] > Limits().shutdown_s + EXIT_TIMEOUT_S
    assert container["env"][0]["name"] == "ITEMFOLD_API_KEY"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    service = found["Service"]["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] in ports
