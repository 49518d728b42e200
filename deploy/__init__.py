"""Brings Airflow up for Errata on one machine, without root and without Docker.

`make airflow` is `python -m deploy.here`; whoever wants the same as a library takes `airflow_here` from
`deploy.services`. Airflow itself is never imported here: it runs in processes of its own.
"""
