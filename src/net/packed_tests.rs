//! How lists of nodes travel; here, because the rules themselves know no format.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::domain::ids::{Incarnation, NodeName, Slot};
use crate::domain::record::{AttemptBody, Cause, Member, Membership};
use crate::domain::spec::Offer;

fn member(slot: u32, name: String) -> Member {
    let log_dir = format!("/logs/run_{name}");
    let incarnation = Incarnation(u64::MAX - u64::from(slot));
    Member {
        slot: Slot(slot),
        node: NodeName::new(name),
        incarnation,
        nproc: 8,
        log_dir,
        role: String::new(),
    }
}

fn world(members: Vec<Member>) -> AttemptBody {
    let voters = members.iter().map(|m| m.node.clone()).collect();
    AttemptBody {
        members,
        spares: Vec::new(),
        voters,
        master: Offer::default(),
        resume: None,
        cause: Cause::Start,
    }
}

fn back(body: &AttemptBody) -> AttemptBody {
    postcard::from_bytes(&postcard::to_stdvec(body).unwrap()).unwrap()
}

#[test]
fn thousands_of_members_are_little_more_than_their_lives() {
    let whole = world((0..4096).map(|n| member(n, format!("node{n:04}"))).collect());
    let bytes = postcard::to_stdvec(&whole).unwrap();
    assert!(bytes.len() < 4096 * 11, "{} bytes", bytes.len());
    assert_eq!(back(&whole), whole);
}

#[test]
fn text_has_every_entry() {
    let whole = world((0..100).map(|n| member(n, format!("n{n}"))).collect());
    let text = serde_json::to_string(&whole).unwrap();
    assert_eq!(text.matches("\"n42\"").count(), 2, "{text}");
    assert_eq!(serde_json::from_str::<AttemptBody>(&text).unwrap(), whole);
}

#[test]
fn names_that_no_list_can_hold_travel_as_they_are() {
    let voters: Vec<NodeName> = (0..200).map(|n| NodeName::new(format!("a[{n}],b-{n}"))).collect();
    let change = Membership { voters, removed: Vec::new(), added: Vec::new() };
    let bytes = postcard::to_stdvec(&change).unwrap();
    assert_eq!(postcard::from_bytes::<Membership>(&bytes).unwrap(), change);
}

#[test]
fn lists_that_contradict_themselves_are_refused() {
    let whole = world((0..100).map(|n| member(n, format!("n{n}"))).collect());
    let bytes = postcard::to_stdvec(&whole).unwrap();
    // Behind `Ranges`, the length and the text `n[0-99]` stands the number of runs, then the length of the first.
    let at = bytes.windows(7).position(|w| w == b"n[0-99]").unwrap() + 8;
    assert_eq!(bytes[at], 100);
    let mut changed = bytes.clone();
    changed[at] = 99;
    assert!(postcard::from_bytes::<AttemptBody>(&changed).is_err());
}

proptest! {
    #[test]
    fn whatever_is_packed_comes_back(
        rows in prop::collection::vec((0_u32..3, "[a-z]{1,3}[0-9]{0,3}", 0_u32..2, "(/l/)?[a-z]{0,2}", any::<bool>()), 0..150),
    ) {
        let mut slot = 0;
        let members: Vec<Member> = rows
            .into_iter()
            .map(|(gap, name, nproc, dir, named)| {
                slot += gap;
                let log_dir = if named { format!("{dir}{name}") } else { dir };
                let role = if nproc == 1 { "r".to_owned() } else { String::new() };
                Member { nproc, role, log_dir, ..member(slot, name) }
            })
            .collect();
        let whole = world(members);
        prop_assert_eq!(back(&whole), whole);
    }

    #[test]
    fn sets_of_names_come_back(names in prop::collection::btree_set("[a-z]{1,2}[0-9]{1,4}", 0..200)) {
        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct Holder(#[serde(with = "crate::domain::packed::names")] BTreeSet<NodeName>);
        let holder = Holder(names.into_iter().map(NodeName::new).collect());
        let bytes = postcard::to_stdvec(&holder).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Holder>(&bytes).unwrap(), holder);
    }
}
