//! Machines without Slurm: a person told each of them of the run, and they must have been told the same. What differs is said
//! in one sentence on both ends, before any rank starts.

use serde::{Deserialize, Serialize};

use super::ids::NodeName;

/// What one of the machines was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// [`digest`] of program and arguments, and of how they are started.
    pub command: u64,
    /// Nodes of the smallest and of the full world.
    pub nodes: (u32, u32),
    /// The machine's own number, where it has one: no other has the same.
    pub rank: Option<u32>,
}

/// Where a machine was told something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// Another program, or other arguments.
    Command,
    /// Another number of nodes.
    Nodes {
        /// At least and at most, as the machine was told.
        told: (u32, u32),
        /// As the one that leads was told.
        leads: (u32, u32),
    },
    /// The number of another machine that is there.
    Rank {
        /// The number.
        rank: u32,
        /// Who has it.
        other: NodeName,
    },
}

impl Difference {
    /// What the machine that leads says of `node`.
    #[must_use]
    pub fn of(&self, node: &NodeName, leader: &NodeName) -> String {
        format!("{node} {}: it cannot take part; {}", self.what(leader), self.remedy())
    }

    /// What the machine itself says.
    #[must_use]
    pub fn here(&self, leader: &NodeName) -> String {
        format!("this machine {}: {}. Exit 2", self.what(leader), self.remedy())
    }

    /// What the machine was told, without a subject.
    #[must_use]
    pub fn what(&self, leader: &NodeName) -> String {
        let nodes =
            |(min, max): (u32, u32)| if min == max { max.to_string() } else { format!("{min}:{max}") };
        match self {
            Self::Command => {
                format!("was told to start another program, or other arguments, than {leader}, which leads")
            }
            Self::Nodes { told, leads } => {
                format!("was told --nnodes={}, and {leader}, which leads, {}", nodes(*told), nodes(*leads))
            }
            Self::Rank { rank, other } => format!("was told --node-rank={rank}, which {other} has"),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Command => "give all machines the same words; where they differ, use the environment",
            Self::Nodes { .. } => "give all machines the same",
            Self::Rank { .. } => "give each machine a number of its own",
        }
    }
}

/// FNV-1a over words and their borders: tells two command lines apart, and withstands nobody who means to deceive.
#[must_use]
pub fn digest<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for word in words {
        // A length in front of each: `ab c` is not `a bc`.
        for byte in (word.len() as u64).to_le_bytes().iter().chain(word) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_borders() {
        let of = |words: &[&str]| digest(words.iter().map(|word| word.as_bytes()));
        let all = [of(&[]), of(&[""]), of(&["ab", "c"]), of(&["a", "bc"]), of(&["abc"]), of(&["c", "ab"])];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}: {all:?}");
        }
        assert_eq!(of(&["ab", "c"]), all[2]);
    }

    #[test]
    fn sentences() {
        let (b, a) = (NodeName::new("b"), NodeName::new("a"));
        let nodes = Difference::Nodes { told: (2, 4), leads: (2, 2) };
        let rank = Difference::Rank { rank: 1, other: NodeName::new("c") };
        assert_eq!(
            nodes.of(&b, &a),
            "b was told --nnodes=2:4, and a, which leads, 2: it cannot take part; give all machines the same"
        );
        assert_eq!(
            rank.here(&a),
            "this machine was told --node-rank=1, which c has: give each machine a number of its own. Exit 2"
        );
        assert!(Difference::Command.of(&b, &a).starts_with("b was told to start another program"));
    }
}
