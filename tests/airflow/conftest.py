"""Tests here may import Airflow, which looks for its home when it is first imported: one of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if not os.environ.get("AIRFLOW_HOME", "").startswith(tempfile.gettempdir()):
    home = tempfile.mkdtemp(prefix="errata-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ |= {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }
