"""Times that people get or give are aware datetimes, or seconds; milliseconds are for rows and frames."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import everthink

from ..support.public import PUBLIC

VALUES = [value for value in PUBLIC.values() if inspect.isclass(value) and dataclasses.is_dataclass(value)]
MOMENT = re.compile(r"(^|_)(at|time|until|since)$|(settled|completed)_(before|after)$")
MILLISECONDS = re.compile(r"_ms$|Ms$|milliseconds")


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_no_value_has_a_time_that_is_a_whole_number(cls: type) -> None:
    wrong = [
        field.name
        for field in dataclasses.fields(cls)
        if MILLISECONDS.search(field.name)
        or (MOMENT.search(field.name) and str(field.type).partition(" ")[0] in ("int", "float"))
    ]
    assert wrong == []


@pytest.mark.parametrize("cls", [everthink.Agent, everthink.Think])
def test_no_method_takes_a_time_that_is_a_whole_number(cls: type) -> None:
    wrong = [
        f"{name}({parameter})"
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        for parameter, given in inspect.signature(method).parameters.items()
        if MILLISECONDS.search(parameter)
        or (MOMENT.search(parameter) and str(given.annotation).partition(" ")[0] == "int")
    ]
    assert wrong == []
