"""The rank's page of the heartbeat board. `docs/heartbeat-board.md` of relight describes its words.

What runs in every step touches nothing but this module's globals and the page: a beat is one 64-bit store and a time, without
a system call.
"""

import os
import sys
from time import monotonic_ns as _clock

_VARIABLE = "RELIGHT_BOARD"
_BYTES = 4096
_MAGIC = b"rlboard1"

# Words of the page, and where its areas begin, in bytes.
_OWNER, _BEAT, _TIME, _EXTEND, _COLLECTIVE, _STACKS = 2, 3, 4, 5, 6, 7
_SECTIONS, _SECTION_BYTES, _DEPTH, _NAME = 128, 64, 8, 32
_REQUEST, _REASON = 640, 240
_WRITTEN = 16  # what lies before is the agent's

_PHASES = {"init": 0, "data": 1, "forward": 2, "backward": 3, "optimizer": 4, "checkpoint": 5, "eval": 6, "step": 7}
_STEP_KNOWN = 1
_BY_CLIENT = 2
_ONE = 1 << 24  # a step
_MOST = 1 << 40  # steps

# How long a process that does not own the page waits before it asks again, in ns.
_AGAIN = 1_000_000_000

# Where the words of a process go that has nothing to say.
_nowhere = memoryview(bytearray(_BYTES)).cast("Q")

# The page: of those who feed it, `None` as long as they have not begun.
_page = None
_client = None
_hook = None
# Set once nothing will ever be written; and when to ask again.
_off = sys.byteorder != "little"
_next = 0
_file = None
_bytes = None
_collective_ms = 0

# The beat of a step of whose parts nothing is known: step, phase and flags; and what hooks add to it, as they count steps until
# the program says them. `_low` is what stands below the step that a program says.
_base = _low = 0
_more = _ONE
# A phase of the program's own, and what turns that beat into one of the other phases: nothing, as long as there is such a one.
_own = None
_data = _after = _waits = _forward = _backward = _optimizer = _evaluates = 0
_within = False
# The step at which a module was last told to evaluate.
_evaluated = -2

_entry = 0
_free = list(range(_DEPTH - 1, -1, -1))


def _new_lock():
    import _thread

    return _thread.allocate_lock()


_lock = _new_lock()


def _claim():
    """The page, if this process owns it; else memory that nobody reads. Asks once a second whether the owner is gone."""
    global _page, _off, _next
    if _page is not None:
        return _page
    if _off:
        _page = _nowhere
        return _page
    now = _clock()
    if now < _next or not _lock.acquire(False):
        return _nowhere
    try:
        _next = now + _AGAIN
        path = os.environ.get(_VARIABLE)
        if not path:
            _off = True
            return _nowhere
        try:
            _take(path)
        except BlockingIOError:
            return _nowhere  # somebody else's
        except (OSError, ValueError):
            _off = True
            return _nowhere
        return _page
    finally:
        _lock.release()


def _take(path):
    """Claims the page, or raises BlockingIOError (somebody else's), OSError or ValueError (no page)."""
    global _page, _file, _bytes
    import fcntl
    import mmap

    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # The kernel's word for the claim: of this process alone, gone with it, and seen by whoever has the file.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        page = mmap.mmap(fd, _BYTES)
    except OSError as error:
        os.close(fd)
        if isinstance(error, PermissionError):
            raise BlockingIOError from error
        raise
    except ValueError:  # shorter
        os.close(fd)
        raise
    if page[: len(_MAGIC)] != _MAGIC:
        page.close()
        os.close(fd)
        raise ValueError("another version")
    _file, _bytes = fd, page
    page[_WRITTEN:] = bytes(_BYTES - _WRITTEN)
    words = memoryview(page).cast("Q")
    words[_COLLECTIVE] = _collective_ms
    try:
        words[_STACKS] = _offer_stacks(path + ".stacks")
    except (ImportError, OSError, RuntimeError, ValueError):
        pass
    words[_TIME] = _clock()
    words[_OWNER] = os.getpid()
    _page = words


def _offer_stacks(path):
    """Has the interpreter write the stacks of all threads into this file on a signal, which is returned; 0: on none.

    No Python code runs for it, so it works while a thread holds the interpreter or the main thread waits in C.
    """
    import faulthandler
    import signal

    if not hasattr(faulthandler, "register"):
        return 0
    taken = 0
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("SigCgt:", "SigIgn:", "SigBlk:")):
                taken |= int(line.split()[1], 16)
    for number in range(signal.SIGRTMIN + 10, signal.SIGRTMAX):
        if not taken >> (number - 1) & 1:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            faulthandler.register(number, file=fd, all_threads=True, chain=False)
            return number
    return 0


