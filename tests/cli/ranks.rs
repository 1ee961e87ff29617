//! Properties of the numbers that ranks get.

use std::collections::BTreeSet;

use proptest::prelude::*;
use relight::domain::env::rank::rank_numbers;
use relight::domain::env::substitute;
use relight::domain::ids::{Incarnation, LocalRank, NodeName, Slot};
use relight::domain::record::Member;
use relight::domain::spec::Offer;
use relight::domain::wire::World;

fn worlds() -> impl Strategy<Value = World> {
    proptest::collection::btree_map(0_u32..50, 1_u32..9, 1..12).prop_shuffle_members()
}

trait Shuffle: Strategy<Value = std::collections::BTreeMap<u32, u32>> + Sized {
    fn prop_shuffle_members(self) -> impl Strategy<Value = World> {
        let member = |(slot, nproc): (u32, u32)| Member {
            slot: Slot(slot),
            node: NodeName::new(format!("n{slot}")),
            incarnation: Incarnation(0),
            nproc,
            log_dir: String::new(),
            role: format!("role{}", slot % 3),
        };
        self.prop_map(move |all| all.into_iter().map(member).collect::<Vec<_>>()).prop_shuffle().prop_map(
            |members| World { members, master: Offer::default(), resume: None, addresses: Vec::new() },
        )
    }
}

impl<S: Strategy<Value = std::collections::BTreeMap<u32, u32>>> Shuffle for S {}

proptest! {
    /// Ranks are 0..WORLD_SIZE, each once; group ranks are dense and in the order of the slots.
    #[test]
    fn ranks_are_a_bijection(world in worlds()) {
        let (mut ranks, mut roles) = (BTreeSet::new(), BTreeSet::new());
        let mut places = Vec::new();
        for member in &world.members {
            for local in 0..member.nproc {
                let numbers = rank_numbers(&world, member.slot, LocalRank(local)).unwrap();
                prop_assert!(ranks.insert(numbers.rank.0), "twice: {}", numbers.rank);
                prop_assert!(numbers.rank.0 < numbers.world);
                prop_assert!(roles.insert((member.role.clone(), numbers.role_rank.0)), "twice: {}", numbers.role_rank);
                prop_assert!(numbers.role_rank.0 < numbers.role_world && numbers.role_rank <= numbers.rank);
                prop_assert_eq!(numbers.local_world, member.nproc);
                prop_assert!(numbers.group_rank.0 < numbers.groups);
                places.push((member.slot, local, numbers.group_rank, numbers.rank));
            }
            prop_assert!(rank_numbers(&world, member.slot, LocalRank(member.nproc)).is_err());
        }
        let total: u32 = world.members.iter().map(|member| member.nproc).sum();
        prop_assert_eq!(ranks, (0..total).collect::<BTreeSet<_>>());
        places.sort();
        prop_assert!(places.windows(2).all(|two| two[0].2 <= two[1].2 && two[0].3 < two[1].3));
    }

    /// Texts without a dollar stay as they are, and nothing makes it panic.
    #[test]
    fn substitution_is_total(text in "\\PC*", local in 0_u32..1000) {
        let out = substitute(&text, LocalRank(local));
        if !text.contains('$') {
            prop_assert_eq!(out, text);
        }
    }

    /// Doubling every dollar protects a text.
    #[test]
    fn doubled_dollars_protect(text in "[a-z_${}]{0,40}") {
        prop_assert_eq!(substitute(&text.replace('$', "$$"), LocalRank(7)), text);
    }
}
