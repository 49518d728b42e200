"""What jobs, Airflow and Python programs call: one short function each, which calls the rooms below."""
