# One image for every service of docker-compose.yaml: Errata, Airflow and Spark from requirements.lock, and a JDK.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 50000 errata

WORKDIR /opt/errata
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY sql sql
RUN pip install --no-cache-dir --no-deps .
COPY jobs jobs
COPY dags dags
COPY plugins plugins
COPY deploy/__init__.py deploy/kept.py deploy/

ENV AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/errata/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/errata/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    PYSPARK_PYTHON=/usr/local/bin/python \
    PYTHONUNBUFFERED=1
RUN mkdir -p /opt/airflow/logs /opt/airflow/logins /data && chown -R errata: /opt/airflow /data
USER errata
