"""Secrets in a database: sealed when there is a key, marked as plain when there is none.

    {"tokens": …} --seal--> "sealed:gAAAA…" --> mcp_servers.secrets --> open --> {"tokens": …}

The key is the environment's, `EVERTHINK_SECRET_KEY`: one of Fernet, or any text of 16 characters or more,
from which one is made. Several, separated by commas, let a key be changed: the first one seals, each of them
opens. What is sealed is in no words of ours, and what cannot be opened is an error to be told, never a reason
to stop.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import InvalidSettings, MissingExtra, SecretsUnreadable
from ..messages import bounded_json, decode_json

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["SECRET_KEY", "Sealer"]

SECRET_KEY = "EVERTHINK_SECRET_KEY"
SHORTEST_KEY = 16

_SEALED, _PLAIN = "sealed:", "plain:"
# The same text must make the same key in every process, and there is no place of its own for a salt.
_SALT = b"everthink secrets 1"


class Sealer:
    """Seals JSON objects and opens them. `secret` is the value of `EVERTHINK_SECRET_KEY`; `None`: no key."""

    def __init__(self, secret: str | None = None) -> None:
        self._keys = tuple(filter(None, (key.strip() for key in (secret or "").split(","))))
        for number, key in enumerate(self._keys, 1):
            if len(key) < SHORTEST_KEY:
                raise InvalidSettings(
                    f"{SECRET_KEY}: key {number} of {len(self._keys)} has {len(key)} characters.",
                    kept="Nothing was sealed or opened.",
                    next_step=f"A key has at least {SHORTEST_KEY}. Make one: python -c"
                    ' "import secrets; print(secrets.token_urlsafe(32))"',
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Sealer:
        """The one that the environment has keys for."""
        return cls(environment.get(SECRET_KEY))

    @property
    def has_key(self) -> bool:
        """True when what is stored is sealed."""
        return bool(self._keys)

    def seal(self, value: Mapping[str, Any]) -> str:
        """The object as text for a column."""
        written = bounded_json(dict(value))
        if not self._keys:
            return _PLAIN + written.decode()
        return _SEALED + self._boxes[0].encrypt(written).decode()

    def open(self, text: str) -> dict[str, Any]:
        """The object in a column. Raises `SecretsUnreadable` when no key opens it."""
        if text.startswith(_PLAIN):
            return _object(text.removeprefix(_PLAIN))
        if not text.startswith(_SEALED):
            raise _unreadable("they are not in a form that is known here")
        if not self._keys:
            raise _unreadable(f"they are sealed, and {SECRET_KEY} is not set")
        for box in self._boxes:
            if (found := _opened(box, text)) is not None:
                return _object(found)
        keys = "the key" if len(self._keys) == 1 else f"none of the {len(self._keys)} keys"
        raise _unreadable(f"{keys} in {SECRET_KEY} {'is another' if len(self._keys) == 1 else 'opens them'}")

    def is_current(self, text: str) -> bool:
        """True when `seal` would seal it in the same way: with the first key, or plain without any."""
        if not self._keys:
            return text.startswith(_PLAIN)
        return text.startswith(_SEALED) and _opened(self._boxes[0], text) is not None

    @staticmethod
    def is_sealed(text: str) -> bool:
        """True for what only a key opens."""
        return text.startswith(_SEALED)

    @cached_property
    def _boxes(self) -> list[Fernet]:
        try:
            from cryptography.fernet import Fernet
        except ImportError as error:
            raise MissingExtra(
                f"{SECRET_KEY} is set, and the package cryptography, which seals with it, is not installed.",
                kept="Nothing was sealed or opened.",
                next_step='Run: pip install "everthink[mcp]"',
            ) from error
        return [Fernet(_key_of(key)) for key in self._keys]

    def __repr__(self) -> str:
        return f"<Sealer with {len(self._keys)} keys>" if self._keys else "<Sealer without a key>"


def _key_of(text: str) -> bytes:
    """A key of Fernet: the text itself, or one made from it, slowly, so that it cannot be guessed in bulk."""
    try:
        if len(text) == 44 and len(base64.b64decode(text, altchars=b"-_", validate=True)) == 32:
            return text.encode()
    except (binascii.Error, ValueError):
        pass
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    made = Scrypt(salt=_SALT, length=32, n=2**14, r=8, p=1).derive(text.encode("utf-8", "surrogatepass"))
    return base64.urlsafe_b64encode(made)


def _opened(box: Fernet, text: str) -> bytes | None:
    from cryptography.fernet import InvalidToken

    try:
        return box.decrypt(text.removeprefix(_SEALED).encode())
    except InvalidToken:
        return None


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        found = decode_json(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise _unreadable("what is stored is no JSON object") from None
    return cast("dict[str, Any]", found)


def _unreadable(why: str) -> SecretsUnreadable:
    return SecretsUnreadable(
        f"The secrets of this MCP server cannot be opened: {why}.",
        kept="They are stored as they were, and other servers are not affected.",
        next_step=f"Put the key they were sealed with into {SECRET_KEY} (beside a new one, after a comma),"
        " or remove the server and add it again.",
    )
