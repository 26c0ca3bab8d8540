"""The files in deploy/ agree with the program they run and with each other, as far as can be seen without an engine.

Schemas come with packages: compose's with check-jsonschema, Kubernetes' with kubernetes-validate. Then what no schema
knows: settings that exist, commands that parse, probes that are routes, ports, images and secrets that are the same.
"""

import copy
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from aisle import __version__
from aisle.accounts.access import ACCESS
from aisle.app import ROLES
from aisle.cli import _parser as aisle_parser
from aisle.config import IN_A_FILE, Config, read_config
from aisle.live.api import live_routes
from aisle.messages import PARTITIONS
from penstock.cli import _parser as penstock_parser
from tests import children

DEPLOY = Path(__file__).parent.parent / "deploy"
BIN = Path(sys.executable).parent
IMAGE = f"localhost/aisle:{__version__}"
PORT = 8080
# Beyond the drain itself: closing pools, the last lines of a log.
SECONDS_TO_SPARE = 5
# Listening and administration, beside the pool of a process.
CONNECTIONS_TO_SPARE = 40

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == IMAGE}
MANIFESTS = {
    path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
}
OF_NO_CORE_SCHEMA = {"kustomization.yaml", "route.yaml"}
RESOURCES = [resource for name, parts in MANIFESTS.items() if name not in OF_NO_CORE_SCHEMA for resource in parts]
UNITS = {path.name: path.read_text() for path in sorted((DEPLOY / "systemd").glob("*.service"))}


def of_kind(kind: str) -> dict[str, Any]:
    return {resource["metadata"]["name"]: resource for resource in RESOURCES if resource["kind"] == kind}


def pods() -> dict[str, Any]:
    return {
        name: found["spec"]["template"]["spec"] for k in ("Deployment", "Job") for name, found in of_kind(k).items()
    }


def check_settings(environment: dict[str, str]) -> dict[str, str]:
    """Names and values as a process would read them; returns those that are kept in files."""
    settings = {name: value for name, value in environment.items() if name.startswith("AISLE_")}
    in_files = {name: value for name, value in settings.items() if name.endswith(IN_A_FILE)}
    read_config({name: value for name, value in settings.items() if name not in in_files})
    for name in in_files:
        assert name.removeprefix("AISLE_").removesuffix(IN_A_FILE).lower() in Config.__struct_fields__, name
    return in_files


def check_command(words: list[str]) -> None:
    arguments = aisle_parser().parse_args(words)
    if words[0] == "serve":
        assert set(arguments.roles.split(",")) <= set(ROLES)


