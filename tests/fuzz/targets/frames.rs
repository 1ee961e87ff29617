//! A proven peer that sends anything: payloads with a right MAC, then raw bytes in the place of a frame. The input is
//! `direction (1) | payload length (2) | payload …` and, behind a length of 65,535, raw bytes.

use relight::domain::ids::{Attempt, Incarnation, NodeName, Term};
use relight::domain::wire::{AgentMsg, CoordinatorMsg, FromSupervisor, ToAgent, ToCoordinator};
use relight::net::handshake::Role;
use relight::net::session::Session;
use serde::ser::SerializeTuple as _;
use serde::{Serialize, Serializer};
use tokio::io::AsyncWriteExt as _;

use super::handshake::{RUNTIME, identity, secret};
use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "frames",
    seeds,
    run,
    longest: 64 << 10,
    heap: |length| 96 * length + (1 << 20) + (1 << 20),
    words: &[b"\xff\xff\x00\x00\x10\x00", b"\xff\xff\x01\x00\x10\x00", b"\xff\xff\xff\xff\xff\xff"],
};

/// Bytes as they are, as a message.
struct Raw(Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut tuple = to.serialize_tuple(self.0.len())?;
        for byte in &self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let part = |bytes: Vec<u8>| [(bytes.len() as u16).to_le_bytes().to_vec(), bytes].concat();
    let up = |msg| {
        postcard::to_stdvec(&ToCoordinator { term: Some(Term(1)), incarnation: Incarnation(7), n: 1, msg })
            .unwrap()
    };
    let down = |msg| postcard::to_stdvec(&ToAgent { term: Term(1), n: 1, msg }).unwrap();
    let started = up(CoordinatorMsg::Started(Attempt(3)));
    let reach = up(CoordinatorMsg::Reach { node: NodeName::new("n2"), ok: true });
    let stop = down(AgentMsg::PassOn { signal: 10 });
    let probe = down(AgentMsg::Probe { name: "probe-1".into() });
    let ended =
        postcard::to_stdvec(&FromSupervisor::AgentEnded { node: NodeName::new("n2"), rc: 137 }).unwrap();
    vec![
        [vec![0], part(started), part(reach)].concat(),
        [vec![1], part(stop), part(probe), vec![255, 255, 9, 0, 0, 0]].concat(),
        [vec![2], part(ended)].concat(),
    ]
}

fn run(input: &[u8]) -> u64 {
    let Some((direction, mut rest)) = input.split_first() else { return 0 };
    let (mut payloads, mut raw) = (Vec::new(), &[][..]);
    while let Some((header, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*header));
        if length == usize::from(u16::MAX) {
            raw = behind;
            break;
        }
        let (payload, behind) = behind.split_at(length.min(behind.len()));
        payloads.push(payload.to_vec());
        rest = behind;
    }
    match direction % 3 {
        0 => meet::<ToCoordinator>(Role::Agent, false, payloads, raw),
        1 => meet::<ToAgent>(Role::Agent, true, payloads, raw),
        _ => meet::<FromSupervisor>(Role::Supervisor, false, payloads, raw),
    }
}

/// Two proven ends; one sends this, the other receives until it has enough.
fn meet<In>(dialler: Role, from_coordinator: bool, payloads: Vec<Vec<u8>>, raw: &[u8]) -> u64
where
    In: serde::de::DeserializeOwned + Serialize + std::fmt::Debug,
{
    RUNTIME.block_on(async {
        // A man in the middle, who hands the handshake on and later has words of his own.
        let (one, mut left) = tokio::io::duplex(64 << 10);
        let (other, mut right) = tokio::io::duplex(256 << 10);
        let (own, coordinator, secret) = (identity(dialler), identity(Role::Coordinator), secret());
        let both = async {
            if from_coordinator {
                tokio::join!(
                    Session::<(), Raw>::accept(one, &coordinator, &secret),
                    Session::<In, ()>::connect(other, &own, &secret)
                )
            } else {
                tokio::join!(
                    Session::<(), Raw>::connect(one, &own, &secret),
                    Session::<In, ()>::accept(other, &coordinator, &secret)
                )
            }
        };
        let (sender, receiver) = tokio::select! {
            both = both => both,
            _ = tokio::io::copy_bidirectional(&mut left, &mut right) => unreachable!("nobody closed"),
        };
        let ((mut sender, _sender_hears), (_receiver_says, mut receiver)) =
            (sender.unwrap().split(), receiver.unwrap().split());
        let sending = async {
            for payload in payloads {
                if sender.queue(&Raw(payload)).is_ok() && sender.flush().await.is_err() {
                    break;
                }
            }
            drop((sender, _sender_hears));
            // What was sent, and then the raw bytes.
            let _ = tokio::io::copy(&mut left, &mut right).await;
            let _ = right.write_all(raw).await;
            let _ = right.shutdown().await;
        };
        let receiving = async {
            let mut shapes = Vec::new();
            loop {
                match receiver.recv().await {
                    Ok(message) => {
                        let bytes = postcard::to_stdvec(&message).expect("what was read can be written");
                        assert!(!bytes.is_empty());
                        shapes.push(shape(message));
                    }
                    Err(error) => break behaviour((shapes, shape(error))),
                }
            }
        };
        tokio::select! {
            biased;
            behaved = receiving => behaved,
            () = async { sending.await; std::future::pending::<()>().await } => unreachable!("it pends"),
        }
    })
}
