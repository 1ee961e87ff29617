"""Puts a slow line between an agent and its coordinator: waits for the hint, rewrites it to a port of this node, and
passes every byte on 0.3 s later, give or take."""

import json
import os
import random
import select
import socket
import sys
import threading
import time

HINT = sys.argv[1]
PASSED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_line.passed")


def carry(source, sink):
    """Bytes keep their order; each waits for its own time."""
    waiting, ready = [], 0.0
    open_ = True
    while open_ or waiting:
        now = time.monotonic()
        if waiting and waiting[0][0] <= now:
            try:
                sink.sendall(waiting.pop(0)[1])
            except OSError:
                break
            continue
        left = waiting[0][0] - now if waiting else 1.0
        if not open_:
            time.sleep(left)
            continue
        if select.select([source], [], [], left)[0]:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if data:
                ready = max(ready, time.monotonic() + 0.25 + random.random() * 0.1)
                waiting.append((ready, data))
            else:
                open_ = False
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


while True:
    try:
        with open(HINT) as file:
            hint = json.load(file)
        break
    except (OSError, ValueError):
        time.sleep(0.02)
host, port = hint["addresses"][0].rsplit(":", 1)
listener = socket.create_server(("127.0.0.1", 0))
hint["addresses"] = ["127.0.0.1:%d" % listener.getsockname()[1]]
with open(HINT + ".slow", "w") as file:
    json.dump(hint, file)
os.rename(HINT + ".slow", HINT)
count = 0
while True:
    near = listener.accept()[0]
    far = socket.create_connection((host, int(port)))
    count += 1
    with open(PASSED, "w") as file:
        file.write("%d" % count)
    for pair in ((near, far), (far, near)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
