"""How Alembic runs the catalog's migrations: on the connection that Errata hands it, in its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
