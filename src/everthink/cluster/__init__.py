"""Several processes on one database: who may run an agent, and who may not any more.

queries.py      the tables `nodes` and `claims`, and what is said to them
fence.py        an agent's way to the store: nothing passes that its owner of the moment did not write
lease.py        a thread that keeps this process alive for the others, and finds out who is dead
membership.py   this process among them: claim an agent, give it back, begin anew under another name

PostgreSQL decides: an agent is claimed in a row, each of its commits begins with a look at that row, and an
owner is replaced only when it is known to be dead. A SQLite file has one owner anyway and needs none of it.
"""
