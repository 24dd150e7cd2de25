"""What names a store, and the words for what names none.

    "sqlite:///data/agents.db" --file_of--> data/agents.db        "postgresql://…" --check_server--> as it is

Pure. Nothing in a name is replaced but a `~` at its beginning. What is most likely meant otherwise is refused
with the right form, because it would make a file of exactly that name and keep everything in there. A
password never stands in the words.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from .errors import StoreError
from .masking import mask

__all__ = ["check_url", "file_of", "is_server"]

_SERVERS = ("postgresql", "postgres")
_ACCEPTED = """\
Accepted are:
  sqlite:///data/agents.db          a file, relative to the working directory
  sqlite:////var/lib/agents.db      a file, absolute
  data/agents.db                    a file, without the scheme
  :memory: or sqlite://:memory:     nothing is kept after the process ends
  postgresql://user:password@host:5432/database"""

_SCHEME = re.compile(r"(sqlite3?|file|postgres(?:ql)?):/*(.*)", re.IGNORECASE | re.DOTALL)
_VARIABLE = re.compile(r"(^|/)(\$\{?[A-Za-z_]|%[A-Za-z_]+%)")

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_OPTIONS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "host",
    "port",
    "user",
    "password",
    "passfile",
    "dbname",
    "database",
    "service",
    "servicefile",
    "krbsrvname",
    "gsslib",
    "application_name",
    "search_path",
    "statement_timeout",
    "options",
)
"""What is read from a URL. Any other name is told to the server as a setting of the session."""
_OF_OTHERS = {
    "ssl": "Write sslmode=require.",
    "tls": "Write sslmode=require.",
    "schema": "Write search_path=NAME.",
    "currentschema": "Write search_path=NAME.",
    "pool_size": 'Connections are an argument: store_options={"readers": 5}.',
    "pool_max_size": 'Connections are an argument: store_options={"readers": 5}.',
    "max_overflow": 'Connections are an argument: store_options={"readers": 5}.',
    "connection_limit": 'Connections are an argument: store_options={"readers": 5}.',
    "timeout": "Leave it out, or write statement_timeout=MILLISECONDS.",
    "connect_timeout": "Leave it out: a connection is waited for 10 seconds.",
    "pool_timeout": "Leave it out.",
    "pgbouncer": "Leave it out; a pooler must give each client a session of its own.",
    "channel_binding": "Leave it out.",
    "sslaccept": "Write sslmode=require.",
}
"""What other drivers take, and what to write instead."""
_TAKEN = "It takes sslmode, sslrootcert and the other options of TLS, and settings of the server."
_AS_WRITTEN = (
    "Write postgresql://user:password@host:5432/database. In the user and the password write @ as %40, "
    ": as %3A, / as %2F, # as %23, ? as %3F and % as %25."
)


def check_url(url: str) -> None:
    """Raise `StoreError` for what names no store, before anything is opened."""
    if is_server(url):
        _check_server(url)
    else:
        file_of(url)


def is_server(url: str) -> bool:
    """True for a PostgreSQL URL, right or wrong."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _SERVERS


def file_of(url: str) -> str:
    """The path of a SQLite database, or `:memory:`."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        path = _bare(url)
    elif scheme != "sqlite":
        raise _unknown(f"A store URL cannot start with {scheme}://.")
    elif rest in (":memory:", "/:memory:"):
        return ":memory:"
    elif not rest.startswith("/") or rest == "/":
        raise _unknown(f"The store URL {url} names no file.")
    else:
        path = rest[1:]
    _check_path(url, path)
    return path


def _bare(text: str) -> str:
    if not text.strip():
        raise _unknown("The store URL is empty.")
    if text != ":memory:" and text.strip(":").lower() == "memory":
        raise _meant(text, ":memory:", " A file of that name is ./memory")
    if scheme := _SCHEME.fullmatch(text):
        raise _meant(text, _with_slashes(text, scheme[1].lower(), scheme[2]))
    return text


def _with_slashes(text: str, scheme: str, rest: str) -> str:
    """What was meant with a scheme that two slashes do not follow."""
    if scheme in _SERVERS:
        return f"postgresql://{rest}"
    if rest.strip(":").lower() == "memory":
        return ":memory:"
    root = "/" if text[len(scheme) + 1 :].startswith("/") else ""
    return f"sqlite:///{root}{rest.partition('?')[0]}"


def _check_path(url: str, path: str) -> None:
    if "?" in path:
        raise _unknown(f"The store URL {url} has options; pass them as arguments instead.")
    if variable := _VARIABLE.search(path):
        home = re.sub(r"^\$(HOME|\{HOME\})/", "~/", path)
        meant = f"Write {home!r}." if home != path else f"{variable[2][0]} is a letter like any other there."
        raise _unknown(f"In the store URL {url!r} no variable is replaced. {meant}")
    if path.endswith(("/", "/.", "/..")) or path in (".", "..", "~"):
        raise _unknown(f"The store URL {url!r} names a folder. Name a file: {path.rstrip('/')}/agents.db")


# --- a server


def _check_server(url: str) -> None:
    parts = urlsplit(url) if _is_split(url) else None
    if parts is None or "@" in parts.path + parts.fragment or parts.netloc.count("@") > 1:
        raise _wrong_server("cannot be read: a letter in it, such as @ in a password, has a meaning in URLs")
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise _wrong_server("has a port that is no number from 1 to 65535")
    for option in parse_qs(parts.query, keep_blank_values=True):
        _check_option(option)
    mode = parse_qs(parts.query).get("sslmode", [_SSL_MODES[0]])[-1]
    if mode not in _SSL_MODES:
        import difflib  # for the words of an error only

        near = difflib.get_close_matches(mode, _SSL_MODES, n=1)
        hint = f"Did you mean sslmode={near[0]}? " if near else ""
        raise _wrong_server(
            f"has an sslmode that does not exist: {mode!r}", f"{hint}It takes {_or(_SSL_MODES)}."
        )


def _check_option(option: str) -> None:
    """Refuse what other drivers call an option. Any other name is a setting of the server, which knows it."""
    if option in _OPTIONS:
        return
    known = _OF_OTHERS.get(option.lower())
    if known is None:
        import difflib  # for the words of an error only

        near = difflib.get_close_matches(option, _OPTIONS, n=1, cutoff=0.8)
        known = f"Did you mean {near[0]}=?" if near else None
    if known is not None:
        raise _wrong_server(f"has an option that PostgreSQL does not know: {option!r}", f"{known} {_TAKEN}")


def _is_split(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:
        return False
    return True


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


# --- errors


def _wrong_server(what: str, hint: str = _AS_WRITTEN) -> StoreError:
    return StoreError(f"The PostgreSQL URL {mask(what)}.", kept="Nothing was opened.", next_step=hint)


def _meant(given: str, meant: str, more: str = "") -> StoreError:
    return _unknown(f"The store URL {given!r} would be a file of that name. Did you mean {meant!r}?{more}")


def _unknown(what: str) -> StoreError:
    return StoreError(mask(what), kept="Nothing was opened.", next_step=_ACCEPTED)
