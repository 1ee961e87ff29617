"""System calls, files, waits."""

import contextlib
import ctypes
import os
import signal
import time

CLONE = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}
MS_NOSUID, MS_NODEV, MS_BIND, MS_MOVE, MS_REC, MS_SLAVE = 2, 4, 0x1000, 0x2000, 0x4000, 0x80000
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """Ends the command with one sentence and an exit code."""

    def __init__(self, sentence, code=2):
        super().__init__(sentence)
        self.code = code


def failed(sentence):
    return Refused(sentence, 1)


def call(what, result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


def unshare(*names):
    call("unshare " + " ".join(names), libc.unshare(sum(CLONE[name] for name in names)))


def setns(fd, name):
    call("setns " + name, libc.setns(fd, CLONE[name]))


def mount(source, target, kind=None, flags=0, data=None):
    words = [word and os.fsencode(word) for word in (source, target, kind)]
    call("mount %s" % target, libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), data and data.encode()))


def tmpfs(target, data="mode=1777"):
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, data)


def bind(source, target):
    mount(source, target, None, MS_BIND | MS_REC)


def set_host_name(name):
    call("sethostname", libc.sethostname(name.encode(), len(name)))


def plain_signals():
    """Undoes what Python does to signals, and what this program blocks, for a program that comes next."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def start_time(pid):
    """When a process started, in ticks since boot; with the boot's id that names it for ever."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def boot_id():
    return read("/proc/sys/kernel/random/boot_id").strip()


def read(path, default=None):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        if default is None:
            raise
        return default


def write(path, text, mode=0o644):
    """Whole or not at all."""
    fresh = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    os.rename(fresh, path)


def until(condition, seconds, what):
    """Asks again until the condition holds; `what` gives the text of the failure, with the last state."""
    end = time.monotonic() + seconds
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise failed("%s (waited %g s)" % (what(), seconds))
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def listens(process, port):
    """Somebody accepts connections on the port, in the network of a process (a folder of /proc)."""
    wanted = ":%04X" % port
    for line in read(process + "/net/tcp", "").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted) and fields[3] == "0A":
            return True
    return False


def to_log(path):
    """Standard streams of a daemon; every other descriptor is closed, the lock's and a caller's pipes among them."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 4096)


def reap_for_ever(watcher=None):
    """What process 1 does, until the watcher ends. Its end is the end of everything in its process table."""
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            pid = 1
            while pid:
                pid = os.waitpid(-1, os.WNOHANG)[0]
                if pid and pid == watcher:
                    os._exit(0)


def in_child(body):
    """Runs a function in a child and waits for it; a text that it returns, or the sentence of its failure, comes back."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(out)
            text = body()
            code = 0
        except BaseException as error:
            text = error.args[-1] if isinstance(error, OSError) and len(error.args) == 2 else str(error) or repr(error)
        with contextlib.suppress(OSError):
            os.write(into, (text or "").encode())
        os._exit(code)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    status = os.waitpid(pid, 0)[1]
    if status:
        raise failed(text or "a helper process ended with status %d" % status)
    return text
