"""Call the hooks of one agent. Nobody else calls them.

    turn/, door/, recovery/, runtime/, server/ --before_turn, …--> HookRunner --> what the developer wrote

A hook may be `def` or `async def` and take fewer arguments than there are. What it may not answer is refused
in its name; what one raises that only looks on is logged, and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..calling import ask, call_hook, fitted, show
from ..errors import InvalidSettings
from ..models.port import Model
from ..settings import as_settings, check_returned, setting, shown
from ..tools.collect import as_tools
from ..tools.tool import Tool
from .listeners import Listeners
from .values import (
    ChatErrorContext,
    ChatResponse,
    ChunkContext,
    StepConfig,
    StepContext,
    StepResult,
    ToolCall,
    ToolDecision,
    ToolOutcome,
    TurnConfig,
    TurnContext,
    decision_of,
)

__all__ = ["HookRunner"]

log = logging.getLogger("everthink.hooks")


class HookRunner:
    """The hooks and settings of one agent. `base` is the class whose methods nobody wrote."""

    __slots__ = ("_base", "_name", "agent", "cls", "listeners")

    def __init__(self, agent: Any, base: type, name: str) -> None:
        self.agent: Any = agent
        self.cls: type[Any] = type(agent)
        self._base, self._name = base, name
        self.listeners: Listeners | None = None
        """Who else hears the hooks of a turn, after the agent itself."""

    def setting(self, name: str) -> Any:
        """What a setting of the agent is now. Raises `InvalidSettings` when it may not be that."""
        return setting(self.agent, name)

    def overrides(self, hook: str) -> bool:
        """True when the developer wrote that hook, in the class or on the instance."""
        # Asked anew each time: a hook may be assigned to a live agent.
        written = getattr(self.agent, hook)
        return getattr(written, "__func__", written) is not getattr(self._base, hook)

    def hears(self, hook: str) -> bool:
        """True when anybody hears that hook: the developer wrote it, or an extension is loaded that does."""
        return self.overrides(hook) or (self.listeners is not None and self.listeners.hears(hook))

    def sets(self, name: str) -> bool:
        """True when the developer's class has a value of its own for a setting."""
        return getattr(self.cls, name, None) is not getattr(self._base, name, None)

    def log_error(self, hook: str, error: BaseException) -> None:
        """Log what a hook raised where raising changes nothing."""
        log.error("%s.%s of %s raised", self.cls.__name__, hook, self._name, exc_info=error)

    async def _show(self, hook: str, *args: Any) -> None:
        """Let a hook look on. What it raises is logged."""
        try:
            await show(self.agent, hook, *args)
        except Exception as error:  # noqa: BLE001 - whoever looks on changes nothing
            self.log_error(hook, error)

    # --- what the agent is made of

    async def get_model(self) -> Model | str:
        """The model of a turn that names none."""
        return await call_hook(self.agent.get_model)

    async def get_system_prompt(self) -> str:
        """The system prompt."""
        prompt = await call_hook(self.agent.get_system_prompt)
        if not isinstance(prompt, str):
            raise InvalidSettings(f"get_system_prompt returned {shown(prompt)}.", next_step="Return text.")
        return prompt

    async def get_capability_prompt(self, tools: Mapping[str, Tool]) -> str | None:
        """What follows the prompt of a step that is offered these tools."""
        lines = await call_hook(self.agent.get_capability_prompt, tools)
        if lines is not None and not isinstance(lines, str):
            raise InvalidSettings(
                f"get_capability_prompt returned {shown(lines)}.", next_step="Return text, or None for none."
            )
        return lines

    async def get_tools(self) -> dict[str, Tool]:
        """Tools besides the `@tool` methods."""
        return as_tools(await call_hook(self.agent.get_tools))

    async def get_skills(self) -> Any:
        """The sources of its skills, as they are written."""
        return await call_hook(self.agent.get_skills)

    async def get_skill_script_runner(self) -> Any:
        """What runs the scripts of its skills."""
        return await call_hook(self.agent.get_skill_script_runner)

    async def get_messengers(self) -> Any:
        """Its messengers, as they are written."""
        return await call_hook(self.agent.get_messengers)

    async def get_extensions(self) -> Any:
        """The extensions that it declares, as they are written."""
        return await call_hook(self.agent.get_extensions)

    async def extension_policy(self, asked: Any) -> Any:
        """Which rights an extension gets that a model wants to load, as it was written."""
        return await call_hook(self.agent.extension_policy, asked)

    async def configure_session(self, session: Any) -> Any:
        """What the developer makes of a session."""
        return await call_hook(self.agent.configure_session, session)

    async def get_scheduled_tasks(self) -> Any:
        """The declared tasks, as they are written."""
        return await call_hook(self.agent.get_scheduled_tasks)

    async def get_default_timezone(self) -> Any:
        """The zone of schedules that name none."""
        return await call_hook(self.agent.get_default_timezone)

    # --- in the order of a turn

    async def before_turn(self, context: TurnContext) -> TurnConfig | None:
        """What is to change in a turn."""
        answer = await call_hook(self.agent.before_turn, context)
        config = None if answer is None else as_settings(TurnConfig, answer, "What before_turn returned")
        return config if self.listeners is None else await self.listeners.before_turn(context, config)

    async def before_step(self, context: StepContext) -> StepConfig | None:
        """What is to change in a step."""
        answer = await call_hook(self.agent.before_step, context)
        return None if answer is None else as_settings(StepConfig, answer, "What before_step returned")

    async def on_chunk(self, context: ChunkContext) -> None:
        """Show a piece of the answer."""
        if self.overrides("on_chunk"):
            await self._show("on_chunk", context)
        if self.listeners is not None:
            self.listeners.on_chunk(context)

    async def before_tool_call(self, call: ToolCall) -> ToolDecision | None:
        """Whether a call may run, and with which input."""
        decision = decision_of(await call_hook(self.agent.before_tool_call, call))
        if self.listeners is not None:
            await self.listeners.before_tool_call(call, decision)
        return decision

    async def after_tool_call(self, outcome: ToolOutcome) -> None:
        """Show what came of a call."""
        await self._show("after_tool_call", outcome)
        if self.listeners is not None:
            await self.listeners.after_tool_call(outcome)

    async def on_step_finish(self, step: StepResult) -> None:
        """Show a step that has ended."""
        if self.overrides("on_step_finish"):
            await self._show("on_step_finish", step)
        if self.listeners is not None:
            await self.listeners.on_step_finish(step)

    async def on_chat_response(self, response: ChatResponse) -> None:
        """Show a turn that has ended."""
        await self._show("on_chat_response", response)

    async def on_chat_error(self, error: BaseException, context: ChatErrorContext) -> Any:
        """What to say of a failure: an error or a text. The error itself when the hook says nothing."""
        try:
            answer = await ask("on_chat_error", self.agent.on_chat_error, error, context)
        except Exception as raised:  # noqa: BLE001 - the original error matters more
            self.log_error("on_chat_error", raised)
            return error
        return error if answer is None else answer

    async def classify_chat_error(self, error: BaseException, context: ChatErrorContext) -> str | None:
        """What kind of failure it is. `None`: just a failure, also when the hook raises."""
        try:
            return await ask("classify_chat_error", self.agent.classify_chat_error, error, context)
        except Exception as raised:  # noqa: BLE001 - the original error matters more
            self.log_error("classify_chat_error", raised)
            return None

    async def on_submission_status(self, submission: Any) -> None:
        """Show a submission whose status has changed."""
        await self._show("on_submission_status", submission)

    async def on_chat_recovery(self, context: Any) -> Any:
        """What is to become of a turn that was cut off, as it was written. Raises what the hook raises."""
        return await call_hook(self.agent.on_chat_recovery, context)

    # --- children

    async def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
        """Whether somebody may reach a child, as it was written. Raises what the hook raises."""
        return await call_hook(self.agent.on_before_sub_agent, request, cls, name)

    async def format_agent_tool_input(self, given: Any) -> Any:
        """What a child is asked with."""
        return await call_hook(self.agent.format_agent_tool_input, given)

    async def get_agent_tool_output(self, run_id: str) -> Any:
        """What a run gave, besides its text; `None`: nothing."""
        return await call_hook(self.agent.get_agent_tool_output, run_id)

    async def get_agent_tool_summary(self, run_id: str) -> str | None:
        """A run in words; `None`: what was answered."""
        summary = await call_hook(self.agent.get_agent_tool_summary, run_id)
        if summary is not None and not isinstance(summary, str):
            raise InvalidSettings(
                f"get_agent_tool_summary returned {shown(summary)}.", next_step="Return text, or None."
            )
        return summary

    async def on_agent_tool_start(self, run: Any) -> None:
        """Show a run that begins."""
        await self._show("on_agent_tool_start", run)

    async def on_agent_tool_finish(self, run: Any, result: Any) -> None:
        """Show a run that is over."""
        await self._show("on_agent_tool_finish", run, result)

    async def on_progress(self, run: Any, progress: Any) -> None:
        """Show how far a run is."""
        await self._show("on_progress", run, progress)

    async def format_detached_completion(self, run: Any, result: Any) -> str:
        """What the conversation reads of a run that nobody waited for."""
        return await self._text("format_detached_completion", run, result)

    async def format_detached_milestone(self, run: Any, milestone: Any) -> str:
        """What the conversation reads of a milestone of such a run."""
        return await self._text("format_detached_milestone", run, milestone)

    async def _text(self, hook: str, *args: Any) -> str:
        text = await call_hook(getattr(self.agent, hook), *args)
        if not isinstance(text, str):
            raise InvalidSettings(f"{hook} returned {shown(text)}.", next_step='Return text; "" for none.')
        return text

    # --- an agent's life

    async def on_start(self, props: Any) -> None:
        """The agent comes into memory. Raises what the hook raises."""
        await call_hook(self.agent.on_start, props)

    async def on_error(self, error: BaseException) -> None:
        """Show a failure that nobody waits for."""
        await self._show("on_error", error)

    async def on_fiber_recovered(self, context: Any) -> Any:
        """What became of a fiber of an earlier process. Raises what the hook raises."""
        return await call_hook(self.agent.on_fiber_recovered, context)

    # --- state

    def validate_state_change(self, state: Any, source: Any) -> None:
        """Raises what the hook raises, to refuse a state."""
        hook = self.agent.validate_state_change
        check_returned("validate_state_change", hook(*fitted(hook, state, source)))

    async def on_state_changed(self, state: Any, source: Any) -> None:
        """Show a state that was stored."""
        await self._show("on_state_changed", state, source)

    # --- connections

    async def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        """True for a client that may not change the state."""
        return bool(await self._asked("should_connection_be_readonly", connection, request))

    async def should_send_protocol_messages(self, connection: Any, request: Any) -> bool:
        """True for a client that gets identity, state and MCP frames."""
        return bool(await self._asked("should_send_protocol_messages", connection, request))

    async def _asked(self, hook: str, *args: Any) -> Any:
        return await ask(hook, getattr(self.agent, hook), *args)

    async def on_connect(self, connection: Any, request: Any) -> None:
        """A client connects. Raises what the hook raises."""
        await show(self.agent, "on_connect", connection, request)

    async def on_message(self, connection: Any, message: str | bytes) -> None:
        """Show what a client sent that is not part of the protocol."""
        await self._show("on_message", connection, message)

    async def on_close(self, connection: Any, code: int, reason: str) -> None:
        """Show that a client left."""
        await self._show("on_close", connection, code, reason)

    async def on_mcp_authorized(self, server: Any, error: str | None) -> Any:
        """Where a browser goes that comes back from an authorization server. What it raises is logged."""
        try:
            return await call_hook(self.agent.on_mcp_authorized, server, error)
        except Exception as raised:  # noqa: BLE001 - they go to the usual place
            self.log_error("on_mcp_authorized", raised)
            return None

    async def on_request(self, request: Any) -> Any:
        """The answer to an HTTP request, as it was written. Raises what the hook raises."""
        return await call_hook(self.agent.on_request, request)
