"""Making a sandbox: its root folder, its networks, its daemons, and the process that holds them together."""

import os
import re
import signal
import socket
import subprocess

from sandbox.cluster import CONTROLLER, DAEMON_ENVIRONMENT, DEADLINE, INSIDE, SUBNET
from sandbox.kernel import (
    MNT_DETACH, MS_MOVE, MS_NODEV, MS_NOSUID, MS_REC, MS_SLAVE, bind, boot_id, call, failed, libc, listens, mount, plain_signals, read,
    reap_for_ever, set_host_name, setns, start_time, tmpfs, unshare, until, write,
)  # fmt: skip


def new_root(sandbox):
    """A root folder of the sandbox's own: everything that the machine has, and /local and its own /proc in addition."""
    mount(None, "/", None, MS_REC | MS_SLAVE)
    # It is put together on top of /proc, the one folder that the sandbox does not take from the machine: so no part of
    # it is ever copied into itself.
    tmpfs("/proc", "mode=755,size=4m")
    for name in sorted(os.listdir("/")):
        old, new = "/" + name, "/proc/" + name
        if os.path.islink(old):
            os.symlink(os.readlink(old), new)
        elif name in ("proc", "local"):
            os.mkdir(new, 0o755)
        elif os.path.isdir(old):
            os.mkdir(new)
            bind(old, new)
        else:
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY))
            bind(old, new)
    os.makedirs("/proc/local", exist_ok=True)
    for name in ("net", "node", "cgroup", "old"):
        os.makedirs("/proc%s/%s" % (INSIDE, name))
    write("/proc%s/id" % INSIDE, sandbox.state + "\n")
    mount("proc", "/proc/proc", "proc", MS_NOSUID | MS_NODEV)
    os.chdir("/proc")
    if libc.pivot_root(b".", os.fsencode("." + INSIDE + "/old")) == 0:
        call("umount", libc.umount2(os.fsencode(INSIDE + "/old"), MNT_DETACH))
    else:  # the machine's root is the one that it was started with
        mount(".", "/", None, MS_MOVE)
        os.chroot(".")
    os.chdir("/")
    # What slurmd without proctrack/cgroup takes for control groups, so that it leaves the machine's alone.
    tmpfs(INSIDE + "/cgroup", "mode=755")
    if os.path.exists("/etc/hosts"):
        bind(sandbox.path("etc", "hosts"), "/etc/hosts")
    tmpfs("/dev/shm")


def networks(count):
    """One network for each node and two bridges, in the sandbox's own network."""

    def ip(*lines):
        done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), stdout=2, env=DAEMON_ENVIRONMENT)
        if done.returncode:
            raise failed("The networks could not be made: see the lines of `ip` in the log of the keeper")

    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    lines = ["link set lo up"]
    for number, bridge in enumerate(("br0", "br1")):
        lines += ["link add %s address 02:00:0a:4d:01:%02x type bridge" % (bridge, number), "link set %s up" % bridge]
    lines += ["address add %s/24 dev br0" % CONTROLLER]
    for index in range(1, count + 1):
        place = "%s/net/n%d" % (INSIDE, index)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        unshare("net")
        bind("/proc/self/ns/net", place)
        # The same hardware address for the whole of the sandbox's life: nobody keeps a stale one for a node that is back.
        lines += [
            "link add v%d type veth peer name eth0 address 02:00:0a:4d:00:%02x netns %s" % (index, index, place),
            "link set v%d master br0 up" % index,
        ]
    setns(own, "net")
    ip(*lines)
    for index in range(1, count + 1):
        with open("%s/net/n%d" % (INSIDE, index)) as file:
            setns(file.fileno(), "net")
        ip("link set lo up", "link set eth0 up", "address add %s%d/24 dev eth0" % (SUBNET, index))
    setns(own, "net")


def end_of_stream(fd):
    """A child that ends with the caller's standard input."""
    pid = os.fork()
    if pid == 0:
        while os.read(fd, 4096):
            pass
        os._exit(0)
    return pid


