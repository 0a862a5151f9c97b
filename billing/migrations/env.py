"""Run by Alembic: the revisions, in the transaction of the connection that `bring_up` hands over."""

from alembic import context

from billing.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
