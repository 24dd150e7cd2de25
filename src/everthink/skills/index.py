"""Skills of another site, by its index: `/.well-known/agent-skills/index.json`.

    from_index("https://example.com") --guard--> the index --> names and descriptions
                                      --guard--> an artifact, when its skill is used --digest--> in memory

Words and files of strangers. An artifact counts only when its bytes have the digest that the index says;
addresses lead to the public web alone; archives are unpacked within bounds. Scripts of it are not run unless
that is allowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from ..clock import Clock, SystemClock
from ..errors import AgentError, InvalidSettings, MissingExtra, SkillError
from ..guard.addresses import named_places
from ..kinds import YES_NO, check_options
from ..settings import shown
from ..skill_values import SKILL_FILE, Diagnostic, Resource, Skill, SkillInfo, is_safe_path
from ..words import said
from .archive import unpacked
from .installing import skills_in
from .tree import OPTIONS, Bounds, FilesTree, Index, index_of, resource_of

__all__ = ["INDEX_PATH", "IndexSource", "from_index"]

INDEX_PATH = "/.well-known/agent-skills/index.json"
MOST_INDEX_BYTES, MOST_ARTIFACT_BYTES = 1024 * 1024, 10 * 1024 * 1024
TIMEOUT, MOST_REDIRECTS = 10.0, 5
KEPT = 16
"""Artifacts that are kept in memory; the others are fetched again when they are needed."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def from_index(
    url: str,
    *,
    id: str | None = None,
    refresh_interval: float = 300.0,
    allow: Sequence[str] = (),
    loopback: bool = False,
    allow_scripts: bool = False,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> IndexSource:
    """Skills that a site publishes. `url` is the site, or its index itself.

        skills = [skills.from_index("https://example.com")]

    `allow` names hosts that may lead anywhere (`"skills.lan:8080"`), `loopback` lets this machine pass. What
    you read from there becomes instructions of your model: name only sites that you trust with them.
    """
    parts = urlsplit(url) if isinstance(url, str) else None  # pyright: ignore[reportUnnecessaryIsInstance] - users call it
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSettings(
            f"from_index: {shown(url)} is no address of a site.", next_step='Write "https://example.com".'
        )
    options = {**OPTIONS, "loopback": YES_NO, "allow_scripts": YES_NO}
    given = {"id": id, "refresh_interval": refresh_interval, "bounds": bounds}
    check_options("from_index", options, loopback=loopback, allow_scripts=allow_scripts, **given)
    named_places(allow, "from_index: allow")
    index = url if parts.path.strip("/") else urljoin(url, INDEX_PATH)
    return IndexSource(
        id or f"index:{index}",
        index,
        refresh_interval=refresh_interval,
        allow=tuple(allow),
        loopback=loopback,
        allow_scripts=allow_scripts,
        bounds=bounds or Bounds(),
        clock=clock or SystemClock(),
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    name: str
    description: str
    kind: str
    url: str
    digest: str


class IndexSource:
    """The skills of a site."""

    def __init__(
        self,
        id: str,
        url: str,
        *,
        refresh_interval: float,
        allow: tuple[str, ...],
        loopback: bool,
        allow_scripts: bool,
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        self.id, self.url, self.allow_scripts = id, url, allow_scripts
        self._interval, self._allow, self._loopback = refresh_interval, allow, loopback
        self._bounds, self._clock = bounds, clock
        self._listed: dict[str, _Listed] | None = None
        self._looked_at = 0.0
        self._told: tuple[Diagnostic, ...] = ()
        self._fetched: OrderedDict[str, tuple[Index, Mapping[str, bytes]]] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Its id, and since the first look a hash of the digests."""
        if self._listed is None:
            return self.id
        text = json.dumps([(one.name, one.description, one.digest) for one in self._listed.values()])
        return f"{self.id}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What there is to say of the index."""
        return self._told

    async def list(self) -> Sequence[SkillInfo]:
        """What the index names."""
        return tuple(
            SkillInfo(one.name, one.description, source_id=self.id)
            for one in (await self._current()).values()
        )

    async def load(self, name: str) -> Skill | None:
        """One of them, fetched and checked when it is used for the first time."""
        found = await self._skill(name)
        return None if found is None else found[0]

    async def read_resource(self, name: str, path: str) -> Resource | None:
        """A file of a skill."""
        found = await self._skill(name)
        if found is None or not is_safe_path(path):
            return None
        skill, files = found
        info = next((one for one in skill.resources if one.path == path), None)
        data = None if info is None else files.get(f"{name}/{path}")
        return None if info is None or data is None else resource_of(info, data)

    async def refresh(self) -> None:
        """Fetch the index again, unless that was done less than `refresh_interval` seconds ago."""
        await self._current()

    async def _current(self) -> Mapping[str, _Listed]:
        now = self._clock.monotonic()
        if self._listed is None or now - self._looked_at >= self._interval:
            data = await self._get(self.url, MOST_INDEX_BYTES)
            self._listed, self._told = _read(data, self.url, self.id, self._bounds)
            self._looked_at = now
        return self._listed

    async def _skill(self, name: str) -> tuple[Skill, Mapping[str, bytes]] | None:
        listed = (await self._current() if self._listed is None else self._listed).get(name)
        if listed is None:
            return None
        found = self._fetched.get(listed.digest)
        if found is None:
            found = await self._made(listed)
            self._fetched[listed.digest] = found
            while len(self._fetched) > KEPT:
                self._fetched.popitem(last=False)
        self._fetched.move_to_end(listed.digest)
        index, files = found
        [skill] = index.skills.values()
        return replace(skill, name=listed.name, description=listed.description, source_id=self.id), files

    async def _made(self, listed: _Listed) -> tuple[Index, Mapping[str, bytes]]:
        data = await self._get(listed.url, MOST_ARTIFACT_BYTES)
        if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), listed.digest):
            raise SkillError(
                f"The skill {listed.name!r} is not the one that {self.url} names: it has another digest.",
                kept="Nothing of it was used.",
                next_step="Ask its publisher.",
            )
        if listed.kind == "archive":
            below = skills_in(await asyncio.to_thread(unpacked, data, self._bounds))
            if len(below) != 1:
                raise SkillError(
                    f"The archive of {listed.name!r} has {len(below)} skills.", kept="Nothing of it was used."
                )
            [files] = below.values()
        else:
            files = {SKILL_FILE: data}
        files = {f"{listed.name}/{path}": content for path, content in files.items()}
        index = await index_of(FilesTree(files), self._bounds, self.id)
        if len(index.skills) != 1:
            why = next(
                (str(one) for one in index.diagnostics if one.level == "error"), "There is none in it."
            )
            raise SkillError(
                f"The skill {listed.name!r} cannot be read. {why}", kept="Nothing of it was used."
            )
        return index, files

    async def _get(self, url: str, most: int) -> bytes:
        httpx2, transport = _http()
        where = f"{urlsplit(url).hostname}"
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                httpx2.AsyncClient(
                    transport=transport(loopback=self._loopback, allow=self._allow),
                    follow_redirects=True,
                    max_redirects=MOST_REDIRECTS,
                    trust_env=False,
                    timeout=TIMEOUT,
                ) as client,
                client.stream("GET", url) as answer,
            ):
                if answer.status_code != 200:
                    raise SkillError(f"{where} answered {answer.status_code} for {said(url, 200)}.")
                data = bytearray()
                async for piece in answer.aiter_bytes():
                    data += piece
                    if len(data) > most:
                        raise SkillError(f"{said(url, 200)} has more than {most:,} bytes.")
                return bytes(data)
        except (AgentError, asyncio.CancelledError):
            raise
        except TimeoutError as error:
            raise SkillError(f"{where} did not answer within {TIMEOUT:g} seconds.") from error
        except Exception as error:
            raise SkillError(f"{where} cannot be asked ({type(error).__name__}).") from error


