"""Runs the program on several processes with mpirun."""

import pathlib
import shutil
import subprocess
import time

from program import ENVIRONMENT, PROGRAM

# Root may run it, in containers; more processes than cores; and no process is tied to a core.
LAUNCHER = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
SECONDS_TO_END = 10  # after the death of a process


def is_available():
    if shutil.which("mpirun") is None or not PROGRAM.exists():
        return False
    return "no MPI" not in subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, env=ENVIRONMENT).stdout


def launch(command, **options):
    return subprocess.Popen(list(map(str, command)), **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT, **options})


def start(processes, *arguments, **options):
    return launch([*LAUNCHER, "-n", processes, PROGRAM, *arguments], **options)


def start_each(*commands):
    """One process for each command, or list of arguments of the program."""
    command = [*LAUNCHER]
    for place, arguments in enumerate(commands):
        started = arguments if isinstance(arguments, tuple) else (PROGRAM, *arguments)
        command += [*([":"] if place > 0 else []), "-n", "1", *started]
    return launch(command)


def finish(process, status=0, timeout=300):
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == status, f"exit status {process.returncode}\n{output}\n{errors}"
    return output, errors


def run(processes, *arguments, status=0, timeout=300, **options):
    return finish(start(processes, *arguments, **options), status, timeout)


def ranks(process):
    """The numbers of the processes that mpirun has started, in the order of their ranks."""
    try:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children if is_program(int(child))]


def is_program(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/exe").resolve() == PROGRAM.resolve()
    except OSError:
        return False


def wait_until(condition, process, seconds=120):
    """Returns true once the condition holds, false if the process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
    return True


def left_over(pids, seconds=SECONDS_TO_END):
    """The processes among these that still run after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        alive = [pid for pid in pids if is_program(pid)]
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(0.05)
