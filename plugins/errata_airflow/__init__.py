"""Errata for Airflow: the operator, sensors, triggers, settings and the page. Airflow puts the folder above on the
import path of every process."""
