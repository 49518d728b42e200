"""What a person declares in errata.yaml, read strictly into the model. May import the model.

Its doors are `project` (load_project, Project, SparkSettings) and `differences` (plan_changes and what it returns).
"""
