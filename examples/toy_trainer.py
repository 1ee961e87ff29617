#!/usr/bin/env python3
"""A toy training job whose result is known in advance, with faults on order.

Python standard library only (>= 3.8). W ranks, started with the environment of torchrun (RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT), advance a 64-bit state per rank over seeded data. Each step
ends with a collective over TCP through rank 0: a stopped rank stalls all others; a rank that died or finished breaks
their connections, and they end with exit code 1 and a traceback that says whom they lost. The final hash is a function
of (seed, steps, world) alone, so a run that was killed and resumed must print the hash of one that was not:
`--print-hash-only` prints it without running.

With `--global-batch N` the world may change from one attempt to the next: all ranks hold the same state, and each step
they share N samples among them, however many they are, as data-parallel training with a fixed global batch does. The
final hash is then a function of (seed, steps, N), and a checkpoint of any world can be resumed from.

Checkpoints (`--ckpt-dir`, every `--ckpt-every` steps): `step_<n>/shard_<rank>` of every rank, written aside, synced and
renamed, then `step_<n>/manifest.json` with the hash of each shard, by rank 0, when all shards are there. A start resumes
from the newest manifest whose shards all verify; torn ones are passed over and left as they are.

The commit log (`--log`) gets one JSON line per event, each a single O_APPEND write, `t` is CLOCK_MONOTONIC in ns:

    {"ev":"start", attempt, rank, pid, ppid}      the process runs
    {"ev":"resume", attempt, rank, step}          training goes on behind this step (0: from nothing)
    {"ev":"step", attempt, rank, step, state}     the step is done
    {"ev":"ckpt", attempt, rank, step}            the manifest of this step is durable (rank 0)
    {"ev":"fault", attempt, rank, step, kind, ..} a fault is about to happen
    {"ev":"end", attempt, rank, step, hash}       all steps are done

Faults: `--fault KIND:RANK:STEP[:ATTEMPT]`, any number of them, carried out in the order given. RANK is a number or `*`.
STEP counts from 1 and means: within that step, before its collective; 0 means: before the first connection. ATTEMPT is
the value of TORCHELASTIC_RESTART_COUNT, `*` is every attempt, the default is 0.

    kind              what happens
    ----              ------------
    exit=N            exits with code N at once, peers not told
    exit0             exits with 0 early, as if it were finished
    signal=NAME       sends itself the signal (KILL, SEGV, ABRT, BUS, TERM, STOP, ...)
    exception[=TEXT]  raises RuntimeError(TEXT)
    abort             os.abort()
    bus               touches a mapped file behind its truncated end (SIGBUS)
    segv              reads address 0 in native code (SIGSEGV)
    hang              sleeps for ever
    spin              computes for ever
    ignore-term       ignores SIGTERM from here on and goes on training; add `hang` at a later step for one that stays
    grandchildren     forks three children that outlive it: one in its session, one with a session of its own, one whose
                      parent is gone; each holds a listening port (named in the log), its connections, its output
                      and a file in /dev/shm (`relight-toy-<pid>`), the last two ignore SIGTERM; then exits with 9
    flood[=SECONDS]   writes 10 MB/s to stdout and stderr for 2 s: lines of 1 MB, NULs, invalid UTF-8; then a line
                      `flood over: rank R`, and goes on
    write=FILE        writes to this file once, however long that takes, then goes on
    slow=SECONDS      sleeps once, then goes on
    nofile[=N]        lowers the limit of open files to N (64) and opens files until that fails
    late[=SECONDS]    closes its connections, raises RuntimeError and takes 1 s to end
    memory[=MIB]      takes memory, 1024 MiB in all
    shm[=MIB]         fills a file in /dev/shm, 64 MiB in all (SIGBUS where there is less room)
    terminate=TEXT    aborts as C++ does of an exception that nobody catches
    import-crash      fails with ImportError while the script is loaded, before anything else (STEP is ignored)
"""

import os
import sys
import time

