"""One sandbox: its folder, its keeper, its nodes."""

import contextlib
import fcntl
import functools
import json
import os
import re
import signal
import zlib

from sandbox.groups import Groups
from sandbox.kernel import (
    MS_NODEV, MS_NOSUID, MS_REC, MS_SLAVE, Refused, bind, boot_id, failed, in_child, mount, plain_signals, read,
    reap_for_ever, set_host_name, setns, start_time, tmpfs, to_log, unshare, until, write,
)  # fmt: skip

SUBNET = "10.77.0."
CONTROLLER = SUBNET + "254"
# What only the sandbox sees, in its own root folder: who it is, the nodes' networks, what belongs to one node.
INSIDE = "/.sandbox"
MARK = "sandbox.json"
DEADLINE = 30.0
DAEMON_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}


class Sandbox:
    """A folder on the machine, and one process, the keeper, whose end ends everything."""

    def __init__(self, state):
        self.state = os.path.realpath(state)
        if re.search(r"[^\w./+@:-]", self.state):
            raise Refused("The path of the state folder may only have letters, digits and ./+@:_- in it: %s" % self.state)
        name = re.sub(r"\W+", "-", os.path.basename(self.state))
        self.groups = Groups("relight-sandbox-%s-%08x" % (name[:40], zlib.crc32(os.fsencode(self.state))))

    def path(self, *names):
        return os.path.join(self.state, *names)

    @contextlib.contextmanager
    def locked(self, make=False):
        """One command at a time changes a sandbox: the lock is on its folder. Without a folder there is nothing to lock."""
        while True:
            if make:
                os.makedirs(self.state, mode=0o755, exist_ok=True)
            try:
                fd = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                yield
                return
            try:
                until(functools.partial(self.take, fd), 2 * DEADLINE, lambda: "Another command is at work on %s" % self.state)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.stat(self.state), os.fstat(fd)):
                        yield
                        return
            finally:
                os.close(fd)

    @staticmethod
    def take(fd):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True

    def settings(self):
        try:
            return json.loads(read(self.path(MARK)))
        except (OSError, ValueError):
            return {}

    def keeper(self):
        """Its process id on the machine, or None."""
        try:
            boot, pid, started = read(self.path("run", "keeper")).split()
        except (OSError, ValueError):
            return None
        pid = int(pid)
        return pid if boot == boot_id() and start_time(pid) == started else None

    def strays(self):
        """Processes of this sandbox, whoever lost track of them: those that see its mark in their root folder."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and read("/proc/%s/root%s/id" % (name, INSIDE), "").strip() == self.state:
                found.append(int(name))
        return found

    def running(self):
        keeper = self.keeper()
        if keeper is None:
            raise Refused("The sandbox %s is not up." % self.state)
        return keeper, self.settings()

    # ------------------------------------------------ going in

    def enter(self, keeper, node_pid=None):
        """Moves the calling process into the sandbox's namespaces, its children into its process table."""
        process = "/proc/%d" % keeper
        if node_pid:
            process += "/root/proc/%d" % node_pid
        names = ["pid", "ipc", "uts", "net"] + (["cgroup"] if node_pid else []) + ["mnt"]
        files = [(os.open("%s/ns/%s" % (process, name), os.O_RDONLY | os.O_CLOEXEC), name) for name in names]
        root = os.open(process + "/root", os.O_PATH | os.O_CLOEXEC)
        for fd, name in files:
            setns(fd, name)
            os.close(fd)
        # Where this program itself is in a chroot, the namespace begins above the sandbox's root.
        os.fchdir(root)
        os.chroot(".")
        os.close(root)

    def inside(self, keeper, body):
        """Runs a function in the process table of the sandbox; gives back the text that it returns."""

        def enter():
            self.enter(keeper)
            return in_child(body)

        return in_child(enter)

    def daemon(self, keeper, name, prepare, argv):
        """Starts a daemon in the sandbox, whose keeper adopts it; gives back its process id there.

        `prepare` runs in a child of its own namespaces' choice: what it returns, if anything, is called in place of argv.
        """

        def start():
            os.setsid()
            out, into = os.pipe()
            if os.fork():
                os.close(into)
                return os.read(out, 20).decode()
            try:
                body = prepare() if prepare else None
                pid = os.fork()
                if pid:
                    os.write(into, b"%d" % pid)
                    os._exit(0)
                os.close(into)
                to_log(self.path("log", name + ".log"))
                if body:
                    body()
                plain_signals()
                os.chdir("/")
                os.execvpe(argv[0], argv, DAEMON_ENVIRONMENT)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.write(2, ("slurm-sandbox: %s: %s\n" % (name, error)).encode())
            os._exit(1)

        return int(self.inside(keeper, start) or 0)

    # ------------------------------------------------ nodes

    def node_file(self, index):
        return self.path("run", "n%d" % index)

    def node_pid(self, keeper, index):
        """The process id, in the sandbox, of the node's process 1; None if the node is dead."""
        try:
            pid, started = read(self.node_file(index)).split()
        except (OSError, ValueError):
            return None
        stat = read("/proc/%d/root/proc/%s/stat" % (keeper, pid), "").rpartition(")")[2].split()
        return int(pid) if stat and stat[0] not in "ZX" and stat[19] == started else None

    def start_node(self, keeper, settings, index, reboot):
        name = "n%d" % index
        hierarchy = settings["hierarchy"]
        if hierarchy:
            self.groups.remove(name)

        def prepare():
            with open("%s/net/%s" % (INSIDE, name)) as file:
                setns(file.fileno(), "net")
            unshare("mnt", "uts", "ipc", "pid")
            if hierarchy:
                self.groups.enter(hierarchy, name)
            return node

        def node():
            # Process 1 of the node.
            plain_signals()
            mount(None, "/", None, MS_REC | MS_SLAVE)
            mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
            own_sys()
            tmpfs("/dev/shm")
            tmpfs("/local", "mode=1777,size=" + settings["local_size"])
            tmpfs(INSIDE + "/node", "mode=755")
            os.mkdir(INSIDE + "/node/spool")
            self.own_tmp(settings["bind"])
            set_host_name(name)
            os.chdir("/")
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            if os.fork() == 0:
                plain_signals()
                argv = ["slurmd", "-D", "-N", name, "-f", self.path("etc", "slurm.conf")] + (["-b"] if reboot else [])
                os.setsid()
                os.execvpe(argv[0], argv, DAEMON_ENVIRONMENT)
            reap_for_ever()

        pid = self.daemon(keeper, name, prepare, [])
        stat = read("/proc/%d/root/proc/%d/stat" % (keeper, pid), "").rpartition(")")[2].split()
        if not stat:
            raise failed("Node %s did not start.\n%s" % (name, self.tails([name])))
        write(self.node_file(index), "%d %s\n" % (pid, stat[19]))

    def own_tmp(self, keep):
        """An empty /tmp; what must be seen at its path everywhere is put back."""
        held = []
        for folder in keep:
            if os.path.commonpath([folder, "/tmp"]) == "/tmp" and folder != "/tmp":
                held.append((os.open(folder, os.O_PATH), folder))
        tmpfs("/tmp")
        for fd, folder in held:
            os.makedirs(folder, exist_ok=True)
            bind("/proc/self/fd/%d" % fd, folder)
            os.close(fd)

    # ------------------------------------------------ Slurm

    def ask(self, keeper, argv):
        """Output of a client on the login node, or None."""

        def client():
            environment = dict(DAEMON_ENVIRONMENT, SLURM_CONF=self.path("etc", "slurm.conf"))
            import subprocess  # late: most commands do without

            done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
            return ("+" if done.returncode == 0 else "-") + done.stdout.decode(errors="replace")

        text = self.inside(keeper, client)
        return text[1:] if text.startswith("+") else None

    def node_states(self, keeper):
        out = self.ask(keeper, ["sinfo", "-h", "-N", "-o", "%N %T"]) or ""
        return dict(line.split()[:2] for line in out.splitlines() if len(line.split()) == 2)

    def wait_for(self, keeper, state, indexes, seconds):
        last, states = {}, state.split(",")

        def there():
            if self.keeper() != keeper:
                raise failed("The sandbox has ended.\n" + self.tails())
            last.clear()
            last.update(self.node_states(keeper))
            return all(last.get("n%d" % index) in states for index in indexes)

        def what():
            seen = ", ".join("%s %s" % item for item in sorted(last.items())) or "no answer from slurmctld"
            return "Not all of the nodes are %s: %s\n%s" % (state, seen, self.tails())

        until(there, seconds, what)

    def tails(self, names=None):
        """The ends of what the daemons said on their standard streams."""
        texts = []
        for name in names or sorted(name[:-4] for name in os.listdir(self.path("log")) if name.endswith(".log")):
            name += ".log"
            lines = read(self.path("log", name), "").splitlines()[-8:]
            if lines:
                texts.append("--- %s\n%s" % (self.path("log", name), "\n".join(lines)))
        return "\n".join(texts)


def own_sys():
    """A /sys that shows the network of the node; the control groups stay where they are."""
    held = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else None
    try:
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV)
    except OSError:
        held = None  # not everywhere allowed, and then it shows that of the machine
    if held is not None:
        bind("/proc/self/fd/%d" % held, "/sys/fs/cgroup")


def check_nodes(settings, indexes):
    for index in indexes:
        if not 1 <= index <= settings["nodes"]:
            raise Refused("There is no node %d: the sandbox has n1 to n%d." % (index, settings["nodes"]))


def needs_root():
    if os.geteuid() != 0:
        raise Refused("The sandbox makes namespaces and networks, and Slurm in it works for many users: run it as root.", 3)
