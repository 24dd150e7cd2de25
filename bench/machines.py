"""What a job costs as a real process: with bash, with Python, with calls of the host, with many files."""

from __future__ import annotations

from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from everthink.machines.sandbox import MachineSandbox
from everthink.sandbox.port import Job

from .measure import Row
from .sandbox import EDIT, FILES, Answering, middle, tree

MACHINES = {"bubblewrap": Bubblewrap, "locked": Locked}


async def jobs(*, repetitions: int) -> list[Row]:
    """Wall time of jobs in the machines that work here, medians."""
    rows: list[Row] = []
    for name, make in MACHINES.items():
        sandbox, host, files = MachineSandbox(make()), Answering(), tree()
        if (problem := await sandbox.check()) is not None:
            print(f"{name}: {problem}")
            continue

        async def run(job: Job, sandbox: MachineSandbox = sandbox, host: Answering = host) -> None:
            outcome = await sandbox.run(job, host)
            assert outcome.status == "done", outcome

        ask = {"names": {"tools.ask": ""}}
        bash = Job(language="bash", source="echo hi; cat a > b", files={"/a": b"a file\n"})
        python = Job(language="python", source="open('b', 'w').write(open('a').read())", files={"/a": b"x"})
        asking = Job(language="python", source="for _ in range(100): tools.ask()", **ask)
        many = Job(language="bash", source=EDIT.replace("/src", "src").replace("/out", "out"), files=files)
        small = await middle(lambda job=bash: run(job), repetitions * 3)
        row = Row(f"{name}: a bash job, a file in and a file out", "ms", {"everthink": small})
        rows.append(row.held_to("≤ 120 ms", small <= 120) if name == "bubblewrap" else row)
        for what, job in (
            ("a Python job, a file in and a file out", python),
            ("a Python job with 100 calls of the host", asking),
            (f"a bash job with {FILES:,} files in and the difference out", many),
        ):
            taken = await middle(lambda job=job: run(job), repetitions)
            rows.append(Row(f"{name}: {what}", "ms", {"everthink": taken}))
        await sandbox.aclose()
    return rows
