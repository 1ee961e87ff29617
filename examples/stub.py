#!/usr/bin/env python3
"""What the launcher benchmark starts in place of a training script: it does nothing, and says when.

    stub.py DIR

Appends `start <rank> <pid> <attempt> <CLOCK_MONOTONIC ns>` to DIR/times in one write, waits until DIR/stop appears (or a
SIGUSR1 comes), appends `end ...` and exits with 0.
"""

import os
import signal
import sys
import time


def say(fd, word):
    names = ("RANK", "TORCHELASTIC_RESTART_COUNT")
    rank, attempt = (os.environ.get(name, "0") for name in names)
    os.write(fd, ("%s %s %d %s %d\n" % (word, rank, os.getpid(), attempt, time.monotonic_ns())).encode())


def main():
    folder = sys.argv[1]
    stopped = []
    signal.signal(signal.SIGUSR1, lambda *_: stopped.append(True))
    fd = os.open(os.path.join(folder, "times"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    say(fd, "start")
    stop = os.path.join(folder, "stop")
    while not stopped and not os.path.exists(stop):
        time.sleep(0.05)
    say(fd, "end")
    os._exit(0)  # the end of the process counts from here


main()
