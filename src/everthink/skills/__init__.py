"""Agent Skills: instructions that a model reads when a task calls for them, with the files they come with.

from everthink import skills
"""

from ..facades import help_from
from ..skill_scripts.runner import Runner, runner
from ..skill_values import Diagnostic, Resource, ResourceInfo, ScriptRequest, Skill, SkillInfo
from .bucket import object_store
from .by_hand import activate
from .directory import from_directory
from .index import from_index
from .installing import Installed, install
from .manifest import from_manifest
from .package import from_package
from .port import ScriptRunner, SkillSource
from .registry import SkillRegistry
from .showing import view
from .tree import Bounds
from .workspace import from_workspace

__all__ = [
    "Bounds",
    "Diagnostic",
    "Installed",
    "Resource",
    "ResourceInfo",
    "Runner",
    "ScriptRequest",
    "ScriptRunner",
    "Skill",
    "SkillInfo",
    "SkillRegistry",
    "SkillSource",
    "activate",
    "from_directory",
    "from_index",
    "from_manifest",
    "from_package",
    "from_workspace",
    "install",
    "object_store",
    "runner",
    "view",
]

help_from(__name__)
