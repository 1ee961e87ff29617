"""Asks NVIDIA's driver about the GPUs of this node, for relight.

A process of its own: NVML may hang, and takes nobody with it. One JSON object a line goes to the given descriptor; with 0
seconds between two looks there is one look, else it goes on until the other side closes. Standard library only.

Arguments: the library, the descriptor, seconds between two looks.
"""

import ctypes
import json
import os
import select
import sys
import time

XID = 0x8
RECOVERY_ACTION = 230
UNCORRECTED, VOLATILE = 1, 0
TIMEOUT = 10
# Between two looks whether somebody listens, in milliseconds.
SLICE = 500


class EventData(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Value(ctypes.Union):
    _fields_ = [("uint", ctypes.c_uint), ("ulonglong", ctypes.c_ulonglong), ("double", ctypes.c_double)]


class Field(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint32),
        ("scope", ctypes.c_uint32),
        ("timestamp", ctypes.c_int64),
        ("latency", ctypes.c_int64),
        ("kind", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", Value),
    ]


class Library:
    """The functions of it; what an older one lacks, or refuses, says nothing."""

    def __init__(self, name):
        self.lib = ctypes.CDLL(name)

    def call(self, name, *args):
        """Its return code; none: there is no such function."""
        function = getattr(self.lib, name, None)
        return None if function is None else function(*args)

    def text(self, name, device):
        buffer = ctypes.create_string_buffer(96)
        ok = self.call(name, device, buffer, ctypes.c_uint(len(buffer))) == 0
        return buffer.value.decode("ascii", "replace") if ok else ""


def look(lib, device):
    """What the driver says of one GPU: numbers by name, of what it says anything."""
    found = {}
    rows = [ctypes.c_uint() for _ in range(4)]
    if lib.call("nvmlDeviceGetRemappedRows", device, *(ctypes.byref(row) for row in rows)) == 0:
        found["remapped"], found["pending"], found["failed"] = (row.value for row in rows[1:])
    field = Field(id=RECOVERY_ACTION)
    if lib.call("nvmlDeviceGetFieldValues", device, 1, ctypes.byref(field)) == 0 and field.result == 0:
        found["action"] = field.value.uint
    count = ctypes.c_ulonglong()
    if lib.call("nvmlDeviceGetTotalEccErrors", device, UNCORRECTED, VOLATILE, ctypes.byref(count)) == 0:
        found["ecc"] = count.value
    return found


def main():
    name, out, every = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

    def say(**words):
        os.write(out, json.dumps(words).encode() + b"\n")

    try:
        lib = Library(name)
    except OSError as error:
        return say(skipped=str(error))
    code = lib.call("nvmlInit_v2")
    if code != 0:
        return say(skipped="the driver does not answer (NVML %s)" % code)
    count = ctypes.c_uint()
    lib.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    devices = []
    for index in range(count.value):
        device = ctypes.c_void_p()
        if lib.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device)) == 0:
            devices.append((index, device, lib.text("nvmlDeviceGetUUID", device)))
        else:
            devices.append((index, None, ""))

    def tell():
        for index, device, uuid in devices:
            found = {"missing": 1} if device is None else look(lib, device)
            say(gpu=index, uuid=uuid, found=found)
        say(looked=len(devices))

    if every == 0:
        return tell()
    events = ctypes.c_void_p()
    hears = lib.call("nvmlEventSetCreate", ctypes.byref(events)) == 0
    for _, device, _ in devices:
        if hears and device is not None:
            lib.call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(XID), events)
    tell()
    due = time.monotonic() + every
    while not select.select([out], [], [], 0)[0]:
        data = EventData()
        code = lib.call("nvmlEventSetWait_v2", events, ctypes.byref(data), SLICE) if hears else None
        if code == 0 and data.type & XID:
            where = [(i, uuid) for i, device, uuid in devices if device and device.value == data.device]
            index, uuid = where[0] if where else (None, "")
            say(xid=data.data, gpu=index, uuid=uuid)
            # What the driver wants done about it.
            due = 0
        elif code != 0 and code != TIMEOUT:
            # It hears nothing any more, or never did: looks go on.
            time.sleep(SLICE / 1000)
        if time.monotonic() >= due:
            tell()
            due = time.monotonic() + every


try:
    main()
except (BrokenPipeError, ConnectionError):
    pass
