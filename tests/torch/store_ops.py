"""torch's own clients ask two stores the same: store_ops.py HOST PORT SEED COUNT

The one at HOST:PORT, and torch's own server, made here. Every answer is compared. Ends with `same COUNT`.
"""

import datetime
import random
import sys
import threading

from torch.distributed import TCPStore

HOST, PORT, SEED, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
CLIENTS = 12
LONG = datetime.timedelta(seconds=120)
SHORT = datetime.timedelta(milliseconds=20)


def client(port):
    return TCPStore(HOST, port, None, False, timeout=LONG, wait_for_workers=False)


theirs = TCPStore(HOST, 0, None, True, timeout=LONG, wait_for_workers=False, use_libuv=True)
stores = [[client(PORT) for _ in range(CLIENTS)], [client(theirs.port) for _ in range(CLIENTS)]]
has = lambda name: hasattr(TCPStore, name)


def answer(function, *args):
    """What it gives, or the kind of error."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__


# What a server does not answer. Two servers need not take what two connections sent in the order in which it was sent.
UNANSWERED = ("set", "append", "multi_set", "queue_push")


def ask(side, which, name, *args):
    """When this returns the store has done it, so that the next client sees it."""
    got = answer(getattr(side[which], name), *args)
    if name in UNANSWERED:
        side[which].num_keys()
    return got


def both(name, which, *args):
    answers = [ask(side, which, name, *args) for side in stores]
    assert answers[0] == answers[1], (name, args, answers)
    return answers[0]


def blocked(name, then, *args):
    """A question that waits until another client does `then`."""
    answers = []
    for side in stores:
        got = []
        thread = threading.Thread(target=lambda: got.append(answer(getattr(side[0], name), *args)))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive(), (name, "did not wait", got)
        then(side[1])
        thread.join(60)
        assert got, (name, "waits on")
        answers.append(got[0])
    assert answers[0] == answers[1], (name, args, answers)
    return answers[0]


def each_operation():
    assert blocked("get", lambda other: other.set("late", "came"), "late") == b"came"
    blocked("wait", lambda other: (other.set("one", ""), other.add("two", 1)), ["one", "two"])
    assert both("wait", 0, ["never"], SHORT) == "DistStoreError"
    assert both("wait", 0, ["late"], SHORT) is None, "after a wait that was given up"
    both("set", 0, "large", b"\x07" * (4 << 20))
    assert len(both("get", 1, "large")) == 4 << 20
    both("multi_set", 0, ["a", "b"], ["1", ""])
    assert both("multi_get", 1, ["b", "a"]) == [b"", b"1"]
    assert both("compare_set", 0, "cas", "other", "new") == b"other"
    assert both("compare_set", 0, "cas", "", "new") == b"new"
    assert both("compare_set", 0, "cas", "new", "newer") == b"newer"
    both("append", 1, "cas", "+")
    assert both("get", 0, "cas") == b"newer+"
    assert both("add", 0, "number", -7) == -7
    assert both("delete_key", 0, "number") and not both("delete_key", 0, "number")
    both("num_keys", 0)
    if has("queue_push"):
        both("queue_push", 0, "queue", "first")
        both("queue_push", 1, "queue", "second")
        assert both("queue_len", 2, "queue") == 2
        assert [both("queue_pop", 2, "queue") for _ in range(2)] == [b"first", b"second"]
        assert blocked("queue_pop", lambda other: other.queue_push("queue", "late"), "queue") == b"late"
    if has("list_keys"):
        assert sorted(answer(stores[0][0].list_keys)) == sorted(answer(stores[1][0].list_keys))
    if has("barrier"):
        blocked("barrier", lambda other: other.barrier("all", 2, LONG), "all", 2, LONG)
    for side in stores:
        copy = side[0].clone()
        assert copy.get("late") == b"came"


def random_operations():
    chance = random.Random(SEED)
    keys = ["key%d" % n for n in range(24)]
    values = lambda: bytes(chance.randrange(256) for _ in range(chance.choice([0, 1, 3, 40, 3000])))
    plain = lambda: chance.choice(["", "1", "-5", "x", "a longer value"])
    names = ["set", "get", "add", "compare_set", "check", "append", "multi_get", "multi_set", "delete_key", "num_keys", "wait"]
    names += [name for name in ("queue_push", "queue_pop", "queue_len", "list_keys") if has(name)]
    for _ in range(COUNT):
        name, which, key = chance.choice(names), chance.randrange(CLIENTS), chance.choice(keys)
        some = [chance.choice(keys) for _ in range(chance.randrange(1, 4))]
        if name == "set":
            both(name, which, key, values())
        elif name == "get":
            if both("check", which, [key]):
                both("multi_get", which, [key])
        elif name == "add":
            # Whatever lies there: what is no number ends a connection, so only its own keys are counted.
            both(name, which, "count" + key, chance.randrange(-5, 99))
        elif name == "compare_set":
            both(name, which, key, plain(), plain())
        elif name == "check":
            both(name, which, some)
        elif name == "append":
            both(name, which, key, plain())
        elif name == "multi_get":
            if both("check", which, some):
                both(name, which, some)
        elif name == "multi_set":
            both(name, which, some, [plain() for _ in some])
        elif name == "delete_key":
            both(name, which, chance.choice([key, "count" + key]))
        elif name == "wait":
            if both("check", which, some):
                both(name, which, some, LONG)
        elif name == "queue_push":
            both(name, which, "queue" + key, plain())
        elif name == "queue_pop":
            if both("queue_len", which, "queue" + key) > 0:
                both(name, which, "queue" + key)
        elif name == "queue_len":
            both(name, which, "queue" + key)
        elif name == "list_keys":
            assert sorted(stores[0][which].list_keys()) == sorted(stores[1][which].list_keys())
        else:
            both(name, which)


each_operation()
random_operations()
print("same", COUNT)
