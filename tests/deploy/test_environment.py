"""What the processes get that `make airflow` starts."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.environment import base_environment


def environment(folder: Path, **more: str) -> dict[str, str]:
    names = ("PATH", "HOME", "JAVA_HOME")
    return base_environment({name: os.environ[name] for name in names if name in os.environ} | more, folder)


def test_what_is_compiled_is_kept_also_where_nothing_is_to_be_written_beside_the_sources(tmp_path: Path) -> None:
    made = environment(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert "PYTHONDONTWRITEBYTECODE" not in made
    assert os.access(Path(made["PYTHONPYCACHEPREFIX"]).parent, os.W_OK)


def test_who_says_where_it_is_kept_is_heard(tmp_path: Path) -> None:
    made = environment(tmp_path, PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX="/elsewhere")
    assert made["PYTHONPYCACHEPREFIX"] == "/elsewhere"


def test_elsewhere_it_is_kept_where_it_always_is(tmp_path: Path) -> None:
    assert "PYTHONPYCACHEPREFIX" not in environment(tmp_path)


def test_small_local_jobs_are_what_spark_is_set_up_for(tmp_path: Path) -> None:
    made = environment(tmp_path)
    conf = (Path(made["SPARK_CONF_DIR"]) / "spark-defaults.conf").read_text()
    assert "spark.driver.host 127.0.0.1" in conf
    assert environment(tmp_path, SPARK_CONF_DIR="/own")["SPARK_CONF_DIR"] == "/own"
