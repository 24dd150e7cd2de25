"""Agent Skills: instructions that a model reads when a task calls for them, with the files they come with.

from everthink import skills
"""

from ..facades import help_from
from ..skill_scripts.runner import Runner, runner
from .directory import from_directory
from .port import ScriptRunner, SkillSource
from .registry import SkillRegistry
from .tree import Bounds
from .values import Diagnostic, Resource, ResourceInfo, ScriptRequest, Skill, SkillInfo

__all__ = [
    "Bounds",
    "Diagnostic",
    "Resource",
    "ResourceInfo",
    "Runner",
    "ScriptRequest",
    "ScriptRunner",
    "Skill",
    "SkillInfo",
    "SkillRegistry",
    "SkillSource",
    "from_directory",
    "runner",
]

help_from(__name__)
