"""Ranks over gloo, all of them children of this process: store_gloo.py HOST PORT WORLD. Ends with `sum N of WORLD`."""

import os
import sys

import torch
import torch.distributed as dist

HOST, PORT, WORLD = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)


def rank(number):
    os.environ.update(MASTER_ADDR=HOST, MASTER_PORT=PORT, RANK=str(number), WORLD_SIZE=str(WORLD))
    # As a launcher sets them.
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    dist.init_process_group("gloo")
    one = torch.tensor([number + 1])
    dist.all_reduce(one)
    group = dist.new_group(list(range(0, WORLD, 2)))
    two = torch.tensor([1])
    if number % 2 == 0:
        dist.all_reduce(two, group=group)
        assert two.item() == (WORLD + 1) // 2, two
    dist.barrier()
    assert one.item() == WORLD * (WORLD + 1) // 2, one
    dist.destroy_process_group()


children = []
for number in range(WORLD):
    pid = os.fork()
    if pid == 0:
        try:
            rank(number)
            os._exit(0)
        except BaseException as error:
            print(number, error, file=sys.stderr, flush=True)
            os._exit(1)
    children.append(pid)
failed = [number for number, pid in enumerate(children) if os.waitpid(pid, 0)[1] != 0]
assert not failed, failed
print("sum %d of %d" % (WORLD * (WORLD + 1) // 2, WORLD))
