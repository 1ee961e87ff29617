"""The rendezvous store beside torch's own: connect + init + barrier, then operations per second.

Both servers run one after the other under the same clients (`benches/store_load.rs`, one thread), rounds interleaved, and
so does a third, the floor, that looks nothing up and keeps nothing: what it reaches is what one thread can reach that
receives and sends for every question. Beside operations per second stands what one second of the server's CPU is good for,
and how much of it is the server's own and the kernel's: where the clients, the kernel or other work on the machine are
the limit, those are the figures that compare servers. Only the time in which all clients ask counts.
"""

import json
import os
import resource
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TICKS = os.sysconf("SC_CLK_TCK")
# Its socket is made here, for IPv4: torch's server looks the name of every client up, on its only thread, and for the form that
# IPv4 addresses have in a socket for both families /etc/hosts has no answer. With a name server that takes its time, that
# would be all that is measured.
TORCH = """
import socket, sys
from torch.distributed import TCPStore
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(4096)
port = listener.getsockname()[1]
store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, use_libuv=True, master_listen_fd=listener.detach())
print("listens 127.0.0.1:%d" % port, flush=True)
sys.stdin.read()
"""
# Seconds that one round may take: clients that are not answered by then are counted as not answered at all.
PATIENCE = 60
MIXES = ("get", "set-get", "add", "check", "mixed", "sets")


def build():
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--example", "store_load"], cwd=ROOT, check=True, stdout=sys.stderr
    )
    out = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    return os.path.join(json.loads(out)["target_directory"], "release", "examples", "store_load")


class Server:
    """A store in a process of its own."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("listens "):
                self.address = line.split()[1]
                return
        raise RuntimeError("the store ended before it listened: %s" % command[0])

    def cpu(self):
        """Seconds of CPU so far, of all of its threads: its own, and the kernel's for it."""
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) / TICKS, int(fields[12]) / TICKS

    def memory(self):
        """Resident memory in MB."""
        with open("/proc/%d/statm" % self.process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def load(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError("the clients ended with %d: %s" % (done.returncode, done.stderr.strip()))
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def one(binary, name, command, clients, mixes, seconds, found):
    """A fresh server, and everything that is asked of it."""
    server = Server(command)
    try:
        idle, before = server.memory(), server.cpu()
        if name != "floor":
            result = load(binary, "init", server.address, clients)
            found.setdefault("init", []).append(result["all_s"])
            found.setdefault("init-cpu", []).append(sum(server.cpu()) - sum(before))
        for mix in mixes:
            try:
                result = load(binary, "ops", server.address, clients, seconds, mix, server.process.pid)
            except subprocess.TimeoutExpired:
                print("%s, %d clients, %s: no end within %d s" % (name, clients, mix, PATIENCE), file=sys.stderr)
                found.setdefault(mix, []).append(0.0)
                continue
            if result["ops"] == 0:
                print("%s, %d clients, %s: nobody was answered" % (name, clients, mix), file=sys.stderr)
                found.setdefault(mix, []).append(0.0)
                continue
            user, kernel = result["own_s"], result["kernel_s"]
            cpu = user + kernel
            found.setdefault(mix, []).append(result["ops"] / result["seconds"])
            found.setdefault(mix + "-cpu", []).append(result["ops"] / max(cpu, 1 / TICKS))
            found.setdefault(mix + "-busy", []).append(cpu / result["seconds"])
            found.setdefault(mix + "-own", []).append(1e6 * max(user, 1 / TICKS) / result["ops"])
            found.setdefault(mix + "-kernel", []).append(1e6 * max(kernel, 1 / TICKS) / result["ops"])
        found.setdefault("memory", []).append(server.memory() - idle)
    finally:
        server.close()


def bench(args):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    binary = build()
    servers = {"relight": [binary, "serve", "127.0.0.1:0", "10000"]}
    if args.torch_python:
        servers["torch"] = [args.torch_python, "-c", TORCH]
    else:
        print("skipped: torch's server (name a Python that has torch with --torch-python)", file=sys.stderr)
    servers["floor"] = [binary, "floor", "127.0.0.1:0"]
    report = {}
    for clients in args.clients:
        if hard < clients + 100:
            print("skipped: %d clients: at most %d files may be open here (ulimit -n)" % (clients, hard), file=sys.stderr)
            continue
        found = {name: {} for name in servers}
        for _ in range(args.runs):
            for name, command in servers.items():
                one(binary, name, command, clients, MIXES, args.seconds, found[name])
        report[clients] = {
            name: {what: statistics.median(values) for what, values in row.items()} for name, row in found.items()
        }
        if not args.json:
            show({clients: report[clients]})
    if args.json:
        print(json.dumps(report))


def show(report):
    for clients, servers in report.items():
        columns = [name for name in ("relight", "torch", "floor") if name in servers]
        print("\n%d clients" % clients)
        print("  %-22s" % "" + "".join(" %11s" % name for name in columns) + "  relight : torch")
        rows = [("connect+init+barrier s", "init", True), ("  CPU s of it", "init-cpu", True)]
        for mix in MIXES:
            rows += [
                ("%s: ops/s" % mix, mix, False),
                ("  ops per CPU s", mix + "-cpu", False),
                ("  own us per op", mix + "-own", True),
                ("  kernel us per op", mix + "-kernel", True),
                ("  server busy, cores", mix + "-busy", None),
            ]
        rows.append(("memory MB", "memory", None))
        for title, key, less in rows:
            cells = ""
            for name in columns:
                value = servers[name].get(key)
                cells += " %11s" % ("-" if value is None else "%.3f" % value if value < 100 else "%.0f" % value)
            ours, theirs = (servers.get(name, {}).get(key) for name in ("relight", "torch"))
            if less is not None and ours and theirs:
                cells += "  %.2f x" % (theirs / ours if less else ours / theirs)
            print("  %-22s%s" % (title, cells))
        limits(servers)


def limits(servers):
    """What is in the way of more, in a sentence for each mix: the kernel's part, and what a server that does nothing reaches."""
    for mix in MIXES:
        own, kernel = (servers["relight"].get(mix + part) for part in ("-own", "-kernel"))
        most, theirs = (servers.get(name, {}).get(mix) for name in ("floor", "torch"))
        if not own or not kernel or not most:
            continue
        said = "%s: of %.1f us per operation the kernel has %.1f (%.0f %%)" % (mix, own + kernel, kernel, 100 * kernel / (own + kernel))
        if theirs:
            said += "; a server that looks nothing up reaches %.2f x torch's" % (most / theirs)
        print("  limit, " + said)