M = 0xFFFFFFFFFFFFFFFF
MAGIC = b"toytrain"
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Fault:
    """One `--fault`: what happens to which rank, in which step of which attempt."""

    def __init__(self, text):
        parts = text.split(":")
        if len(parts) not in (3, 4):
            raise ValueError("fault %r is not KIND:RANK:STEP[:ATTEMPT]" % text)
        self.kind, _, self.value = parts[0].partition("=")
        if self.kind not in FAULTS:
            raise ValueError("fault %r: kind %r is none of %s" % (text, self.kind, " ".join(sorted(FAULTS))))
        self.rank = None if parts[1] == "*" else int(parts[1])
        self.step = int(parts[2])
        attempt = parts[3] if len(parts) == 4 else "0"
        self.attempt = None if attempt == "*" else int(attempt)

    def is_mine(self):
        return self.rank in (None, RANK) and self.attempt in (None, ATTEMPT)


# ---------------------------------------------------------------- the computation


def mix(x):
    """splitmix64: a bijection of 64-bit numbers."""
    x = (x + 0x9E3779B97F4A7C15) & M
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


def first_state(seed, rank):
    return mix(mix(seed) ^ (rank + 1))


def contribution(seed, step, rank, state):
    """What a rank brings to the collective of a step: its state met with its data."""
    return mix(state ^ mix(mix(mix(seed) ^ step) ^ ((rank + 1) << 32)))


def next_state(state, total, step):
    return mix((state * 3 + total + step) & M)


def final_hash(states):
    value = 0
    for state in states:
        value = mix(value ^ state)
    return "%016x" % value


def share(seed, step, state, batch):
    """What this rank brings to a step of `--global-batch`: every WORLD-th sample."""
    return sum(contribution(seed, step, sample, state) for sample in range(RANK, batch, WORLD)) & M


def golden(seed, steps, world, batch):
    """The final hash of an undisturbed run."""
    if batch:
        state = first_state(seed, 0)
        for step in range(1, steps + 1):
            total = sum(contribution(seed, step, sample, state) for sample in range(batch)) & M
            state = next_state(state, total, step)
        return final_hash([state])
    states = [first_state(seed, rank) for rank in range(world)]
    for step in range(1, steps + 1):
        total = sum(contribution(seed, step, rank, state) for rank, state in enumerate(states)) & M
        states = [next_state(state, total, step) for state in states]
    return final_hash(states)


# ---------------------------------------------------------------- the commit log


class Log:
    def __init__(self, path):
        self.fd = None
        if path:
            self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def event(self, ev, **fields):
        if self.fd is None:
            return
        items = [("ev", ev), ("attempt", ATTEMPT), ("rank", RANK), *fields.items(), ("t", time.monotonic_ns())]
        text = ",".join('"%s":%s' % (name, value if isinstance(value, int) else quote(value)) for name, value in items)
        os.write(self.fd, ("{%s}\n" % text).encode())


def quote(value):
    import json

    return json.dumps(value)


# ---------------------------------------------------------------- the collective


class PeerLost(Exception):
    """A peer's connection broke: it died, or it ended before this rank did."""


class Store:
    """As much of a client of the launcher's rendezvous store as one number takes (docs/store.md)."""

    def __init__(self, socket, address, port, deadline):
        self.lines = socket.create_connection((address, port), timeout=max(0.001, deadline - time.monotonic()))
        self.lines.sendall(b"\0" + (0x3C85F7CE).to_bytes(4, "little"))

    @staticmethod
    def text(data):
        return len(data).to_bytes(8, "little") + data

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.lines.recv(length - len(data))
            if not more:
                raise OSError("the store is gone")
            data += more
        return data

    def put(self, key, number):
        self.lines.sendall(b"\1" + self.text(key) + self.text(b"%d" % number))
        # An answer: what was put is there before this connection ends.
        self.lines.sendall(b"\7")
        self.read(8)

    def get(self, key):
        """Waits until it is there."""
        self.lines.sendall(b"\6" + (1).to_bytes(8, "little") + self.text(key))
        self.read(1)
        self.lines.sendall(b"\3" + self.text(key))
        return int(self.read(int.from_bytes(self.read(8), "little")))