def _leave():
    """In the child of a fork: a page is its owner's, who has not claimed it yet may do so."""
    global _page, _client, _hook, _off, _lock
    _lock = _new_lock()
    if _bytes is not None:
        _off = True
        _page = _client = _hook = _nowhere


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)


# ---------------------------------------------------------------- what programs call


def heartbeat(step=None):
    """Says that the program lives, and which step begins.

    Call it once a step, in the training loop's own process and thread. `step` is the number of the step that begins (0 to
    2**40 - 1), as your checkpoints count them: a step beyond those of earlier attempts is progress, and so a reason to
    restart again after a failure. Without `step` it is only a sign of life. Costs less than half a microsecond.

    Raises ValueError for a step out of range and TypeError for one that is no integer.
    """
    global _base
    words = _client
    if words is None:
        words = _first_beat()
    if step is not None:
        if step.__class__ is not int:
            step = _number(step)
        base = step << 24 | _low
        try:
            words[3] = base
        except ValueError:
            _number(step)
        _base = base
    words[4] = _clock()


def _number(step):
    import operator

    step = operator.index(step)
    if not 0 <= step < _MOST:
        raise ValueError("step %d is not in 0..2**40" % step)
    return step


def _first_beat():
    """The program feeds the page from here on: hooks no longer count steps."""
    global _client, _more, _base
    words = _claim()
    _more = 0
    _base = _BY_CLIENT
    _settle()
    if words is _page:
        _client = words
        words[_BEAT] = _base
    return words


class phase:
    """What the program does inside `with relight.phase(name):`, for instance `with relight.phase("checkpoint"):`.

    `name` is one of "init", "data", "forward", "backward", "optimizer", "checkpoint", "eval", "step"; a phase has a time
    limit of its own, which `relight run --phase-timeout NAME=SECONDS` sets. Phases nest; entering and leaving are signs of
    life. Use it in the thread that calls `heartbeat`.

    Raises ValueError for another name.
    """

    __slots__ = ("_code", "_before")

    def __init__(self, name):
        code = _PHASES.get(name)
        if code is None:
            raise ValueError("phase %r is none of %s" % (name, ", ".join(_PHASES)))
        self._code = code
        self._before = None

    def __enter__(self):
        self._before = _own
        _set_phase(self._code)
        return self

    def __exit__(self, *_):
        _set_phase(self._before)
        return False