def lines_of_env(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


# Containers


def test_the_container_file_passes_its_linter():
    ended = children.run([BIN / "hadolint", DEPLOY / "Containerfile"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_the_image_is_pinned_hashed_and_not_root():
    text = (DEPLOY / "Containerfile").read_text()
    stages = re.findall(r"^FROM \S+:(\d+\.\d+\.\d+)\S*", text, re.MULTILINE)
    assert len(stages) == 2
    assert len(set(stages)) == 1
    assert "--require-hashes -r requirements.txt" in text
    assert re.search(r"^USER (?!0|root)\S+", text.split("FROM ")[-1], re.MULTILINE)
    assert re.findall(r"^EXPOSE (\d+)", text, re.MULTILINE) == [str(PORT)]
    check_settings(dict(re.findall(r"(AISLE_\w+)=(\S+)", text)))
    assert ("GET", re.findall(rf"127.0.0.1:{PORT}(/\w+)", text)[0]) in ACCESS


def test_compose_file_follows_its_schema():
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"]
    ended = children.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_every_container_is_pinned_bounded_and_watched():
    for name, service in SERVICES.items():
        assert re.search(r":v?\d+\.\d+", service["image"]), f"{name}: no version"
        assert service["deploy"]["resources"]["limits"].keys() >= {"cpus", "memory"}, name
        assert service["restart"], name
        assert service["healthcheck"].get("test") or name == "migrate", f"{name}: nobody looks after it"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), f"{name}: {source}"


def test_compose_runs_every_role_with_settings_that_exist():
    assert OURS.keys() == {*ROLES, "migrate"}
    for name, service in OURS.items():
        check_command(service["command"])
        for path in check_settings(service["environment"]).values():
            assert Path(path).parent == Path("/run/secrets")
            assert Path(path).name in service["secrets"], name
        drain = int(service["environment"]["AISLE_DRAIN_SECONDS"])
        assert seconds(service["stop_grace_period"]) >= drain + SECONDS_TO_SPARE
        for path in re.findall(rf"127.0.0.1:{PORT}(/\w+)", str(service["healthcheck"])):
            assert ("GET", path) in ACCESS


def test_postgres_has_a_connection_for_everybody():
    allowed = int(re.findall(r"max_connections=(\d+)", str(SERVICES["postgres"]["command"]))[0])
    pools = [int(s["environment"]["AISLE_DATABASE_POOL_SIZE"]) * s["deploy"].get("replicas", 1) for s in OURS.values()]
    assert sum(pools) + CONNECTIONS_TO_SPARE <= allowed


def test_secrets_are_made_once_and_all_of_them(tmp_path):
    shutil.copy(DEPLOY / "make-secrets.sh", tmp_path)
    made = []
    for _ in range(2):
        children.run([tmp_path / "make-secrets.sh"], check=True, capture_output=True)
        made.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert made[0] == made[1]
    assert (
        made[0].keys() == COMPOSE["secrets"].keys() == {s for one in SERVICES.values() for s in one.get("secrets", [])}
    )
    assert f"@postgres:5432/{SERVICES['postgres']['environment']['POSTGRES_DB']}" in made[0]["database_url"]
    assert made[0]["store_password"].strip() in made[0]["store_url"]


def test_prometheus_asks_every_role():
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    assert [Path(rules).name for rules in config["rule_files"]] == ["*.rules.yaml"]
    assert list((DEPLOY / "prometheus").glob("*.rules.yaml"))
    [job] = config["scrape_configs"]
    assert ("GET", job["metrics_path"]) in ACCESS
    assert set(job["dns_sd_configs"][0]["names"]) == set(ROLES)
    assert job["dns_sd_configs"][0]["port"] == PORT


# Streams


def streaming_paths() -> set[str]:
    return {re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path) for route in live_routes(None).routes}  # type: ignore[arg-type]


@pytest.mark.parametrize("proxy", ["nginx", "gateway"])
def test_proxies_send_to_the_live_role_what_it_serves_and_nothing_else(proxy):
    if proxy == "nginx":
        text = (DEPLOY / "nginx" / "nginx.conf").read_text()
        patterns = re.findall(r"~(\S+) live;", text)
        assert f"proxy_pass http://$role:{PORT};" in text
        assert f"listen {PORT};" in text
    else:
        [route] = MANIFESTS["route.yaml"]
        live, rest = route["spec"]["rules"]
        assert (live["backendRefs"][0]["name"], rest["backendRefs"][0]["name"]) == ("aisle-live", "aisle-api")
        patterns = [match["path"]["value"] for match in live["matches"]]
    served = streaming_paths()
    for _, path in ACCESS:
        streamed = any(re.fullmatch(pattern, path.replace("{event_id}", "7")) for pattern in patterns)
        assert streamed == (path in served), path


# Kubernetes


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: f"{r['kind']}/{r['metadata']['name']}")
def test_resource_follows_the_schema_of_kubernetes(resource):
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_the_kustomization_lists_every_manifest_but_what_is_yours_to_apply():
    [kustomization] = MANIFESTS["kustomization.yaml"]
    assert set(kustomization["resources"]) == MANIFESTS.keys() - OF_NO_CORE_SCHEMA - {"secret.example.yaml"}


