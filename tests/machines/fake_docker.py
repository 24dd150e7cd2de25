"""A `docker` for tests where no daemon answers: it takes the words that the real one takes, and no others.

    docker run ... --checked--> bubblewrap with the same walls, apart from the command that started it

What is not said to it is not held: without `--network none` a container of it has the network. It has no
control groups, so `--memory` bounds the addresses of each process, roughly. Its containers are files in
DOCKER_CONFIG, and outlive their command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

VALUES = {
    *("--name", "--pull", "--log-driver", "--network", "--ipc", "--hostname", "--cap-drop", "--security-opt"),
    *("--user", "--pids-limit", "--memory", "--memory-swap", "--shm-size", "--tmpfs", "--workdir", "--env"),
    *("--label", "--runtime", "--entrypoint"),
}
SWITCHES = {"--rm", "--interactive", "--init", "--read-only"}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
IMAGE = "python:3.12-slim"
STATE = Path(os.environ.get("DOCKER_CONFIG", "/nowhere"))


def refused(words: str) -> int:
    sys.stderr.write(f"docker: {words}\n")
    return 125


def run(words: list[str]) -> int:
    said: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in VALUES:
            said.setdefault(word, []).append(words.pop(0))
        elif word in SWITCHES:
            said[word] = []
        else:
            return refused(f"unknown flag: {word}")
    image, *argv = words
    if image != IMAGE:
        return refused(f"No such image: {image}")
    (place := STATE / said["--name"][0]).write_text("created")
    if (daemon := os.fork()) == 0:
        # What has a container is not what was called: it stays when that is killed.
        os.setsid()
        os._exit(contained(said, argv, place))
    return os.waitstatus_to_exitcode(os.waitpid(daemon, 0)[1])


def contained(said: dict[str, list[str]], argv: list[str], place: Path) -> int:
    container = subprocess.Popen(
        bwrap(said, argv), user=user(), group=user(), extra_groups=[] if user() else None
    )
    place.write_text(str(container.pid))
    code = container.wait()
    if "--rm" in said:
        place.unlink(missing_ok=True)
    return code & 255


def user() -> int | None:
    return 65_534 if os.geteuid() == 0 else None


def bwrap(said: dict[str, list[str]], argv: list[str]) -> list[str]:
    made = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-uts", "--clearenv", "--die-with-parent"]
    if said.get("--network") == ["none"]:
        made += ["--unshare-net"]
    if said.get("--ipc") == ["private"]:
        made += ["--unshare-ipc"]
    if said.get("--cap-drop") == ["ALL"]:
        made += ["--cap-drop", "ALL"]
    if "no-new-privileges" in said.get("--security-opt", []):
        made += ["--disable-userns"]
    for path in SYSTEM:
        if os.path.islink(path):
            made += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            made += ["--ro-bind", path, path]
    made += ["--proc", "/proc", "--dev", "/dev", "--size", said["--shm-size"][0], "--perms", "1777"]
    made += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    for tmpfs in said.get("--tmpfs", []):
        path, _, options = tmpfs.partition(":")
        (size,) = (one.partition("=")[2] for one in options.split(",") if one.startswith("size="))
        made += ["--size", size, "--perms", "1777", "--tmpfs", path]
    if "--read-only" in said:
        made += ["--remount-ro", "/"]
    uid, _, gid = said["--user"][0].partition(":")
    made += ["--uid", uid, "--gid", gid, "--hostname", said["--hostname"][0], "--chdir", said["--workdir"][0]]
    for variable in ["PATH=/usr/local/bin:/usr/bin:/bin", *said.get("--env", [])]:
        name, _, value = variable.partition("=")
        made += ["--setenv", name, value]
    addresses = int(said["--memory"][0]) // 1024 + 524_288
    limits = f'ulimit -u {said["--pids-limit"][0]}; ulimit -v {addresses}; exec "$@"'
    return [*made, "--", "bash", "-c", limits, "bash", said["--entrypoint"][0], *argv]


def remove(name: str) -> int:
    place = STATE / name
    if place.exists() and (number := place.read_text()).isdigit():
        container = Path(f"/proc/{number}")
        try:
            os.kill(int(number), signal.SIGKILL)  # and with it what is in there
            while "State:\tZ" not in (container / "status").read_text():
                time.sleep(0.005)
        except OSError:
            pass  # it has ended
    if not place.exists():
        sys.stderr.write(f"Error response from daemon: No such container: {name}\n")
        return 1
    place.unlink(missing_ok=True)
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["version", *_]:
            if not STATE.is_dir():
                return refused("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
            print("28.0.0")
            return 0
        case ["image", "inspect", "--format", "{{.Id}}", image]:
            return 0 if image == IMAGE else refused(f"No such image: {image}")
        case ["run", *words]:
            return run(words)
        case ["rm", "--force", "--volumes", name]:
            return remove(name)
        case ["ps", "--all", "--quiet", "--filter", _]:
            print(*sorted(place.name for place in STATE.iterdir()))
            return 0
        case words:
            return refused(f"unknown command: {words}")


if __name__ == "__main__":
    sys.exit(main())
