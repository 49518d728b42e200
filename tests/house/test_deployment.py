"""The rules that docker-compose.yaml and Dockerfile keep, read as data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

HOUSE = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((HOUSE / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PINNED = re.compile(r"[a-z0-9./_-]+:\d+\.\d+[a-z0-9.-]*")
REQUIRED = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")


def test_the_compose_specification_knows_all_of_it(tmp_path: Path) -> None:
    assert follows_the_specification(HOUSE / "docker-compose.yaml") == ""
    wrong = tmp_path / "docker-compose.yaml"
    wrong.write_text(yaml.safe_dump(COMPOSE | {"services": {"postgres": {"image": "postgres:17.6", "restrat": "no"}}}))
    assert "restrat" in follows_the_specification(wrong)


def follows_the_specification(file: Path) -> str:
    """What the specification's own schema has against a compose file; the schema comes with check-jsonschema."""
    checker = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [checker, "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_everything_that_a_larger_house_needs_is_there() -> None:
    airflow = {"airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"}
    assert {"postgres", "spark-master", "spark-worker-1", "spark-worker-2"} | airflow <= set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert PINNED.fullmatch(SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_keeps_running_is_watched_and_the_rest_is_waited_for(name: str) -> None:
    if SERVICES[name]["restart"] != "no":
        assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        return
    waiting = [
        each["depends_on"][name]["condition"] for each in SERVICES.values() if name in each.get("depends_on", {})
    ]
    assert set(waiting) == {"service_completed_successfully"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_variable_of_errata_is_one_that_is_read(name: str) -> None:
    read = variables_that_are_read()
    assert {each for each in SERVICES[name].get("environment", {}) if each.startswith("ERRATA_")} <= read


def test_every_dag_can_be_scheduled_and_set_up() -> None:
    given = set(SERVICES["airflow-scheduler"]["environment"])
    schedules = {each for each in variables_that_are_read() if each.endswith("_SCHEDULE")}
    assert schedules | {"ERRATA_PROJECT", "ERRATA_CATALOG", "ERRATA_POOL", "ERRATA_SPARK_CONF"} <= given


def variables_that_are_read() -> set[str]:
    """The variables that DAGs, their settings, the library or the example's declaration read."""
    places = [
        *(HOUSE / "plugins" / "errata_airflow").glob("*.py"),
        *(HOUSE / "src" / "errata" / "declare").glob("*.py"),
    ]
    places.append(HOUSE / "examples" / "quotes" / "errata.yaml")
    named = {each for place in places for each in re.findall(r"\bERRATA_[A-Z_]+\b", place.read_text())}
    scheduled = {
        f"ERRATA_{dag.upper()}_SCHEDULE"
        for place in (HOUSE / "dags").glob("*.py")
        for dag in re.findall(r'settings\.schedule\w*\("(\w+)"', place.read_text())
    }
    assert scheduled
    return named | scheduled


def test_the_pool_is_made_that_tasks_are_given() -> None:
    pool = SERVICES["airflow-scheduler"]["environment"]["ERRATA_POOL"]
    assert f"airflow pools set {pool} " in str(SERVICES["airflow-migrate"]["command"])


def test_no_command_line_holds_a_secret() -> None:
    for service in SERVICES.values():
        assert not REQUIRED.search(str(service.get("command", "")) + str(service.get("healthcheck", "")))


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_has_a_value_or_a_default(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search(r"(PASSWORD|SECRET|_KEY)$", variable):
            assert REQUIRED.fullmatch(value), variable
        if (login := re.search(r"://[^:/]+:(.*)@", str(value))) is not None:
            assert REQUIRED.fullmatch(login[1]), variable


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_are_services_and_volumes_are_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("depends_on", {})) <= set(SERVICES)
    for needed, when in service.get("depends_on", {}).items():
        assert when["condition"] != "service_healthy" or "healthcheck" in SERVICES[needed]
    named = {volume.split(":")[0] for volume in service.get("volumes", []) if volume[0] not in "./$"}
    assert named <= set(COMPOSE["volumes"])


def test_only_the_loopback_is_published() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_is_built_from_the_lock_and_does_not_run_as_root() -> None:
    lines = (HOUSE / "Dockerfile").read_text().splitlines()
    assert PINNED.fullmatch(next(line for line in lines if line.startswith("FROM")).removeprefix("FROM "))
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    assert [line for line in lines if line.startswith("USER")] == ["USER errata"]
    for line in lines:
        if line.startswith("COPY"):
            assert all((HOUSE / source).exists() for source in line.split()[1:-1]), line
