"""`agent(…)`: an agent class from values, for one that has no methods of its own.

    agents/support.py: agent = agent(model="demo", prompt="You help.") --> a subclass of Think, called Support

What is given in the place of a method may be a value, or a function of the agent. The class is like one that
was written: its settings are checked in the same way, and it may be subclassed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from ..agent import Agent
from ..calling import call_hook
from ..errors import InvalidSettings
from ..settings import shown
from ..think import Think

__all__ = ["agent", "is_unnamed", "name_it"]

UNNAMED = "agent(…)"
"""What a class is called until it is named. No class that was written can be called so."""


def agent(
    name: str | None = None,
    /,
    *,
    model: Any,
    prompt: Any = None,
    tools: Any = None,
    schedules: Any = None,
    configure_session: Callable[..., Any] | None = None,
    sub_agents: Sequence[type[Agent]] = (),
    **settings: Any,
) -> type[Think]:
    """An agent class without a class statement:

        agent = agent(model="anthropic:claude-sonnet-5", prompt="You help customers.", tools=[refund])

    In a file of `agents/` it is called like the file, a child like the files of its parent and itself:
    `agents/desk/agents/clerk.py` is `DeskClerk`. Elsewhere give it a name: `agent("Support", model=…)`.

    - `model`: what `Think.model` takes; `prompt`: a text; `tools`: a list, or a dict by name; `schedules`: a
      dict of `ScheduledTask`s. Each may be a function that is given the agent.
    - `configure_session(session, agent)` sets up the conversation's memory.
    - `sub_agents`: the classes of its children. Those of agent tools among `tools` need not be named.
    - `settings`: any other setting of `Think`, `max_steps=3`.

    Raises `InvalidSettings` for what a class would be refused for.
    """
    given = {
        "get_model": model,
        "get_system_prompt": prompt,
        "get_tools": tools,
        "get_scheduled_tasks": schedules,
    }
    body: dict[str, Any] = {
        method: _asking(value) for method, value in given.items() if value is not None and _is_asked(value)
    }
    if not _is_asked(model):
        body["model"] = model
    if prompt is not None and not _is_asked(prompt):
        body["system_prompt"] = prompt
    for method, value in (("get_tools", tools), ("get_scheduled_tasks", schedules)):
        if value is not None and method not in body:
            body[method] = _giving(value)
    if configure_session is not None:
        body["configure_session"] = _configuring(configure_session)
    if children := [*sub_agents, *_children_among(tools)]:
        body["sub_agents"] = tuple(dict.fromkeys(children))
    for setting in settings:
        if not hasattr(Think, setting) or callable(getattr(Think, setting)):
            raise InvalidSettings(
                f"agent() is given {setting}={shown(settings[setting])}, which is no setting of Think.",
                next_step="Methods and tools of an agent's own need a class: class Support(Think).",
            )
    caller = inspect.currentframe()
    caller = caller and caller.f_back
    # As a class statement there would have it.
    home = caller.f_globals.get("__name__", __name__) if caller else __name__
    return cast("type[Think]", type(_checked(name), (Think,), {**body, **settings, "__module__": home}))


def is_unnamed(cls: type[Any]) -> bool:
    """True for a class that has no name yet."""
    return cls.__name__ == UNNAMED


def name_it(cls: type[Any], id: str) -> None:
    """Call a class after the place where it was found: `desk/code-clerk` is `DeskCodeClerk`."""
    cls.__name__ = cls.__qualname__ = "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", id))


def _checked(name: Any) -> str:
    if name is None:
        return UNNAMED
    if isinstance(name, str) and name.isidentifier():
        return name
    raise InvalidSettings(
        f"agent() is given {shown(name)}, in the place of a name.",
        next_step='A name is that of a class: agent("SupportDesk", model=…).',
    )


def _is_asked(value: Any) -> bool:
    """True for what is called with the agent to get the value."""
    return inspect.isroutine(value)


def _asking(function: Callable[..., Any]) -> Callable[[Any], Any]:
    async def asked(self: Any) -> Any:
        return await call_hook(function, self)

    return asked


def _giving(value: Any) -> Callable[[Any], Any]:
    def given(self: Any) -> Any:
        return value

    return given


def _configuring(function: Callable[..., Any]) -> Callable[..., Any]:
    async def configure_session(self: Any, session: Any) -> Any:
        return await call_hook(function, session, self)

    return configure_session


def _children_among(tools: Any) -> list[type[Agent]]:
    """The classes of agent tools in a list or dict."""
    given: Any = tools
    if isinstance(tools, dict):
        given = given.values()
    elif not isinstance(tools, list | tuple):
        return []
    children: list[Any] = [getattr(tool, "child", None) for tool in given]
    return [child for child in children if child is not None]
