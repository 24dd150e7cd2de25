"""The store on PostgreSQL: `open_postgres(url, migrations)`.

driver.py           asyncpg, loaded on use; connections and how we set them up
wait_for_server.py  a server that is away for a moment
sql.py              our SQL as PostgreSQL wants it
batch.py            a commit as one round trip
writer.py           commits in order, grouped behind the one in flight
migrate.py          the schema
search.py           full-text search
vacuum.py           drop what was deleted
pooler.py           refuse a pooler that does not keep sessions
failures.py         what the server says, as our errors
"""

from .store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "open_postgres"]
