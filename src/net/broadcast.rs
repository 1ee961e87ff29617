//! Messages that go to every agent and are long: their common end is encoded once, not once an agent.

use std::sync::Arc;

use super::session::SessionError;
use crate::domain::record::Record;
use crate::domain::wire::{AgentMsg, ToAgent, World};

/// So many ends are kept: that of a world, of its record, and of what a join is told.
const KEPT: usize = 3;

/// What many messages end with.
#[derive(Clone)]
enum End {
    World(Arc<World>),
    Record(Arc<Record>),
}

impl End {
    fn of(msg: &AgentMsg) -> Option<Self> {
        match msg {
            AgentMsg::Start { world, .. } => Some(Self::World(world.clone())),
            AgentMsg::Committed(record) => Some(Self::Record(record.clone())),
            AgentMsg::Welcome { tail, .. } => match &tail[..] {
                [record] => Some(Self::Record(record.clone())),
                _ => None,
            },
            _ => None,
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::World(a), Self::World(b)) => Arc::ptr_eq(a, b),
            (Self::Record(a), Self::Record(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        match self {
            Self::World(world) => postcard::to_stdvec(world),
            Self::Record(record) => postcard::to_stdvec(record),
        }
    }
}

/// What precedes a common end, and that end.
pub type Parts = (Vec<u8>, Arc<[u8]>);

/// The ends that were sent last.
#[derive(Default)]
pub struct Broadcast(Vec<(End, Arc<[u8]>)>);

impl Broadcast {
    /// The two parts of a long frame, for [`Sender::send_with`](super::session::Sender::send_with); none of one that is sent
    /// whole.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn parts(&mut self, frame: &ToAgent) -> Result<Option<Parts>, SessionError> {
        let Some(end) = End::of(&frame.msg) else { return Ok(None) };
        Ok(Some((begin(frame)?, self.bytes(end)?)))
    }

    fn bytes(&mut self, end: End) -> Result<Arc<[u8]>, SessionError> {
        if let Some((_, bytes)) = self.0.iter().find(|(kept, _)| kept.is(&end)) {
            return Ok(bytes.clone());
        }
        let bytes: Arc<[u8]> = end.encode()?.into();
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push((end, bytes.clone()));
        Ok(bytes)
    }
}

/// A frame without its end: fields follow each other, and a variant is its number.
fn begin(frame: &ToAgent) -> Result<Vec<u8>, postcard::Error> {
    let ToAgent { term, n, msg } = frame;
    match msg {
        AgentMsg::Welcome { answers, store, spec, leader, dead, forever, tail } => {
            postcard::to_stdvec(&(term, n, 0_u32, answers, (store, spec, leader, dead, forever), tail.len()))
        }
        AgentMsg::Start { attempt, life, .. } => postcard::to_stdvec(&(term, n, 2_u32, attempt, life)),
        AgentMsg::Committed(_) => postcard::to_stdvec(&(term, n, 4_u32)),
        // Those are sent whole.
        _ => postcard::to_stdvec(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Attempt, Incarnation, NodeName, Seq, Slot, StoreId, Term};
    use crate::domain::record::{Body, Kind, Member, Membership, Writer};
    use crate::domain::spec::RunSpec;

    fn frames() -> Vec<ToAgent> {
        let names: Vec<NodeName> = (0..200).map(|n| NodeName::new(format!("n{n:04}"))).collect();
        let member = |(node, slot): (&NodeName, u32)| Member {
            slot: Slot(slot),
            node: node.clone(),
            incarnation: Incarnation::default(),
            nproc: 8,
            log_dir: String::new(),
            role: String::new(),
        };
        let world = World { members: names.iter().zip(0..).map(member).collect(), ..World::default() };
        let record = Arc::new(Record {
            v: 1,
            seq: Seq(300),
            kind: Kind::Membership,
            term: Term(2),
            attempt: Attempt(1),
            writer: Writer::default(),
            nonce: 7,
            wall_ms: 9,
            why: vec!["a test".to_owned()],
            body: Body::Membership(Membership { voters: names, removed: Vec::new(), added: Vec::new() }),
        });
        let welcome = |tail| AgentMsg::Welcome {
            answers: 300,
            store: Some(StoreId::new("s")),
            spec: Box::new(RunSpec::default()),
            leader: Incarnation(u64::MAX),
            dead: vec![Incarnation(1), Incarnation(2)],
            forever: true,
            tail,
        };
        let all = [
            AgentMsg::Start { attempt: Attempt(200), life: Incarnation(5), world: Arc::new(world) },
            AgentMsg::Committed(record.clone()),
            welcome(vec![record]),
            welcome(Vec::new()),
            AgentMsg::Finish { code: 1 },
        ];
        all.into_iter().map(|msg| ToAgent { term: Term(300), n: 400, msg }).collect()
    }

    #[test]
    fn a_frame_in_two_parts_is_the_frame() {
        let mut kept = Broadcast::default();
        for frame in frames() {
            let whole = postcard::to_stdvec(&frame).unwrap();
            if let Some(end) = End::of(&frame.msg) {
                for _ in 0..2 {
                    let parts = [begin(&frame).unwrap(), kept.bytes(end.clone()).unwrap().to_vec()].concat();
                    assert_eq!(parts, whole, "{:?}", frame.msg);
                }
            }
            assert_eq!(postcard::from_bytes::<ToAgent>(&whole).unwrap(), frame);
        }
        assert!(kept.0.len() <= KEPT);
    }
}
