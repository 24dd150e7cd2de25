"""Accepting once, under an id or a key."""

from __future__ import annotations

import asyncio

import pytest

from everthink.accepting import Acceptances, known_record
from everthink.errors import StoreClosed

pytestmark = pytest.mark.anyio

Record = tuple[str, str | None]


class TwoRecords(Exception):
    """The id and the key are those of two records."""


async def known(id: str | None, key: str | None, *records: Record) -> Record | None:
    async def by_id(id: str) -> Record | None:
        return next((record for record in records if record[0] == id), None)

    async def by_key(key: str) -> Record | None:
        return next((record for record in records if record[1] == key), None)

    return await known_record(
        id, key, by_id=by_id, by_key=by_key, names=lambda record: record, conflict=TwoRecords
    )


@pytest.mark.parametrize(("id", "key"), [("a", None), (None, "k"), ("a", "k")])
async def test_a_record_is_found_by_its_id_its_key_or_both(id: str | None, key: str | None) -> None:
    assert await known(id, key, ("a", "k"), ("b", None)) == ("a", "k")


@pytest.mark.parametrize(("id", "key"), [(None, None), ("c", None), (None, "m"), ("c", "m")])
async def test_what_nobody_stored_is_new(id: str | None, key: str | None) -> None:
    assert await known(id, key, ("a", "k"), ("b", None)) is None


async def test_a_record_without_a_key_is_found_with_any() -> None:
    assert await known("b", "k", ("b", None)) == ("b", None)


@pytest.mark.parametrize(("id", "key"), [("b", "k"), ("c", "k"), ("a", "m")])
async def test_an_id_and_a_key_of_two_records_are_refused(id: str, key: str) -> None:
    with pytest.raises(TwoRecords):
        await known(id, key, ("a", "k"), ("b", None))


async def test_what_is_being_accepted_goes_on_when_its_caller_has_left() -> None:
    acceptances: Acceptances[str] = Acceptances()
    begun, done = asyncio.Event(), asyncio.Event()
    stored: list[str] = []

    async def accept() -> str:
        begun.set()
        await done.wait()
        stored.append("a")
        return "a"

    caller = asyncio.create_task(acceptances.see_through(accept()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    done.set()
    await acceptances.settled()
    assert stored == ["a"]


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(StoreClosed("The store is closed."), False), (ValueError("a mistake"), True)],
    ids=["stopping", "failed"],
)
async def test_what_fails_when_nobody_waits_any_more_is_told_unless_the_process_stops(
    error: Exception, is_told: bool
) -> None:
    acceptances: Acceptances[str] = Acceptances()
    begun, done = asyncio.Event(), asyncio.Event()
    told: list[object] = []
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def accept() -> str:
        begun.set()
        await done.wait()
        raise error

    try:
        caller = asyncio.create_task(acceptances.see_through(accept()))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        done.set()
        await acceptances.settled()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(usual)
    assert told == ([error] if is_told else [])
