"""Keep secrets out of the process list: whoever is logged in to this machine can read it.

    main --sys.argv--> hide_secrets --> `ps` shows stars

On Linux the arguments of a process are memory of its own, and `ps` reads them from there. So what looks
like a secret is overwritten where it stands, as soon as we run. Elsewhere this does nothing: there, as in the
moment before, what helps is not to write it on a command line. EVERTHINK_STORE and EVERTHINK_TOKEN do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..masking import mask

__all__ = ["hide_secrets", "secrets_in"]

_SECRET_OPTIONS = ("--token", "--header")


def secrets_in(arguments: Sequence[str]) -> list[str]:
    """The arguments, or the parts of them behind `=`, that nobody else should read."""
    found: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, value = argument.partition("=")
        if before in _SECRET_OPTIONS:
            found.append(argument)
        elif equals and option in _SECRET_OPTIONS:
            found.append(value)
        elif mask(argument) != argument:
            found.append(value if equals and option.startswith("--") else argument)
    return [secret for secret in found if secret]


def hide_secrets(arguments: Sequence[str]) -> None:
    """Overwrite what is secret among the arguments of this process. Never fails."""
    if sys.platform == "linux" and (secrets := secrets_in(arguments)):
        try:
            _overwrite(secret.encode(errors="surrogateescape") for secret in secrets)
        except (OSError, ValueError, LookupError):
            return  # a system that does not tell where they are


def _overwrite(secrets: Iterable[bytes]) -> None:
    import ctypes

    # See proc(5): the numbers of the fields, counted from behind the name in parentheses.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if not start or end <= start:
        return
    here = ctypes.string_at(start, end - start)
    for secret in secrets:
        place = here.find(secret)
        while place >= 0:
            ctypes.memset(start + place, ord("*"), len(secret))
            place = here.find(secret, place + len(secret))
