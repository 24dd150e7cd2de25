"""What becomes of an agent's files in the long run.

sweeping.py     bytes that nothing names any more are deleted: once a day, and after a clear
"""