class Group:
    """All ranks, connected in a star around rank 0. Messages are (operation, value), 8 bytes each."""

    def __init__(self, address, port, timeout, seed):
        import socket

        self.peers = []
        self.hub = None
        self.where = "while connecting"
        # The launcher has a store at this address: rank 0 says there where it listens itself.
        self.hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        deadline = time.monotonic() + timeout
        if WORLD == 1:
            return
        if RANK == 0:
            self.accept(socket, address, port, deadline, seed)
        else:
            self.connect(socket, address, port, deadline, seed)

    def accept(self, socket, address, port, deadline, seed):
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, 0 if self.hosted else port))
        except OSError as error:
            raise OSError(error.errno, "rank 0 cannot listen on %s:%d: %s" % (address, port, error.strerror)) from None
        listener.listen(WORLD)
        if self.hosted:
            store = Store(socket, address, port, deadline)
            store.put(b"/toy/hub", listener.getsockname()[1])
            store.lines.close()
        found = {}
        while len(found) < WORLD - 1:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                peer, _ = listener.accept()
            except socket.timeout:
                missing = [rank for rank in range(1, WORLD) if rank not in found]
                raise PeerLost("rank 0: ranks %s did not connect in time" % missing) from None
            peer.settimeout(5)
            try:
                hello = self.read(peer, 40, "a newcomer")
            except (PeerLost, OSError):
                peer.close()
                continue
            rank = int.from_bytes(hello[8:16], "little")
            if hello != self.hello(rank, seed) or not 0 < rank < WORLD:
                peer.close()  # a rank of another attempt, or a stranger
                continue
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found[rank] = peer
        listener.close()
        self.peers = [(rank, found[rank]) for rank in sorted(found)]
        for rank, peer in self.peers:
            self.send(peer, MAGIC, "rank %d" % rank)

    def connect(self, socket, address, port, deadline, seed):
        pause, problem = 0.002, "no answer"
        if self.hosted:
            try:
                store = Store(socket, address, port, deadline)
                port = store.get(b"/toy/hub")
                store.lines.close()
            except OSError as error:
                raise PeerLost("rank 0 did not come to the store in time: %s" % error) from None
        while time.monotonic() < deadline:
            try:
                peer = socket.create_connection((address, port), timeout=max(0.001, deadline - time.monotonic()))
                # On loopback a socket can connect to itself while nobody listens.
                if peer.getsockname() == peer.getpeername():
                    peer.close()
                    raise OSError("nobody listens")
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.sendall(self.hello(RANK, seed))
                if self.read(peer, 8, "rank 0") != MAGIC:
                    raise OSError("a stranger listens")
                peer.settimeout(None)
                self.hub = peer
                return
            except (OSError, PeerLost) as error:
                problem = error
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        raise PeerLost("rank %d: cannot reach rank 0 at %s:%d: %s" % (RANK, address, port, problem))

    @staticmethod
    def hello(rank, seed):
        return MAGIC + b"".join((value & M).to_bytes(8, "little") for value in (rank, WORLD, ATTEMPT, seed))

    def read(self, peer, count, name):
        data = b""
        while len(data) < count:
            try:
                more = peer.recv(count - len(data))
            except ConnectionError as error:
                raise PeerLost("rank %d: lost %s %s: %s" % (RANK, name, self.where, error)) from None
            if not more:
                raise PeerLost("rank %d: lost %s %s: connection closed" % (RANK, name, self.where))
            data += more
        return data

    def send(self, peer, data, name):
        try:
            peer.sendall(data)
        except ConnectionError as error:
            raise PeerLost("rank %d: lost %s %s: %s" % (RANK, name, self.where, error)) from None

    def reduce(self, operation, value, combine, where):
        """Rank 0 gets the values of all ranks, in order of rank, and everybody gets `combine(values)`."""
        self.where = where
        if self.hub is not None:
            self.send(self.hub, operation.to_bytes(8, "little") + value.to_bytes(8, "little"), "rank 0")
            return int.from_bytes(self.read(self.hub, 8, "rank 0"), "little")
        values = [value]
        for rank, peer in self.peers:
            data = self.read(peer, 16, "rank %d" % rank)
            theirs = int.from_bytes(data[:8], "little")
            if theirs != operation:
                raise PeerLost("rank 0: rank %d is in operation %#x, not %#x" % (rank, theirs, operation))
            values.append(int.from_bytes(data[8:], "little"))
        result = combine(values) & M
        answer = result.to_bytes(8, "little")
        for rank, peer in self.peers:
            self.send(peer, answer, "rank %d" % rank)
        return result


# ---------------------------------------------------------------- checkpoints


def digest(data):
    import hashlib

    return hashlib.sha256(data).hexdigest()


def write_durably(folder, name, data):
    """Written aside, synced, renamed, the directory synced: the name shows all of it or nothing."""
    temporary = os.path.join(folder, ".%s.tmp" % name)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, os.path.join(folder, name))
    sync_folder(folder)


