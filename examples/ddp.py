#!/usr/bin/env python3
"""A real training job: PyTorch DDP (gloo, CPU) on the handwritten digits that ship inside scikit-learn.

    relight run --nproc-per-node=2 --max-restarts=3 examples/ddp.py --ckpt-dir ckpts --kill-rank 1 --kill-step 130

Deterministic: a run in which a rank was killed and that resumed from its checkpoint prints the same weights and accuracy
as one that was left alone. It knows nothing of its launcher but torchrun's environment.

Rank 0 saves model, optimizer and step every `--ckpt-every` steps to `<ckpt-dir>/step_<n>.pt`, written aside, synced and
renamed; the newest one that verifies (it holds the hash of its own tensors) is loaded at the start.
"""

import argparse
import hashlib
import os
import pickle
import signal
import time
import zipfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def parse():
    parser = argparse.ArgumentParser(description="PyTorch DDP on handwritten digits, deterministic, with checkpoints.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16, help="samples of a rank in a step")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ckpt-dir", default="", help="where checkpoints go (default: none)")
    parser.add_argument("--ckpt-every", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("--loss-file", default="", help="rank 0 adds a line `attempt step loss` for each step")
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds added to each step")
    parser.add_argument("--kill-rank", type=int, default=-1, help="this rank SIGKILLs itself in attempt 0")
    parser.add_argument("--kill-step", type=int, default=0, help="within this step, counted from 1")
    parser.add_argument("--log-every", type=int, default=50)
    return parser.parse_args()


def digits():
    """Training and test set; every fifth sample is for the test."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16.0
    y = torch.tensor(data.target, dtype=torch.int64)
    test = torch.arange(len(x)) % 5 == 4
    return TensorDataset(x[~test], y[~test]), (x[test], y[test])


def sha256(*parts):
    """Hash of nested dicts and lists of tensors and numbers, in a fixed order."""
    total = hashlib.sha256()

    def walk(value):
        if isinstance(value, torch.Tensor):
            total.update(str((value.dtype, tuple(value.shape))).encode())
            total.update(value.detach().cpu().contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                total.update(str(key).encode())
                walk(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        else:
            total.update(repr(value).encode())

    walk(list(parts))
    return total.hexdigest()


def save(folder, step, model, optimizer):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "step_%08d.pt" % step)
    content = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    content["sha256"] = sha256(step, content["model"], content["optimizer"])
    with open(path + ".tmp", "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path):
    """A checkpoint that verifies, or the reason why it does not."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["sha256"] != sha256(content["step"], content["model"], content["optimizer"]):
            return None, "its hash differs"
        return content, ""
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        return None, "%s: %s" % (type(error).__name__, str(error).split("\n")[0])


def newest(folder):
    """Step of the newest checkpoint that verifies, 0 if there is none."""
    names = os.listdir(folder) if folder and os.path.isdir(folder) else []
    for name in sorted((name for name in names if name.startswith("step_") and name.endswith(".pt")), reverse=True):
        content, reason = read(os.path.join(folder, name))
        if content is not None:
            return content["step"]
        print("%s passed over: %s" % (name, reason), flush=True)
    return 0


def resume(args, model, optimizer):
    """Rank 0 decides on a step, all load it. Returns the step."""
    step = torch.tensor([newest(args.ckpt_dir) if dist.get_rank() == 0 else 0])
    dist.broadcast(step, 0)
    step = int(step)
    if step:
        content, reason = read(os.path.join(args.ckpt_dir, "step_%08d.pt" % step))
        if content is None:
            raise RuntimeError("checkpoint of step %d: %s" % (step, reason))
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
    return step


def batches(train, sampler, args, step):
    """Batches of this rank from behind `step` on, as if it had never stopped."""
    per_epoch = len(sampler) // args.batch
    while step < args.epochs * per_epoch:
        sampler.set_epoch(step // per_epoch)
        order = list(sampler)
        for at in range(step % per_epoch, per_epoch):
            step += 1
            index = torch.tensor(order[at * args.batch : (at + 1) * args.batch])
            yield step, train.tensors[0][index], train.tensors[1][index]


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train, (test_x, test_y) = digits()
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9)
    step = resume(args, network, optimizer)
    model = DistributedDataParallel(network)
    sampler = DistributedSampler(train, world, rank, shuffle=True, seed=args.seed, drop_last=True)
    if rank == 0:
        print("attempt %d: %d ranks, torch %s, resuming behind step %d" % (ATTEMPT, world, torch.__version__, step), flush=True)

    # Unbuffered: a line is in the file in whole or not at all.
    losses = open(args.loss_file, "ab", buffering=0) if args.loss_file and rank == 0 else None
    for step, x, y in batches(train, sampler, args, step):
        if ATTEMPT == 0 and rank == args.kill_rank and step == args.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if args.step_time > 0:
            time.sleep(args.step_time)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if args.loss_file:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if losses:
                losses.write(("%d %d %r\n" % (ATTEMPT, step, mean.item() / world)).encode())
        if rank == 0 and step % args.log_every == 0:
            print("step %d loss %.4f" % (step, loss.item()), flush=True)
        if rank == 0 and args.ckpt_dir and step % args.ckpt_every == 0:
            save(args.ckpt_dir, step, network, optimizer)

    if rank == 0:
        with torch.no_grad():
            accuracy = (network(test_x).argmax(1) == test_y).double().mean().item()
        print("steps %d  weights sha256 %s  accuracy %.4f" % (step, sha256(network.state_dict()), accuracy), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
