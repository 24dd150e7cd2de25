"""Why a workspace says no: one function for each code, so that every backend says it in the same words."""

from __future__ import annotations

from ..errors import WorkspaceCode, WorkspaceError

__all__ = [
    "changed_meanwhile",
    "exists",
    "into_itself",
    "is_folder",
    "is_root",
    "looping",
    "no_history",
    "not_empty",
    "not_folder",
    "not_found",
    "not_kept",
    "not_link",
    "over",
    "read_only",
    "unfit",
]

_KEPT = "Nothing was changed."


def not_found(path: str) -> WorkspaceError:
    """There is nothing there."""
    return WorkspaceError(f"There is no file or folder at {path!r}.", code="ENOENT", path=path, kept=_KEPT)


def is_folder(path: str, *, next_step: str = "") -> WorkspaceError:
    """A folder is where a file is needed."""
    return WorkspaceError(
        f"{path!r} is a folder, not a file.", code="EISDIR", path=path, kept=_KEPT, next_step=next_step
    )


def not_folder(path: str) -> WorkspaceError:
    """A file or a link is where a folder is needed."""
    return WorkspaceError(
        f"{path!r} is not a folder, so nothing can be below it.", code="ENOTDIR", path=path, kept=_KEPT
    )


def exists(path: str) -> WorkspaceError:
    """Something is there already."""
    return WorkspaceError(
        f"There is something at {path!r} already.",
        code="EEXIST",
        path=path,
        kept=_KEPT,
        next_step="Remove it first, or use another path.",
    )


def not_empty(path: str) -> WorkspaceError:
    """A folder with something in it."""
    return WorkspaceError(
        f"The folder {path!r} is not empty.",
        code="ENOTEMPTY",
        path=path,
        kept=_KEPT,
        next_step="With `recursive` it is removed with all that is in it.",
    )


def is_root() -> WorkspaceError:
    """The root stays."""
    return WorkspaceError(
        "The root folder '/' can be neither removed, moved nor replaced.", code="EPERM", path="/", kept=_KEPT
    )


def unfit(what: str, path: str = "", *, next_step: str = "") -> WorkspaceError:
    """Something that is no path, no target, no pattern."""
    return WorkspaceError(what, code="EINVAL", path=path, kept=_KEPT, next_step=next_step)


def not_link(path: str) -> WorkspaceError:
    """Only links have a target."""
    return unfit(f"{path!r} is not a link.", path)


def into_itself(source: str, path: str) -> WorkspaceError:
    """A folder would contain itself."""
    return unfit(f"{source!r} cannot go to {path!r}, which is inside of it.", path)


def looping(path: str) -> WorkspaceError:
    """Links that lead to links, without an end."""
    return WorkspaceError(
        f"{path!r} leads from link to link, more than 40 times.", code="ELOOP", path=path, kept=_KEPT
    )


def changed_meanwhile(path: str) -> WorkspaceError:
    """What an edit was made for is not there any more."""
    return WorkspaceError(
        f"{path!r} has changed since it was looked at.",
        code="ESTALE",
        path=path,
        kept=_KEPT,
        next_step="Read it again, then repeat what you wanted to do.",
    )


def forgotten(hash: str) -> WorkspaceError:
    """An earlier version is let go of while it is read."""
    return WorkspaceError(
        f"The bytes with the hash {hash[:12]}… were forgotten while they were read.",
        code="ESTALE",
        kept="The file is as it was.",
        next_step="Raise WorkspaceLimits(history=…, history_bytes=…) to keep earlier versions for longer.",
    )


def over(what: str, limit: str, most: int, path: str = "") -> WorkspaceError:
    """More than a bound allows. `limit` is its field in `WorkspaceLimits`."""
    codes: dict[str, WorkspaceCode] = {
        "path_bytes": "ENAMETOOLONG",
        "name_bytes": "ENAMETOOLONG",
        "depth": "ELOOP",
        "file_bytes": "EFBIG",
    }
    return WorkspaceError(
        f"{what}, and {most:,} may be ({limit}).",
        code=codes.get(limit, "EDQUOT"),
        path=path,
        kept=_KEPT,
        next_step=f"Make it less, or allow more with WorkspaceLimits({limit}=...).",
    )


def read_only(path: str) -> WorkspaceError:
    """A part of the tree that cannot be written to."""
    return WorkspaceError(
        f"{path!r} is in a part of the workspace that can only be read.",
        code="EROFS",
        path=path,
        kept=_KEPT,
        next_step="Write to another folder.",
    )


def no_history() -> WorkspaceError:
    """A backend that keeps nothing of what was."""
    return WorkspaceError(
        "The files of this workspace are kept where nothing remembers earlier versions.",
        code="EINVAL",
        kept=_KEPT,
        next_step="Changes are kept by the agent's own files, Workspace(), and by MemoryFiles.",
    )


def not_kept(seq: int, first: int, last: int) -> WorkspaceError:
    """A change that is not in the log."""
    return unfit(
        f"There is no way back to change {seq}: the log goes from {first} to {last}.",
        next_step="The log of changes has the numbers that can be restored.",
    )
