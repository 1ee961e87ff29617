//! Lists of nodes as they travel between nodes: ranges and runs in place of thousands of equal entries. Text that people
//! read, such as the journal, has every entry.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::hostlist::{compress, expand_within};
use super::ids::{Incarnation, NodeName, Slot};
use super::record::Member;

/// A longer list is refused before it is allocated.
pub const MOST: usize = super::hostlist::MOST;
/// So many bytes may all texts of a list be.
const LONGEST: usize = 8 << 20;
/// Shorter lists have every entry.
const FEW: usize = 64;

/// Names in order.
#[derive(Serialize, Deserialize)]
enum Names {
    Each(Vec<NodeName>),
    Ranges(String),
}

impl Names {
    fn of(nodes: &[&NodeName]) -> Self {
        let each = || Self::Each(nodes.iter().map(|node| (*node).clone()).collect());
        if nodes.len() <= FEW {
            return each();
        }
        let text = compress(nodes.iter().copied());
        // Names that no list can hold are written out.
        let same = expand_within(&text, MOST).is_ok_and(|back| back.iter().eq(nodes.iter().copied()));
        if same { Self::Ranges(text) } else { each() }
    }

    fn all<E: serde::de::Error>(self) -> Result<Vec<NodeName>, E> {
        match self {
            Self::Each(nodes) => Ok(nodes),
            Self::Ranges(text) => expand_within(&text, MOST).map_err(E::custom),
        }
    }
}

/// For `Vec<NodeName>` and `BTreeSet<NodeName>`.
pub mod names {
    use super::{Deserialize, Deserializer, Names, NodeName, Serialize, Serializer};

    /// Writes them.
    pub fn serialize<'a, S: Serializer, C>(nodes: &'a C, serializer: S) -> Result<S::Ok, S::Error>
    where
        &'a C: IntoIterator<Item = &'a NodeName>,
    {
        if serializer.is_human_readable() {
            return serializer.collect_seq(nodes);
        }
        Names::of(&nodes.into_iter().collect::<Vec<_>>()).serialize(serializer)
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>, C: FromIterator<NodeName>>(
        deserializer: D,
    ) -> Result<C, D::Error> {
        let all = if deserializer.is_human_readable() {
            Vec::deserialize(deserializer)?
        } else {
            Names::deserialize(deserializer)?.all()?
        };
        Ok(all.into_iter().collect())
    }
}

/// For the members of a world.
pub mod members {
    use super::{
        Deserialize, Deserializer, Incarnation, LONGEST, MOST, Member, Names, Serialize, Serializer, Slot,
    };
    use serde::de::Error as _;

    /// Members with slots in a row that have all else in common but their names.
    #[derive(PartialEq, Serialize, Deserialize)]
    struct Run {
        count: u32,
        slot: u32,
        nproc: u32,
        role: String,
        /// Where the logs lie, up to the name of the node if that ends it.
        dir: String,
        named: bool,
    }

    impl Run {
        fn of(member: &Member) -> Self {
            let dir = member
                .log_dir
                .strip_suffix(member.node.as_str())
                .filter(|_| !member.node.as_str().is_empty());
            Self {
                count: 0,
                slot: member.slot.0,
                nproc: member.nproc,
                role: member.role.clone(),
                dir: dir.unwrap_or(&member.log_dir).to_owned(),
                named: dir.is_some(),
            }
        }

        fn takes(&self, member: &Member) -> bool {
            let dir = if self.named {
                member.log_dir.strip_suffix(member.node.as_str())
            } else {
                Some(&*member.log_dir)
            };
            self.slot.checked_add(self.count) == Some(member.slot.0)
                && (self.nproc, &self.role) == (member.nproc, &member.role)
                && dir == Some(&self.dir)
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Members {
        names: Names,
        runs: Vec<Run>,
        /// None where nobody has one.
        lives: Vec<Incarnation>,
    }

    /// Writes them.
    pub fn serialize<S: Serializer>(members: &[Member], serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return members.serialize(serializer);
        }
        let mut runs: Vec<Run> = Vec::new();
        for member in members {
            if runs.last().is_none_or(|run| !run.takes(member)) {
                runs.push(Run::of(member));
            }
            if let Some(run) = runs.last_mut() {
                run.count += 1;
            }
        }
        let alive = members.iter().any(|member| member.incarnation != Incarnation::default());
        let lives =
            if alive { members.iter().map(|member| member.incarnation).collect() } else { Vec::new() };
        let names = Names::of(&members.iter().map(|member| &member.node).collect::<Vec<_>>());
        Members { names, runs, lives }.serialize(serializer)
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Member>, D::Error> {
        if deserializer.is_human_readable() {
            return Vec::deserialize(deserializer);
        }
        let Members { names, runs, lives } = Members::deserialize(deserializer)?;
        let nodes = names.all()?;
        let count = runs.iter().fold(0_usize, |sum, run| sum.saturating_add(run.count as usize));
        let bytes = |run: &Run| (run.count as usize).saturating_mul(run.dir.len() + run.role.len());
        let long = runs.iter().map(bytes).fold(0, usize::saturating_add) > LONGEST;
        if long || count != nodes.len() || count > MOST || !(lives.is_empty() || lives.len() == count) {
            return Err(D::Error::custom("a list of members contradicts itself"));
        }
        let places =
            runs.iter().flat_map(|run| (0..run.count).map(move |at| (run, run.slot.saturating_add(at))));
        let mut lives = lives.into_iter();
        Ok(nodes
            .into_iter()
            .zip(places)
            .map(|(node, (run, slot))| Member {
                slot: Slot(slot),
                incarnation: lives.next().unwrap_or_default(),
                nproc: run.nproc,
                log_dir: if run.named { format!("{}{node}", run.dir) } else { run.dir.clone() },
                role: run.role.clone(),
                node,
            })
            .collect())
    }
}
