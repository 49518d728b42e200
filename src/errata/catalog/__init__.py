"""The commit point: tables, migrations and every transaction.

The only room that knows SQLAlchemy; may import declare and model.
"""
