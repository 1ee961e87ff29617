//! What one rank is started with: its whole environment and its argument vector. Pure, so that a test can ask
//! for every rank of a world of ten thousand.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::gpus::own_device;
use super::slurm_view::{self, SlurmEnv, View};
use super::{EnvVar, GpuVisibility, SECRETS};
use crate::domain::hostlist;
use crate::domain::ids::{Attempt, GroupRank, LocalRank, Rank, Slot};
use crate::domain::record::Member;
use crate::domain::spec::{ProgramKind, RunSpec};
use crate::domain::wire::World;

/// What `TORCHELASTIC_MAX_RESTARTS` says where there is no limit: programs read it as an integer.
const NO_LIMIT: u32 = i32::MAX as u32;

/// Who is asked about, and all that its environment is made of.
#[derive(Clone, Copy, Debug)]
pub struct RankPlace<'a> {
    /// The launcher's own environment; of a name that occurs twice the first counts, as for `getenv`.
    pub base: &'a [(OsString, OsString)],
    /// The world of the attempt.
    pub world: &'a World,
    /// The place of this node in it.
    pub slot: Slot,
    /// The rank within the node.
    pub local_rank: LocalRank,
    /// The attempt.
    pub attempt: Attempt,
    /// What is run.
    pub spec: &'a RunSpec,
    /// Where the rank may leave its error; `None`: files are off.
    pub error_file: Option<&'a Path>,
    /// The directory under which run directories lie.
    pub run_base: Option<&'a Path>,
    /// What the rank sees of Slurm, in a job.
    pub slurm_env: SlurmEnv,
    /// CPUs of one rank: `OMP_NUM_THREADS` where nobody sets it.
    pub threads: Option<u32>,
    /// `--signals-to-handle`, as torchrun tells its workers.
    pub signals: &'a str,
    /// The GPUs that the rank sees.
    pub gpus: GpuVisibility,
    /// Its page of the heartbeat board.
    pub board: Option<&'a Path>,
    /// Where Python looks first, and last, for modules of ours.
    pub python: [Option<&'a Path>; 2],
}

/// A rank that the world does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankEnvError {
    /// No member sits there.
    #[error("slot {0} is empty in this world")]
    EmptySlot(Slot),
    /// The node has fewer ranks.
    #[error("slot {slot} has {nproc} ranks and no local rank {local_rank}")]
    NoSuchRank {
        /// The place.
        slot: Slot,
        /// Its ranks.
        nproc: u32,
        /// What was asked for.
        local_rank: LocalRank,
    },
}

/// Where a rank stands in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankNumbers {
    /// `RANK`.
    pub rank: Rank,
    /// `GROUP_RANK`.
    pub group_rank: GroupRank,
    /// `LOCAL_WORLD_SIZE`.
    pub local_world: u32,
    /// `WORLD_SIZE`.
    pub world: u32,
    /// `GROUP_WORLD_SIZE`.
    pub groups: u32,
    /// `ROLE_RANK`.
    pub role_rank: Rank,
    /// `ROLE_WORLD_SIZE`.
    pub role_world: u32,
}

/// The numbers of one rank: prefix sums of `nproc` over the members by slot.
pub fn rank_numbers(world: &World, slot: Slot, local_rank: LocalRank) -> Result<RankNumbers, RankEnvError> {
    let mut members: Vec<&Member> = world.members.iter().collect();
    members.sort_by_key(|member| member.slot);
    let index = members.iter().position(|member| member.slot == slot).ok_or(RankEnvError::EmptySlot(slot))?;
    let nproc = members[index].nproc;
    if local_rank.0 >= nproc {
        return Err(RankEnvError::NoSuchRank { slot, nproc, local_rank });
    }
    let role = &members[index].role;
    let count = |of: &[&Member]| of.iter().fold(0_u32, |sum, member| sum.saturating_add(member.nproc));
    let of_role = |of: &[&Member]| {
        of.iter().filter(|m| m.role == *role).fold(0_u32, |sum, member| sum.saturating_add(member.nproc))
    };
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(RankNumbers {
        rank: Rank(count(&members[..index]).saturating_add(local_rank.0)),
        group_rank: GroupRank(narrow(index)),
        local_world: nproc,
        world: count(&members),
        groups: narrow(members.len()),
        role_rank: Rank(of_role(&members[..index]).saturating_add(local_rank.0)),
        role_world: of_role(&members),
    })
}

