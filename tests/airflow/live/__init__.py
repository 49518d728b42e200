"""Tests of a real Airflow, one for all of them: its services are started once, and each test goes on from where the one
before left the project. Files run in the order of their names; each can run alone."""
