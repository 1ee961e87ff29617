//! Thousands of nodes: what comes together is taken in together, and what is sent does not grow with the world.

use std::sync::Arc;

use super::*;

const NODES: u64 = 300;

fn frame(node: u64, n: u64, msg: CoordinatorMsg) -> Event {
    let term = Some(Term(0)).filter(|_| !matches!(msg, CoordinatorMsg::Join { .. }));
    Event::Recv { from: name(node), frame: ToCoordinator { term, incarnation: Incarnation(node), n, msg } }
}

fn join(node: u64) -> Event {
    let spec = NodeSpec { nproc: 8, order: u32::try_from(node).unwrap(), ..NodeSpec::default() };
    let join = CoordinatorMsg::Join {
        spec: Box::new(spec),
        offer: Some(Offer { address: format!("10.0.0.{node}"), port: 20_000, hosted: false }),
        store: None,
        proof: None,
        clean_of: Vec::new(),
        running: None,
        next: Seq(0),
        survivors: Vec::new(),
    };
    frame(node, 0, join)
}

fn started(node: u64, attempt: u64) -> Event {
    frame(node, 1 + 3 * attempt, CoordinatorMsg::Started(Attempt(attempt)))
}

fn stopped(node: u64) -> Event {
    let offer = Some(Offer { address: format!("10.0.0.{node}"), port: 20_001, hosted: false });
    let exits = vec![ExitReport { ours: true, ..report(0, KILL, "") }];
    let msg = CoordinatorMsg::Stopped { attempt: Attempt(0), exits, survivors: Vec::new(), offer };
    frame(node, 3, msg)
}

/// A start and a restart of all nodes; their events come in groups of this size.
fn run(together: usize) -> Bed {
    let mut bed = Bed::new(u32::try_from(NODES).unwrap(), 0);
    let tell = |bed: &mut Bed, events: Vec<Event>| {
        for group in events.chunks(together) {
            match group {
                [one] => bed.event(one.clone()),
                many => bed.event(Event::Burst(many.to_vec())),
            }
        }
    };
    tell(&mut bed, (1..=NODES).map(join).collect());
    bed.event(Event::AuthorityHeld);
    tell(&mut bed, (1..=NODES).map(|node| started(node, 0)).collect());
    bed.pass(60_000);
    let failed = CoordinatorMsg::Exited { attempt: Attempt(0), exits: vec![report(3, KILL, "")] };
    tell(&mut bed, vec![frame(7, 2, failed)]);
    tell(&mut bed, (1..=NODES).map(stopped).collect());
    tell(&mut bed, (1..=NODES).map(|node| started(node, 1)).collect());
    bed.pass(1_000);
    bed
}

#[test]
fn events_that_come_together_end_where_single_ones_end() {
    let one = run(1);
    assert_eq!(one.machine.phase(), Phase::Running);
    assert_eq!(one.attempt(), Attempt(1));
    for together in [2, 7, 64, 1024] {
        let many = run(together);
        assert_eq!(many.machine.phase(), Phase::Running);
        assert_eq!(many.machine.ledger(), one.machine.ledger());
        assert_eq!(many.starts(Attempt(0)).len(), one.starts(Attempt(0)).len());
        assert_eq!(many.starts(Attempt(1)), one.starts(Attempt(1)));
        assert_eq!(many.machine.busy.len(), one.machine.busy.len());
    }
}

#[test]
fn every_agent_hears_of_the_world_once_and_of_its_record_after_its_start() {
    let bed = run(1024);
    for attempt in [0, 1].map(Attempt) {
        // The first one hosts the store for the others, and has to know where they come from.
        let mut worlds = bed.sent().filter(|(to, _)| **to != name(1)).filter_map(|(_, m)| match m {
            AgentMsg::Start { attempt: of, world, .. } if *of == attempt => Some(world),
            _ => None,
        });
        let first = worlds.next().unwrap();
        assert!(worlds.all(|world| Arc::ptr_eq(world, first)), "a world of its own for each agent");
        assert!(first.addresses.is_empty());
        let of_n09 = |m: &&(&NodeName, &AgentMsg)| *m.0 == name(9);
        let all: Vec<(&NodeName, &AgentMsg)> = bed.sent().collect();
        let to_n09: Vec<&AgentMsg> = all.iter().filter(of_n09).map(|m| m.1).collect();
        let start =
            to_n09.iter().position(|m| matches!(m, AgentMsg::Start { attempt: of, .. } if *of == attempt));
        let record = to_n09.iter().position(|m| {
            matches!(m, AgentMsg::Committed(r) if r.attempt == attempt && matches!(r.body, Body::Attempt(_)))
        });
        assert!(start.unwrap() < record.unwrap());
    }
}

#[test]
fn a_start_is_for_the_life_that_is_a_member() {
    let bed = run(1024);
    for (to, msg) in bed.sent() {
        if let AgentMsg::Start { life, .. } = msg {
            assert_eq!(name(life.0), *to);
        }
    }
}

#[test]
fn agents_are_not_told_the_victims_but_the_journal_is() {
    let bed = run(1024);
    let victims = |body: &Body| match body {
        Body::Incident(incident) => Some(incident.victims.len()),
        _ => None,
    };
    let told = bed.sent().filter_map(|(_, m)| match m {
        AgentMsg::Committed(record) => victims(&record.body),
        _ => None,
    });
    assert_eq!(told.max(), Some(0));
    assert!(bed.journal.iter().filter_map(|r| victims(&r.body)).any(|count| count >= 200));
}
