"""Under a launcher: gloo, and in each of the first two attempts a rank that dies when all have met."""

import os
import signal

import torch
import torch.distributed as dist

assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
number = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(number)
group = dist.new_group([0, 1])
dist.all_reduce(number, group=group)
# Rank 0 first, then another one.
if attempt < 2 and dist.get_rank() == attempt:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
if dist.get_rank() == 0:
    print("attempt %d: %d" % (attempt, number.item()), flush=True)
dist.destroy_process_group()
