"""A sandbox of scripts/slurm-sandbox for the time of a benchmark."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from benchlib.common import ROOT, clean_environment
from sandbox import commands
from sandbox.cluster import Sandbox
from sandbox.kernel import Refused

SCRIPT = [sys.executable, "-IS", os.path.join(ROOT, "scripts", "slurm-sandbox")]
TIMED = os.path.join(ROOT, "scripts", "benchlib", "timed.py")


class CannotRun(Exception):
    """There can be no sandbox here: the reason."""


def interrupted(*_):
    raise KeyboardInterrupt


class Cluster:
    """Nodes n1…, up from the first use on, down in the end whatever happens."""

    def __init__(self, nodes, seen):
        """`seen`: folders below /tmp that every node must see."""
        done = subprocess.run(SCRIPT + ["check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise CannotRun(done.stdout.strip().replace("slurm-sandbox: ", "", 1))
        self.nodes, self.seen, self.up, self.running = nodes, seen, False, []
        # The cluster ends with its standard input, so also where this program is killed: nobody else has the other end.
        self.leash, self.hand = os.pipe()

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupted)
        self.state = tempfile.mkdtemp(prefix="relight-bench-")
        os.chmod(self.state, 0o755)
        self.shared = os.path.join(self.state, "shared")
        return self

    def __exit__(self, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.down("--purge")
        shutil.rmtree(self.state, ignore_errors=True)

    def script(self, *words, stdin=subprocess.DEVNULL):
        """A command of slurm-sandbox that must succeed; what it prints."""
        line = SCRIPT + ["--state", self.state] + list(words)
        # A session of its own: a Ctrl-C reaches this program alone, which ends the rest in order.
        pipes = dict(stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done = subprocess.run(line, start_new_session=True, **pipes)
        if done.returncode:
            raise RuntimeError("slurm-sandbox %s: %s" % (words[0], (done.stderr or done.stdout).strip()))
        return done.stdout

    def ready(self):
        """Up, with all nodes idle."""
        indexes = [str(index) for index in range(1, self.nodes + 1)]
        if not self.up:
            self.up = True
            shown = ["--bind=" + folder for folder in self.seen]
            self.script("up", str(self.nodes), "--while-stdin", *shown, stdin=self.leash)
            rows = json.loads(self.script("status", "--json"))["nodes"]
            self.addresses = [row["address"] for row in rows]
            self.spaces = {os.readlink("/proc/%d/ns/uts" % row["pid"]): index for index, row in enumerate(rows, 1)}
            self.script("exec", "--cwd", self.shared, "srun", "-N%d" % self.nodes, "--ntasks-per-node=1", "true")
        self.script("wait", "idle", *indexes)

    def down(self, *options):
        self.up = False
        self.script("down", *options)
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = []

    def run(self, folder, nodes, argv):
        """Starts a command in a job of whole nodes, as a batch script would."""
        # Slurm's own way into the job takes the time that it takes: it counts from where the command starts.
        line = SCRIPT + ["--state", self.state, "exec", "--cwd", folder, "salloc", "-Q", "--no-kill", "--exclusive"]
        line += ["-N%d" % nodes, "--ntasks-per-node=1", sys.executable, "-IS", TIMED, os.path.join(folder, "launcher")]
        environment = clean_environment(folder)
        del environment["XDG_RUNTIME_DIR"]
        environment["TMPDIR"] = "/local"  # each node's own
        with open(os.path.join(folder, "output"), "wb") as output:
            streams = dict(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line + argv, env=environment, cwd=folder, start_new_session=True, **streams)
        self.running.append(process)
        return process

    def process_of(self, folder, rank, pid):
        """(pid on this machine, index of the node) of a rank that its node knows as `pid`."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                inner = [line for line in lines(name, "status", "\n") if line.startswith("NSpid:")][0].split()[-1]
                if int(inner) == pid and folder in lines(name, "cmdline", "\0"):
                    if "RANK=%d" % rank in lines(name, "environ", "\0"):
                        return int(name), self.spaces[os.readlink("/proc/%s/ns/uts" % name)]
            except (OSError, IndexError, KeyError):
                continue
        raise RuntimeError("rank %d, pid %d of its node, is not to be found" % (rank, pid))

    def power_off(self, index):
        """Silence from a node; the time just before, in ns."""
        # Not by the script: its start would count.
        begin = time.monotonic_ns()
        try:
            commands.change(Sandbox(self.state), "power-off", [index])
        except Refused as error:
            raise RuntimeError("power-off: %s" % error)
        return begin


def lines(pid, name, separator):
    with open("/proc/%s/%s" % (pid, name), errors="replace") as file:
        return file.read().split(separator)
