//! The verdict on a world that broke: what the ends of its ranks, together, say.
//!
//! Who failed first is [`first_failure`](super::super::first_failure)'s to say; here it is asked what that means: was it
//! the rank or the whole node, does every rank fail alike, and if only victims spoke, who was silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::exit::ExitKind;
use super::super::first_failure::{Seen, Standing};
use super::super::ids::{NodeName, Rank};
use super::super::record::Member;
use super::super::rendezvous;
use super::evidence::Evidence;
use super::rules::{Class, Hints};
use super::{Confidence, Owner, Verdict};

/// Ranks that are struck within it are culprits together: nothing that one does to another is that quick.
const TOGETHER: Duration = Duration::from_millis(200);
/// The most culprits that are named.
const MAX_CULPRITS: usize = 8;
/// The most findings that are told as reasons.
const MAX_TOLD: usize = 3;

/// What is known of a world that broke.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The ends of its ranks so far.
    pub ends: &'a [Seen],
    /// Which of them was the first failure.
    pub first: Option<usize>,
    /// Its nodes.
    pub members: &'a [Member],
    /// Nodes that were lost.
    pub lost: &'a [NodeName],
    /// Whose an address is.
    pub addresses: &'a BTreeMap<String, NodeName>,
}

/// What an incident was, as far as these ends tell.
#[must_use]
pub fn verdict(scene: &Scene<'_>) -> Verdict {
    let first = scene.first.and_then(|at| scene.ends.get(at));
    // A lost node explains what anybody says, but not that somebody was struck.
    let struck = first.filter(|end| end.report.standing() <= Standing::Struck);
    match (first, struck) {
        (_, None) if !scene.lost.is_empty() => lost(scene),
        (None, _) => Verdict::default(),
        (Some(end), _) if end.report.standing() == Standing::PeerLost => cascade(scene, end),
        (Some(end), _) => root(scene, end),
    }
}

fn lost(scene: &Scene<'_>) -> Verdict {
    let mut reasons: Vec<String> = scene.lost.iter().map(|node| format!("{node} was lost")).collect();
    let victims = scene.ends.iter().filter(|end| is_failure(end)).count();
    if victims > 0 {
        reasons.push(format!("{} of other nodes failed of it", count(victims, "rank")));
    }
    Verdict {
        owner: Owner::Hardware,
        cause: "a node was lost".to_owned(),
        nodes: scene.lost.to_vec(),
        confidence: Confidence::Medium,
        reasons,
        ..Verdict::default()
    }
}

/// It ended by itself, and not well.
fn is_failure(end: &Seen) -> bool {
    !end.report.ours && !end.report.exit.is_success()
}

fn root(scene: &Scene<'_>, end: &Seen) -> Verdict {
    let evidence = &end.report.evidence;
    let hints = evidence.row().map(|rule| rule.hints).unwrap_or_default();
    let spread = Spread::of(scene, end);
    let whole = spread.whole_node && scene.members.len() > 1 && !spread.everywhere;
    let mut owner = evidence.row().map_or(Owner::Unknown, |rule| rule.owner);
    // One node lacks what the others have: that is no fault of the program.
    if hints.node && whole && owner == Owner::User {
        owner = Owner::Launcher;
    }
    let hardware = hints.decisive && !(spread.everywhere && scene.members.len() > 1);
    let mut verdict = Verdict {
        owner,
        cause: cause(end),
        culprits: if whole { Vec::new() } else { culprits(scene, end) },
        nodes: if whole || hardware { vec![end.node.clone()] } else { Vec::new() },
        confidence: confidence(evidence, hardware, &spread),
        hardware,
        deterministic: spread.deterministic(hints, owner),
        bad_state: hints.state,
        fingerprint: evidence.fingerprint.clone(),
        entity: evidence.entity.clone(),
        reasons: Vec::new(),
    };
    verdict.reasons = reasons(scene, end, &verdict, &spread);
    verdict
}