class section:
    """A part of the program with a deadline of its own: `with relight.section("load index", timeout=900):`.

    `name` is shown to people (32 bytes of UTF-8, the rest is cut); `timeout` is in seconds from entering, None leaves the
    limit to the phase. Sections nest, eight are seen at most; each keeps its own deadline. Entering and leaving are signs
    of life.

    Raises ValueError for a timeout that is not above 0, TypeError for one that is no number.
    """

    __slots__ = ("_name", "_timeout_ms", "_slot")

    def __init__(self, name, timeout=None):
        self._name = _cut(str(name), _NAME)
        self._timeout_ms = 0 if timeout is None else _milliseconds(timeout, "timeout")
        self._slot = None

    def __enter__(self):
        global _entry
        words = _claim()
        try:
            slot = _free.pop()
        except IndexError:
            return self
        self._slot = slot
        _entry += 1
        head = _entry.to_bytes(8, "little") + self._timeout_ms.to_bytes(8, "little")
        at = _SECTIONS + slot * _SECTION_BYTES
        _write(words, at + 8, head[8:] + self._name + _check(head + self._name))
        words[at // 8] = _entry
        words[_TIME] = _clock()
        return self

    def __exit__(self, *_):
        slot, self._slot = self._slot, None
        if slot is not None:
            words = _claim()
            words[(_SECTIONS + slot * _SECTION_BYTES) // 8] = 0
            words[_TIME] = _clock()
            _free.append(slot)
            _free.sort(reverse=True)
        return False


def extend(seconds):
    """Asks for so many seconds beyond the time limit, once: the next heartbeat ends it. Calls add up until then.

    Raises ValueError unless `seconds` is above 0, TypeError if it is no number.
    """
    asked = _milliseconds(seconds, "seconds")
    words = _claim()
    now = (words[_TIME] ^ words[_BEAT] >> 24) & 0xFFFFFFFF
    word = words[_EXTEND]
    before = word & 0xFFFFFFFF if word >> 32 == now else 0
    words[_EXTEND] = now << 32 | min(before + asked, 0xFFFFFFFF)


def request_eviction(reason):
    """Asks that this rank's node is taken out of the run, and another one takes its place.

    For programs that know that their hardware is broken. `reason` is shown to people (240 bytes of UTF-8).
    """
    _request(1, reason)


def request_stop(reason):
    """Asks that the whole run ends: it is not restarted and not requeued. `reason` is shown to people (240 bytes of UTF-8)."""
    _request(2, reason)


def _request(kind, reason):
    words = _claim()
    body = kind.to_bytes(8, "little") + _cut(str(reason), _REASON)
    _write(words, _REQUEST + 8, body[8:] + _check(body))
    words[_REQUEST // 8] = kind


def _milliseconds(seconds, what):
    value = float(seconds)
    if not 0 < value < 1e12:
        raise ValueError("%s must be a number of seconds above 0, not %r" % (what, seconds))
    return max(1, round(value * 1000))


def _cut(text, length):
    """UTF-8 of at most so many bytes, in whole characters, filled up with zeros."""
    data = text.encode("utf-8", "replace")[:length].decode("utf-8", "ignore").encode("utf-8")
    return data.ljust(length, b"\0")


def _check(data):
    from binascii import crc32

    return crc32(data).to_bytes(8, "little")


def _write(words, at, data):
    for offset in range(0, len(data), 8):
        words[(at + offset) // 8] = int.from_bytes(data[offset : offset + 8], "little")


# ---------------------------------------------------------------- phases


def _set_phase(code):
    """The program is in this phase, whatever hooks see; None: no longer."""
    global _own
    words = _claim()
    _own = code
    _settle()
    words[_BEAT] = _base
    words[_TIME] = _clock()


def _settle():
    """Works out what is written in which phase; before the first step there is only one."""
    global _base, _low, _data, _after, _waits, _forward, _backward, _optimizer, _evaluates
    begun = _more == 0 or _base & _STEP_KNOWN
    code = _own if _own is not None else 7 if begun else 0
    _base = _base & ~(0xFF << 16) | code << 16
    _low = code << 16 | _STEP_KNOWN | _BY_CLIENT
    fixed = _own is not None or not begun
    _waits, _forward, _backward, _optimizer, _evaluates = (0 if fixed else (other ^ code) << 16 for other in (1, 2, 3, 4, 6))
    _data, _after = _waits, 0


# ---------------------------------------------------------------- what hooks in torch call (`_hooks` puts them there)


def _after_step(optimizer, args, kwargs):
    """Of every optimizer: its step is done, the next one begins."""
    global _base
    words = _hook
    if words is None:
        words = _first_step()
    # The step is another one: that is a beat, and a time would only cost.
    _base = words[3] = _base + _more


def _first_step():
    """Hooks feed the page from here on."""
    global _hook, _base
    words = _claim()
    if _more and not _base & _STEP_KNOWN:
        _base |= _STEP_KNOWN
        _settle()
    if words is _page:
        _hook = words
    return words


def _around_next(original):
    """`__next__` of a DataLoader's iterator: the program waits for data."""

    def __next__(self):
        words = _hook
        if words is None:
            words = _page if _page is not None else _nowhere
        words[3] = _base ^ _data
        try:
            return original(self)
        finally:
            words[3] = _base ^ _after
            words[4] = _clock()

    return __next__


def _around_backward(original):
    """`torch.autograd.backward`: what follows counts to the optimizer until its step is done. Who comes through here is in the
    forward pass after its data, and trains: it is the rank."""

    def backward(*args, **kwargs):
        global _within, _data, _after
        if _within:  # a part of one that goes on
            return original(*args, **kwargs)
        words = _hook
        if words is None:
            words = _first_step()
        words[3] = _base ^ _backward
        _data = _waits
        _after = _forward
        _within = True
        try:
            return original(*args, **kwargs)
        finally:
            _within = False
            words[3] = _base ^ _optimizer

    return backward


def _around_eval(original):
    """`torch.nn.Module.eval`: the program evaluates until its next backward pass. Who calls it in every step keeps a part of
    its model from learning."""

    def evaluate(self):
        global _data, _after, _evaluated
        words = _hook if _hook is not None else _page
        if words is not None:
            step = _base >> 24
            if step > _evaluated + 1:
                _data = _after = _evaluates
                words[3] = _base ^ _after
                words[4] = _clock()
            _evaluated = step
        return original(self)

    return evaluate


def _around_save(original):
    """`torch.save`: a checkpoint."""

    def save(*args, **kwargs):
        if _page is None or _page is _nowhere or _own is not None:
            return original(*args, **kwargs)
        with phase("checkpoint"):
            return original(*args, **kwargs)

    return save


def _tell_collective_timeout(seconds):
    """The program's collectives give up after so long."""
    global _collective_ms
    _collective_ms = max(1, min(round(seconds * 1000), 1 << 62))
    if _page is not None:
        _page[_COLLECTIVE] = _collective_ms
