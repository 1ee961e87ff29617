#!/usr/bin/env python3
"""A sharded training job: PyTorch FSDP (gloo, CPU); a small network learns to continue the bytes of this very file.

    relight run --nproc-per-node=2 --max-restarts=3 examples/fsdp.py --ckpt-dir ckpts --kill-rank 1 --kill-step 42

Deterministic: a run in which a rank was killed and that resumed from its checkpoint has the same loss in every step and the
same weights as one that was left alone. It knows nothing of its launcher but torchrun's environment. Needs torch >= 2.1.

Every `--ckpt-every` steps all ranks save model and optimizer into `<ckpt-dir>/step_<n>.partial/`. When all of it is there,
rank 0 writes a manifest with the hash of each file, syncs, and renames the folder to `step_<n>`: a folder of that name is
complete. The newest one that verifies is loaded at the start.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import time

import torch
import torch.distributed as dist

# Public from torch 2.6 on.
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None

ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
CONTEXT = 16


def parse():
    parser = argparse.ArgumentParser(description="PyTorch FSDP on bytes, deterministic, with sharded checkpoints.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--api", choices=["auto", "fsdp2", "fsdp1"], default="auto", help="default: FSDP2 where it works")
    parser.add_argument("--ckpt-dir", default="", help="where checkpoints go (default: none)")
    parser.add_argument("--ckpt-every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--loss-file", default="", help="rank 0 adds a line `attempt step loss` for each step")
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds added to each step")
    parser.add_argument("--kill-rank", type=int, default=-1, help="this rank SIGKILLs itself in attempt 0")
    parser.add_argument("--kill-step", type=int, default=0, help="within this step, counted from 1")
    parser.add_argument("--log-every", type=int, default=10)
    return parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Network(torch.nn.Module):
    """The next byte from the CONTEXT bytes before it."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = torch.nn.Linear(CONTEXT * 8, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(2))
        self.head = torch.nn.Linear(width, 256)

    def forward(self, x):
        bits = (x.unsqueeze(-1) >> torch.arange(8)) & 1
        x = self.embed(bits.flatten(1).float())
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def has_fsdp2():
    """Whether FSDP2 runs on a CPU here. Called by all ranks.

    It asks for events of streams, which torch 2.6 does not have on a CPU, and for averages while gradients are scattered,
    which not every gloo can make: that is tried.
    """
    if fully_shard is None or not hasattr(torch.cpu.Stream, "record_event"):
        return False
    try:
        part = torch.zeros(1)
        dist.reduce_scatter_tensor(part, torch.ones(dist.get_world_size()), op=dist.ReduceOp.AVG)
        return part.item() == 1
    except (RuntimeError, ValueError):
        return False


class Fsdp2:
    """`fully_shard`; each rank writes its own shards by torch.distributed.checkpoint."""

    name = "FSDP2"

    def __init__(self, network, lr):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in network.blocks:
            fully_shard(block, mesh=mesh)
        self.model = fully_shard(network, mesh=mesh) or network
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=lr)

    def state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self, folder):
        import torch.distributed.checkpoint as dcp

        dcp.save(self.state(), checkpoint_id=folder)

    def load(self, folder):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )

    def full(self):
        return {name: tensor.full_tensor() for name, tensor in self.model.state_dict().items()}


def reduce_scatter(_state, gradient, shard):
    """FSDP1's reduction by all_reduce, of which each rank keeps its part: gloo had no reduce_scatter before torch 2.3."""
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())
    shard.copy_(gradient.chunk(dist.get_world_size())[dist.get_rank()])


class Stream:
    """Work on a CPU is done when the call returns; there is nothing to wait for."""

    def __init__(self, priority=0):
        self.priority = priority

    def wait_stream(self, other):
        pass


def fill_gaps():
    """What FSDP1 asks of a CPU and of gloo, and torch 2.1 does not have there: streams, and one kind of all_gather."""
    if not hasattr(torch.cpu.Stream, "wait_stream"):
        torch.cpu.Stream = Stream
        torch.cpu.current_stream = lambda device=None: Stream()
    world = dist.get_world_size()
    try:
        dist.all_gather_into_tensor(torch.zeros(world), torch.zeros(1))
    except RuntimeError:
        dist.all_gather_into_tensor = lambda whole, part, group=None: dist.all_gather(list(whole.chunk(world)), part, group)