def sync_folder(folder):
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Checkpoints:
    def __init__(self, folder, seed, shard_bytes, keep, replicated=False):
        self.folder, self.seed, self.shard_bytes, self.keep = folder, seed, shard_bytes, keep
        self.replicated = replicated
        if folder:
            os.makedirs(folder, exist_ok=True)

    def place(self, step):
        return os.path.join(self.folder, "step_%08d" % step)

    def shard(self, step, rank, state, world=WORLD):
        head = b"toy shard seed %d world %d rank %d step %d state %016x\n" % (self.seed, world, rank, step, state)
        return head + (b"%016x" % state) * ((self.shard_bytes + 15) // 16)

    def save(self, group, step, state):
        place, where = self.place(step), "in the checkpoint of step %d" % step
        os.makedirs(place, exist_ok=True)
        data = self.shard(step, RANK, state)
        write_durably(place, "shard_%05d" % RANK, data)
        hashes = []

        def finish(values):
            for rank in range(WORLD):
                hashes.append(self.read_shard(step, rank))
                if hashes[rank][:16] != "%016x" % values[rank]:
                    raise RuntimeError("shard of rank %d of step %d is not what it wrote" % (rank, step))
            import json

            manifest = {"seed": self.seed, "world": WORLD, "step": step, "attempt": ATTEMPT, "shards": hashes}
            write_durably(place, "manifest.json", json.dumps(manifest).encode())
            sync_folder(self.folder)
            return step

        group.reduce((2 << 62) | step, int(digest(data)[:16], 16), finish, where)
        if RANK == 0 and self.keep:
            self.prune()

    def read_shard(self, step, rank):
        with open(os.path.join(self.place(step), "shard_%05d" % rank), "rb") as file:
            return digest(file.read())

    def steps(self):
        names = os.listdir(self.folder) if self.folder else []
        return sorted((int(name[5:]) for name in names if name.startswith("step_") and name[5:].isdigit()), reverse=True)

    def verified(self, step):
        """The manifest of a step, or the reason why it does not count."""
        import json

        try:
            with open(os.path.join(self.place(step), "manifest.json"), "rb") as file:
                manifest = json.loads(file.read())
            world = manifest["world"] if self.replicated else WORLD
            if (manifest["seed"], manifest["world"], manifest["step"]) != (self.seed, world, step):
                return None, "it belongs to another run"
            for rank, expected in enumerate(manifest["shards"]):
                if self.read_shard(step, rank) != expected:
                    return None, "the shard of rank %d is torn" % rank
            return manifest, ""
        except FileNotFoundError as error:
            return None, "%s is missing" % os.path.basename(error.filename)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return None, "%s: %s" % (type(error).__name__, error)

    def newest(self):
        """Newest step that verifies, 0 if there is none."""
        for step in self.steps():
            manifest, reason = self.verified(step)
            if manifest is not None:
                return step
            print("step_%08d passed over: %s" % (step, reason), flush=True)
        return 0

    def load(self, step):
        # All shards of a replicated state are alike, and those of rank 0 are there in every world.
        rank = 0 if self.replicated else RANK
        with open(os.path.join(self.place(step), "shard_%05d" % rank), "rb") as file:
            data = file.read()
        words = data.split(b"\n", 1)[0].split(b" ")
        world = int(words[5]) if self.replicated else WORLD
        state = int(words[-1], 16)
        if data != self.shard(step, rank, state, world):
            raise RuntimeError("shard of rank %d of step %d does not verify" % (rank, step))
        return state

    def prune(self):
        import shutil

        for step in self.steps()[self.keep :]:
            shutil.rmtree(self.place(step), ignore_errors=True)


# ---------------------------------------------------------------- faults


def fault_exit(value, _log):
    os._exit(int(value or 1))


def fault_exit0(_value, _log):
    sys.stdout.flush()
    os._exit(0)


def fault_signal(value, _log):
    import signal

    no_core()
    os.kill(os.getpid(), getattr(signal, "SIG" + (value or "KILL")))


def fault_exception(value, _log):
    raise RuntimeError(value or "injected failure of rank %d" % RANK)


def fault_abort(_value, _log):
    no_core()
    os.abort()


def fault_bus(_value, _log):
    import mmap
    import tempfile

    no_core()
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        return memory[mmap.PAGESIZE]


def fault_segv(_value, _log):
    import ctypes

    no_core()
    ctypes.string_at(0)


def fault_hang(_value, _log):
    while True:
        time.sleep(3600)


def fault_spin(_value, _log):
    while True:
        pass


def fault_ignore_term(_value, _log):
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def fault_slow(value, _log):
    time.sleep(float(value or 1))


def fault_nofile(value, _log):
    import resource

    limit = int(value or 64)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    files = []
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))


