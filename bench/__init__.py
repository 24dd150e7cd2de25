"""What everthink costs, beside a hand-written loop and beside a peer: `python -m bench`.

work.py                       the scripted work that everybody does
floor.py, ours.py, peer.py    the contestants: by hand, everthink, pydantic-ai
measure.py                    let them take turns, compare medians
streams.py, standing.py       the measurements; idle.py and startup.py run in processes of their own
memory.py, mcp.py, families.py    more of them: long conversations, catalogues of tools, children
sockets.py                    the same over the network: served.py is a server, crowd.py many chat windows
__main__.py                   all of it, as two tables beside the budgets
"""
