"""A program that beats, waits for the others in a collective of its own, and does not advance where it is told to."""

import os
import pathlib
import re
import signal
import sys
import time

import relight

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ROOM = pathlib.Path("room") / str(ATTEMPT)
STEPS, AT = 60, 40


def barrier(name):
    """Of all ranks."""
    (ROOM / f"{name}.{RANK}").touch()
    while not all((ROOM / f"{name}.{rank}").exists() for rank in range(WORLD)):
        time.sleep(0.01)


def load(seconds=1000.0):
    time.sleep(seconds)


def spin():
    while True:
        pass


def read():
    """A pipe that nobody writes to stands for a file server that does not answer."""
    open("fifo").read()


def first_left():
    barrier("left")
    barrier("right")


def first_right():
    barrier("right")
    barrier("left")


def stuck():
    """Whoever starts a program by vfork waits for it in uninterruptible sleep, and this one does not get beyond its input."""
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)])


def fault(name):
    here = RANK == 1
    if name == "stop" and here:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif name == "data" and here:
        with relight.phase("data"):
            load()
    elif name == "regex" and here:
        re.match(r"(a+)+$", "a" * 60 + "b")
    elif name == "spin" and here:
        spin()
    elif name == "stuck" and here:
        stuck()
    elif name == "order":
        first_left() if here else first_right()
    elif name == "storage":
        read()
    elif name == "pause":
        load(3.0)
    elif name == "sections" or (name == "section" and here):
        with relight.section("eval", timeout=60):
            load(5.0)
    elif name == "long":
        with relight.phase("eval"):
            load(2.5)
        print("took its time", flush=True)
        with relight.section("export"):
            load(2.5)
        print("took its time", flush=True)
    elif name == "alone" and here:
        with relight.phase("eval"):
            load(4.0)
    elif name == "checkpoint" and here:
        with relight.phase("checkpoint"):
            load()


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    ROOM.mkdir(parents=True, exist_ok=True)
    if what == "start":
        load(5.0)
    if what == "crash" and ATTEMPT == 0 and RANK == 1:
        sys.exit(7)
    for step in range(STEPS):
        relight.heartbeat(step)
        if step == AT and ATTEMPT == 0:
            fault(what)
        if step == 0 and what == "long":
            load(2.5)
            print("took its time", flush=True)
        barrier(step)
        time.sleep(0.02)


main()
