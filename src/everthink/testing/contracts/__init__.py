"""One contract suite for each port: every adapter passes the same tests, ours and yours."""
