"""Making a catalog's tables, and bringing older ones up to date: all that needs Alembic, as few commands do."""

from __future__ import annotations

from alembic import command
from alembic.config import Config

from errata.catalog.database import Catalog, database_file, make_engine, migrations_folder
from errata.clock import SYSTEM, Clock


def prepare_catalog(url: str, clock: Clock = SYSTEM) -> Catalog:
    """The catalog at the URL, its tables made or brought up to date first."""
    engine = make_engine(url)
    if (file := database_file(url)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    catalog = Catalog(engine, clock)
    with catalog.writing() as connection:
        if connection.dialect.name == "postgresql":
            # Two that prepare one catalog at once: the second waits and then finds nothing to do.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4551)")
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return catalog


def migration_config() -> Config:
    """How Alembic finds the migrations."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    return config
