"""What the jobs, Airflow and Python programs call: one short function for each job (`jobs`), and an open project for
scripts and notebooks (`open_project`). It calls the rooms below and holds no logic."""
