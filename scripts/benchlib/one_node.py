"""The launchers on this machine alone."""

import json
import os
import signal
import subprocess
import sys
import time

from benchlib.common import (
    STUB, Results, all_started, clean_environment, elastic_launchers, floor_run, last, relight_binary, stop, times, wait,
)  # fmt: skip

GOALS = {"start": "floor + 0.03 s", "again": "floor + 0.03 s", "exit": "0.03 s", "pss": "25 MB", "cpu": "-"}
FLOOR = "floor (plain exec)"
LIMIT = 60.0


class Launcher:
    """How one of them is called."""

    def __init__(self, name, command):
        self.name, self.command = name, command

    def argv(self, world, folder):
        return [word.format(world=world, folder=folder) for word in self.command] + [STUB, folder]


def launchers(args):
    relight = [relight_binary(args.relight), "run", "--run-dir", "{folder}/run", "--run-id", "bench"]
    found = [Launcher("relight", relight + ["--nproc-per-node={world}", "--max-restarts=3"])]
    elastic = ["--standalone", "--nnodes=1", "--nproc-per-node={world}", "--max-restarts=3"]
    found += [Launcher(name, [path] + elastic) for name, path in elastic_launchers(args.torch_python).items()]
    return found


def launcher_run(launcher, world, folder):
    begin = time.monotonic_ns()
    process = launch(launcher, world, folder)
    try:
        alive = lambda: process.poll() is None
        first = wait("start", lambda: all_started(folder, world, 0), alive)
        time.sleep(0.3)
        victim = [event for event in first if event[0] == 1][0][1]
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        second = wait("again", lambda: all_started(folder, world, 1), alive)
        time.sleep(0.3)
        stop(folder)
        code = process.wait(LIMIT)
        ended = time.monotonic_ns()
        if code != 0:
            raise RuntimeError("exit code %d" % code)
        return {
            "start": (last(first) - begin) / 1e9,
            "again": (last(second) - killed) / 1e9,
            "exit": (ended - last(times(folder, "end", 1))) / 1e9,
        }
    finally:
        end_tree(process)


def idle_run(launcher, world, folder, seconds):
    process = launch(launcher, world, folder)
    try:
        ranks = wait("start", lambda: all_started(folder, world, 0), lambda: process.poll() is None)
        time.sleep(1.0)
        ranks = {event[1] for event in ranks}
        before, begin = cpu(own(process.pid, ranks)), time.monotonic()
        time.sleep(seconds)
        pids = own(process.pid, ranks)
        used = cpu(pids) - before
        spent = time.monotonic() - begin
        memory = sum(pss(pid) for pid in pids)
        stop(folder)
        process.wait(LIMIT)
        return {"pss": memory / 1024.0, "cpu": used / spent * 60.0}
    finally:
        end_tree(process)


def launch(launcher, world, folder):
    with open(os.path.join(folder, "output"), "wb") as output:
        return subprocess.Popen(
            launcher.argv(world, folder),
            env=clean_environment(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def children():
    """Parent -> children, from /proc."""
    tree = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            tree.setdefault(parent, []).append(int(name))
    return tree


def own(root, leave_out):
    """A launcher's processes: its tree without the ranks and what is below them."""
    tree, found, todo = children(), [], [root]
    while todo:
        pid = todo.pop()
        if pid not in leave_out:
            found.append(pid)
            todo.extend(tree.get(pid, []))
    return found


def end_tree(process):
    if process.poll() is None:
        doomed = own(process.pid, set())
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        process.wait()


def pss(pid):
    try:
        with open("/proc/%d/smaps_rollup" % pid) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except OSError:
        return 0


def cpu(pids):
    ticks = 0
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as file:
                fields = file.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def bench(args):
    candidates = launchers(args)
    results = Results([FLOOR] + [launcher.name for launcher in candidates])
    for _ in range(args.runs):
        results.measure(FLOOR, lambda folder: floor_run(4, folder))
        for launcher in candidates:
            results.measure(launcher.name, lambda folder, it=launcher: launcher_run(it, 4, folder))
    for launcher in candidates:
        results.measure(launcher.name, lambda folder, it=launcher: idle_run(it, 8, folder, args.idle))
    medians = results.medians()
    if args.json:
        print(json.dumps({"goals": GOALS, "runs": args.runs, "medians": medians, "all": results.all}, indent=1))
    else:
        show(medians, args.runs)
    if set(medians["relight"]) != set(GOALS):
        sys.exit("relight was not measured in full")


def show(medians, runs):
    rows = (
        ("start", "launch -> all 4 ranks started", "%.3f s"),
        ("again", "SIGKILL of one -> all started again", "%.3f s"),
        ("exit", "last rank ends -> launcher exited", "%.3f s"),
        ("pss", "memory (PSS), 8 idle ranks", "%.1f MB"),
        ("cpu", "CPU, 8 idle ranks", "%.2f s/min"),
    )
    names = list(medians)
    print("medians of %d runs, interleaved" % runs)
    print("%-37s" % "" + "".join("%20s" % name for name in names) + "%18s" % "relight's goal")
    for key, title, form in rows:
        cells = [form % medians[name][key] if key in medians[name] else "-" for name in names]
        print("%-37s" % title + "".join("%20s" % cell for cell in cells) + "%18s" % GOALS[key])
