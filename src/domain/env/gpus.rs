//! Which GPUs a rank sees.

use serde::{Deserialize, Serialize};

use crate::domain::ids::LocalRank;

/// `--gpu-visibility`: which GPUs of its node a rank sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuVisibility {
    /// Those that the launcher sees.
    #[default]
    All,
    /// Its own: the one whose place in the list is its local rank.
    Own,
}

impl GpuVisibility {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::All, Self::Own];

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }
}

/// The list of visible devices that leaves a rank its own alone. `visible` is the launcher's list; without one devices are
/// numbered from 0. `None`: the launcher's list has no device for this rank, so it stays as it is.
#[must_use]
pub fn own_device(visible: Option<&str>, local_rank: LocalRank) -> Option<String> {
    let Some(list) = visible else { return Some(local_rank.to_string()) };
    // As the drivers read it: the list ends at the first entry that is no device.
    let mut devices = list.split(',').map(str::trim).take_while(|entry| !entry.is_empty() && *entry != "-1");
    devices.nth(local_rank.0 as usize).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_gets_the_device_of_its_place() {
        for (visible, local, want) in [
            (None, 3, Some("3")),
            (Some("0,1,2,3"), 2, Some("2")),
            (Some(" 6, 7"), 1, Some("7")),
            (Some("GPU-1b2c,GPU-77aa"), 0, Some("GPU-1b2c")),
            (Some("MIG-GPU-1/1/0"), 0, Some("MIG-GPU-1/1/0")),
            (Some("4"), 1, None),
            (Some(""), 0, None),
            (Some("0,-1,2"), 2, None),
            (Some("0,,2"), 1, None),
        ] {
            assert_eq!(own_device(visible, LocalRank(local)).as_deref(), want, "{visible:?} {local}");
        }
    }
}
