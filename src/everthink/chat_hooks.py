"""What a chat agent fills in: its settings, and the hooks of a turn with what each of them means.

    class Support(Think): before_tool_call(…)  -->  hooks/runner.py calls it, and nobody else does

Declarations and defaults alone. `Think` adds what may be asked of such an agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import InvalidSettings, NoModel
from .messages import Part, encode_json
from .own import OWN_WORKSPACE
from .prompt.wording import DEFAULT_SYSTEM_PROMPT, capabilities
from .settings import shown

if TYPE_CHECKING:
    from .children.values import AgentToolProgress, AgentToolResult, AgentToolRun
    from .door.concurrency import MessageConcurrency
    from .door.submission import Submission
    from .extensions.tools import Decision
    from .extensions.values import Extension, ExtensionRequest
    from .file_tools.bash import BashOptions
    from .hooks.values import (
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
    )
    from .messengers.definition import MessengerDefinition
    from .models.port import Model
    from .recovery.context import ChatRecoveryContext, RecoveryDecision
    from .recovery.incident import ChatRecovery
    from .schedules.task import ScheduledTask
    from .session.media import MediaEviction
    from .session.row_size import Shortening
    from .session.session import Session
    from .skills.port import ScriptRunner, SkillSource
    from .tools.tool import Tool
    from .turn.overflow import ContextOverflow
    from .workspace.workspace import Workspace

__all__ = ["Hooks"]


class Hooks:
    """The settings and hooks of a chat agent, with their defaults.

    Hooks run on every turn, whichever door it came through, in the order below; each may be `def` or
    `async def`. A plain `def` hook runs on the event loop: keep it short.
    """

    model: Model | str | None = None
    """The model of this agent: `"anthropic:claude-sonnet-5"`, `"demo"`, or a model object."""

    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    """What the model is told about itself."""

    capability_prompt: bool | str = True
    """What follows the system prompt: a few lines on what the model can do, made for each step from the
    tools it is offered (`True`), nothing (`False`), or a text of your own."""

    max_steps: int = 10
    """How many model calls one turn may take."""

    send_reasoning: bool = True
    """Whether readers see the model's thinking."""

    model_timeout: float | None = 300.0
    """Seconds a model may say nothing at all before its answer fails; 0 or `None`: for ever. Time in tools
    does not count, and each word begins it anew."""

    chat_stream_stall_timeout: float = 0.0
    """Seconds without a chunk after which an attempt is given up and the turn picked up again (or, with
    `chat_recovery = False`, failed); 0 never does. Time in tools counts: set it above the slowest one."""

    chat_recovery: ChatRecovery | dict[str, Any] | bool = True
    """What happens to a turn that a crash, a deploy or a stall cut off: it goes on, within the bounds of
    `ChatRecovery(max_attempts=…)`. `False`: it fails, keeping what it had said."""

    context_overflow: ContextOverflow | dict[str, Any] | None = None
    """What happens when the conversation grows too long for the model in mid-turn. Default: the
    turn fails. `ContextOverflow(reactive=True, proactive=Proactive(max_input_tokens=200_000))` makes room."""

    hydration_byte_budget: float = 24 * 1024 * 1024
    """How much of a conversation is kept in memory, at most; what is older stays in the database.
    0 or less, or `math.inf`: everything."""

    media_eviction: MediaEviction | dict[str, Any] | bool = True
    """Whether files and large tool outputs leave old messages: see `MediaEviction`."""

    shorten_old_messages: Shortening | dict[str, Any] | bool = True
    """Whether the model is shown long tool results and texts of older messages in short: see `Shortening`.
    What is stored stays whole."""

    message_concurrency: MessageConcurrency = "queue"
    """What happens to a message typed while a turn runs:
    `"queue"`, `"latest"`, `"merge"`, `"drop"`, `"debounce"` or `Debounce(seconds)`."""

    trust_client_history: bool = False
    """True: believe the transcript that a chat window sends, as the original does. Everybody who can open a
    socket can then put words into the model's mouth and results into its tools: see docs/security.md."""

    workspace: Workspace = OWN_WORKSPACE
    """The files of this agent: its own rows, or `Workspace(DiskFiles("/srv/shared"))` for a real directory.
    An object of your own with the methods that the tools use may take its place."""

    include_workspace_tools: bool = True
    """Whether the model is offered tools for the workspace: read, write, edit, list, find, grep, delete."""

    workspace_bash: bool | BashOptions | dict[str, Any] = True
    """Whether `bash` is among them (with the extra `sandbox`), and what a script may use: `BashOptions`."""

    skills: SkillSource | Sequence[SkillSource] = ()
    """Where its skills are: `skills.from_directory("skills", beside=__file__)` and others of
    `everthink.skills`, in their order: the first to have a name wins."""

    skill_script_runner: ScriptRunner | None = None
    """What runs scripts of skills. Without one the model has no `run_skill_script`."""

    messengers: Mapping[str, MessengerDefinition] = MappingProxyType({})
    """Where people talk with it besides the page: `{"telegram": telegram_messenger(…)}`."""

    extensions: Sequence[Extension | Mapping[str, Any]] = ()
    """Its extensions, in the order in which their hooks are heard: `Extension({"name": …}, source)`."""

    hook_timeout: float = 5.0
    """Seconds that an extension may take for a hook. Then the turn goes on without it."""

    include_mcp_tools: bool = True
    """Whether the model is offered the tools of the agent's MCP servers."""

    wait_for_mcp_connections: bool | float = False
    """Whether a turn waits for MCP servers that are being connected to: not at all, for 10 seconds (`True`),
    or so many. What a server offered before is offered without waiting."""

    # --- as a tool of another agent

    def format_agent_tool_input(self, input: Any) -> Any:
        """The message that this agent is asked with when it is a tool of another one: a text as it is, other
        values as JSON."""
        if input is None or (isinstance(input, str) and not input.strip()):
            raise InvalidSettings(
                f"run_agent_tool: input is {input!r}, which asks the child nothing.",
                next_step="Write what it is to do; a child that needs no input says so with"
                " format_agent_tool_input.",
            )
        if isinstance(input, str):
            return input
        try:
            return msgspec.json.format(encode_json(input)).decode()
        except (TypeError, ValueError) as error:
            raise InvalidSettings(
                f"run_agent_tool: input is {shown(input)}, which JSON cannot hold.",
                next_step="It takes text and JSON values; a child reads others in format_agent_tool_input.",
            ) from error

    def get_agent_tool_output(self, run_id: str) -> Any:
        """A value that the run `run_id` gave, for whoever asked: any JSON. Default: none but its text."""
        return None

    def get_agent_tool_summary(self, run_id: str) -> str | Awaitable[str | None] | None:
        """The run `run_id` in words, for whoever asked. Default: what was answered."""
        return None

    # --- what its conversation reads of detached runs

    def format_detached_completion(self, run: AgentToolRun, result: AgentToolResult) -> str | Awaitable[str]:
        """The message that this agent's model is asked with when a detached run is over, or was given up
        (`Detached(notify=True)`). An empty text: none. Raising: it is tried again later."""
        from .children.delivering import completion_text  # loaded with the first run

        return completion_text(run, result)

    def format_detached_milestone(
        self, run: AgentToolRun, milestone: AgentToolProgress
    ) -> str | Awaitable[str]:
        """The message of a milestone of a detached run (`Detached(on_milestones=…)`). An empty text: none."""
        from .children.delivering import milestone_text  # loaded with the first run

        return milestone_text(run, milestone)

    # --- what the agent is made of

    def get_model(self) -> Model | str:
        """The model of a turn. Default: the `model` attribute. Raising fails the turn before it begins."""
        if self.model is None:
            raise NoModel(
                f"{type(self).__name__} names no model.",
                next_step='Set `model = "provider:name"` (or "demo"), or override get_model().',
            )
        return self.model

    def get_system_prompt(self) -> str | Awaitable[str]:
        """The system prompt. Default: the `system_prompt` attribute."""
        return self.system_prompt

    def get_capability_prompt(self, tools: Mapping[str, Tool]) -> str | Awaitable[str | None] | None:
        """What follows the system prompt in a step that is offered `tools`. Default: `capability_prompt`.

        `None` or an empty text: nothing. A prompt that a hook replaces gets none. Raising fails the turn.
        """
        said = self.capability_prompt
        return capabilities(tools) if said is True else said or None

    def get_tools(self) -> Any:
        """More tools than the `@tool` methods: a dict by name or a list. Default: none."""
        return {}

    def get_skills(
        self,
    ) -> SkillSource | Sequence[SkillSource] | Awaitable[SkillSource | Sequence[SkillSource]]:
        """Where its skills are. Once per start. Default: the `skills` attribute.

        Raising, or returning what is no source, leaves the agent without skills; it serves.
        """
        return self.skills

    def get_skill_script_runner(self) -> ScriptRunner | Awaitable[ScriptRunner | None] | None:
        """What runs scripts of skills. Once per start. Default: the `skill_script_runner` attribute."""
        return self.skill_script_runner

    def get_messengers(
        self,
    ) -> Mapping[str, MessengerDefinition] | Awaitable[Mapping[str, MessengerDefinition]]:
        """Its messengers, by ids of your own. Once per start of an agent without a parent. Default: the
        `messengers` attribute.

        Raising, or returning what makes no sense, keeps the agent from starting.
        """
        return self.messengers

    def get_extensions(
        self,
    ) -> Sequence[Extension | Mapping[str, Any]] | Awaitable[Sequence[Extension | Mapping[str, Any]]]:
        """The extensions that it has from its start on, in load order. Default: the `extensions` attribute.

        One that cannot be loaded leaves the agent without it; it serves, and the others are there.
        """
        return self.extensions

    def extension_policy(self, asked: ExtensionRequest) -> Decision | Awaitable[Decision]:
        """Which rights an extension gets that the model wants to load (`create_extension_tools`).

        Return `Permissions(…)`: what it asks for, up to these. `Approval()`: a person is asked.
        `Refuse(reason)`: it is not loaded; nor is it when this raises. Default: it may read the workspace,
        and a person is asked for more, and for hooks.
        """
        from .extensions.tools import default_policy  # for the agents that let their model load some

        return default_policy(asked)

    def configure_session(self, session: Session) -> Session | Awaitable[Session | None] | None:
        """Set up the conversation's memory. Once per start, before `on_start`; `get_config` works here."""
        return session

    # --- hooks, in the order of a turn

    def before_turn(self, turn: TurnContext) -> TurnConfig | Awaitable[TurnConfig | None] | None:
        """Change the model, prompt, messages or tools of this one turn. `None` keeps them.

        Raising fails the turn before the model is asked.
        """

    def before_step(self, step: StepContext) -> StepConfig | Awaitable[StepConfig | None] | None:
        """Change the model, tools or messages of this one step. `None` keeps them.

        Raising breaks the answer off; what was said so far is stored.
        """

    def on_chunk(self, chunk: ChunkContext) -> Awaitable[None] | None:
        """See each piece of the answer as it arrives. A slow one slows the stream. Raising is logged."""

    def before_tool_call(self, call: ToolCall) -> ToolDecision | Awaitable[ToolDecision | None] | None:
        """Stop, answer or adjust a tool call before it runs. `None` lets it run.

        Raising becomes the tool's error, which the model reads.
        """

    def after_tool_call(self, outcome: ToolOutcome) -> Awaitable[None] | None:
        """See what came of a call: run, blocked, substituted or failed. Raising is logged."""

    def on_step_finish(self, step: StepResult) -> Awaitable[None] | None:
        """See a finished step with its usage. The next step waits for this. Raising is logged."""

    def on_chat_response(self, response: ChatResponse) -> Awaitable[None] | None:
        """React once the reply is stored. The turn is over, so this may start another one.

        Raising is logged and loses nothing.
        """

    def on_chat_error(self, error: BaseException, ctx: ChatErrorContext) -> Any:
        """Say what people read when a turn fails: return an error or a text. Once per failed turn.

        What was said before is stored already. Returning `None`, or raising, keeps the error.
        """
        return error

    def classify_chat_error(
        self, error: BaseException, ctx: ChatErrorContext
    ) -> str | Awaitable[str | None] | None:
        """Say what kind of failure this is. `"context_overflow"`: the conversation is too long for the model.

        Default: `default_context_overflow_classifier`. Any other word, `None`, or raising: just a failure.
        """
        from .models.classify import default_context_overflow_classifier  # loaded with the first failure

        return default_context_overflow_classifier(error)

    def on_submission_status(self, submission: Submission) -> Awaitable[None] | None:
        """See a submission change its status. Raising is logged."""

    def on_chat_recovery(
        self, ctx: ChatRecoveryContext
    ) -> RecoveryDecision | Awaitable[RecoveryDecision | None] | None:
        """Decide about a turn that was cut off, before it goes on. `None` keeps what it said and goes on.

        The hook may bring the answer from elsewhere (`add_messages`) and return
        `RecoveryDecision(persist=False, continue_=False)`. Raising keeps the turn; it comes again later.
        """

    def repair_interrupted_tool_part(self, part: Part) -> Part:
        """Say what becomes of a call that was interrupted: a settled tool part, or a part of another kind.

        Default: a failed call whose error says that it was interrupted.
        """
        from .session.repair import as_interrupted  # loaded with the first turn

        return as_interrupted(part)

    # --- declared tasks

    default_timezone: str | None = None
    """The zone of schedules that name a time of day and no zone."""

    def get_default_timezone(self) -> str | Awaitable[str | None] | None:
        """The zone of schedules that name none. Default: `default_timezone`."""
        return self.default_timezone

    def get_scheduled_tasks(
        self,
    ) -> Mapping[str, ScheduledTask] | Awaitable[Mapping[str, ScheduledTask]]:
        """What this agent does again and again, by the name of the task. Read at every start.

        Raising, or a schedule that cannot be read, keeps the timers there are; the agent serves.
        """
        return {}
