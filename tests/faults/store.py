"""A rank that knows of the rendezvous store only its bytes: store.py FOLDER outlives|missing"""

import os
import signal
import socket
import struct
import sys
import time

folder, what = sys.argv[1:]
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def note(name, text=""):
    with open(os.path.join(folder, name + ".new"), "w") as file:
        file.write(text)
    os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))


def text(data):
    return struct.pack("<Q", len(data)) + data


def read(length):
    data = b""
    while len(data) < length:
        more = store.recv(length - len(data))
        assert more, "the store is gone"
        data += more
    return data


def add(key):
    store.sendall(b"\4" + text(key) + struct.pack("<q", 1))
    return struct.unpack("<q", read(8))[0]


def wait(key):
    store.sendall(b"\6" + struct.pack("<Q", 1) + text(key))
    assert read(1) == b"\0"


def get(key):
    store.sendall(b"\3" + text(key))
    return read(struct.unpack("<Q", read(8))[0])


def connect():
    global store
    store = socket.create_connection(address, 60)
    store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))
    add(b"init/")


if what == "missing" and rank == 1:
    while not os.path.exists(os.path.join(folder, "there")):
        time.sleep(0.02)
    time.sleep(0.3)
    sys.exit(3)
connect()
if what == "missing":
    note("there")
    signal.pause()

# Nothing of the attempt before is there.
assert add(b"/arrived") <= 2
note("port-%d" % attempt, str(address[1]))
store.sendall(b"\1" + text(b"/rank/%d" % rank) + text(b"from %d" % rank))
wait(b"/rank/%d" % (1 - rank))
if attempt == 0:
    if rank == 0:
        while not os.path.exists(os.path.join(folder, "waits")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)

    def told(*_):
        note("outlived", get(b"/rank/0").decode())
        sys.exit(0)

    signal.signal(signal.SIGTERM, told)
    note("waits")
    while True:
        signal.pause()
