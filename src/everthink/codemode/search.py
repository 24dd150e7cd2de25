"""Finding a function by words, for code that does not know its name.

    "refund order" --search--> the functions, the best first
    "tools.refund" --describe--> its declaration

Pure. A word counts more in a name than in a description, and whole more than in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .functions import Function

__all__ = ["describe", "search"]

MOST = 50
_WEIGHTS = {"path": 12, "method": 10, "connector": 8, "description": 5}


def search(functions: Mapping[str, Function], query: str) -> dict[str, Any]:
    """The functions that fit a query."""
    words = _words(query)
    phrase = " ".join(words)
    scored = [(_score(function, words, phrase), path) for path, function in functions.items() if words]
    hits = sorted(((score, path) for score, path in scored if score > 0), key=lambda hit: (-hit[0], hit[1]))
    return {
        "results": [
            {"path": path, "description": functions[path].tool.description.partition("\n")[0]}
            for _, path in hits[:MOST]
        ],
        "total": len(hits),
        "truncated": len(hits) > MOST,
    }


def describe(functions: Mapping[str, Function], target: str, language: str) -> str:
    """The declaration of a function, or of all of a module."""
    if target in functions:
        return functions[target].stub(language)
    module = [function for function in functions.values() if function.module == target]
    if module:
        return "\n\n".join(function.stub(language) for function in module)
    return f"There is no {target!r}. There are: {', '.join(sorted(functions))}."


def _words(text: str) -> list[str]:
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word for word in re.split(r"[\s_./:\-]+", split.lower()) if word]


def _score(function: Function, words: list[str], phrase: str) -> int:
    fields = {
        "path": function.full_name,
        "method": function.name,
        "connector": function.module,
        "description": function.tool.description,
    }
    score, found, is_phrase = 0, set[str](), False
    for name, text in fields.items():
        tokens = _words(text)
        whole, weight = " ".join(tokens), _WEIGHTS[name]
        times = 14 if whole == phrase else 9 if whole.startswith(phrase) else 6 if phrase in whole else 0
        is_phrase = is_phrase or times > 0
        score += times * weight
        for word in words:
            best = max((_fits(word, token) for token in tokens), default=0)
            if best:
                found.add(word)
                score += best * weight
    coverage = len(found) / len(words)
    if not is_phrase and coverage < (1 if len(words) <= 2 else 0.6):
        return 0
    score += 25 if coverage == 1 else round(10 * coverage)
    method = _words(function.name)
    score += 8 if method[:1] == words[:1] else 0
    return score + (20 if phrase in (" ".join(_words(function.full_name)), " ".join(method)) else 0)


def _fits(word: str, token: str) -> int:
    if word == token:
        return 4
    return 2 if token.startswith(word) or word.startswith(token) else 1 if word in token else 0
