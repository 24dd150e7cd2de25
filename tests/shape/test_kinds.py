"""Every setting has its kind in the table, and every default is of its kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from everthink import Agent, Allow, Block, Retry, ScheduledTask, StepConfig, Substitute, Think, TurnConfig
from everthink.children import Detached
from everthink.context.blocks import BlockOptions
from everthink.declaring import NO_STATE
from everthink.fibers import FiberRecovery
from everthink.file_tools import BashOptions
from everthink.hooks import Timeouts
from everthink.kinds import KINDS
from everthink.mcp import HttpServer, LocalServer, StdioServer
from everthink.memory import ContextOverflow, MediaEviction, Proactive, Shortening
from everthink.messengers import DeliveryPolicy, MessengerDefinition
from everthink.own import OWN_WORKSPACE
from everthink.recovery import ChatRecovery, RecoveryDecision
from everthink.settings import settings_of

CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Allow,
        BashOptions,
        Block,
        BlockOptions,
        ChatRecovery,
        ContextOverflow,
        DeliveryPolicy,
        Detached,
        FiberRecovery,
        HttpServer,
        LocalServer,
        MediaEviction,
        MessengerDefinition,
        Proactive,
        RecoveryDecision,
        Retry,
        ScheduledTask,
        Shortening,
        StdioServer,
        StepConfig,
        Substitute,
        Timeouts,
        TurnConfig,
    )
}


def test_the_table_has_the_settings_objects_there_are() -> None:
    assert set(KINDS) == {*CLASSES, "Agent", "Think"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_has_its_kind_and_its_default_is_of_it(name: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(CLASSES[name])}
    assert set(KINDS[name]) == set(fields)
    for field in fields.values():
        if field.default is not dataclasses.MISSING:
            assert KINDS[name][field.name].takes(field.default), field.name


@pytest.mark.parametrize("cls", [Agent, Think])
def test_every_setting_of_an_agent_has_its_kind_and_its_default_is_of_it(cls: type) -> None:
    assert set(KINDS[cls.__name__]) == settings_of(cls)
    for name, kind in KINDS[cls.__name__].items():
        default = getattr(cls, name)
        assert kind.takes(default) or default in (NO_STATE, OWN_WORKSPACE), name
