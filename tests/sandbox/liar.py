"""A child that has been broken: it takes a job, and then says what the test wants it to say."""

from __future__ import annotations

import json
import os
import sys
import time

from everthink.sandbox.frames import PREFIX, lengths, packed


def read(count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(0, count - len(data)) or sys.exit(0)
    return data


def say(head: object, body: bytes = b"") -> None:
    os.write(1, packed(json.dumps(head).encode(), [body]))


def done(**said: object) -> dict[str, object]:
    return {"t": "done", "exit": 0, **said}


def lie(kind: str) -> None:
    match kind:
        case "nothing":
            sys.exit(7)
        case "no frame":
            os.write(1, b"GET / HTTP/1.1\r\n\r\n" * 10)
        case "no JSON":
            os.write(1, packed(b"{'t': done}"))
        case "another type":
            say({"t": "done", "exit": "zero"})
        case "another word":
            say({"t": "gimme"})
        case "deep":
            os.write(1, packed(b"[" * 1_000_000))
        case "a head without end":
            os.write(1, b"\xff\xff\xff\xff\x00\x00\x00\x00")
        case "a body without end":
            os.write(1, b"\x00\x00\x00\x02\xff\xff\xff\xff{}")
        case "ready again":
            say({"t": "ready", "held": {}})
        case "a command that is not the job's":
            say({"t": "call", "id": 1, "name": "shutdown", "args": []})
        case "a file elsewhere":
            say(done(changed=[["/../etc/passwd", 1]]), b"x")
        case "a file that is not sent":
            say(done(changed=[["/f", 5]]), b"x")
        case "a large file":
            say(done(changed=[["/f", 2_000_000]]), bytes(2_000_000))
        case "a deletion of what is not there":
            say(done(deleted=["/f"]))
        case "output without end":
            for _ in range(400):
                say({"t": "out", "stream": "stdout"}, b"x" * 65_536)
            say(done(dropped=-5, exit=4_000))
        case "a value that is not sent":
            say(done(value=5), b"1")
        case "a value below nothing":
            say(done(value=-1), b"1")
        case "an end for no reason":
            say(done(stopped="the moon", value=1), b"1")
        case "a deep value":
            say(done(value=200_000), b"[" * 200_000)
        case "a value that is no JSON":
            say(done(value=3), b"NaN")
        case "calls without end":
            for number in range(100_000):
                say({"t": "call", "id": number, "name": "tools.ask"}, b"[]")
        case "arguments that are none":
            for number, args in enumerate((b"{}", b"[" * 100_000, b"\xff")):
                say({"t": "call", "id": number, "name": "tools.ask"}, args)
                head, body = lengths(read(PREFIX))
                answer = json.loads(read(head + body)[:head])
                say({"t": "out", "stream": "stdout"}, b"refused " if "refused" in answer else b"taken ")
            say(done())
        case "no end at all":
            time.sleep(1_000)


def main(kind: str) -> None:
    head, body = lengths(read(PREFIX))
    read(head + body)
    if kind == "not even a beginning":
        sys.exit(3)
    say({"t": "begun"})
    lie(kind)
    time.sleep(1_000)


if __name__ == "__main__":
    main(sys.argv[1])
