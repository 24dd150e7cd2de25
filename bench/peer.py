"""pydantic-ai doing the same work: `Agent.iter` over a `FunctionModel`, the cheapest of its ways to stream.

It keeps the history in memory and journals nothing, so a crash loses everything it streamed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, PartDeltaEvent, PartStartEvent, TextPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from .work import JOBS, QUESTION, Job, add


def _agent(job: Job) -> Agent[None, str]:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if job.calls_tool and not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            yield {0: DeltaToolCall(name="add", json_args='{"a": 1,', tool_call_id="call")}
            yield {0: DeltaToolCall(json_args=' "b": 2}')}
            return
        async for word in job.speak():
            yield word

    return Agent(FunctionModel(stream_function=stream), tools=[add] if job.calls_tool else [])


class Peer:
    """Conversations with pydantic-ai agents."""

    name = "pydantic-ai"

    def __init__(self) -> None:
        self._agents = {job: _agent(job) for job in JOBS}
        self._histories: dict[str, list[ModelMessage]] = {}

    async def close(self) -> None:
        self._histories.clear()

    async def turn(self, agent: str, job: Job) -> None:
        heard = 0
        async with self._agents[job].iter(QUESTION, message_history=self._histories.get(agent)) as run:
            async for node in run:
                if not Agent.is_model_request_node(node):
                    continue
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        # The first word comes inside the event that opens the part.
                        opens = isinstance(event, PartStartEvent) and isinstance(event.part, TextPart)
                        if opens or isinstance(event, PartDeltaEvent):
                            heard += 1
                            if job.pace is not None:
                                job.heard.append(time.perf_counter())
        assert run.result is not None
        self._histories[agent] = run.result.all_messages()
        assert heard >= job.words, f"{heard} of {job.words} words"
