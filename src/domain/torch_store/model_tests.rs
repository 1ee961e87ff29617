//! The store beside a model of it that is slow and obvious: the same requests, the same replies.

use proptest::prelude::*;

use super::frame::code;
use super::tests::{Bed, counted, request, text};
use super::{NOT_READY, READY, STOP_WAITING, WAIT_CANCELED};

#[derive(Clone, Debug)]
enum Op {
    Set(u8, Vec<u8>),
    CompareSet(u8, Vec<u8>, Vec<u8>),
    Get(u8),
    Add(u8, i64),
    Check(Vec<u8>),
    Wait(Vec<u8>),
    NumKeys,
    Delete(u8),
    Append(u8, Vec<u8>),
    MultiGet(Vec<u8>),
    MultiSet(Vec<(u8, Vec<u8>)>),
    Cancel,
    Push(u8, Vec<u8>),
    Pop(u8),
    Len(u8),
    List,
    Barrier(u8, i64),
    Leave,
}

fn key(number: u8) -> Vec<u8> {
    vec![b'/', b'a' + number]
}

impl Op {
    fn bytes(&self) -> Vec<u8> {
        let many = |opcode, keys: &[u8]| {
            let keys: Vec<Vec<u8>> = keys.iter().map(|k| key(*k)).collect();
            counted(opcode, 1, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        match self {
            Self::Set(k, v) => request(code::SET, &[&key(*k), v], &[]),
            Self::CompareSet(k, e, d) => request(code::COMPARE_SET, &[&key(*k), e, d], &[]),
            Self::Get(k) => request(code::GET, &[&key(*k)], &[]),
            Self::Add(k, delta) => request(code::ADD, &[&key(*k)], &delta.to_le_bytes()),
            Self::Check(keys) => many(code::CHECK, keys),
            Self::Wait(keys) => many(code::WAIT, keys),
            Self::NumKeys => vec![code::GETNUMKEYS],
            Self::Delete(k) => request(code::DELETE_KEY, &[&key(*k)], &[]),
            Self::Append(k, v) => request(code::APPEND, &[&key(*k), v], &[]),
            Self::MultiGet(keys) => many(code::MULTI_GET, keys),
            Self::MultiSet(pairs) => {
                let flat: Vec<Vec<u8>> = pairs.iter().flat_map(|(k, v)| [key(*k), v.clone()]).collect();
                counted(code::MULTI_SET, 2, &flat.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
            Self::Cancel | Self::Leave => vec![code::CANCEL_WAIT],
            Self::Push(k, v) => request(code::QUEUE_PUSH, &[&key(*k), v], &[]),
            Self::Pop(k) => request(code::QUEUE_POP, &[&key(*k)], &[]),
            Self::Len(k) => request(code::QUEUE_LEN, &[&key(*k)], &[]),
            Self::List => vec![code::LIST_KEYS],
            Self::Barrier(k, world) => request(code::BARRIER, &[&key(*k)], &world.to_le_bytes()),
        }
    }
}

/// Lists that are searched from the front.
#[derive(Default)]
struct Model {
    keys: Vec<(u8, Vec<u8>)>,
    queued: Vec<(u8, Vec<u8>)>,
    /// Who waits, and for which keys still.
    waits: Vec<(u32, Vec<u8>)>,
    out: Vec<(u32, Vec<u8>)>,
}

impl Model {
    fn get(&self, k: u8) -> Option<Vec<u8>> {
        self.keys.iter().find(|(name, _)| *name == k).map(|(_, v)| v.clone())
    }

    fn set(&mut self, k: u8, v: Vec<u8>) {
        self.keys.retain(|(name, _)| *name != k);
        self.keys.push((k, v));
        self.came(k, usize::MAX);
    }

    /// The key came for everybody who waits, or for so many whose wait ends with it.
    fn came(&mut self, k: u8, most: usize) {
        let mut woken = 0;
        let mut waits = std::mem::take(&mut self.waits);
        for (conn, keys) in &mut waits {
            let before = keys.len();
            if woken < most {
                keys.retain(|one| *one != k);
            }
            if before > 0 && keys.is_empty() {
                woken += 1;
                self.out.push((*conn, vec![STOP_WAITING]));
            }
        }
        waits.retain(|(_, keys)| !keys.is_empty());
        self.waits = waits;
    }

    fn has(&self, k: u8) -> bool {
        self.get(k).is_some() || self.queued.iter().any(|(name, _)| *name == k)
    }

    fn add(&mut self, k: u8, delta: i64) -> Option<i64> {
        let old = match self.get(k) {
            // The longest beginning that is a number.
            Some(text) => {
                let text = text.trim_ascii_start();
                let starts = (1..=text.len()).rev().filter_map(|n| std::str::from_utf8(&text[..n]).ok());
                starts.filter_map(|start| start.parse::<i64>().ok()).next()?
            }
            None => 0,
        };
        Some(old + delta)
    }

    /// The reply, or `None` where the connection is closed.
    fn ask(&mut self, conn: u32, op: &Op) -> Option<Vec<u8>> {
        let waits = self.waits.iter().any(|(one, _)| *one == conn);
        let count = |n: usize| (n as u64).to_le_bytes().to_vec();
        Some(match op {
            Op::Set(k, v) => {
                self.set(*k, v.clone());
                vec![]
            }
            Op::CompareSet(k, expected, desired) => match self.get(*k) {
                Some(now) if now != *expected => text(&now),
                None if !expected.is_empty() => text(expected),
                _ => {
                    self.set(*k, desired.clone());
                    text(desired)
                }
            },
            Op::Get(k) => text(&self.get(*k).unwrap_or_default()),
            Op::Add(k, delta) => {
                let sum = self.add(*k, *delta)?;
                self.set(*k, sum.to_string().into_bytes());
                sum.to_le_bytes().to_vec()
            }
            Op::Check(keys) => vec![if keys.iter().all(|k| self.has(*k)) { READY } else { NOT_READY }],
            Op::Wait(_) if waits => return None,
            Op::Wait(keys) => {
                let missing: Vec<u8> = keys.iter().copied().filter(|k| !self.has(*k)).collect();
                if missing.is_empty() {
                    vec![STOP_WAITING]
                } else {
                    self.waits.push((conn, missing));
                    vec![]
                }
            }
            Op::NumKeys => count(self.keys.len()),
            Op::Delete(k) => {
                let before = self.keys.len();
                self.keys.retain(|(name, _)| name != k);
                count(before - self.keys.len())
            }
            Op::Append(k, v) => {
                let all = [self.get(*k).unwrap_or_default(), v.clone()].concat();
                self.set(*k, all);
                vec![]
            }
            Op::MultiGet(keys) => keys.iter().flat_map(|k| text(&self.get(*k).unwrap_or_default())).collect(),
            Op::MultiSet(pairs) => {
                pairs.iter().for_each(|(k, v)| self.set(*k, v.clone()));
                vec![]
            }
            Op::Cancel => {
                self.waits.retain(|(one, _)| *one != conn);
                vec![WAIT_CANCELED]
            }
            Op::Push(k, v) => {
                self.queued.push((*k, v.clone()));
                self.came(*k, 1);
                vec![]
            }
            Op::Pop(k) => {
                let length = self.queued.iter().filter(|(name, _)| name == k).count();
                let at = self.queued.iter().position(|(name, _)| name == k);
                let value = at.map(|at| text(&self.queued.remove(at).1));
                [count(length), value.unwrap_or_default()].concat()
            }
            Op::Len(k) => count(self.queued.iter().filter(|(name, _)| name == k).count()),
            Op::List => {
                let mut names: Vec<u8> = self.keys.iter().map(|(k, _)| *k).collect();
                names.sort_unstable();
                let names: Vec<u8> = names.into_iter().flat_map(|k| text(&key(k))).collect();
                [count(self.keys.len()), names].concat()
            }
            Op::Barrier(..) if waits => return None,
            Op::Barrier(k, world) => {
                let sum = self.add(*k, 1)?;
                self.keys.retain(|(name, _)| name != k);
                self.keys.push((*k, sum.to_string().into_bytes()));
                if sum < *world {
                    self.waits.push((conn, vec![*k]));
                    vec![]
                } else {
                    self.came(*k, usize::MAX);
                    vec![STOP_WAITING]
                }
            }
            Op::Leave => return None,
        })
    }
}

fn op() -> impl Strategy<Value = Op> {
    let k = || 0_u8..5;
    let v = || {
        prop_oneof![
            Just(vec![]),
            Just(b"1".to_vec()),
            Just(b"x".to_vec()),
            prop::collection::vec(any::<u8>(), 0..9)
        ]
    };
    let ks = || prop::collection::vec(0_u8..5, 0..4);
    prop_oneof![
        (k(), v()).prop_map(|(k, v)| Op::Set(k, v)),
        (k(), v(), v()).prop_map(|(k, e, d)| Op::CompareSet(k, e, d)),
        k().prop_map(Op::Get),
        (k(), -3_i64..9).prop_map(|(k, delta)| Op::Add(k, delta)),
        ks().prop_map(Op::Check),
        ks().prop_map(Op::Wait),
        Just(Op::NumKeys),
        k().prop_map(Op::Delete),
        (k(), v()).prop_map(|(k, v)| Op::Append(k, v)),
        ks().prop_map(Op::MultiGet),
        prop::collection::vec((k(), v()), 0..4).prop_map(Op::MultiSet),
        Just(Op::Cancel),
        (k(), v()).prop_map(|(k, v)| Op::Push(k, v)),
        k().prop_map(Op::Pop),
        k().prop_map(Op::Len),
        Just(Op::List),
        (k(), 1_i64..4).prop_map(|(k, world)| Op::Barrier(k, world)),
        Just(Op::Leave),
    ]
}

/// Queues beside waits for several keys are left out: whom a push wakes when it does not end a wait is not told anywhere.
fn is_plain(op: &Op, pushes: bool) -> bool {
    match op {
        Op::Push(..) => pushes,
        Op::Wait(keys) => !pushes || keys.len() < 2,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn the_store_answers_as_the_model_does(
        ops in prop::collection::vec((0_u32..4, op()), 0..80),
        pushes in any::<bool>(),
    ) {
        let (mut bed, mut model) = (Bed::new(4), Model::default());
        for (conn, op) in ops.into_iter().filter(|(_, op)| is_plain(op, pushes)) {
            let expected = model.ask(conn, &op);
            let got = match &op {
                Op::Leave => None,
                op => bed.ask(conn, &op.bytes()).ok(),
            };
            // A connection's reply comes behind what it was told before.
            let told: Vec<u8> = model.out.iter().filter(|(one, _)| *one == conn).flat_map(|(_, b)| b.clone()).collect();
            model.out.retain(|(one, _)| *one != conn);
            let expected = expected.map(|reply| [told, reply].concat());
            prop_assert_eq!(&got, &expected, "{:?}", op);
            if got.is_none() {
                bed.store.disconnect(super::Conn(conn));
                bed.got(conn);
                bed.store.connect(super::Conn(conn));
                let hello = request(code::VALIDATE, &[], &super::MAGIC.to_le_bytes());
                prop_assert!(bed.ask(conn, &hello).is_ok());
                model.waits.retain(|(one, _)| *one != conn);
            }
            for other in (0..4).filter(|other| *other != conn) {
                let told: Vec<u8> = model.out.iter().filter(|(one, _)| *one == other).flat_map(|(_, b)| b.clone()).collect();
                model.out.retain(|(one, _)| *one != other);
                prop_assert_eq!(bed.got(other), told, "{:?}", op);
            }
        }
    }
}
