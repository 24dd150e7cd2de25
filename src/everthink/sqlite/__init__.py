"""The store on one SQLite file: `open_sqlite(path, migrations)`.

files.py         its files belong to one user
lock.py          one process owns the file
database.py      open it, migrate it, close it
commits.py       apply a group of commits in one transaction
writer.py        the one thread that does so
reader.py        reads beside it
search.py        full-text search
index_repair.py  keep a search index usable
scrub.py         leave nothing of what was deleted
failures.py      what SQLite says, as our errors
"""

from .store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
