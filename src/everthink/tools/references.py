"""What a reference inside of a JSON schema stands for. Pure.

"#/$defs/Address" + the schema it is in --> the schema of an address
"""

from __future__ import annotations

from typing import Any, cast

__all__ = ["MAX_REFERENCE", "resolve"]

MAX_REFERENCE = 256
"""Characters of a reference that is followed."""


def resolve(reference: Any, root: Any) -> Any:
    """What `reference` points to within `root`, `None` when that is nothing."""
    if not isinstance(reference, str) or len(reference) > MAX_REFERENCE or not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        if not isinstance(node, dict):
            return None
        node = cast("dict[str, Any]", node).get(step.replace("~1", "/").replace("~0", "~"))
    return node
