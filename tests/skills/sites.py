"""A site that publishes skills, on a socket of this machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["Site", "tarred", "zipped"]


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return out.getvalue()


def tarred(files: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Site:
    """Answers what it was given, and remembers what was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.entries: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.is_down = False
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                page = None if site.is_down else site.pages.get(self.path)
                self.send_response(404 if page is None else 302 if page.startswith(b"http") else 200)
                if page is not None and page.startswith(b"http"):
                    self.send_header("location", page.decode())
                    page = b""
                self.send_header("content-length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def publish(self, name: str, data: bytes, kind: str = "archive", /, **changed: Any) -> None:
        path = f"/skills/{name}"
        self.pages[path] = data
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        entry = {"name": name, "type": kind, "description": f"About {name}.", "url": path, "digest": digest}
        self.entries = [one for one in self.entries if one["name"] != name] + [entry | changed]
        self.index({"skills": self.entries})

    def index(self, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.pages["/.well-known/agent-skills/index.json"] = data

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
