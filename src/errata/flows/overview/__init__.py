"""What an operator is shown of a project, each subject in a few looks into the catalog and without Spark. It decides
and changes nothing. The page in Airflow imports it; whatever else shows a project to persons may."""
