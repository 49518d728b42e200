"""The rules that docker-compose.yaml and Dockerfile keep, read as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

HOUSE = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((HOUSE / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PINNED = re.compile(r"[a-z0-9./_-]+:\d+\.\d+[a-z0-9.-]*")
REQUIRED = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")


def test_everything_that_a_larger_house_needs_is_there() -> None:
    airflow = {"airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"}
    assert {"postgres", "spark-master", "spark-worker-1", "spark-worker-2"} | airflow <= set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert PINNED.fullmatch(SERVICES[name]["image"])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if service["restart"] != "no"])
def test_what_keeps_running_is_watched(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")


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
