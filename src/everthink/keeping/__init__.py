"""What becomes of an agent's files in the long run.

objects.py      what an object store holds of agents: erased, and exported, with them
sharing.py      a child works in the files of its parent
sweeping.py     bytes that nothing names any more are deleted: once a day, and after a clear
"""
