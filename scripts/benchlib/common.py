"""What all benchmarks share: the stubs and what they say, the floor, results."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STUB = os.path.join(ROOT, "examples", "stub.py")


def clean_environment(folder):
    keep = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "LANG")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment.update(HOME=folder, TMPDIR=folder, XDG_RUNTIME_DIR=folder, OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable)
    return environment


# ---------------------------------------------------------------- what the stubs say


def times(folder, word, attempt=None):
    """Events of the stubs so far: (rank, pid, attempt, ns)."""
    try:
        with open(os.path.join(folder, "times")) as file:
            lines = [line.split() for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []
    events = [(int(w[1]), int(w[2]), int(w[3]), int(w[4])) for w in lines if w[0] == word]
    return events if attempt is None else [event for event in events if event[2] == attempt]


def all_started(folder, world, attempt):
    started = times(folder, "start", attempt)
    return started if len(started) >= world else None


def last(events):
    return max(event[3] for event in events)


def stop(folder):
    open(os.path.join(folder, "stop"), "w").close()


def wait(what, condition, alive=lambda: True, limit=60.0):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        if not alive():
            raise RuntimeError("%s: the launcher has ended" % what)
        time.sleep(0.002)
    raise RuntimeError("%s: not within %d s" % (what, limit))


# ---------------------------------------------------------------- the floor


def start_plainly(world, folder, attempt):
    """No launcher: the same processes by plain exec."""
    processes = []
    for rank in range(world):
        environment = clean_environment(folder)
        environment.update(RANK=str(rank), WORLD_SIZE=str(world), TORCHELASTIC_RESTART_COUNT=str(attempt))
        processes.append(subprocess.Popen([sys.executable, "-u", STUB, folder], env=environment, start_new_session=True))
    return processes


def floor_run(world, folder):
    begin = time.monotonic_ns()
    processes = start_plainly(world, folder, 0)
    try:
        first = wait("start", lambda: all_started(folder, world, 0))
        killed = time.monotonic_ns()
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        processes = start_plainly(world, folder, 1)
        second = wait("start", lambda: all_started(folder, world, 1))
        stop(folder)
        for process in processes:
            process.wait()
        ended = time.monotonic_ns()
        return {
            "start": (last(first) - begin) / 1e9,
            "again": (last(second) - killed) / 1e9,
            "exit": (ended - last(times(folder, "end"))) / 1e9,
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---------------------------------------------------------------- launchers and results


def relight_binary(path):
    if path:
        return os.path.abspath(path)
    build = subprocess.run([os.path.join(ROOT, "scripts", "build")], check=True, stdout=subprocess.PIPE, text=True)
    return build.stdout.split("\n")[-2]


def elastic_launchers(torch_python):
    """Path of each of the others that is installed beside a Python, else on PATH."""
    beside = os.path.dirname(os.path.abspath(torch_python)) if torch_python else None
    found = {}
    for name in ("torchrun", "ft_launcher"):
        path = shutil.which(name, path=beside)
        if path:
            found[name] = path
        else:
            print("%s is not installed: left out" % name, file=sys.stderr)
    return found


class Results:
    """Figures by name of the launcher and by row."""

    def __init__(self, names):
        self.all = {name: {} for name in names}

    def measure(self, name, body, parent=None):
        """Adds what `body(folder)` gives back; a failure is told and leaves the figures as they are. True: it went well.

        A folder in a parent stays: that may still be written into, and goes away with the parent.
        """
        folder = tempfile.mkdtemp(prefix="relight-bench-", dir=parent)
        try:
            for key, value in body(folder).items():
                self.all[name].setdefault(key, []).append(value)
            return True
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print("%s: %s" % (name, error), file=sys.stderr)
            output = os.path.join(folder, "output")
            if os.path.exists(output):
                with open(output, errors="replace") as file:
                    print("".join(file.readlines()[-15:]), file=sys.stderr)
            return False
        finally:
            if parent is None:
                shutil.rmtree(folder, ignore_errors=True)

    def medians(self):
        return {name: {key: statistics.median(v) for key, v in found.items()} for name, found in self.all.items()}