def fault_flood(value, _log):
    until = time.monotonic() + float(value or 2)
    lines = [
        b"x" * (1 << 20) + b"\n",
        b"nul \0\0\0 nul\n" * 40000,
        b"not utf-8 \xff\xfe\xc3\x28 \x80\n" * 26000,
        b"short line\n" * 48000,
    ]
    count = 0
    while time.monotonic() < until:
        started = time.monotonic()
        data = memoryview(lines[count % len(lines)])
        fd = 1 + count // len(lines) % 2
        while data:
            data = data[os.write(fd, data) :]
        count += 1
        time.sleep(max(0.0, 0.05 - (time.monotonic() - started)))
    os.write(1, b"flood over: rank %d\n" % RANK)
    os.write(2, b"flood over: rank %d\n" % RANK)


def fault_write(value, _log):
    # As long as the file system stands still this waits in the kernel, where SIGKILL does not reach it.
    with open(value, "ab", buffering=0) as file:
        file.write(b"x" * 4096)


def fault_late(value, _log):
    # Its peers lose their connections now; its own words come, and then it takes its time to end.
    import atexit

    os.closerange(3, 256)
    atexit.register(time.sleep, float(value or 1))
    raise RuntimeError("late words of rank %d" % RANK)


def fault_memory(value, _log):
    held = []
    for _ in range(int(value or 1024)):
        held.append(bytearray(os.urandom(4096) * 256))
    raise RuntimeError("there was room for %d MiB" % len(held))


def fault_shm(value, _log):
    import mmap

    no_core()
    fd = os.open("/dev/shm/toy-%d" % os.getpid(), os.O_RDWR | os.O_CREAT, 0o600)
    size = int(value or 64) << 20
    os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1


def fault_terminate(value, _log):
    # As C++ ends of an exception that nobody catches.
    no_core()
    text = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  %s\n"
    os.write(2, (text % value).encode())
    os.abort()


def fault_grandchildren(_value, log):
    reader, writer = os.pipe()
    for kind in ("plain", "setsid", "orphan"):
        pid = os.fork()
        if pid == 0:
            try:
                if kind != "plain":
                    os.setsid()
                if kind == "orphan" and os.fork() != 0:
                    os._exit(0)
                grandchild(kind, writer)
            finally:
                os._exit(1)
        if kind == "orphan":
            os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        for _ in range(3):
            kind, pid, port, path = told.readline().split()
            log.event("grandchild", kind=kind, pid=int(pid), port=int(port), shm=path)
    os._exit(9)


def grandchild(kind, writer):
    import signal
    import socket

    if kind != "plain":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = "/dev/shm/relight-toy-%d" % os.getpid()
    shm = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(shm, 4096)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    os.write(writer, ("%s %d %d %s\n" % (kind, os.getpid(), listener.getsockname()[1], path)).encode())
    os.close(writer)
    while True:
        signal.pause()