class Fsdp1:
    """`FullyShardedDataParallel`; each rank writes its own shards.

    Not by FSDP1's own state dicts: the optimizer's (torch 2.15) holds the two averages of Adam in one and the same memory on a
    CPU, and a run that resumes from it goes another way. A checkpoint fits the number of ranks that wrote it.
    """

    name = "FSDP1"

    def __init__(self, network, lr):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        self.fsdp = FullyShardedDataParallel
        fill_gaps()
        self.model = self.fsdp(
            network, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), limit_all_gathers=False
        )
        self.model.register_comm_hook(None, reduce_scatter)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def path(self, folder):
        return os.path.join(folder, "rank_%d_of_%d.pt" % (dist.get_rank(), dist.get_world_size()))

    def save(self, folder):
        shards = [shard.detach() for shard in self.model.parameters()]
        with open(self.path(folder), "wb") as file:
            torch.save({"model": shards, "optimizer": self.optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, folder):
        state = torch.load(self.path(folder), map_location="cpu", weights_only=True)
        with torch.no_grad():
            for shard, saved in zip(self.model.parameters(), state["model"]):
                shard.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])

    def full(self):
        with self.fsdp.summon_full_params(self.model, writeback=False):
            return {name: tensor.detach().clone() for name, tensor in self.model.named_parameters()}


def sha256_of_file(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            total.update(part)
    return total.hexdigest()


def sha256_of_weights(weights):
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(("%s %s" % (name, tuple(weights[name].shape))).encode())
        total.update(weights[name].detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def sync(folder):
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folder_of(args, step):
    return os.path.join(args.ckpt_dir, "step_%08d" % step)


def save(args, step, training):
    """Called by all ranks."""
    final = folder_of(args, step)
    partial = final + ".partial"
    if dist.get_rank() == 0:
        # Left by an attempt that died while it saved.
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
    dist.barrier()
    training.save(partial)
    dist.barrier()
    if dist.get_rank() == 0:
        files = {name: sha256_of_file(os.path.join(partial, name)) for name in sorted(os.listdir(partial))}
        with open(os.path.join(partial, "manifest.json"), "w") as file:
            json.dump({"step": step, "files": files}, file)
            file.flush()
            os.fsync(file.fileno())
        sync(partial)
        # A folder of this name did not verify, or the run would have resumed behind it.
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)
        sync(args.ckpt_dir)


def complaint(folder):
    """What is wrong with a checkpoint, or nothing."""
    try:
        with open(os.path.join(folder, "manifest.json")) as file:
            files = json.load(file)["files"]
        wrong = [name for name in files if sha256_of_file(os.path.join(folder, name)) != files[name]]
        return "the hash of %s differs" % ", ".join(wrong) if wrong else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return "%s: %s" % (type(error).__name__, error)


def newest(folder):
    """Step of the newest checkpoint that verifies, 0 if there is none."""
    names = os.listdir(folder) if folder and os.path.isdir(folder) else []
    steps = sorted((name for name in names if name.startswith("step_") and name[5:].isdigit()), reverse=True)
    for name in steps:
        reason = complaint(os.path.join(folder, name))
        if not reason:
            return int(name[5:])
        print("%s passed over: %s" % (name, reason), flush=True)
    return 0


def resume(args, training):
    """Rank 0 decides on a step, all load it. Returns the step."""
    step = torch.tensor([newest(args.ckpt_dir) if dist.get_rank() == 0 else 0])
    dist.broadcast(step, 0)
    step = int(step)
    if step:
        training.load(folder_of(args, step))
    return step


def sample(text, args, step):
    """This rank's part of a step, by the step's own random numbers."""
    rank, world = dist.get_rank(), dist.get_world_size()
    numbers = torch.Generator().manual_seed(args.seed * 1000003 + step)
    at = torch.randint(len(text) - CONTEXT, (world, args.batch), generator=numbers)[rank]
    return torch.stack([text[i : i + CONTEXT] for i in at.tolist()]), text[at + CONTEXT]


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    with open(os.path.abspath(__file__), "rb") as file:
        text = torch.tensor(list(file.read()))
    api = Fsdp2 if args.api == "fsdp2" or (args.api == "auto" and has_fsdp2()) else Fsdp1
    training = api(Network(), args.lr)
    step = resume(args, training)
    if rank == 0:
        print(
            "attempt %d: %d ranks, torch %s, %s, resuming behind step %d"
            % (ATTEMPT, world, torch.__version__, api.name, step),
            flush=True,
        )
    # Unbuffered: a line is in the file in whole or not at all.
    losses = open(args.loss_file, "ab", buffering=0) if args.loss_file and rank == 0 else None

    while step < args.steps:
        step += 1
        if ATTEMPT == 0 and rank == args.kill_rank and step == args.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if args.step_time > 0:
            time.sleep(args.step_time)
        x, y = sample(text, args, step)
        training.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(training.model(x), y)
        loss.backward()
        training.optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean = mean.item() / world
        if losses:
            losses.write(("%d %d %r\n" % (ATTEMPT, step, mean)).encode())
        if rank == 0 and step % args.log_every == 0:
            print("step %d loss %.4f" % (step, mean), flush=True)
        if args.ckpt_dir and step % args.ckpt_every == 0:
            save(args, step, training)

    weights = training.full()
    if rank == 0:
        print("steps %d  weights sha256 %s" % (step, sha256_of_weights(weights)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
