"""Crash tests: a scripted conversation with a real server process that is killed at every commit.

    rehearse: count commits --> play once per point: kill, restart, resume --> judge against the reference

`everthink crashtest` is the command; docs/durability.md tells how to write a script.
"""

from .effects import effect
from .judge import Failure, judge
from .runner import CrashTest, Report, Verdict, choose, points_of
from .script import Script, read_script
from .story import Cut, Point, Story

__all__ = [
    "CrashTest",
    "Cut",
    "Failure",
    "Point",
    "Report",
    "Script",
    "Story",
    "Verdict",
    "choose",
    "effect",
    "judge",
    "points_of",
    "read_script",
]