def _read(
    data: bytes, url: str, source_id: str, bounds: Bounds
) -> tuple[dict[str, _Listed], tuple[Diagnostic, ...]]:
    """The entries of an index that can be used, and why the others cannot."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SkillError(f"{said(url, 200)} is no JSON.") from error
    entries: Any = cast("dict[str, Any]", found).get("skills") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise SkillError(f"{said(url, 200)} is no index of skills: it has no list `skills`.")
    listed, told = dict[str, _Listed](), list[Diagnostic]()

    def say(skill: str | None, what: str) -> None:
        told.append(Diagnostic("warning", skill, what, "", source_id))

    for place, entry in enumerate(cast("list[Any]", entries)):
        made = _entry(entry, url)
        if isinstance(made, str):
            say(None, f"Entry {place + 1} of the index is left out: {made}.")
        elif made.name in listed:
            say(made.name, "The index has it twice; the first one is used.")
        elif len(listed) >= bounds.skills:
            say(None, f"The index has more than {bounds.skills:,} skills; the rest is left out.")
            break
        else:
            listed[made.name] = made
    return listed, tuple(told)


def _entry(entry: Any, base: str) -> _Listed | str:
    if not isinstance(entry, dict):
        return "it is no object"
    fields = cast("dict[str, Any]", entry)
    name, description, kind, url, digest = (
        fields.get(key) for key in ("name", "description", "type", "url", "digest")
    )
    if (
        not isinstance(name, str)
        or not name.strip()
        or len(name) > 200
        or not is_safe_path(name)
        or "/" in name
    ):
        return "it has no name that can be used"
    if not name.isprintable() or not isinstance(description, str) or not description.strip():
        return "it has no description"
    if kind not in ("skill-md", "archive"):
        return f"its type is {said(kind, 40)!r}, and we know skill-md and archive"
    if not isinstance(url, str) or not url.strip():
        return "it has no url"
    found = _DIGEST.fullmatch(digest.lower()) if isinstance(digest, str) else None
    if found is None:
        return "it has no digest of the form sha256:…"
    try:
        where = urljoin(base, url)
    except ValueError:
        return "its url cannot be read"
    if urlsplit(where).scheme not in ("http", "https"):
        return "its url is none of the web"
    return _Listed(name.strip(), description.strip(), str(kind), where, found[1])


def _http() -> tuple[Any, Any]:
    try:
        import httpx2

        from ..guard.transport import GuardedTransport
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "skills.from_index needs the package httpx2, which is not installed.",
            kept="Nothing was fetched.",
            next_step='Run: pip install "everthink[providers]"',
        ) from error
    return httpx2, GuardedTransport
