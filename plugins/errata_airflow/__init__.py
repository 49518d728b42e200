"""What DAGs, triggers and the page share: Errata as Airflow sees it. Airflow puts the folder above on every path."""
