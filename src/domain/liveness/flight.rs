//! Torch's flight recorder: where a rank can be asked for what it knows of its collectives, and where it writes that.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::env;
use super::super::ids::Rank;

/// The recorder of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorder {
    /// Whatever is written into this pipe asks for a dump.
    pub pipe: PathBuf,
    /// Where the dump comes to lie: one of these, the likeliest first.
    pub dumps: Vec<PathBuf>,
}

/// The recorder of a rank that is started with this environment; none where nobody can ask it. It makes its pipe itself.
#[must_use]
pub fn recorder(base: &[(OsString, OsString)], rank: Rank) -> Option<Recorder> {
    let value = |var: env::EnvVar| {
        let entry = base.iter().rev().find(|(name, _)| name == OsStr::new(var.name));
        entry.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    };
    let of_rank = |stem: &OsStr, end: &str| {
        let mut path = stem.to_owned();
        path.push(format!("{rank}{end}"));
        PathBuf::from(path)
    };
    let stem = value(env::TORCH_FR_DEBUG_INFO_PIPE_FILE).or(value(env::TORCH_NCCL_DEBUG_INFO_PIPE_FILE))?;
    let chosen = value(env::TORCH_FR_DUMP_TEMP_FILE).or(value(env::TORCH_NCCL_DEBUG_INFO_TEMP_FILE));
    let dumps = match chosen {
        Some(stem) => vec![of_rank(stem, "")],
        // Torch's own places, of newer and of older ones.
        None => {
            let cache = value(env::XDG_CACHE_HOME).map(PathBuf::from);
            let cache = cache.or_else(|| Some(PathBuf::from(value(env::HOME)?).join(".cache")));
            let newer = cache.map(|dir| dir.join("torch/comm_lib_trace_rank_").into_os_string());
            let stems = newer.into_iter().chain([OsString::from("/tmp/nccl_trace_rank_")]);
            stems.map(|stem| of_rank(&stem, "")).collect()
        }
    };
    Some(Recorder { pipe: of_rank(stem, ".pipe"), dumps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_newer_and_older_ones() {
        type Table<'a> = &'a [(&'a [(&'a str, &'a str)], Option<(&'a str, &'a [&'a str])>)];
        let table: Table<'_> = &[
            (&[("HOME", "/h")], None),
            (&[("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")], None),
            (
                &[("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/p/x_"), ("HOME", "/h")],
                Some((
                    "/p/x_12.pipe",
                    &["/h/.cache/torch/comm_lib_trace_rank_12", "/tmp/nccl_trace_rank_12"],
                )),
            ),
            (
                &[("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/p/x_"), ("HOME", "/h"), ("XDG_CACHE_HOME", "/c")],
                Some(("/p/x_12.pipe", &["/c/torch/comm_lib_trace_rank_12", "/tmp/nccl_trace_rank_12"])),
            ),
            (
                &[("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/p"), ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/d/t")],
                Some(("/p12.pipe", &["/d/t12"])),
            ),
            (
                &[
                    ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/old"),
                    ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "/new"),
                    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/old"),
                    ("TORCH_FR_DUMP_TEMP_FILE", "/new"),
                ],
                Some(("/new12.pipe", &["/new12"])),
            ),
        ];
        for (vars, wanted) in table {
            let base: Vec<(OsString, OsString)> = vars.iter().map(|(k, v)| (k.into(), v.into())).collect();
            let wanted = wanted.map(|(pipe, dumps)| Recorder {
                pipe: pipe.into(),
                dumps: dumps.iter().map(PathBuf::from).collect(),
            });
            assert_eq!(recorder(&base, Rank(12)), wanted, "{vars:?}");
        }
    }
}
