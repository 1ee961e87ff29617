"""Ranks that beat, and one that is stopped: what watching costs, and how soon new ranks run."""

import json
import os
import signal
import sys
import time

from benchlib.common import Results, all_started, last, relight_binary, stop, wait
from benchlib.one_node import LIMIT, Launcher, cpu, end_tree, launch, own

RANKS, HZ, SECONDS = 64, 100, 3.0
GOALS = {"cpu": "2 %", "again": "3.6 s"}

BEATS = """
import os, sys, time
import relight
folder, hz = sys.argv[1], float(sys.argv[2])
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
relight.heartbeat(0)
with open(os.path.join(folder, "times"), "a") as file:
    file.write("start %s %d %s %d\\n" % (rank, os.getpid(), attempt, time.monotonic_ns()))
step = 0
while not (step % 10 == 0 and os.path.exists(os.path.join(folder, "stop"))):
    step += 1
    relight.heartbeat(step)
    time.sleep(1 / hz)
"""


class Beating(Launcher):
    def __init__(self, relight, hz):
        options = ["--heartbeat-timeout=%d" % SECONDS, "--phase-timeout=init=600", "--max-restarts=1"]
        run = [relight, "run", "--run-dir", "{folder}/run", "--run-id", "bench", "--nproc-per-node={world}"]
        super().__init__("relight", run + options)
        self.hz = hz

    def argv(self, world, folder):
        with open(os.path.join(folder, "beats.py"), "w") as file:
            file.write(BEATS)
        words = [word.format(world=world, folder=folder) for word in self.command]
        return words + [os.path.join(folder, "beats.py"), folder, str(self.hz)]


def watching(launcher, folder, seconds):
    """CPU time of the launcher's processes while all ranks beat, in hundredths of a core."""
    process = launch(launcher, RANKS, folder)
    try:
        ranks = {event[1] for event in wait("start", lambda: all_started(folder, RANKS, 0), lambda: process.poll() is None)}
        time.sleep(1.0)
        pids = own(process.pid, ranks)
        before, begin = cpu(pids), time.monotonic()
        time.sleep(seconds)
        used, spent = cpu(pids) - before, time.monotonic() - begin
        stop(folder)
        process.wait(LIMIT)
        return {"cpu": used / spent * 100.0}
    finally:
        end_tree(process)


def stopping(launcher, world, folder):
    """From SIGSTOP of one rank to new ranks in the place of all."""
    process = launch(launcher, world, folder)
    try:
        alive = lambda: process.poll() is None
        first = wait("start", lambda: all_started(folder, world, 0), alive)
        time.sleep(1.0)
        stopped = time.monotonic_ns()
        os.kill([event for event in first if event[0] == 1][0][1], signal.SIGSTOP)
        second = wait("again", lambda: all_started(folder, world, 1), alive)
        stop(folder)
        code = process.wait(LIMIT)
        if code != 0:
            raise RuntimeError("exit code %d" % code)
        return {"again": (last(second) - stopped) / 1e9}
    finally:
        end_tree(process)


def bench(args):
    relight = relight_binary(args.relight)
    results = Results(["relight"])
    for _ in range(args.runs):
        results.measure("relight", lambda folder: stopping(Beating(relight, 50), 4, folder))
    results.measure("relight", lambda folder: watching(Beating(relight, HZ), folder, args.idle))
    medians = results.medians()
    if args.json:
        print(json.dumps({"goals": GOALS, "runs": args.runs, "medians": medians, "all": results.all}, indent=1))
    else:
        row = medians["relight"]
        for key, title, form in (
            ("again", "SIGSTOP of 1 of 4, limit %d s -> all started again" % SECONDS, "%.2f s"),
            ("cpu", "watching %d ranks that beat at %d Hz" % (RANKS, HZ), "%.1f %% of a core"),
        ):
            print("%-52s%18s%12s" % (title, form % row[key] if key in row else "-", GOALS[key]))
    if set(medians["relight"]) != set(GOALS):
        sys.exit("relight was not measured in full")