def test_pods_run_our_commands_with_settings_that_exist():
    [settings] = of_kind("ConfigMap").values()
    [secret] = of_kind("Secret").values()
    assert pods().keys() == {*(f"aisle-{role}" for role in ROLES), "aisle-migrate"}
    for pod in pods().values():
        [container] = pod["containers"]
        assert container["image"] == IMAGE
        check_command(container["args"])
        assert pod["enableServiceLinks"] is False, "Kubernetes would add variables that Aisle refuses"
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        for path in check_settings(settings["data"]).values():
            assert str(Path(path).parent) in [mount["mountPath"] for mount in container["volumeMounts"]]
            assert Path(path).name in secret["stringData"]


def test_pods_are_asked_on_our_routes_and_given_time_to_drain():
    [settings] = of_kind("ConfigMap").values()
    for name, deployment in of_kind("Deployment").items():
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["ports"] == [{"name": "http", "containerPort": PORT}]
        probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
        assert probes == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}, name
        assert all(("GET", path) in ACCESS for path in probes.values())
        before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = int(settings["data"]["AISLE_DRAIN_SECONDS"])
        assert pod["terminationGracePeriodSeconds"] >= before + drain + SECONDS_TO_SPARE


def test_roles_differ_in_nothing_but_name_and_size():
    deployments = of_kind("Deployment")
    assert deployments.keys() == of_kind("PodDisruptionBudget").keys() == of_kind("HorizontalPodAutoscaler").keys()
    alike = set()
    for name, deployment in copy.deepcopy(deployments).items():
        role = name.removeprefix("aisle-")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["serve", "--roles", role]
        del container["resources"]["requests"]["memory"], container["resources"]["limits"]["memory"]
        alike.add(re.sub(rf"\b{role}\b", "ROLE", yaml.safe_dump(deployment)))
        most = of_kind("HorizontalPodAutoscaler")[name]["spec"]["maxReplicas"]
        assert role in ("api", "live") or most <= PARTITIONS, "a worker without a partition idles"
    assert len(alike) == 1


# systemd


def test_units_run_our_commands_with_settings_that_exist(monkeypatch):
    monkeypatch.setenv("PENSTOCK_STORE", lines_of_env(DEPLOY / "systemd" / "penstock.env")["PENSTOCK_STORE"])
    shared = lines_of_env(DEPLOY / "systemd" / "aisle.env")
    ports = [check_and_get_port(shared, role) for role in ROLES]
    assert len(set(ports)) == len(ROLES)
    for name, text in UNITS.items():
        [command] = re.findall(r"^ExecStart=((?:.*\\\n)*.*)", text, re.MULTILINE)
        program, *words = shlex.split(command.replace("\\\n", " ").replace("%i", "api"))
        if program.endswith("/penstock"):
            penstock_parser().parse_args(words)
        else:
            check_command(words)
        credentials = set(re.findall(r"^LoadCredential=(\w+):", text, re.MULTILINE))
        in_files = check_settings(dict(re.findall(r"^Environment=(\w+)=(\S+)", text, re.MULTILINE)))
        assert {path.removeprefix("%d/") for path in in_files.values()} == credentials, name
    stop = int(re.findall(r"^TimeoutStopSec=(\d+)", UNITS["aisle@.service"], re.MULTILINE)[0])
    assert stop >= int(shared["AISLE_DRAIN_SECONDS"]) + SECONDS_TO_SPARE


def check_and_get_port(shared: dict[str, str], role: str) -> str:
    own = lines_of_env(DEPLOY / "systemd" / "roles" / f"{role}.env")
    check_settings(shared | own)
    return own["AISLE_PORT"]


def test_units_are_sound_and_closed(tmp_path):
    """By systemd's own judgement, where it is installed: 0 is a closed box, 10 an open one."""
    if shutil.which("systemd-analyze") is None:
        return
    for name, text in UNITS.items():
        path = tmp_path / name.replace("@.", "@api.")
        path.write_text(text.replace("/opt/aisle/bin", str(BIN)))
    for check in (["verify", "--man=no"], ["security", "--offline=yes", "--threshold=20"]):
        command = ["systemd-analyze", *check, *sorted(tmp_path.iterdir())]
        ended = children.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