def no_core():
    """A fault leaves no core file behind."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


FAULTS = {
    "exit": fault_exit,
    "exit0": fault_exit0,
    "signal": fault_signal,
    "exception": fault_exception,
    "abort": fault_abort,
    "bus": fault_bus,
    "segv": fault_segv,
    "hang": fault_hang,
    "spin": fault_spin,
    "ignore-term": fault_ignore_term,
    "slow": fault_slow,
    "nofile": fault_nofile,
    "flood": fault_flood,
    "write": fault_write,
    "late": fault_late,
    "memory": fault_memory,
    "shm": fault_shm,
    "terminate": fault_terminate,
    "grandchildren": fault_grandchildren,
    "import-crash": None,
}


def suffer(faults, step, log):
    for fault in faults:
        if fault.step == step and fault.is_mine() and FAULTS[fault.kind] is not None:
            log.event("fault", step=step, kind=fault.kind)
            FAULTS[fault.kind](fault.value, log)


# ---------------------------------------------------------------- the job


def parse(argv):
    import argparse

    def fault(text):
        try:
            return Fault(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    parser = argparse.ArgumentParser(description="A toy training job whose result is known in advance.")
    parser.add_argument("--steps", type=int, default=100, help="steps of the whole job")
    parser.add_argument("--step-time", type=float, default=0.05, metavar="SEC", help="time that a step takes")
    parser.add_argument("--ckpt-every", type=int, default=10, metavar="N", help="steps between checkpoints")
    parser.add_argument("--ckpt-dir", default="", metavar="DIR", help="where checkpoints go (default: none)")
    parser.add_argument("--keep", type=int, default=0, metavar="N", help="checkpoints kept (0: all)")
    parser.add_argument("--shard-bytes", type=int, default=0, metavar="N", help="payload of each shard")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--global-batch", type=int, default=0, metavar="N", help="samples of a step, shared by all ranks")
    parser.add_argument("--log", default="", metavar="FILE", help="commit log")
    parser.add_argument("--fault", action="append", default=[], type=fault, metavar="KIND:RANK:STEP[:ATTEMPT]")
    parser.add_argument("--beat", action="store_true", help="say each step on the heartbeat board (import relight)")
    parser.add_argument("--connect-timeout", type=float, default=60, metavar="SEC")
    parser.add_argument("--quiet", action="store_true", help="no line per step")
    parser.add_argument("--world", type=int, default=WORLD, help="with --print-hash-only (default: WORLD_SIZE)")
    parser.add_argument("--print-hash-only", action="store_true", help="print the final hash and end")
    return parser.parse_args(argv)


def beating():
    import relight

    return relight.heartbeat


def train(args, log):
    suffer(args.fault, 0, log)
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    group = Group(address, int(os.environ.get("MASTER_PORT", "29500")), args.connect_timeout, args.seed)
    checkpoints = Checkpoints(args.ckpt_dir, args.seed, args.shard_bytes, args.keep, args.global_batch > 0)
    step = checkpoints.newest() if RANK == 0 else 0
    step = group.reduce(1 << 62, step, lambda values: values[0], "while agreeing on the step to resume from")
    state = checkpoints.load(step) if step else first_state(args.seed, 0 if args.global_batch else RANK)
    log.event("resume", step=step)
    if RANK == 0:
        print("attempt %d: %d ranks, resuming behind step %d of %d" % (ATTEMPT, WORLD, step, args.steps), flush=True)
    beat = beating() if args.beat else lambda step: None
    while step < args.steps:
        step += 1
        beat(step)
        if args.step_time > 0:
            time.sleep(args.step_time)
        suffer(args.fault, step, log)
        if args.global_batch:
            mine = share(args.seed, step, state, args.global_batch)
        else:
            mine = contribution(args.seed, step, RANK, state)
        total = group.reduce(step, mine, sum, "in step %d" % step)
        state = next_state(state, total, step)
        log.event("step", step=step, state="%016x" % state)
        if RANK == 0 and not args.quiet:
            print("step %d/%d state %016x" % (step, args.steps, state), flush=True)
        if args.ckpt_dir and args.ckpt_every > 0 and step % args.ckpt_every == 0:
            checkpoints.save(group, step, state)
            if RANK == 0:
                log.event("ckpt", step=step)

    def finish(values):
        if args.global_batch and len(set(values)) > 1:
            raise RuntimeError("ranks hold different states: %s" % ["%016x" % value for value in values])
        return int(final_hash(values[:1] if args.global_batch else values), 16)

    value = group.reduce(3 << 62, state, finish, "at the end")
    log.event("end", step=step, hash="%016x" % value)
    if RANK == 0:
        print("final hash %016x" % value, flush=True)


def main(argv):
    args = parse(argv)
    if args.print_hash_only:
        print(golden(args.seed, args.steps, args.world, args.global_batch))
        return
    log = Log(args.log)
    log.event("start", pid=os.getpid(), ppid=os.getppid())
    train(args, log)


def crash_at_import(argv):
    for at, word in enumerate(argv):
        text = word[len("--fault=") :] if word.startswith("--fault=") else argv[at - 1 : at] == ["--fault"] and word
        if text and text.startswith("import-crash:") and Fault(text).is_mine():
            raise ImportError("injected failure of rank %d: No module named 'labels'" % RANK)


crash_at_import(sys.argv[1:])
if __name__ == "__main__":
    main(sys.argv[1:])
