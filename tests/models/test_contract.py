"""Every model of ours keeps the promises of the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from everthink.models.demo import DemoModel
from everthink.models.port import Model
from everthink.testing.contracts.model import ModelContract, answer
from everthink.testing.scripted import ScriptedModel, fails
from everthink.testing.served import Endpoint, served

pytestmark = pytest.mark.anyio

SLOW_DOWN = fails("Slow down.", kind="rate_limit", retry_after=1)


class TestScriptedModel(ModelContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Model, None]:
        yield ScriptedModel(answer, repeat=True)

    @asynccontextmanager
    async def refused(self) -> AsyncGenerator[Model, None]:
        yield ScriptedModel(SLOW_DOWN)


class TestDemoModel(ModelContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Model, None]:
        yield DemoModel(pace=0)


class Served(ModelContract):
    """A real adapter that talks to a scripted model over HTTP."""

    def adapter(self, endpoint: Endpoint) -> Model:
        raise NotImplementedError

    def opened(self) -> AbstractAsyncContextManager[Model]:
        return self._serving(ScriptedModel(answer, repeat=True))

    def refused(self) -> AbstractAsyncContextManager[Model]:
        return self._serving(ScriptedModel(SLOW_DOWN))

    @asynccontextmanager
    async def _serving(self, scripted: ScriptedModel) -> AsyncGenerator[Model, None]:
        async with served(scripted) as endpoint:
            yield self.adapter(endpoint)


class TestOpenAIChat(Served):
    def adapter(self, endpoint: Endpoint) -> Model:
        return endpoint.openai_model()


class TestOpenAIResponses(Served):
    def adapter(self, endpoint: Endpoint) -> Model:
        return endpoint.openai_responses_model()


class TestAnthropic(Served):
    def adapter(self, endpoint: Endpoint) -> Model:
        return endpoint.anthropic_model()


del Served
