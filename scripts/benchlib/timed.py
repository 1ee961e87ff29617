"""Runs a command and writes when: `timed.py FILE COMMAND...`.

FILE gets `begin <CLOCK_MONOTONIC ns>`, and when the command has ended `end <ns> <code>`, each line in one write. Started
where the command is to run, so that neither the allocation nor the way into the sandbox counts.
"""

import os
import sys
import time


def main():
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.set_inheritable(fd, False)
    os.write(fd, b"begin %d\n" % time.monotonic_ns())
    pid = os.fork()
    if pid == 0:
        try:
            os.execvp(sys.argv[2], sys.argv[2:])
        finally:
            os._exit(127)
    status = os.waitpid(pid, 0)[1]
    ended = time.monotonic_ns()
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    os.write(fd, b"end %d %d\n" % (ended, code))
    return code if code >= 0 else 128 - code


sys.exit(main())
