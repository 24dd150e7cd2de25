"""What a job cannot reach: files, variables, processes and users of the server, any network, more rights."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .case import MachineCase

__all__ = ["MachineWallsContract"]

SECRET = "c41d-only-the-server-knows"


@contextmanager
def open_to_all() -> Generator[Path]:
    """A folder that every user of this computer may read and write."""
    place = Path(tempfile.mkdtemp(prefix="everthink-wall-", dir="/var/tmp"))
    place.chmod(0o777)
    try:
        yield place
    finally:
        shutil.rmtree(place)


class MachineWallsContract(MachineCase):
    """Nothing of the server is in there."""

    async def test_files_of_the_server_are_out_of_reach_even_where_everybody_may_read_them(self) -> None:
        with open_to_all() as folder:
            secret = folder / "secret.txt"
            secret.write_text(SECRET)
            secret.chmod(0o666)
            outcome = await self.attacked(
                f"cat {secret} /proc/1/root{secret} /proc/self/root{secret} /etc/shadow; ls -la {folder} /"
                f" /root /home /var/tmp; ln -s {secret} l; ln {secret} hard; cat l hard; cp {secret} stolen;"
                f" tar cf t.tar {folder}; grep -r {SECRET} /var /etc /run /opt /srv /root /home 2> /dev/null;"
                f" echo overwritten > {secret}; echo x > {folder}/made; rm -rf {folder}; chmod 600 {secret}"
            )
            assert SECRET not in outcome.stdout + outcome.stderr + str(dict(outcome.changed))
            assert "root:" not in outcome.stdout
            assert secret.read_text() == SECRET
            assert os.listdir(folder) == ["secret.txt"]

    async def test_the_servers_variables_are_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
        outcome = await self.attacked("env; set; cat /proc/*/environ /proc/$PPID/maps; ps auxe 2> /dev/null")
        assert SECRET not in outcome.stdout + outcome.stderr

    async def test_no_network_is_there(self) -> None:
        with (
            open_to_all() as folder,
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as letters,
            socket.socket(socket.AF_UNIX) as local,
            socket.socket(socket.AF_UNIX) as named,
        ):
            letters.bind(("127.0.0.1", 0))
            name = f"everthink-{folder.name}"
            local.bind(str(folder / "socket"))
            (folder / "socket").chmod(0o777)
            named.bind(f"\0{name}")
            for place in (local, named):
                place.listen()
            for place in (listening, letters, local, named):
                place.setblocking(False)
            port, letter_port = listening.getsockname()[1], letters.getsockname()[1]
            outcome = await self.attacked(
                "import socket\n"
                "def tried(family, kind, place):\n"
                "    try:\n"
                "        with socket.socket(family, kind) as one:\n"
                "            one.settimeout(1); one.connect(place); one.send(b'x'); print('reached', place)\n"
                "    except OSError as error: print(type(error).__name__)\n"
                f"tried(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {port}))\n"
                f"tried(socket.AF_UNIX, socket.SOCK_STREAM, {str(folder / 'socket')!r})\n"
                f"tried(socket.AF_UNIX, socket.SOCK_STREAM, '\\0{name}')\n"
                "try: letter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
                f" letter.sendto(b'x', ('127.0.0.1', {letter_port}))\n"
                "except OSError as error: print(type(error).__name__)\n"
                "try: print('reached', socket.getaddrinfo('example.com', 80))\n"
                "except OSError as error: print(type(error).__name__)\n",
                "python",
            )
            assert "reached" not in outcome.stdout, outcome
            assert outcome.status == "done", outcome
            for place in (listening, local, named):
                with pytest.raises(BlockingIOError):
                    place.accept()
            with pytest.raises(BlockingIOError):
                letters.recv(1)

    async def test_the_system_cannot_be_written(self) -> None:
        name = f"everthink-{os.getpid()}-was-here"
        places = (
            "/",
            "/usr",
            "/usr/bin",
            "/usr/local/bin",
            "/etc",
            "/opt",
            "/var/tmp",
            "/dev",
            "/proc/sys",
            "/run",
        )
        outcome = await self.attacked(
            f"for d in {' '.join(places)}; do echo x > $d/{name} && rm $d/{name} && echo written $d; done;"
            f" echo x > /tmp/{name}"
        )
        assert "written" not in outcome.stdout
        assert not any(name in os.listdir(place) for place in (*places, "/tmp"))

    async def test_no_right_can_be_won(self) -> None:
        outcome = await self.attacked(
            "import ctypes, os\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "tries = {\n"
            "  'a user namespace': lambda: libc.unshare(0x10000000),\n"
            "  'a mount namespace': lambda: libc.unshare(0x00020000),\n"
            "  'a clone in a namespace': lambda: libc.syscall(56 if os.uname().machine == 'x86_64' else 220,"
            " 0x10000011, 0, 0, 0, 0),\n"
            "  'a mount': lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, None),\n"
            "  'another root': lambda: libc.chroot(b'/'),\n"
            "  'root': lambda: libc.setuid(0),\n"
            "  'more processes': lambda: __import__('resource').setrlimit(6, (9999, 9999)) or 0,\n"
            "}\n"
            "for name, work in tries.items():\n"
            "    try: done = work() >= 0\n"
            "    except (OSError, ValueError): done = False\n"
            "    if done: print('won', name)\n"
            "print('tried', os.geteuid() == 0)",
            "python",
        )
        assert outcome.stdout == "tried False\n", outcome

    async def test_ways_of_the_kernel_that_scripts_do_not_need_are_closed(self) -> None:
        outcome = await self.attacked(
            "import ctypes, os, socket\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "intel = os.uname().machine == 'x86_64'\n"
            "tries = {\n"
            "  'keys': lambda: libc.syscall(250 if intel else 219, 0, -3, 1),\n"
            "  'a ring': lambda: libc.syscall(425, 8, ctypes.create_string_buffer(256)),\n"
            "  'page faults': lambda: libc.syscall(323 if intel else 282, 1),\n"
            "  'a program in the kernel': lambda: libc.syscall(321 if intel else 280, 0, None, 0),\n"
            "  'counters': lambda: libc.syscall(298 if intel else 241, None, 0, -1, -1, 0),\n"
            "  'a file by its handle': lambda: libc.syscall(304 if intel else 265, -100, None, 0),\n"
            "  'the host of a virtual machine': lambda: socket.socket(40, socket.SOCK_STREAM) and 0,\n"
            "  'ciphers': lambda: socket.socket(38, socket.SOCK_SEQPACKET) and 0,\n"
            "}\n"
            "for name, work in tries.items():\n"
            "    try: done = work() >= 0 or ctypes.get_errno() not in (1, 38)\n"
            "    except OSError as error: done = error.errno not in (1, 97)\n"
            "    if done: print('open:', name)\n",
            "python",
        )
        assert (outcome.status, outcome.stdout) == ("done", ""), outcome

    async def test_programs_that_give_rights_give_none(self) -> None:
        outcome = await self.attacked(
            "unshare -Ur true && echo won; su -c true && echo won; sudo -n true && echo won;"
            " bwrap --ro-bind / / true && echo won; mount -t tmpfs x /tmp && echo won; chroot / true && echo won; dmesg && echo won;"
            " echo tried"
        )
        assert outcome.stdout == "tried\n"

    async def test_processes_of_the_server_are_not_to_be_signalled(self) -> None:
        outcome = await self.attacked(
            f"for p in {os.getpid()} {os.getppid()}; do kill -0 $p && echo reached $p;"
            f" cat /proc/$p/cmdline && echo reached; done 2> /dev/null; echo tried"
        )
        assert "reached" not in outcome.stdout or not _is_ours(outcome.stdout)
        assert outcome.stdout.endswith("tried\n")


def _is_ours(said: str) -> bool:
    """In a namespace the same number is another process: one of the job's own."""
    return "pytest" in said
