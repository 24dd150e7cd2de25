"""What everthink costs, beside a hand-written loop and beside a peer: `python -m bench`.

work.py      the scripted work that everybody does
floor.py     a hand-written loop that journals, without a framework
ours.py      everthink                      } the contestants
peer.py      pydantic-ai                    }
measure.py   interleave, take medians, make a row
streams.py   what deltas and turns cost     } the measurements
standing.py  growth, size, opening, import  }
idle.py      memory and disk of idle agents }
table.py     rows beside their budgets
"""
