//! What one rank is started with: its whole environment and its argument vector. Pure, so that a test can ask
//! for every rank of a world of ten thousand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::{EnvVar, FOREIGN_LAUNCHERS, SECRETS};
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
    /// Remove what other launchers (PMI, PMIx, Open MPI) left in the environment.
    pub hide_launchers: bool,
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
    let count = |of: &[&Member]| of.iter().fold(0_u32, |sum, member| sum.saturating_add(member.nproc));
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(RankNumbers {
        rank: Rank(count(&members[..index]).saturating_add(local_rank.0)),
        group_rank: GroupRank(narrow(index)),
        local_world: nproc,
        world: count(&members),
        groups: narrow(members.len()),
    })
}

/// The whole environment of one rank, sorted by name.
///
/// # Errors
/// The world has no such slot or no such local rank.
pub fn rank_environment(place: &RankPlace<'_>) -> Result<Vec<(OsString, OsString)>, RankEnvError> {
    let numbers = rank_numbers(place.world, place.slot, place.local_rank)?;
    let mut all: BTreeMap<OsString, OsString> = BTreeMap::new();
    for (name, value) in place.base {
        if !is_hidden(name, place.hide_launchers) {
            all.entry(name.clone()).or_insert_with(|| value.clone());
        }
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
    set(super::ROLE_RANK, &numbers.rank);
    set(super::ROLE_WORLD_SIZE, &numbers.world);
    set(super::ROLE_NAME, &spec.role);
    set(super::MASTER_ADDR, &place.world.master.address);
    set(super::MASTER_PORT, &place.world.master.port);
    set(super::TORCHELASTIC_RESTART_COUNT, &place.attempt);
    set(super::TORCHELASTIC_MAX_RESTARTS, &spec.max_restarts.unwrap_or(NO_LIMIT));
    set(super::TORCHELASTIC_RUN_ID, &spec.run_id);
    // Exactly the word by which torch decides that rank 0 makes a client like everybody else.
    set(super::TORCHELASTIC_USE_AGENT_STORE, &if place.world.master.hosted { "True" } else { "False" });
    set(super::RELIGHT_RUN_ID, &spec.run_id);
    set(super::RELIGHT_ATTEMPT, &place.attempt);
    let error_file = place.error_file.map(|path| path.as_os_str().to_owned()).unwrap_or_default();
    all.insert(super::TORCHELASTIC_ERROR_FILE.name.into(), error_file);
    if let Some(base) = place.run_base {
        all.insert(super::RELIGHT_RUN_DIR.name.into(), base.as_os_str().to_owned());
    }
    let mut default = |var: EnvVar, value: &str| {
        all.entry(var.name.into()).or_insert_with(|| value.into());
    };
    default(super::TORCH_NCCL_ASYNC_ERROR_HANDLING, "1");
    if numbers.local_world > 1 {
        default(super::OMP_NUM_THREADS, "1");
    }
    Ok(all.into_iter().collect())
}

fn is_hidden(name: &OsString, hide_launchers: bool) -> bool {
    if SECRETS.iter().any(|secret| name == secret.name) {
        return true;
    }
    hide_launchers
        && name.to_str().is_some_and(|name| {
            FOREIGN_LAUNCHERS.iter().any(|prefix| {
                name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            })
        })
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
mod tests {
    use super::*;
    use crate::domain::ids::{Incarnation, NodeName, RunId};
    use crate::domain::spec::Offer;

    fn world(nprocs: &[(u32, u32)]) -> World {
        World {
            members: nprocs
                .iter()
                .map(|&(slot, nproc)| Member {
                    slot: Slot(slot),
                    node: NodeName::new(format!("n{slot}")),
                    incarnation: Incarnation(1),
                    nproc,
                    log_dir: String::new(),
                })
                .collect(),
            master: Offer { address: "10.0.0.1".into(), port: 29_117, hosted: true },
            resume: None,
            addresses: Vec::new(),
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(a, b)| (OsString::from(a), OsString::from(b))).collect()
    }

    fn environment(base: &[(&str, &str)], world: &World, slot: u32, local: u32) -> BTreeMap<String, String> {
        let spec = RunSpec {
            run_id: RunId::new("r1"),
            role: "trainer".into(),
            max_restarts: Some(3),
            ..RunSpec::default()
        };
        let place = RankPlace {
            base: &pairs(base),
            world,
            slot: Slot(slot),
            local_rank: LocalRank(local),
            attempt: Attempt(4),
            spec: &spec,
            error_file: Some(Path::new("/logs/error.json")),
            run_base: Some(Path::new("/runs")),
            hide_launchers: true,
        };
        rank_environment(&place)
            .unwrap()
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    #[test]
    fn torchruns_names() {
        let got = environment(&[], &world(&[(0, 2), (3, 4)]), 3, 1);
        let want: BTreeMap<String, String> = [
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "6"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "2"),
            ("ROLE_RANK", "3"),
            ("ROLE_WORLD_SIZE", "6"),
            ("ROLE_NAME", "trainer"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29117"),
            ("TORCHELASTIC_RESTART_COUNT", "4"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("TORCHELASTIC_RUN_ID", "r1"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_ERROR_FILE", "/logs/error.json"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("RELIGHT_RUN_ID", "r1"),
            ("RELIGHT_ATTEMPT", "4"),
            ("RELIGHT_RUN_DIR", "/runs"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(got, want);
    }

    #[test]
    fn what_is_inherited() {
        let base = [
            ("OMP_NUM_THREADS", "7"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
            ("CUDA_VISIBLE_DEVICES", "2,3"),
            ("RELIGHT_SECRET", "hush"),
            ("PMIX_RANK", "9"),
            ("PMI_FD", "3"),
            ("PMIGHTY", "kept"),
            ("RANK", "99"),
            ("TWICE", "first"),
            ("TWICE", "second"),
        ];
        let got = environment(&base, &world(&[(0, 2)]), 0, 1);
        for (name, value) in [
            ("OMP_NUM_THREADS", Some("7")),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", Some("3")),
            ("CUDA_VISIBLE_DEVICES", Some("2,3")),
            ("RELIGHT_SECRET", None),
            ("PMIX_RANK", None),
            ("PMI_FD", None),
            ("PMIGHTY", Some("kept")),
            ("RANK", Some("1")),
            ("TWICE", Some("first")),
        ] {
            assert_eq!(got.get(name).map(String::as_str), value, "{name}");
        }
        assert!(!environment(&[], &world(&[(0, 1)]), 0, 0).contains_key("OMP_NUM_THREADS"));
    }

    #[test]
    fn ranks_that_are_not_there() {
        let two = world(&[(0, 2)]);
        assert_eq!(rank_numbers(&two, Slot(1), LocalRank(0)), Err(RankEnvError::EmptySlot(Slot(1))));
        assert!(rank_numbers(&two, Slot(0), LocalRank(2)).is_err());
    }

    #[test]
    fn substitution_is_pythons() {
        for (text, want) in [
            ("--gpu=${local_rank}", "--gpu=3"),
            ("$local_rank", "3"),
            ("$local_rank_x ${local_rank_x}", "$local_rank_x ${local_rank_x}"),
            ("$$ $$$$ $", "$ $$ $"),
            ("$${local_rank}", "${local_rank}"),
            ("$$${local_rank}", "$3"),
            ("${HOME}/${x", "${HOME}/${x"),
            ("${local_rank", "${local_rank"),
            ("${}${local_rank}", "${}3"),
            ("$LOCAL_RANK $1 é$é", "$LOCAL_RANK $1 é$é"),
            ("${local rank}", "${local rank}"),
            ("", ""),
        ] {
            assert_eq!(substitute(text, LocalRank(3)), want, "{text}");
        }
    }

    #[test]
    fn argument_vectors() {
        let args = vec!["--x".to_owned(), "${local_rank}".to_owned()];
        let python = Path::new("/env/bin/python3");
        for (kind, want) in [
            (ProgramKind::Script, vec!["/env/bin/python3", "-u", "train", "--x", "2"]),
            (ProgramKind::Module, vec!["/env/bin/python3", "-u", "-m", "train", "--x", "2"]),
            (ProgramKind::Binary, vec!["train", "--x", "2"]),
        ] {
            let spec = RunSpec { kind, program: "train".into(), args: args.clone(), ..RunSpec::default() };
            assert_eq!(rank_argv(&spec, python, LocalRank(2)), want);
        }
    }
}