/// The whole environment of one rank, sorted by name.
///
/// # Errors
/// The world has no such slot or no such local rank.
pub fn rank_environment(place: &RankPlace<'_>) -> Result<Vec<(OsString, OsString)>, RankEnvError> {
    let numbers = rank_numbers(place.world, place.slot, place.local_rank)?;
    let mut all: BTreeMap<OsString, OsString> = BTreeMap::new();
    let in_job = place.has(super::SLURM_JOB_ID);
    for (name, value) in place.base {
        let hidden = SECRETS.iter().any(|secret| name == secret.name)
            || name.to_str().is_some_and(|name| slurm_view::is_hidden(name, place.slurm_env, in_job));
        if !hidden {
            all.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    if in_job && place.slurm_env == SlurmEnv::Task {
        // A supervisor's srun must not read this one as an option; its tasks would have had it.
        if let Some(nodes) = all.get(OsStr::new(super::SLURM_JOB_NODELIST.name)).and_then(nodes_of) {
            all.entry(super::SLURM_JOB_NUM_NODES.name.into()).or_insert_with(|| nodes.to_string().into());
        }
        let cpus = place.threads.filter(|_| place.has(super::SLURM_CPUS_PER_TASK));
        let view = View { world: place.world, local_rank: place.local_rank, numbers, cpus };
        let variables = view.variables().into_iter();
        all.extend(variables.map(|(var, value)| (OsString::from(var.name), OsString::from(value))));
    }
    if place.gpus == GpuVisibility::Own && !place.spec.virtual_local_rank {
        narrow(&mut all, place.local_rank);
    }
    let mut set = |var: EnvVar, value: &dyn std::fmt::Display| {
        all.insert(var.name.into(), value.to_string().into());
    };
    let spec = place.spec;
    set(super::RANK, &numbers.rank);
    set(super::LOCAL_RANK, &place.local_rank);
    set(super::WORLD_SIZE, &numbers.world);
    set(super::LOCAL_WORLD_SIZE, &numbers.local_world);
    set(super::GROUP_RANK, &numbers.group_rank);
    set(super::GROUP_WORLD_SIZE, &numbers.groups);
    set(super::ROLE_RANK, &numbers.role_rank);
    set(super::ROLE_WORLD_SIZE, &numbers.role_world);
    set(super::ROLE_NAME, &place.role());
    set(super::MASTER_ADDR, &place.world.master.address);
    set(super::MASTER_PORT, &place.world.master.port);
    set(super::TORCHELASTIC_RESTART_COUNT, &place.attempt);
    set(super::TORCHELASTIC_MAX_RESTARTS, &spec.max_restarts.unwrap_or(NO_LIMIT));
    set(super::TORCHELASTIC_RUN_ID, &spec.run_id);
    set(super::TORCHELASTIC_SIGNALS_TO_HANDLE, &place.signals);
    // Exactly the word by which torch decides that rank 0 makes a client like everybody else.
    set(super::TORCHELASTIC_USE_AGENT_STORE, &if place.world.master.hosted { "True" } else { "False" });
    set(super::RELIGHT_RUN_ID, &spec.run_id);
    set(super::RELIGHT_ATTEMPT, &place.attempt);
    let error_file = place.error_file.map(|path| path.as_os_str().to_owned()).unwrap_or_default();
    all.insert(super::TORCHELASTIC_ERROR_FILE.name.into(), error_file);
    if let Some(base) = place.run_base {
        all.insert(super::RELIGHT_RUN_DIR.name.into(), base.as_os_str().to_owned());
    }
    // One that a nested launcher has inherited is not its ranks'.
    all.remove(OsStr::new(super::RELIGHT_BOARD.name));
    if let Some(board) = place.board {
        all.insert(super::RELIGHT_BOARD.name.into(), board.as_os_str().to_owned());
    }
    python_path(&mut all, place.python);
    let mut default = |var: EnvVar, value: &str| {
        all.entry(var.name.into()).or_insert_with(|| value.into());
    };
    default(super::TORCH_NCCL_ASYNC_ERROR_HANDLING, "1");
    if let Some(threads) = place.threads {
        default(super::OMP_NUM_THREADS, &threads.to_string());
    }
    if spec.virtual_local_rank {
        super::virtual_rank::narrow(&mut all, place.local_rank);
    }
    Ok(all.into_iter().collect())
}

/// Python finds our modules, around those of the user's `PYTHONPATH`.
fn python_path(all: &mut BTreeMap<OsString, OsString>, [first, last]: [Option<&Path>; 2]) {
    let name = super::PYTHONPATH.name;
    let own = all.get(OsStr::new(name)).filter(|own| !own.is_empty()).cloned();
    let entries = [first.map(Path::as_os_str), own.as_deref(), last.map(Path::as_os_str)];
    let joined = entries.into_iter().flatten().collect::<Vec<_>>().join(OsStr::new(":"));
    if first.is_some() || last.is_some() {
        all.insert(name.into(), joined);
    }
}

fn nodes_of(list: &OsString) -> Option<usize> {
    hostlist::expand(list.to_str()?).ok().map(|nodes| nodes.len())
}

impl RankPlace<'_> {
    /// The role of the node's ranks.
    fn role(&self) -> &str {
        let member = self.world.members.iter().find(|member| member.slot == self.slot);
        member.map(|member| member.role.as_str()).filter(|role| !role.is_empty()).unwrap_or(&self.spec.role)
    }

    /// Is this variable there, and not empty?
    fn has(&self, var: EnvVar) -> bool {
        let first = self.base.iter().find(|(name, _)| name == var.name);
        first.is_some_and(|(_, value)| !value.is_empty())
    }
}

/// Leaves the rank its own GPU, in the list that is there; where there is none CUDA's name serves, which AMD's programs
/// read as well.
fn narrow(all: &mut BTreeMap<OsString, OsString>, local_rank: LocalRank) {
    let list = |var: EnvVar, all: &BTreeMap<OsString, OsString>| {
        all.get(OsStr::new(var.name)).map(|list| list.to_string_lossy().into_owned())
    };
    let (cuda, hip) = (list(super::CUDA_VISIBLE_DEVICES, all), list(super::HIP_VISIBLE_DEVICES, all));
    let use_cuda = cuda.is_some() || hip.is_none();
    for (var, visible, wanted) in
        [(super::CUDA_VISIBLE_DEVICES, &cuda, use_cuda), (super::HIP_VISIBLE_DEVICES, &hip, hip.is_some())]
    {
        if let Some(own) = own_device(visible.as_deref(), local_rank).filter(|_| wanted) {
            all.insert(var.name.into(), own.into());
        }
    }
}

/// The argument vector of one rank: `<python> -u [-m] program args…`, or the program itself.
///
/// `${local_rank}` is replaced as torchrun does it, in the arguments and, under Python, in the script's name.
#[must_use]
pub fn rank_argv(spec: &RunSpec, interpreter: &Path, local_rank: LocalRank) -> Vec<OsString> {
    let mut argv: Vec<OsString> = Vec::with_capacity(spec.args.len() + 4);
    match spec.kind {
        ProgramKind::Binary => argv.push(spec.program.clone().into()),
        ProgramKind::Script | ProgramKind::Module => {
            argv.push(interpreter.as_os_str().to_owned());
            argv.push("-u".into());
            if spec.kind == ProgramKind::Module {
                argv.push("-m".into());
            }
            argv.push(substitute(&spec.program, local_rank).into());
        }
    }
    argv.extend(spec.args.iter().map(|arg| OsString::from(substitute(arg, local_rank))));
    argv
}

/// Python's `string.Template(text).safe_substitute(local_rank=…)`: `${local_rank}` and `$local_rank` are
/// replaced, `$$` becomes `$`, everything else stays as it is.
#[must_use]
pub fn substitute(text: &str, local_rank: LocalRank) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = &from[1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
            continue;
        }
        let braced = after.strip_prefix('{');
        let name = identifier(braced.unwrap_or(after));
        // What is consumed: the dollar, the name, and both braces.
        let length = match braced {
            Some(inner) if !name.is_empty() && inner[name.len()..].starts_with('}') => name.len() + 3,
            Some(_) => 1,
            None => name.len() + 1,
        };
        if name == "local_rank" && length > 1 {
            out.push_str(&local_rank.to_string());
        } else {
            out.push_str(&from[..length]);
        }
        rest = &from[length..];
    }
    out.push_str(rest);
    out
}

/// The identifier at the start of a text: `[_a-zA-Z][_a-zA-Z0-9]*`.
fn identifier(text: &str) -> &str {
    let end = text
        .char_indices()
        .find(|(i, c)| !(*c == '_' || c.is_ascii_alphabetic() || (*i > 0 && c.is_ascii_digit())))
        .map_or(text.len(), |(i, _)| i);
    &text[..end]
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
