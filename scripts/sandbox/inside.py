"""Running a command in a sandbox."""

import contextlib
import os
import pwd
import signal
import sys

from sandbox.cluster import check_nodes, needs_root
from sandbox.kernel import PR_SET_PDEATHSIG, Refused, libc, plain_signals


def target(sandbox, keeper_pid, node):
    if node is None:
        return None
    pid = sandbox.node_pid(keeper_pid, node)
    if pid is None:
        raise Refused("n%d is dead: start it with `revive-node %d`." % (node, node))
    return pid


def become(user):
    """An ordinary user, as after logging in."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Refused("There is no user %s on this machine." % user)
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(USER=user, LOGNAME=user, HOME=entry.pw_dir, SHELL="/bin/sh")


def run_inside(argv, user, folder):
    """In the child: the rest of the way to the command."""
    try:
        os.get_exec_path()  # Python loads a part of itself for this, which the user may not be able to read
        if user:
            become(user)
        try:
            os.chdir(folder)
        except OSError as error:
            raise Refused("%s cannot be entered there (%s): use --cwd." % (folder, error.strerror))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        plain_signals()
        os.execvp(argv[0], argv)
    except Refused as error:
        print("slurm-sandbox: %s" % error, file=sys.stderr)
        os._exit(2)
    except OSError as error:
        print("slurm-sandbox: %s: %s" % (argv[0], error.strerror), file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    except BaseException as error:
        print("slurm-sandbox: %r" % error, file=sys.stderr)
        os._exit(126)


FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def execute(sandbox, options, argv):
    """Runs a command in there; the streams, the signals and the way it ends are the command's."""
    if not argv:
        raise Refused("exec needs a command.")
    needs_root()
    keeper_pid, settings = sandbox.running()
    check_nodes(settings, [options["node"]] if options["node"] else [])
    node_pid = target(sandbox, keeper_pid, options["node"])
    folder = options["cwd"] or os.getcwd()
    os.environ.update(SLURM_CONF=sandbox.path("etc", "slurm.conf"), RELIGHT_SANDBOX=sandbox.state)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED + (signal.SIGCHLD,))
    terminal = os.isatty(0)
    place = settings["hierarchy"] and node_pid and sandbox.groups.prepare(settings["hierarchy"], "n%d" % options["node"])
    group = os.open(place, os.O_WRONLY | os.O_CLOEXEC) if place else None
    sandbox.enter(keeper_pid, node_pid)
    child = os.fork()
    if child == 0:
        if group is not None:
            os.write(group, b"0")
        if not terminal:
            # A process group of its own in there, or it could not name its own group, and would send signals to ours.
            os.setsid()
        run_inside(argv, options["user"], folder)
    while True:
        got = signal.sigwaitinfo(FORWARDED + (signal.SIGCHLD,))
        if got.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
        elif not (terminal and got.si_code == 128):  # the terminal itself has told both
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, got.si_signo)
    if os.WIFSIGNALED(status):
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))
