"""torch's own clients ask two stores the same: store_ops.py HOST PORT SEED COUNT libuv|plain

The one at HOST:PORT, and torch's own server, made here: the one on libuv, or the one before it, which torch 2.1 starts. Every
answer is compared: first of each request, then of COUNT random ones (an eighth with the older server), one at a time, then of
COUNT that many clients ask at once.
What this torch's clients or its server do not have is left out, and named. Ends with `same COUNT`.
"""

import collections
import datetime
import multiprocessing
import random
import sys

from torch.distributed import TCPStore

HOST, PORT, SEED, COUNT, KIND = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
CLIENTS = 12
LONG = datetime.timedelta(seconds=120)
SHORT = datetime.timedelta(milliseconds=20)
# torch's server before libuv has none of these, whatever its clients have.
LATER = ("queue_push", "queue_pop", "queue_len", "list_keys", "barrier")


def client(port):
    return TCPStore(HOST, port, None, False, timeout=LONG, wait_for_workers=False)


def has(name):
    return hasattr(TCPStore, name) and (KIND == "libuv" or name not in LATER)


def answer(function, *args):
    """What it gives, or that it failed: torch 2.1 has one kind of error for all."""
    try:
        return function(*args)
    except Exception as error:
        return "failed: " + type(error).__name__


def failed(answered):
    return isinstance(answered, str) and answered.startswith("failed: ")


# What a server does not answer. Two servers need not take what two connections sent in the order in which it was sent.
UNANSWERED = ("set", "append", "multi_set", "queue_push")


def ask(side, which, name, *args):
    """When this returns the store has done it, so that the next client sees it."""
    got = answer(getattr(side[which], name), *args)
    if name in UNANSWERED:
        side[which].num_keys()
    return got


def ask_alone(port, name, args):
    return answer(getattr(client(port), name), *args)


def both(name, which, *args):
    answers = [ask(side, which, name, *args) for side in stores]
    assert answers[0] == answers[1], (name, args, answers)
    return answers[0]


def blocked(name, then, *args):
    """A question that waits until another client does `then`."""
    answers = []
    for port, side in zip(PORTS, stores):
        asked = others.apply_async(ask_alone, (port, name, args))
        asked.wait(0.3)
        assert not asked.ready(), (name, "did not wait", asked.get())
        then(side[1])
        answers.append(asked.get(60))
    assert answers[0] == answers[1], (name, args, answers)
    return answers[0]


def each_operation():
    assert blocked("get", lambda other: other.set("late", "came"), "late") == b"came"
    blocked("wait", lambda other: (other.set("one", ""), other.add("two", 1)), ["one", "two"])
    assert failed(both("wait", 0, ["never"], SHORT))
    assert both("wait", 0, ["late"], SHORT) is None, "after a wait that was given up"
    both("set", 0, "large", b"\x07" * (4 << 20) if KIND == "libuv" else "7" * (4 << 20))
    assert len(both("get", 1, "large")) == 4 << 20
    if has("multi_set"):
        both("multi_set", 0, ["a", "b"], ["1", ""])
        assert both("multi_get", 1, ["b", "a"]) == [b"", b"1"]
    assert both("compare_set", 0, "cas", "other", "new") == b"other"
    assert both("compare_set", 0, "cas", "", "new") == b"new"
    assert both("compare_set", 0, "cas", "new", "newer") == b"newer"
    if has("append"):
        both("append", 1, "cas", "+")
        assert both("get", 0, "cas") == b"newer+"
    if has("check"):
        assert both("check", 0, ["cas", "late"]) is True
        assert both("check", 0, ["cas", "never"]) is False
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
    if has("clone"):
        for side in stores:
            assert side[0].clone().get("late") == b"came"


NAMES = ["set", "get", "add", "compare_set", "check", "append", "multi_get", "multi_set", "delete_key", "num_keys", "wait"]
NAMES += ["queue_push", "queue_pop", "queue_len", "list_keys"]


class Questions:
    """Random ones that have an answer: what is there is known, as nobody else has these keys."""

    def __init__(self, seed, prefix, names):
        self.chance, self.prefix = random.Random(seed), prefix
        self.names = [name for name in names if has(name)]
        self.keys = [prefix + "key%d" % n for n in range(24)]
        self.there, self.queued = set(), collections.Counter()

    def plain(self):
        return self.chance.choice(["", "1", "-5", "x", "a longer value"])

    def value(self):
        size = self.chance.choice([0, 1, 3, 40, 3000])
        if KIND == "plain":
            # torch 2.1 takes text alone.
            return "".join(chr(self.chance.randrange(32, 127)) for _ in range(size))
        return bytes(self.chance.randrange(256) for _ in range(size))

    def next(self):
        """The name of an operation and its arguments."""
        while True:
            name, key = self.chance.choice(self.names), self.chance.choice(self.keys)
            some = [self.chance.choice(self.keys) for _ in range(self.chance.randrange(1, 4))]
            args = getattr(self, "make_" + name, lambda key, some: ())(key, some)
            if args is not None:
                return name, args

    def make_set(self, key, some):
        self.there.add(key)
        return key, self.value()

    def make_get(self, key, some):
        return (key,) if key in self.there else None

    def make_add(self, key, some):
        # Whatever lies under the others: what is no number ends a connection, so only keys of its own are counted.
        self.there.add(self.prefix + "count" + key)
        return self.prefix + "count" + key, self.chance.randrange(-5, 99)

    def make_compare_set(self, key, some):
        expected, desired = self.plain(), self.plain()
        if expected == "":
            self.there.add(key)
        return key, expected, desired

    def make_check(self, key, some):
        return (some,)

    def make_append(self, key, some):
        self.there.add(key)
        return key, self.plain()

    def make_multi_get(self, key, some):
        return (some,) if self.there.issuperset(some) else None

    def make_multi_set(self, key, some):
        self.there.update(some)
        return some, [self.plain() for _ in some]

    def make_delete_key(self, key, some):
        key = self.chance.choice([key, self.prefix + "count" + key])
        self.there.discard(key)
        return (key,)

    def make_wait(self, key, some):
        return (some, LONG) if self.there.issuperset(some) else None

    def make_queue_push(self, key, some):
        self.queued[key] += 1
        return self.prefix + "queue" + key, self.plain()

    def make_queue_pop(self, key, some):
        if self.queued[key] == 0:
            return None
        self.queued[key] -= 1
        return (self.prefix + "queue" + key,)

    def make_queue_len(self, key, some):
        return (self.prefix + "queue" + key,)


