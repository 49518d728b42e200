"""The commit point: tables, migrations and every transaction.

The only room that knows SQLAlchemy; it may import language, model, clock and errors.
"""