def keeper(sandbox, settings, lifeline):
    """Never returns. Ends, and the sandbox with it, if `up` ends before it is done."""
    os.setsid()
    os.dup2(lifeline, 100)
    if settings["while_stdin"]:
        os.dup2(0, 101)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(sandbox.path("log", "keeper.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 100)
    os.closerange(101 + settings["while_stdin"], 4096)
    lifeline = 100
    try:
        plain_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if os.read(lifeline, 4) != b"go":
            os._exit(1)
        new_root(sandbox)
        set_host_name("ctl")
        networks(settings["nodes"])
        os.write(lifeline, b"made")
        if os.read(lifeline, 4) == b"stay":
            os.close(lifeline)
            reap_for_ever(end_of_stream(101) if settings["while_stdin"] else None)
    except BaseException as error:
        os.write(2, ("slurm-sandbox: %s\n" % error).encode())
    os._exit(1)


SLURM_CONF = """\
ClusterName=sandbox
SlurmctldHost=ctl({controller})
AuthType=auth/munge
AuthInfo={auth_info}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={state}/ctl
SlurmctldPidFile={state}/run/slurmctld.pid
SlurmctldLogFile={state}/log/slurmctld
SlurmdLogFile={state}/log/slurmd-%n
SlurmdPidFile={inside}/node/slurmd.pid
SlurmdSpoolDir={inside}/node/spool
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout={lost}
MessageTimeout=5
KillWait=5
InactiveLimit=0
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
{more}
NodeName=n[1-{nodes}] NodeAddr={subnet}[1-{nodes}] CPUs={cpus} RealMemory={memory}
PartitionName=main Nodes=ALL Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
"""


def configure(sandbox, options, hierarchy):
    """Writes what Slurm and munge want to read."""
    for name, mode in (("etc", 0o755), ("log", 0o755), ("run", 0o755), ("ctl", 0o700), ("private", 0o700), ("shared", 0o1777)):
        os.makedirs(sandbox.path(name), exist_ok=True)
        os.chmod(sandbox.path(name), mode)
    hosts = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", CONTROLLER + " ctl login"]
    hosts += ["%s%d n%d" % (SUBNET, index, index) for index in range(1, options["nodes"] + 1)]
    write(sandbox.path("etc", "hosts"), "\n".join(hosts) + "\n")
    more, auth_info = [], "socket=" + sandbox.path("run", "munge.socket")
    for pair in options["set"]:
        if pair.startswith("AuthInfo="):
            auth_info += "," + pair.partition("=")[2]
        else:
            more.append(pair)
    memory = int(re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo")).group(1)) // 1024
    text = SLURM_CONF.format(
        state=sandbox.state, controller=CONTROLLER, subnet=SUBNET, inside=INSIDE, memory=memory, auth_info=auth_info,
        nodes=options["nodes"], cpus=options["cpus"], lost=options["lost"], proctrack=options["proctrack"], more="",
    )  # fmt: skip
    for pair in more:
        key = pair.partition("=")[0]
        text = re.sub(r"(?im)^%s=.*\n" % re.escape(key), "", text)
        text = text.replace("NodeName=", pair + "\nNodeName=", 1)
    write(sandbox.path("etc", "slurm.conf"), text.replace("\n\n", "\n"))
    if hierarchy:
        lines = ["CgroupPlugin=cgroup/v%d" % hierarchy[0], "CgroupMountpoint=/sys/fs/cgroup"]
        if hierarchy[0] == 2:
            lines.append("IgnoreSystemd=yes")
    else:
        lines = ["CgroupPlugin=cgroup/v1", "CgroupMountpoint=%s/cgroup" % INSIDE]
    lines += ["ConstrainCores=no", "ConstrainRAMSpace=no", "ConstrainDevices=no"]
    write(sandbox.path("etc", "cgroup.conf"), "\n".join(lines) + "\n")
    with open(os.open(sandbox.path("private", "munge.key"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400), "wb") as file:
        file.write(os.urandom(128))


def make(sandbox, settings, deadline):
    """From nothing to a cluster that answers."""
    ours, theirs = socket.socketpair()
    out, into = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            unshare("mnt", "uts", "ipc", "net", "pid")
            pid = os.fork()
            if pid == 0:
                ours.close()
                keeper(sandbox, settings, theirs.fileno())
            os.write(into, b"%d" % pid)
            os._exit(0)
        except BaseException as error:
            os.write(2, ("slurm-sandbox: %s\n" % error).encode())
            os._exit(1)
    if os.waitpid(helper, 0)[1]:
        raise failed("The namespaces could not be made.\n" + sandbox.tails())
    # The keeper is on record before it does anything.
    theirs.close()
    pid = int(os.read(out, 20))
    os.close(out)
    os.close(into)
    write(sandbox.path("run", "keeper"), "%s %d %s\n" % (boot_id(), pid, start_time(pid)))
    ours.send(b"go")
    if ours.recv(4) != b"made" or sandbox.keeper() != pid:
        raise failed("The namespaces could not be made.\n" + sandbox.tails())
    munge = ["munged", "--foreground", "--force", "--num-threads=2", "--key-file=" + sandbox.path("private", "munge.key")]
    places = ("socket", "run/munge.socket"), ("pid-file", "run/munged.pid"), ("seed-file", "private/munge.seed")
    for option, place in places + (("log-file", "log/munged.log"),):
        munge.append("--%s=%s" % (option, sandbox.path(place)))
    sandbox.daemon(pid, "munged", None, munge)
    door = sandbox.path("run", "munge.socket")
    until(lambda: os.path.exists(door), DEADLINE, lambda: "munged does not listen\n" + sandbox.tails(["munged"]))
    sandbox.daemon(pid, "slurmctld", None, ["slurmctld", "-D", "-f", sandbox.path("etc", "slurm.conf")])
    until(lambda: listens("/proc/%d" % pid, 6817), deadline, lambda: "slurmctld does not listen\n" + sandbox.tails(["slurmctld"]))
    for index in range(1, settings["nodes"] + 1):
        sandbox.start_node(pid, settings, index, reboot=False)
    sandbox.wait_for(pid, "idle", range(1, settings["nodes"] + 1), deadline)
    ours.send(b"stay")
    return pid