/// How far the same failure goes.
struct Spread {
    /// Ranks that failed in the same way, the first among them.
    alike: usize,
    /// Ranks of the world.
    world: usize,
    /// Whoever failed by itself failed alike, on every node, and most ranks did.
    everywhere: bool,
    /// Several ranks of the node, all that it has, ended alike and by themselves, and nobody elsewhere did.
    whole_node: bool,
}

impl Spread {
    fn of(scene: &Scene<'_>, first: &Seen) -> Self {
        let world = rendezvous::world_size(scene.members) as usize;
        if first.report.exit.is_success() {
            // That others ended well, too, is no reason.
            return Self { alike: 1, world, everywhere: false, whole_node: false };
        }
        let same = |end: &Seen| {
            let (one, two) = (&end.report.evidence.fingerprint, &first.report.evidence.fingerprint);
            end.report.exit == first.report.exit
                && (one == two || matches!(end.report.exit, ExitKind::Signal { .. }))
        };
        let (mut alike, mut others) = (Vec::new(), 0);
        for end in scene.ends.iter().filter(|end| !end.report.ours) {
            if same(end) {
                alike.push(end);
            } else if is_failure(end) && end.report.standing() != Standing::PeerLost {
                others += 1;
            }
        }
        let nodes: BTreeSet<&NodeName> = alike.iter().map(|end| &end.node).collect();
        let known = !first.report.evidence.fingerprint.is_empty();
        let everywhere =
            known && others == 0 && 2 * alike.len() > world && nodes.len() == scene.members.len();
        let nproc = scene.members.iter().find(|m| m.node == first.node).map_or(0, |m| m.nproc as usize);
        let whole_node = nproc > 1 && nodes.len() == 1 && alike.len() == nproc;
        Self { alike: alike.len(), world, everywhere, whole_node }
    }

    fn deterministic(&self, hints: Hints, owner: Owner) -> bool {
        let certain = hints.stop && (!hints.node || self.everywhere);
        certain || (self.everywhere && self.world > 1 && owner == Owner::User && (hints.once || hints.stop))
    }
}

fn confidence(evidence: &Evidence, hardware: bool, spread: &Spread) -> Confidence {
    let sure = matches!(evidence.rule.as_str(), "oom-counter" | "errno-missing");
    match evidence.class {
        _ if hardware || sure => Confidence::High,
        Some(Class::Root) if spread.everywhere && spread.world > 1 => Confidence::High,
        Some(Class::Root) if evidence.rule != "signal-kill" => Confidence::Medium,
        _ => Confidence::Low,
    }
}

fn cause(end: &Seen) -> String {
    let cause = end.report.evidence.cause();
    if cause.is_empty() { end.report.exit.to_string() } else { cause }
}

/// The first one, and who was struck with it: two nodes can fail at once.
fn culprits(scene: &Scene<'_>, first: &Seen) -> Vec<(Rank, NodeName)> {
    let mut found = vec![(first.rank, first.node.clone())];
    let at = first.report.moment(first.at);
    let struck = scene.ends.iter().filter(|end| {
        end.rank != first.rank
            && is_failure(end)
            && end.report.standing() <= Standing::Struck
            && first.report.standing() <= Standing::Struck
            && end.at.since(at) <= TOGETHER
    });
    found.extend(struck.take(MAX_CULPRITS - 1).map(|end| (end.rank, end.node.clone())));
    found
}

