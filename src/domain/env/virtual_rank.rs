//! `--virtual-local-rank`: each rank sees its own GPU alone, as the first.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::{CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, LOCAL_RANK};
use crate::domain::ids::LocalRank;

/// The list of visible GPUs that ranks go by: AMD's where it is set, as the drivers take it.
fn list(get: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let hip = get(HIP_VISIBLE_DEVICES.name).filter(|list| !list.is_empty());
    let hip = hip.map(|list| (HIP_VISIBLE_DEVICES.name, list));
    hip.or_else(|| get(CUDA_VISIBLE_DEVICES.name).map(|list| (CUDA_VISIBLE_DEVICES.name, list)))
}

/// More ranks than GPUs in a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--virtual-local-rank: {ranks} ranks want a GPU each, and {name}='{list}' names {gpus}")]
pub struct TooFewGpus {
    /// Ranks of this node.
    pub ranks: u32,
    /// The variable.
    pub name: &'static str,
    /// What it says.
    pub list: String,
    /// How many that are.
    pub gpus: usize,
}

/// Whether every rank of this node has a GPU of its own in the list that the environment gives.
///
/// # Errors
/// One has none.
pub fn check(env: &[(OsString, OsString)], ranks: u32) -> Result<(), TooFewGpus> {
    let get = |name: &str| {
        let found = env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    };
    let Some((name, list)) = list(get) else { return Ok(()) };
    let gpus = list.split(',').count();
    if (ranks as usize) <= gpus { Ok(()) } else { Err(TooFewGpus { ranks, name, list, gpus }) }
}

/// Narrows the environment of one rank to its GPU.
pub(super) fn narrow(all: &mut BTreeMap<OsString, OsString>, local_rank: LocalRank) {
    let get = |name: &str| all.get(&OsString::from(name)).map(|value| value.to_string_lossy().into_owned());
    let found = list(get);
    let own = match &found {
        // One that is not there sees none.
        Some((_, list)) => list.split(',').nth(local_rank.0 as usize).unwrap_or("").trim().to_owned(),
        None => local_rank.to_string(),
    };
    if found.is_some_and(|(name, _)| name == HIP_VISIBLE_DEVICES.name) {
        all.insert(HIP_VISIBLE_DEVICES.name.into(), own.clone().into());
    }
    all.insert(CUDA_VISIBLE_DEVICES.name.into(), own.into());
    all.insert(LOCAL_RANK.name.into(), "0".into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn each_rank_has_its_own() {
        for (env, local, want) in [
            (vec![], 3, vec![("CUDA_VISIBLE_DEVICES", "3"), ("LOCAL_RANK", "0")]),
            (
                vec![("CUDA_VISIBLE_DEVICES", "4, 7")],
                1,
                vec![("CUDA_VISIBLE_DEVICES", "7"), ("LOCAL_RANK", "0")],
            ),
            (
                vec![("CUDA_VISIBLE_DEVICES", "4"), ("HIP_VISIBLE_DEVICES", "1,2")],
                1,
                vec![("CUDA_VISIBLE_DEVICES", "2"), ("HIP_VISIBLE_DEVICES", "2"), ("LOCAL_RANK", "0")],
            ),
            (
                vec![("CUDA_VISIBLE_DEVICES", "4"), ("HIP_VISIBLE_DEVICES", "")],
                0,
                vec![("CUDA_VISIBLE_DEVICES", "4"), ("HIP_VISIBLE_DEVICES", ""), ("LOCAL_RANK", "0")],
            ),
            (vec![("CUDA_VISIBLE_DEVICES", "4")], 1, vec![("CUDA_VISIBLE_DEVICES", ""), ("LOCAL_RANK", "0")]),
        ] {
            let mut all: BTreeMap<OsString, OsString> = pairs(&env).into_iter().collect();
            narrow(&mut all, LocalRank(local));
            assert_eq!(all.into_iter().collect::<Vec<_>>(), pairs(&want), "{env:?}");
        }
    }

    #[test]
    fn too_few() {
        assert_eq!(check(&[], 8), Ok(()));
        assert_eq!(check(&pairs(&[("CUDA_VISIBLE_DEVICES", "0,1")]), 2), Ok(()));
        let error = check(&pairs(&[("CUDA_VISIBLE_DEVICES", "0,1")]), 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--virtual-local-rank: 3 ranks want a GPU each, and CUDA_VISIBLE_DEVICES='0,1' names 2"
        );
    }
}
