"""The control plane at scale: emulated agents over real sockets against one real coordinator."""

import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

from benchlib.common import ROOT, Results, clean_environment, relight_binary
from benchlib.one_node import cpu, end_tree, pss

SIZES = (512, 1024, 2048, 4096)
GOALS = {"running": "3 s", "restarted": "0.3 s", "cpu": "10 %", "pss": "150 MB"}
ROWS = (
    ("joined", "first connection -> all joined", "%.2f s"),
    ("started", "-> Start has reached all, granted", "%.2f s"),
    ("running", "-> all are known to have started", "%.2f s"),
    ("stopped", "a rank fails -> first new Start", "%.3f s"),
    ("restarted", "-> new Start has reached all", "%.3f s"),
    ("again", "-> all are known to have started", "%.3f s"),
    ("work_start", "work to start (CPU)", "%.2f s"),
    ("work_again", "work to restart (CPU)", "%.2f s"),
    ("cpu", "CPU in steady state, of one core", "%.1f %%"),
    ("pss", "memory (PSS) in steady state", "%.0f MB"),
)


class Load:
    """A helper process that prints `name value` lines."""

    def __init__(self, *words):
        command = [load_binary()] + [str(word) for word in words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said = []
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def until(self, last, figures):
        for line in self.process.stdout:
            name, value = line.split()
            if name == last:
                return float(value)
            figures[name] = float(value)
        time.sleep(0.1)
        raise RuntimeError("%s was not reached: %s" % (last, "".join(self.said[-5:]) or "nothing was said"))

    def end(self):
        self.process.kill()
        self.process.wait()


def load_binary():
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
    return os.path.join(target, "release", "examples", "control_load")


def build_load():
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--example", "control_load"], cwd=ROOT, check=True, stdout=sys.stderr
    )


def measure(load, figures, pids):
    """Work, CPU and memory of these processes between the words of the load."""
    figures["running"] = load.until("running", figures)
    figures["work_start"] = cpu(pids)
    load.until("calm", figures)
    before = cpu(pids)
    figures["again"] = load.until("again", figures)
    figures["work_again"] = cpu(pids) - before
    load.until("steady", figures)
    before, begin = cpu(pids), time.monotonic()
    load.until("done", figures)
    figures["cpu"] = (cpu(pids) - before) / (time.monotonic() - begin) * 100.0
    figures["pss"] = sum(pss(pid) for pid in pids) / 1024.0
    return figures


def floor(count, folder, args):
    server = Load("echo-server")
    load = None
    try:
        port = server.until("port", {})
        load = Load("echo", int(port), count, args.idle)
        return measure(load, {}, [server.process.pid])
    finally:
        for one in (load, server):
            if one:
                one.end()


def relight(binary, count, folder, args):
    """A step of so many nodes, of which the first is real."""
    nodes = "n[0000-%04d]" % (count - 1)
    environment = clean_environment(folder)
    environment.update(
        SLURM_JOB_ID="77",
        SLURM_STEP_ID="0",
        SLURM_JOB_NODELIST=nodes,
        SLURM_STEP_NODELIST=nodes,
        SLURM_STEP_TASKS_PER_NODE="1(x%d)" % count,
        SLURMD_NODENAME="n0000",
    )
    command = [binary, "run", "--run-dir", os.path.join(folder, "run"), "--run-id", "bench", "--max-restarts=9"]
    with open(os.path.join(folder, "output"), "wb") as output:
        process = subprocess.Popen(
            command + ["--nproc-per-node=1", "--no-python", "sleep", "1000"],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    directory, load = os.path.join(folder, "run", "bench"), None
    try:
        load = Load("agents", directory, count, args.idle)
        pid = lambda: json.load(open(os.path.join(directory, "status.json")))["agent_process"]["pid"]
        figures = {}
        figures["joined"] = load.until("joined", figures)
        return measure(load, figures, [pid()])
    finally:
        if load:
            load.end()
        end_tree(process)


def bench(args):
    build_load()
    binary = relight_binary(args.relight)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 2 * max(args.sizes) + 100
    if hard != resource.RLIM_INFINITY and hard < need:
        sys.exit("this needs %d open files a process (ulimit -Hn is %d)" % (need, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = {count: Results(["floor", "relight"]) for count in args.sizes}
    loads = []
    for count in args.sizes:
        for _ in range(args.runs):
            loads.append(os.getloadavg()[0])
            results[count].measure("floor", lambda folder, it=count: floor(it, folder, args))
            results[count].measure("relight", lambda folder, it=count: relight(binary, it, folder, args))
    medians = {count: results[count].medians() for count in args.sizes}
    if args.json:
        everything = {count: results[count].all for count in args.sizes}
        print(json.dumps({"goals": GOALS, "runs": args.runs, "loads": loads, "medians": medians, "all": everything}, indent=1))
    else:
        show(args, medians, loads)
    if any(set(medians[count]["relight"]) < {row[0] for row in ROWS} for count in args.sizes):
        sys.exit("relight was not measured in full")


def show(args, medians, loads):
    cpus = len(os.sched_getaffinity(0))
    print("medians of %d runs on %d CPUs, load %.1f; floor / relight" % (args.runs, cpus, statistics.median(loads)))
    print("%-36s" % "agents" + "".join("%19d" % count for count in args.sizes) + "%12s" % "goal, 4096")
    for key, title, form in ROWS:
        cell = lambda one: form % one[key] if key in one else "-"
        cells = ["%s / %s" % (cell(medians[n]["floor"]), cell(medians[n]["relight"])) for n in args.sizes]
        print("%-36s" % title + "".join("%19s" % text for text in cells) + "%12s" % GOALS.get(key, ""))
