//! A script that knows nothing of relight beats by itself, with real torch.

use std::path::Path;

use relight::domain::board::{Feeder, Phase, Sample, read};

use crate::support::leftovers;
use crate::support::relight::{RelightCommand, Scene};
use crate::{RUN, old_python, python};

/// Trains, and copies its page at some moments: what an agent would read then.
const TRAIN: &str = "
import os, shutil, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

def look(name):
    if os.environ['RANK'] == '0':
        shutil.copyfile(os.environ['RELIGHT_BOARD'], name)

dist.init_process_group('gloo')
look('started')
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Data(TensorDataset):
    def __getitem__(self, index):
        # In a worker too, whose optimizer's steps are nobody's.
        if torch.utils.data.get_worker_info() is not None:
            w = torch.nn.Parameter(torch.zeros(1))
            w.grad = torch.zeros(1)
            for _ in range(50): torch.optim.SGD([w], lr=0.1).step()
        elif index == 16: look('data')
        return super().__getitem__(index)

class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        look('backward')
        return g

for workers in (0, 2):
    for (x,) in DataLoader(Data(torch.randn(24, 4)), batch_size=8, num_workers=workers):
        look('forward')
        optimizer.zero_grad()
        Loss.apply(model(x).sum()).backward()
        optimizer.step()
model.eval()
look('eval')
torch.save(model.state_dict(), 'model-' + os.environ['RANK'])
look('end')
dist.destroy_process_group()
";

fn beats(python: &std::ffi::OsString) {
    let scene = Scene::new();
    let exp = scene.path("exp");
    std::fs::write(exp.join("train.py"), TRAIN).unwrap();
    let mut command = RelightCommand::run(&scene);
    command.env("PYTHON_EXEC", python).args(["--nproc-per-node=2", "train.py"]);
    let ended = command.spawn().wait(RUN);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let page = |name: &str| read(&std::fs::read(Path::new(&exp).join(name)).unwrap()).unwrap();
    let of = |sample: &Sample| (sample.step, sample.phase);
    let started = page("started");
    assert_eq!((of(&started), started.feeder), ((None, Phase::Init), Feeder::Hook));
    assert_eq!(started.collective_timeout_ms, Some(1_800_000));
    assert!(started.stack_signal.is_some());
    // The last batch without workers, the last one at all, and the end: six steps, however often workers stepped.
    assert_eq!(of(&page("data")), (Some(2), Phase::Data));
    assert_eq!(of(&page("forward")), (Some(5), Phase::Forward));
    assert_eq!(of(&page("backward")), (Some(5), Phase::Backward));
    assert_eq!(of(&page("eval")), (Some(6), Phase::Eval));
    assert_eq!(of(&page("end")), (Some(6), Phase::Step));
    leftovers::assert_none(&scene);
}

#[test]
fn an_untouched_script_says_its_steps_and_phases() {
    let Some(python) = python() else { return };
    beats(&python);
}

#[test]
fn an_untouched_script_beats_with_torch_2_1_too() {
    let Some(python) = old_python() else { return };
    beats(&python);
}
