"""What people and programs read: tables, JSON, CSV, small drawings, words. May import every room below.

`formats`, `timeline` and `words` are light; `encode` needs Arrow and `rows` needs Spark.
"""
