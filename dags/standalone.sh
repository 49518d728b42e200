#!/usr/bin/env bash
# Airflow on this machine, for one person: everything it keeps is in .airflow/. Ctrl-C stops all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
house=$PWD
port=${PORT:-8080}
export PATH="$house/.venv/bin:$PATH"

if [ -z "${ERRATA_PROJECT:-}" ]; then
    for ERRATA_PROJECT in "$house/errata.yaml" "$house/examples/quotes/errata.yaml"; do
        [ -f "$ERRATA_PROJECT" ] && break
    done
fi
if [ ! -e "$ERRATA_PROJECT" ]; then
    echo "There is no project at $ERRATA_PROJECT." >&2
    echo "  how to mend: make airflow ERRATA_PROJECT=/path/to/errata.yaml" >&2
    exit 2
fi
ERRATA_PROJECT=$(realpath "$ERRATA_PROJECT")
export ERRATA_PROJECT

export AIRFLOW_HOME="$house/.airflow"
export AIRFLOW__CORE__DAGS_FOLDER="$house/dags"
export AIRFLOW__CORE__PLUGINS_FOLDER="$house/plugins"
export AIRFLOW__CORE__LOAD_EXAMPLES=False
export AIRFLOW__CORE__EXECUTION_API_SERVER_URL="http://127.0.0.1:$port/execution/"
export AIRFLOW__DATABASE__SQL_ALCHEMY_CONN="${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN:-sqlite:///$AIRFLOW_HOME/airflow.db}"
export AIRFLOW__API__HOST=127.0.0.1
export AIRFLOW__API__PORT="$port"
export AIRFLOW__API__BASE_URL="http://127.0.0.1:$port"
export AIRFLOW_CONN_SPARK_DEFAULT="${AIRFLOW_CONN_SPARK_DEFAULT:-{\"conn_type\": \"spark\", \"host\": \"local[2]\"\}}"

# What spark-submit starts with: a Java, this environment's Python, and the settings of a lean local session.
JAVA_HOME=$(python -m errata.spark.java)
export JAVA_HOME PYSPARK_PYTHON="$house/.venv/bin/python"
if [ -z "${SPARK_CONF_DIR:-}" ]; then
    export SPARK_LOCAL_IP=127.0.0.1 SPARK_CONF_DIR="$AIRFLOW_HOME/spark"
    mkdir -p "$SPARK_CONF_DIR"
    python -m errata.spark.session >"$SPARK_CONF_DIR/spark-defaults.conf"
fi

echo "Airflow is starting at http://127.0.0.1:$port for $ERRATA_PROJECT"
echo "  log in as admin; the password is in $AIRFLOW_HOME/simple_auth_manager_passwords.json.generated"
echo "  DAGs start paused: switch 'append' on to take in what lands,"
echo "  'revise' to apply corrections, and 'compact', 'age_out', 'vacuum' and 'doctor' to keep the archives fit"
echo "  Ctrl-C stops it"

# In a process group of its own, so that Ctrl-C reaches Airflow once and nothing it started is left behind.
set -m
airflow standalone &
airflow=$!
stop() {
    trap '' INT TERM
    kill -INT "$airflow" 2>/dev/null || true
    for _ in $(seq 40); do
        kill -0 "$airflow" 2>/dev/null || break
        sleep 0.5
    done
    kill -TERM -- "-$airflow" 2>/dev/null || true
    wait "$airflow" 2>/dev/null || true
    echo "Airflow has stopped"
    exit 0
}
trap stop INT TERM
code=0
wait "$airflow" || code=$?
kill -TERM -- "-$airflow" 2>/dev/null || true
exit "$code"
