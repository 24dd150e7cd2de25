"""Which database: the option `--store`, as commands have it that look into one, and as those that serve.

@database_option --> erase, export, inspect, release
@served_option   --> dev, serve
"""

from __future__ import annotations

import click

__all__ = ["database_option", "served_option"]

database_option = click.option(
    "--store",
    default="sqlite:///.everthink/everthink.db",
    show_default=True,
    envvar="EVERTHINK_STORE",
    help="The database: sqlite:///path, a path, or postgresql://…",
)

served_option = click.option(
    "--store",
    envvar="EVERTHINK_STORE",
    show_envvar=True,
    help="The database, when TARGET is a folder: sqlite:///path or postgresql://… One with a password "
    "is better given in the environment: others can list the arguments of a process.",
)