def one_at_a_time():
    questions = Questions(SEED, "", NAMES)
    # The older server answers in pieces, and waits 40 ms for a client's word between some of them.
    for _ in range(COUNT if KIND == "libuv" else COUNT // 8):
        name, args = questions.next()
        which = questions.chance.randrange(CLIENTS)
        if name == "list_keys":
            assert sorted(stores[0][which].list_keys()) == sorted(stores[1][which].list_keys())
        else:
            both(name, which, *args)


SHARED = 4


def pop(store, key):
    """Something is there for each who pops; who waits may find that another one was faster, and waits again."""
    while True:
        try:
            return store.queue_pop(key)
        except Exception as error:
            if "QueueEmpty" not in type(error).__name__:
                raise


def busy_client(port, which, count):
    """One of those that ask at once: random questions about keys of its own, and others' keys in ways whose order does not
    matter in the end. Every so often it waits for what its neighbour does."""
    store, questions = client(port), Questions(SEED + 1 + which, "of%d/" % which, [n for n in NAMES if n not in ("num_keys", "list_keys")])
    chance, answers, popped = random.Random(SEED - 1 - which), [], []
    for n in range(count):
        if n % 50 == 0:
            store.set("meet/%d/%d" % (n, which), "%d" % n)
            answers.append(store.get("meet/%d/%d" % (n, (which + 1) % CLIENTS)))
        shared, mine, what = "shared%d" % chance.randrange(SHARED), "%02d.%06d" % (which, n), chance.randrange(8)
        if what == 0:
            store.add("sum/" + shared, chance.randrange(-5, 99))
        elif what == 1 and has("append"):
            store.append("text/" + shared, mine + ";")
        elif what == 2:
            # Counts, and goes on until nobody was faster.
            before = after = ""
            while not after or before != after:
                after = "%d %s" % (int(before.split()[0] if before else 0) + 1, mine)
                before = store.compare_set("swap/" + shared, before, after).decode()
        elif what == 3 and has("queue_push"):
            store.queue_push("queue/" + shared, mine)
            popped.append(pop(store, "queue/" + shared))
        else:
            name, args = questions.next()
            answers.append((name, answer(getattr(store, name), *args)))
    return answers, popped


def all_at_once():
    results = []
    for port, side in zip(PORTS, stores):
        tasks = [(port, which, COUNT // CLIENTS) for which in range(CLIENTS)]
        # One each: they wait for each other.
        found = others.starmap_async(busy_client, tasks, 1).get(300)
        store = side[0]
        end = {}
        for n in range(SHARED):
            end["sum", n] = store.add("sum/shared%d" % n, 0)
            end["swap", n] = store.get("swap/shared%d" % n).split()[0]
            if has("append"):
                end["text", n] = sorted(store.get("text/shared%d" % n).split(b";"))
            if has("queue_push"):
                end["queue", n] = store.queue_len("queue/shared%d" % n)
        popped = sorted(one for which in range(CLIENTS) for one in found[which][1])
        results.append(([found[which][0] for which in range(CLIENTS)], end, popped))
    (answers, end, popped), (their_answers, their_end, their_popped) = results
    for which in range(CLIENTS):
        for n, pair in enumerate(zip(answers[which], their_answers[which])):
            assert pair[0] == pair[1], ("client", which, "question", n, pair)
        assert len(answers[which]) == len(their_answers[which])
    assert end == their_end, (end, their_end)
    assert popped == their_popped, (popped, their_popped)
    if has("queue_push"):
        assert popped and all(end["queue", n] == 0 for n in range(SHARED)), end


# Clients that ask while others do are processes: torch 2.1 makes its answers without holding Python's lock. They are made
# before torch has a thread here.
others = multiprocessing.get_context("fork").Pool(CLIENTS)
theirs = TCPStore(HOST, 0, None, True, timeout=LONG, wait_for_workers=False, use_libuv=KIND == "libuv")
PORTS = (PORT, theirs.port)
stores = [[client(port) for _ in range(CLIENTS)] for port in PORTS]

each_operation()
one_at_a_time()
all_at_once()
others.terminate()
print("left out:", " ".join(name for name in NAMES + ["barrier", "clone"] if not has(name)) or "nothing")
print("same", COUNT)
