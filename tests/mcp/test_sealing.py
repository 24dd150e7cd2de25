"""Secrets in a database."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from everthink.errors import AgentError, InvalidSettings, MissingExtra, SecretsUnreadable
from everthink.oauth.keep import Keep
from everthink.oauth.sealing import SECRET_KEY, Sealer

SECRETS = {"tokens": {"access_token": "hunter2-and-more"}, "headers": {"X-Key": "hunter3"}}
WORDS = "a sentence that nobody guesses"
OTHER = "another sentence nobody guesses"
FERNET = Fernet.generate_key().decode()


@pytest.mark.parametrize(
    "key", [WORDS, FERNET, f"{FERNET},{WORDS}", f" {WORDS} , "], ids=["words", "fernet", "both", "spaced"]
)
def test_what_is_sealed_can_be_opened_and_not_be_read(key: str) -> None:
    sealed = Sealer(key).seal(SECRETS)
    assert sealed.startswith("sealed:")
    assert "hunter" not in sealed
    assert Sealer(key).open(sealed) == SECRETS


def test_without_a_key_it_is_plain_and_says_so() -> None:
    for sealer in (Sealer(), Sealer(""), Sealer.from_environment({})):
        assert sealer.seal(SECRETS).startswith("plain:{")
        assert sealer.open(sealer.seal(SECRETS)) == SECRETS
        assert not sealer.has_key


def test_the_key_is_the_environment_s() -> None:
    sealed = Sealer.from_environment({SECRET_KEY: WORDS}).seal(SECRETS)
    assert Sealer(WORDS).open(sealed) == SECRETS


def test_what_was_plain_is_still_opened_once_there_is_a_key() -> None:
    plain = Sealer().seal(SECRETS)
    sealer = Sealer(WORDS)
    assert sealer.open(plain) == SECRETS
    assert not sealer.is_current(plain)


def test_a_key_is_changed_by_putting_the_new_one_before_it() -> None:
    old, both, new = Sealer(WORDS), Sealer(f"{FERNET},{WORDS}"), Sealer(FERNET)
    sealed = old.seal(SECRETS)
    assert both.open(sealed) == SECRETS
    assert not both.is_current(sealed)
    sealed = both.seal(both.open(sealed))
    assert both.is_current(sealed)
    assert new.open(sealed) == SECRETS
    with pytest.raises(SecretsUnreadable):
        old.open(sealed)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (None, Sealer(FERNET).seal(SECRETS), "EVERTHINK_SECRET_KEY is not set"),
        (OTHER, Sealer(FERNET).seal(SECRETS), "the key in EVERTHINK_SECRET_KEY is another"),
        (f"{OTHER},{WORDS}", Sealer(FERNET).seal(SECRETS), "none of the 2 keys"),
        (FERNET, "sealed:ÄÖÜ", "is another"),
        (FERNET, "sealed:", "is another"),
        (FERNET, "hunter2", "not in a form"),
        (None, "plain:hunter2", "no JSON object"),
        (None, "plain:[1]", "no JSON object"),
    ],
    ids=["1", "2", "3", "4", "5", "6", "7", "8"],
)
def test_what_cannot_be_opened_is_told_in_words_without_the_secret(
    key: str | None, text: str, words: str
) -> None:
    with pytest.raises(SecretsUnreadable) as caught:
        Sealer(key).open(text)
    told = f"{caught.value} {caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
    assert words in told
    assert "hunter" not in told
    assert (key or "-none-") not in told


def test_a_key_that_is_too_short_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSettings, match="key 2 of 2 has 7 characters") as caught:
        Sealer(f"{WORDS},hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["x" * 44, "=" * 44, "é" * 44, FERNET[:-1]], ids=["x", "=", "é", "short"])
def test_a_text_that_only_looks_like_a_key_of_fernet_is_a_text(key: str) -> None:
    assert Sealer(key).open(Sealer(key).seal(SECRETS)) == SECRETS


def test_no_key_is_in_what_is_printed() -> None:
    for sealer in (Sealer(WORDS), Sealer(FERNET)):
        sealer.seal(SECRETS)
        assert WORDS not in f"{sealer} {sealer!r}"
        assert FERNET not in f"{sealer} {sealer!r}"


def test_without_the_extra_a_key_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    with pytest.raises(MissingExtra, match=r"everthink\[mcp\]"):
        Sealer(WORDS).seal(SECRETS)
    assert Sealer().open(Sealer().seal(SECRETS)) == SECRETS


# --- a keep


class Column:
    def __init__(self, file: Path) -> None:
        self.file = file

    async def load(self) -> str | None:
        await asyncio.sleep(0)
        return self.file.read_text() if self.file.exists() else None

    async def save(self, text: str) -> None:
        await asyncio.sleep(0)
        self.file.write_text(text)

    def keep(self, key: str | None = FERNET) -> Keep:
        return Keep(Sealer(key), self.load, self.save)


@pytest.fixture
def column(tmp_path: Path) -> Column:
    return Column(tmp_path / "secrets")


@pytest.mark.anyio
async def test_what_is_written_is_there_after_a_restart_and_the_rest_stays(column: Column) -> None:
    assert await column.keep().read() == {}
    await column.keep().write(a=1, b=[2])
    await column.keep().write(b=None, c="three")
    assert await column.keep().read() == {"a": 1, "c": "three"}
    assert column.file.read_text().startswith("sealed:")


@pytest.mark.anyio
async def test_changes_at_once_lose_nothing(column: Column) -> None:
    keep = column.keep()
    await asyncio.gather(*(keep.write(**{f"k{number}": number}) for number in range(10)))
    assert len(await keep.read()) == 10


@pytest.mark.anyio
async def test_of_two_that_take_the_same_one_gets_it(column: Column) -> None:
    keep = column.keep()
    await keep.write(ticket=1)

    taken = await asyncio.gather(
        *(keep.change(lambda kept: {"ticket": None} if "ticket" in kept else None) for _ in range(2))
    )

    assert sorted(taken) == [False, True]


@pytest.mark.anyio
async def test_secrets_that_cannot_be_opened_are_not_overwritten_unless_one_starts_over(
    column: Column,
) -> None:
    await column.keep().write(a=1)
    before = column.file.read_text()

    with pytest.raises(AgentError, match="cannot be opened"):
        await column.keep(OTHER).write(b=2)

    assert column.file.read_text() == before
    await column.keep(OTHER).start_over(b=2)
    assert await column.keep(OTHER).read() == {"b": 2}
