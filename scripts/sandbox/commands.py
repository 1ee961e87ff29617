"""The commands of slurm-sandbox but `exec`."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from sandbox.cluster import DAEMON_ENVIRONMENT, DEADLINE, MARK, SUBNET, check_nodes, needs_root
from sandbox.groups import Groups
from sandbox.keeper import configure, make
from sandbox.kernel import Refused, failed, listens, read, start_time, until, write
from sandbox.needs import able


def up(sandbox, options, checkout):
    able(options)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    began = time.monotonic()
    hierarchy = Groups.usable()[0] if options["proctrack"] == "cgroup" else None
    keep = [os.path.realpath(folder) for folder in [sandbox.state, checkout] + options.pop("bind")]
    deadline = options.pop("deadline")
    settings = dict(options, hierarchy=hierarchy and list(hierarchy), bind=keep, state=sandbox.state)
    settings.pop("install")
    with sandbox.locked(make=True):
        if sandbox.keeper():
            if sandbox.settings() != settings:
                raise Refused("The sandbox %s is up with other options: end it first with `down`." % sandbox.state)
            print("%s is up already" % sandbox.state)
            return
        if not ours(sandbox):
            raise Refused("%s has other things in it: the state folder must be empty or a sandbox's." % sandbox.state)
        if os.stat(sandbox.state).st_uid != os.geteuid():
            raise Refused("%s belongs to somebody else." % sandbox.state)
        clean(sandbox)
        shutil.rmtree(sandbox.path("log"), ignore_errors=True)
        write(sandbox.path(MARK), json.dumps(settings, indent=1) + "\n")
        configure(sandbox, settings, hierarchy)
        try:
            make(sandbox, settings, deadline)
        except BaseException:
            clean(sandbox)
            raise
    print("%d nodes are idle after %.1f s: n1 to n%d, shared folder %s" % (
        settings["nodes"], time.monotonic() - began, settings["nodes"], sandbox.path("shared")))  # fmt: skip
    closed = unreachable(sandbox.path("shared"))
    if closed:
        print("note: ordinary users cannot use it, because %s is closed to them" % closed, file=sys.stderr)


def interrupted(*_):
    raise KeyboardInterrupt


def ours(sandbox):
    """The state folder is empty, or was begun by `up`: nothing else is ever changed or removed."""
    names = os.listdir(sandbox.state)
    return not names or any(name.startswith(MARK) for name in names)


def unreachable(path):
    """The first folder on the way to a path that an ordinary user may not pass."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        folder = "/" + "/".join(parts[:count])
        if not os.stat(folder).st_mode & 0o001:
            return folder
    return None


def clean(sandbox):
    """Ends whatever is there of it, from every state, and takes away what it put into the machine."""
    ends = set(filter(None, [sandbox.keeper()])) | set(sandbox.strays())
    known = {pid: start_time(pid) for pid in ends}
    for pid in ends:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def left():
        return sorted(pid for pid, started in known.items() if started and start_time(pid) == started) or sandbox.strays()

    until(lambda: not left(), DEADLINE, lambda: "these processes do not end: %s" % left())
    sandbox.groups.remove()
    for name in ("run", "etc", "ctl", "private"):
        shutil.rmtree(sandbox.path(name), ignore_errors=True)


def down(sandbox, options):
    needs_root()
    with sandbox.locked():
        there = os.path.isdir(sandbox.state)
        if there and not ours(sandbox):
            raise Refused("%s is not a sandbox." % sandbox.state)
        clean(sandbox)
        if options["purge"] and there:
            shutil.rmtree(sandbox.state)


def check(_, options):
    able(options)


def wait(sandbox, state, indexes, deadline):
    needs_root()
    keeper_pid, settings = sandbox.running()
    check_nodes(settings, indexes)
    sandbox.wait_for(keeper_pid, state, indexes, deadline)


def change(sandbox, what, indexes):
    needs_root()
    with sandbox.locked():
        keeper_pid, settings = sandbox.running()
        check_nodes(settings, indexes)
        if what == "kill-node":
            pids = [pid for pid in (sandbox.node_pid(keeper_pid, index) for index in indexes) if pid]
            sandbox.inside(keeper_pid, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids] and None)
            for index in indexes:
                until(lambda i=index: not sandbox.node_pid(keeper_pid, i), DEADLINE, lambda i=index: "n%d does not end" % i)
        elif what == "revive-node":
            for index in indexes:
                if not sandbox.node_pid(keeper_pid, index):
                    sandbox.start_node(keeper_pid, settings, index, reboot=True)
            for index in indexes:
                until(
                    lambda i=index: listens("/proc/%d/root/proc/%s" % (keeper_pid, sandbox.node_pid(keeper_pid, i)), 6818),
                    DEADLINE,
                    lambda i=index: "slurmd of n%d does not listen\n%s" % (i, sandbox.tails(["n%d" % i])),
                )
        else:
            where = {"power-on": "master br0", "power-off": "nomaster", "partition": "master br1"}[what]
            lines = "".join("link set v%d %s\n" % (index, where) for index in indexes).encode()

            def move():
                if subprocess.run(["ip", "-batch", "-"], input=lines, env=DAEMON_ENVIRONMENT).returncode:
                    raise failed("`ip` could not move the ports")

            sandbox.inside(keeper_pid, move)


def ports(sandbox, keeper_pid):
    """What each node is plugged into."""

    def show():
        return subprocess.run(["ip", "-o", "link"], env=DAEMON_ENVIRONMENT, stdout=subprocess.PIPE).stdout.decode()

    found = re.findall(r"^\d+: v(\d+)@.*?:(.*)$", sandbox.inside(keeper_pid, show), re.M)
    return {int(index): "on" if "master br0" in rest else "apart" if "master br1" in rest else "off" for index, rest in found}


def machine_pid(space):
    """The process 1 of a process table, as the machine knows it."""
    for name in os.listdir("/proc"):
        if name.isdigit() and "\nNSpid:" in read("/proc/%s/status" % name, ""):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/ns/pid" % name) == space:
                    if re.search(r"^NSpid:.*\t1$", read("/proc/%s/status" % name, ""), re.M):
                        return int(name)
    return None


def status(sandbox, options):
    needs_root()
    keeper_pid = sandbox.keeper()
    settings, as_json = sandbox.settings(), options["json"]
    if keeper_pid is None:
        print(json.dumps({"state": sandbox.state, "up": False}) if as_json else "%s is not up" % sandbox.state)
        return 1
    states, plugged, rows = sandbox.node_states(keeper_pid), ports(sandbox, keeper_pid), []
    for index in range(1, settings["nodes"] + 1):
        name, pid = "n%d" % index, sandbox.node_pid(keeper_pid, index)
        if pid:
            pid = machine_pid(os.readlink("/proc/%d/root/proc/%d/ns/pid" % (keeper_pid, pid)))
        rows.append({"node": name, "address": SUBNET + str(index), "pid": pid, "port": plugged.get(index), "slurm": states.get(name)})
    if as_json:
        print(json.dumps({"state": sandbox.state, "up": True, "keeper": keeper_pid, "nodes": rows, "settings": settings}, indent=1))
        return 0
    print("%s: %d nodes, proctrack/%s, keeper %d" % (sandbox.state, settings["nodes"], settings["proctrack"], keeper_pid))
    print("%-5s %-12s %8s  %-6s %s" % ("node", "address", "process", "port", "slurm"))
    for row in rows:
        print("%-5s %-12s %8s  %-6s %s" % (row["node"], row["address"], row["pid"] or "dead", row["port"], row["slurm"] or "?"))
    return 0
