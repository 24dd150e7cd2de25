"""Served apps for attackers."""

from __future__ import annotations

from ..server.conftest import Serve, serve

__all__ = ["Serve", "serve"]
