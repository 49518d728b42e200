"""The environment of Airflow's processes: where all is, and nothing that another Airflow on this machine uses."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.database import Database
from deploy.kept import Secrets, write_privately
from deploy.ports import HOST
from errata.engine.java import cache_folder
from errata.engine.session import local_conf, prepare_environment

HOUSE = Path(__file__).resolve().parents[1]

USER = "admin"
POOL = "errata"
CATALOG, METADATA = "errata", "airflow"

_PROCESSES = 8
"""So many tasks at most run at once; Airflow starts a process for each when it starts."""

PRELOADED = {"AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "False", "ERRATA_PRELOAD": "yes"}
"""For the scheduler: what is loaded when it starts, tasks need not load, since they are forks of its forks."""


_SHELL_NAMES = ("AIRFLOW", "ERRATA_", "SPARK_", "PYSPARK_", "JAVA_HOME", "PYTHONPYCACHEPREFIX")
"""How the variables begin that a shell needs to do what Airflow's own processes do."""


def base_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What every child process gets: this environment's programs, a Java, and settings of a lean local Spark."""
    made = dict(environ)
    made["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    made["PYTHONUNBUFFERED"] = "1"
    # Each task is a process that imports Airflow: to compile it every time takes longer than most tasks. Whoever wants
    # nothing written beside the sources gets it kept elsewhere.
    if made.pop("PYTHONDONTWRITEBYTECODE", ""):
        made.setdefault("PYTHONPYCACHEPREFIX", str(cache_folder(environ) / "compiled"))
    prepare_environment(made, local=True)
    if "SPARK_CONF_DIR" not in environ:
        conf = folder / "spark"
        conf.mkdir(exist_ok=True)
        lines = [f"{name} {value}\n" for name, value in sorted(local_conf("local[2]", 2).items())]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        made["SPARK_CONF_DIR"] = str(conf)
    return made


def airflow_environment(
    base: Mapping[str, str],
    folder: Path,
    database: Database,
    secrets: Secrets,
    passwords: Path,
    port: int,
    *,
    unpause: bool,
) -> dict[str, str]:
    """What Airflow's services and commands get; its own variables elsewhere in the environment stay as they are."""
    url = f"http://{HOST}:{port}"
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__CORE__PARALLELISM": str(_PROCESSES),
        "AIRFLOW__API__WORKERS": "1",
        "ERRATA_POOL": POOL,
        **base,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(HOUSE / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOUSE / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": str(not unpause),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": secrets.fernet_key,
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": secrets.api_key,
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.jwt,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.url(METADATA),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs" / "tasks"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def write_shell_environment(folder: Path, environ: Mapping[str, str], database: Database) -> None:
    """What a shell sources to be where Airflow is: all of its settings, its programs, and those of its PostgreSQL.

    The files hold secrets, and only their owner may read them.
    """
    passwords = folder / "pgpass"
    write_privately(passwords, f"{HOST}:{database.port}:*:{database.user}:{database.password}\n")
    # A pg_dump of another version refuses to save this database, so the server's own comes first.
    programs = os.pathsep.join(map(str, (Path(sys.executable).parent, database.programs)))
    given = {name: value for name, value in environ.items() if name.startswith(_SHELL_NAMES)}
    given["PGPASSFILE"] = str(passwords)
    if environ.get("ERRATA_CATALOG") == database.url(CATALOG):
        given["CATALOG"] = f"postgresql://{database.user}@{HOST}:{database.port}/{CATALOG}"
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(given.items())]
    write_privately(folder / "environment", "".join(lines) + f'export PATH={shlex.quote(programs)}:"$PATH"\n')