fn reasons(scene: &Scene<'_>, end: &Seen, verdict: &Verdict, spread: &Spread) -> Vec<String> {
    let (evidence, mut reasons) = (&end.report.evidence, Vec::new());
    let who = format!("rank {} ({})", end.rank, end.node);
    reasons.push(format!("{who}: {}", verdict.sentence()));
    if !evidence.line.is_empty() {
        reasons.push(format!("it said: {}", evidence.line));
    }
    if spread.everywhere && spread.world > 1 {
        reasons.push(format!("the same on {} of {} ranks", spread.alike, spread.world));
    } else if spread.whole_node && scene.members.len() > 1 {
        reasons.push(format!("all {} ranks of {} ended alike, and no other", spread.alike, end.node));
    }
    if verdict.culprits.len() > 1 {
        let others = verdict.culprits.iter().skip(1);
        let others: Vec<String> = others.map(|(rank, node)| format!("rank {rank} ({node})")).collect();
        reasons.push(format!("struck in the same moment: {}", others.join(", ")));
    }
    if verdict.hardware {
        reasons.push(format!("decisive against the hardware of {}", end.node));
    }
    let told = evidence.findings.iter().take(MAX_TOLD);
    reasons.extend(told.map(|finding| format!("it also said: {}", finding.line)));
    let victims =
        scene.ends.iter().filter(|end| is_failure(end) && end.report.standing() == Standing::PeerLost);
    let victims = victims.count();
    if victims > 0 {
        reasons.push(format!("{} lost a peer by it", count(victims, "other rank")));
    }
    reasons
}

/// Only victims spoke, so the cause is not among them: whom did they name, and who was silent?
fn cascade(scene: &Scene<'_>, first: &Seen) -> Verdict {
    let mut reasons = vec![format!("rank {} ({}) is a victim: {}", first.rank, first.node, cause(first))];
    let spoke: BTreeMap<Rank, &Seen> =
        scene.ends.iter().filter(|end| is_failure(end)).map(|end| (end.rank, end)).collect();
    let mut verdict = Verdict { cause: cause(first), ..Verdict::default() };
    if let Some((node, peers)) = named(scene, &spoke) {
        reasons.push(format!("{node} is the peer that {peers} ranks on other nodes name"));
        verdict.nodes = vec![node];
        (verdict.owner, verdict.confidence) = (Owner::Network, Confidence::Medium);
    } else {
        let silent = silent(scene, &spoke);
        match &silent[..] {
            [] => reasons.push("every rank is a victim; nobody is left who could be the cause".to_owned()),
            [(rank, node)] => {
                reasons.push(format!("rank {rank} ({node}) alone did not fail by itself"));
                verdict.culprits = silent.clone();
            }
            [(_, node), ..] if scene.members.len() > 1 && silent.iter().all(|(_, other)| other == node) => {
                reasons.push(format!("only ranks of {node} did not fail by themselves"));
                verdict.nodes = vec![node.clone()];
            }
            _ => reasons.push(format!("{} did not fail by themselves", count(silent.len(), "rank"))),
        }
    }
    verdict.reasons = reasons;
    verdict
}

/// The node that at least two ranks of different nodes name as the peer that they lost.
fn named(scene: &Scene<'_>, spoke: &BTreeMap<Rank, &Seen>) -> Option<(NodeName, usize)> {
    let mut by: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
    for end in spoke.values() {
        let peers = end.report.evidence.named.iter().filter_map(|address| scene.addresses.get(address));
        for peer in peers.filter(|peer| **peer != end.node) {
            by.entry(peer).or_default().insert(&end.node);
        }
    }
    let most = by.values().map(BTreeSet::len).max().filter(|most| *most > 1)?;
    let mut best = by.into_iter().filter(|(_, from)| from.len() == most);
    let (node, from) = best.next()?;
    // Two are named alike: then it may be the fabric between them.
    best.next().is_none().then(|| (node.clone(), from.len()))
}

/// Ranks that did not fail by themselves: they ran on, or we ended them.
fn silent(scene: &Scene<'_>, spoke: &BTreeMap<Rank, &Seen>) -> Vec<(Rank, NodeName)> {
    let mut silent = Vec::new();
    for (node, (first, nproc)) in rendezvous::first_ranks(scene.members) {
        let ranks = (first.0..first.0.saturating_add(nproc)).map(Rank);
        silent.extend(ranks.filter(|rank| !spoke.contains_key(rank)).map(|rank| (rank, node.clone())));
    }
    silent
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
