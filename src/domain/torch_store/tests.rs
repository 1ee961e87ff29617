//! One test for each request, and for each way in which a connection is closed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::frame::code;
use super::seen::{Place, Reach};
use super::*;
use crate::domain::ids::{NodeName, Rank};

/// A store and what it sent, with requests as their bytes.
pub(super) struct Bed {
    pub(super) store: Store,
    pub(super) sent: Sent,
}

#[derive(Default)]
pub(super) struct Sent(pub(super) BTreeMap<Conn, Vec<u8>>);

impl Sink for Sent {
    fn reply(&mut self, to: Conn) -> &mut Vec<u8> {
        self.0.entry(to).or_default()
    }
}

pub(super) const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A key or a value.
pub(super) fn text(bytes: &[u8]) -> Vec<u8> {
    let mut all = (bytes.len() as u64).to_le_bytes().to_vec();
    all.extend_from_slice(bytes);
    all
}

pub(super) fn request(opcode: u8, strings: &[&[u8]], tail: &[u8]) -> Vec<u8> {
    let mut all = vec![opcode];
    strings.iter().for_each(|string| all.extend(text(string)));
    all.extend_from_slice(tail);
    all
}

pub(super) fn counted(opcode: u8, of: usize, strings: &[&[u8]]) -> Vec<u8> {
    let mut all = vec![opcode];
    all.extend_from_slice(&((strings.len() / of) as u64).to_le_bytes());
    strings.iter().for_each(|string| all.extend(text(string)));
    all
}

impl Bed {
    pub(super) fn new(conns: u32) -> Self {
        Self::with(conns, Limits::default())
    }

    pub(super) fn with(conns: u32, limits: Limits) -> Self {
        let mut bed = Self { store: Store::new(limits, 8), sent: Sent::default() };
        for conn in 0..conns {
            bed.store.connect(Conn(conn));
            let hello = request(code::VALIDATE, &[], &MAGIC.to_le_bytes());
            assert_eq!(bed.ask(conn, &hello).unwrap(), b"");
        }
        bed
    }

    /// What this connection was sent since it was asked last.
    pub(super) fn got(&mut self, conn: u32) -> Vec<u8> {
        self.sent.0.remove(&Conn(conn)).unwrap_or_default()
    }

    pub(super) fn ask(&mut self, conn: u32, request: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut scanner = Scanner::of(Dialect::Validated);
        assert_eq!(scanner.scan(request)?, Some(request.len()), "{request:?}");
        let done = self.store.handle(Conn(conn), HERE, request, &mut self.sent);
        self.store.check();
        done.map(|()| self.got(conn))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        assert_eq!(self.ask(0, &request(code::SET, &[key, value], &[])).unwrap(), b"");
    }

    fn get(&mut self, key: &[u8]) -> Vec<u8> {
        self.ask(0, &request(code::GET, &[key], &[])).unwrap()
    }

    fn number(&mut self, conn: u32, request: &[u8]) -> i64 {
        i64::from_le_bytes(self.ask(conn, request).unwrap().try_into().unwrap())
    }

    fn wait(&mut self, conn: u32, keys: &[&[u8]]) -> Vec<u8> {
        self.ask(conn, &counted(code::WAIT, 1, keys)).unwrap()
    }
}

fn add(key: &[u8], delta: i64) -> Vec<u8> {
    request(code::ADD, &[key], &delta.to_le_bytes())
}

#[test]
fn values_are_set_read_appended_counted_and_deleted() {
    let mut bed = Bed::new(1);
    assert_eq!(bed.get(b"/k"), text(b""));
    bed.set(b"/k", b"one");
    bed.set(b"/k", b"two!");
    assert_eq!(bed.get(b"/k"), text(b"two!"));
    assert_eq!(bed.ask(0, &request(code::APPEND, &[b"/k", b"+"], &[])).unwrap(), b"");
    assert_eq!(bed.ask(0, &request(code::APPEND, &[b"/new", b"a"], &[])).unwrap(), b"");
    assert_eq!(bed.get(b"/k"), text(b"two!+"));
    assert_eq!(bed.number(0, &[code::GETNUMKEYS]), 2);
    let pairs = counted(code::MULTI_SET, 2, &[b"/a", b"1", b"/b", b""]);
    assert_eq!(bed.ask(0, &pairs).unwrap(), b"");
    let got = bed.ask(0, &counted(code::MULTI_GET, 1, &[b"/b", b"/a", b"/no"])).unwrap();
    assert_eq!(got, [text(b""), text(b"1"), text(b"")].concat());
    let listed = bed.ask(0, &[code::LIST_KEYS]).unwrap();
    let names = [text(b"/a"), text(b"/b"), text(b"/k"), text(b"/new")].concat();
    assert_eq!(listed, [4_u64.to_le_bytes().to_vec(), names].concat());
    let delete = request(code::DELETE_KEY, &[b"/k"], &[]);
    assert_eq!((bed.number(0, &delete), bed.number(0, &delete)), (1, 0));
    assert_eq!(bed.ask(0, &request(code::PING, &[], &[1, 2, 3, 4])).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn numbers_are_kept_as_text() {
    let mut bed = Bed::new(1);
    assert_eq!(bed.number(0, &add(b"/n", 5)), 5);
    assert_eq!(bed.number(0, &add(b"/n", -7)), -2);
    assert_eq!(bed.get(b"/n"), text(b"-2"));
    for (value, sum) in [(&b" +12abc"[..], 13), (b"-0", 1), (b"9223372036854775807", i64::MIN)] {
        bed.set(b"/n", value);
        assert_eq!(bed.number(0, &add(b"/n", 1)), sum, "{value:?}");
    }
    for value in [&b""[..], b"abc", b"- 1", b"9223372036854775808"] {
        bed.set(b"/n", value);
        assert_eq!(bed.ask(0, &add(b"/n", 1)), Err(Fault::NotANumber), "{value:?}");
    }
}

#[test]
fn compare_set_answers_as_torch_does() {
    let mut bed = Bed::new(1);
    let ask = |bed: &mut Bed, expected: &[u8], desired: &[u8]| {
        bed.ask(0, &request(code::COMPARE_SET, &[b"/k", expected, desired], &[])).unwrap()
    };
    assert_eq!(
        ask(&mut bed, b"old", b"new"),
        text(b"old"),
        "a key that is not there is called what was expected"
    );
    assert_eq!(bed.number(0, &[code::GETNUMKEYS]), 0);
    assert_eq!(ask(&mut bed, b"", b"new"), text(b"new"));
    assert_eq!(ask(&mut bed, b"x", b"y"), text(b"new"));
    assert_eq!(ask(&mut bed, b"new", b"y"), text(b"y"));
}

#[test]
fn a_wait_ends_when_every_key_came() {
    let mut bed = Bed::new(3);
    let check = |bed: &mut Bed, keys: &[&[u8]]| bed.ask(2, &counted(code::CHECK, 1, keys)).unwrap();
    bed.set(b"/a", b"");
    assert_eq!(bed.wait(1, &[b"/a"]), [STOP_WAITING]);
    assert_eq!(bed.wait(1, &[]), [STOP_WAITING]);
    assert_eq!(bed.wait(1, &[b"/a", b"/b", b"/c", b"/b"]), b"");
    assert_eq!(check(&mut bed, &[b"/a", b"/b"]), [NOT_READY]);
    bed.set(b"/b", b"");
    assert_eq!(bed.got(1), b"");
    assert_eq!(check(&mut bed, &[b"/a", b"/b"]), [READY]);
    bed.ask(0, &add(b"/c", 1)).unwrap();
    assert_eq!(bed.got(1), [STOP_WAITING]);
    bed.set(b"/c", b"");
    assert_eq!(bed.got(1), b"", "it is told once");
}

#[test]
fn every_write_wakes_who_waits_for_its_key() {
    let writes: [(&str, Vec<u8>); 6] = [
        ("set", request(code::SET, &[b"/k", b"v"], &[])),
        ("add", add(b"/k", 1)),
        ("append", request(code::APPEND, &[b"/k", b"v"], &[])),
        ("compare_set", request(code::COMPARE_SET, &[b"/k", b"", b"v"], &[])),
        ("multi_set", counted(code::MULTI_SET, 2, &[b"/j", b"v", b"/k", b"v"])),
        ("queue_push", request(code::QUEUE_PUSH, &[b"/k", b"v"], &[])),
    ];
    for (name, write) in writes {
        let mut bed = Bed::new(2);
        assert_eq!(bed.wait(1, &[b"/k"]), b"");
        bed.ask(0, &write).unwrap();
        assert_eq!(bed.got(1), [STOP_WAITING], "{name}");
    }
}

#[test]
fn a_wait_can_be_cancelled_and_dies_with_its_connection() {
    let mut bed = Bed::new(3);
    assert_eq!(bed.wait(1, &[b"/a", b"/b"]), b"");
    assert_eq!(bed.wait(2, &[b"/a"]), b"");
    assert_eq!(bed.ask(1, &[code::CANCEL_WAIT]).unwrap(), [WAIT_CANCELED]);
    assert_eq!(bed.ask(1, &[code::CANCEL_WAIT]).unwrap(), [WAIT_CANCELED], "also when it waits for nothing");
    bed.store.disconnect(Conn(2));
    bed.store.check();
    bed.set(b"/a", b"");
    assert_eq!((bed.got(1), bed.got(2)), (vec![], vec![]));
    assert_eq!(bed.wait(1, &[b"/b"]), b"", "it may wait again");
    assert_eq!(bed.ask(1, &counted(code::WAIT, 1, &[b"/c"])), Err(Fault::WaitsTwice));
}

/// A search through a line for each of its entries would be 10^10 steps here.
#[test]
fn one_key_named_ever_so_often_is_one_wait() {
    let many = usize::try_from(MOST_KEYS).unwrap();
    let mut bed = Bed::new(3);
    let same: Vec<&[u8]> = vec![b"/k"; many];
    for end in 0..3 {
        for conn in [1, 2] {
            assert_eq!(bed.wait(conn, &same), b"");
        }
        match end {
            0 => [1, 2].into_iter().for_each(|conn| bed.store.disconnect(Conn(conn))),
            1 => assert_eq!(bed.ask(1, &[code::CANCEL_WAIT]).unwrap(), [WAIT_CANCELED]),
            _ => bed.set(b"/k", b""),
        }
        for conn in [1, 2] {
            let _ = bed.got(conn);
            bed.store.connect(Conn(conn));
            bed.ask(conn, &request(code::VALIDATE, &[], &MAGIC.to_le_bytes())).unwrap();
        }
    }
    assert!(bed.store.steps <= 3 * 2 * 2, "{} steps", bed.store.steps);

    bed.store.steps = 0;
    let names: Vec<Vec<u8>> = (0..many).map(|n| n.to_string().into_bytes()).collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    for conn in [1, 2] {
        assert_eq!(bed.wait(conn, &names), b"");
    }
    [1, 2].into_iter().for_each(|conn| bed.store.disconnect(Conn(conn)));
    bed.store.check();
    assert_eq!(bed.store.steps, 2 * 2 * many, "in and out of each line");
}

#[test]
fn a_queue_hands_out_in_order_and_wakes_one() {
    let mut bed = Bed::new(3);
    let push = |value: &[u8]| request(code::QUEUE_PUSH, &[b"/q", value], &[]);
    let (pop, len) = (request(code::QUEUE_POP, &[b"/q"], &[]), request(code::QUEUE_LEN, &[b"/q"], &[]));
    assert_eq!(bed.number(0, &pop), 0);
    assert_eq!(bed.wait(1, &[b"/q"]), b"");
    assert_eq!(bed.wait(2, &[b"/q"]), b"");
    bed.ask(0, &push(b"one")).unwrap();
    assert_eq!((bed.got(1), bed.got(2)), (vec![STOP_WAITING], vec![]));
    bed.ask(0, &push(b"two")).unwrap();
    assert_eq!(bed.got(2), [STOP_WAITING]);
    assert_eq!(bed.number(0, &len), 2);
    assert_eq!(bed.wait(1, &[b"/q"]), [STOP_WAITING], "what is queued is there");
    assert_eq!(bed.number(0, &[code::GETNUMKEYS]), 0, "and is no key");
    assert_eq!(bed.ask(1, &pop).unwrap(), [2_i64.to_le_bytes().to_vec(), text(b"one")].concat());
    assert_eq!(bed.ask(1, &pop).unwrap(), [1_i64.to_le_bytes().to_vec(), text(b"two")].concat());
    assert_eq!((bed.number(1, &pop), bed.number(1, &len)), (0, 0));
}

#[test]
fn a_barrier_lets_everybody_go_with_the_last() {
    let mut bed = Bed::new(3);
    let barrier = request(code::BARRIER, &[b"/b"], &3_i64.to_le_bytes());
    assert_eq!(bed.ask(0, &barrier).unwrap(), b"");
    assert_eq!(bed.ask(1, &barrier).unwrap(), b"");
    assert_eq!(bed.ask(2, &barrier).unwrap(), [STOP_WAITING]);
    assert_eq!((bed.got(0), bed.got(1)), (vec![STOP_WAITING], vec![STOP_WAITING]));
    assert_eq!(bed.get(b"/b"), text(b"3"));
    assert_eq!(bed.ask(1, &barrier).unwrap(), [STOP_WAITING]);
}

#[test]
fn who_does_not_speak_the_protocol_is_closed() {
    let mut store = Store::new(Limits::default(), 1);
    let mut sent = Sent::default();
    let hello = request(code::VALIDATE, &[], &MAGIC.to_le_bytes());
    let mut ask = |conn: u32, bytes: &[u8]| {
        let done = store.handle(Conn(conn), HERE, bytes, &mut sent);
        if conn == 0 {
            store.connect(Conn(conn));
        }
        done
    };
    assert_eq!(ask(0, &hello), Err(Fault::Stranger), "no such connection");
    for first in [code::CANCEL_WAIT, code::BARRIER, 200] {
        assert_eq!(ask(0, &[first]), Err(Fault::Unknown(first)), "not even to torch 2.1");
    }
    assert_eq!(ask(7, &hello), Err(Fault::Stranger));
    let mut bed = Bed::new(1);
    assert_eq!(bed.ask(0, &hello), Err(Fault::Unknown(0)), "it is said once");
    assert_eq!(bed.ask(0, &[19]), Err(Fault::Unknown(19)));
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n", &[22, 3, 1, 2, 0]] {
        assert_eq!(Scanner::default().scan(other), Err(Fault::Other));
        assert_eq!(bed.ask(0, other), Err(Fault::Other));
    }
}

/// Clients of torch 2.1 say no `VALIDATE`, and count from the next one. Both kinds find each other's keys.
#[test]
fn clients_of_torch_2_1_number_requests_otherwise() {
    let mut bed = Bed::new(1);
    bed.store.connect(Conn(1));
    let plain = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[0] -= 1;
        bytes
    };
    let requests = [
        request(code::SET, &[b"/k", b"v"], &[]),
        request(code::COMPARE_SET, &[b"/k", b"v", b"w"], &[]),
        request(code::GET, &[b"/k"], &[]),
        add(b"init/", 1),
        counted(code::CHECK, 1, &[b"/k", b"/none"]),
        counted(code::WAIT, 1, &[b"/k"]),
        vec![code::GETNUMKEYS],
        request(code::APPEND, &[b"/k", b"+"], &[]),
        counted(code::MULTI_GET, 1, &[b"/k", b"/k"]),
        counted(code::MULTI_SET, 2, &[b"/l", b"m"]),
        request(code::DELETE_KEY, &[b"/l"], &[]),
        counted(code::WAIT, 1, &[b"/none"]),
        vec![code::CANCEL_WAIT],
    ];
    let mut other = Bed::new(1);
    let mut scanner = Scanner::default();
    for request in &requests {
        let old = plain(request);
        // As it comes at first: in pieces of any length.
        let whole = (1..=old.len()).find_map(|length| scanner.scan(&old[..length]).transpose());
        assert_eq!(whole, Some(Ok(old.len())), "{old:?}");
        bed.store.handle(Conn(1), HERE, &old, &mut bed.sent).unwrap();
        bed.store.check();
        let answer = bed.got(1);
        assert_eq!(answer, other.ask(0, request).unwrap(), "{request:?}");
        assert_eq!(bed.get(b"/k"), other.get(b"/k"));
    }
    // What came later is not there for it.
    for code in [code::PING, code::QUEUE_LEN, code::BARRIER] {
        assert_eq!(Scanner::of(Dialect::Plain).scan(&[code]), Err(Fault::Unknown(code)));
    }
}

#[test]
fn how_a_client_speaks_is_known_by_its_first_bytes() {
    let hello = request(code::VALIDATE, &[], &MAGIC.to_le_bytes());
    for length in 0..hello.len() {
        assert_eq!(Dialect::of(&hello[..length]), None);
        assert_eq!(Scanner::default().scan(&hello[..length]), Ok(None));
    }
    assert_eq!(Dialect::of(&hello), Some(Dialect::Validated));
    // The first request of torch 2.1: it counts itself, or whatever the program begins with.
    assert_eq!(Dialect::of(&[3, 5, 0, 0]), Some(Dialect::Plain));
    assert_eq!(Dialect::of(&[0, 2]), Some(Dialect::Plain), "a SET with a key of two bytes");
    let lie = [&hello[..], &[0; 4]].concat();
    assert!(u64::from(MAGIC) > MOST_KEY && Scanner::of(Dialect::Plain).scan(&lie).is_err());
}

#[test]
fn lengths_are_refused_before_what_they_announce_came() {
    let scan = |bytes: &[u8]| Scanner::of(Dialect::Validated).scan(bytes);
    let announce = |opcode: u8, length: u64| [vec![opcode], length.to_le_bytes().to_vec()].concat();
    assert_eq!(scan(&announce(code::GET, MOST_KEY)), Ok(None));
    assert_eq!(scan(&announce(code::GET, MOST_KEY + 1)), Err(Fault::KeyTooLong(MOST_KEY + 1)));
    assert_eq!(scan(&announce(code::GET, u64::MAX)), Err(Fault::KeyTooLong(u64::MAX)));
    let value = |length: u64| [request(code::SET, &[b"/k"], &[]), length.to_le_bytes().to_vec()].concat();
    assert_eq!(scan(&value(MOST_VALUE)), Ok(None));
    assert_eq!(scan(&value(u64::MAX)), Err(Fault::ValueTooLong(u64::MAX)));
    assert_eq!(scan(&announce(code::WAIT, MOST_KEYS)), Ok(None));
    assert_eq!(scan(&announce(code::MULTI_SET, MOST_KEYS + 1)), Err(Fault::TooManyKeys(MOST_KEYS + 1)));
    let eight = vec![0_u8; usize::try_from(MOST_VALUE).unwrap()];
    let mut long = announce(code::MULTI_SET, 9);
    for _ in 0..9 {
        long.extend(text(b"/k"));
        long.extend(text(&eight));
    }
    assert_eq!(scan(&long), Err(Fault::RequestTooLong));
}

#[test]
fn what_a_store_keeps_and_sends_is_bounded() {
    let mut bed = Bed::with(2, Limits { bytes: 10_000 });
    let set = request(code::SET, &[b"/k", &[0; 8_000]], &[]);
    bed.ask(0, &set).unwrap();
    assert_eq!(bed.ask(0, &set).unwrap(), b"", "again in its place");
    assert_eq!(bed.ask(0, &request(code::SET, &[b"/l", &[0; 8_000]], &[])), Err(Fault::Full));
    assert_eq!(bed.ask(0, &request(code::APPEND, &[b"/k", &[0; 8_000]], &[])), Err(Fault::Full));
    assert_eq!(bed.ask(0, &request(code::QUEUE_PUSH, &[b"/q", &[0; 8_000]], &[])), Err(Fault::Full));
    assert_eq!(bed.ask(1, &counted(code::WAIT, 1, &[&[1; 2_000]])), Err(Fault::Full));
    bed.ask(0, &request(code::DELETE_KEY, &[b"/k"], &[])).unwrap();
    assert_eq!(bed.store.used(), 0);

    let mut bed = Bed::new(1);
    bed.set(b"/k", &[7; 1 << 20]);
    let keys: Vec<&[u8]> = vec![b"/k"; 64];
    assert_eq!(bed.ask(0, &counted(code::MULTI_GET, 1, &keys)), Err(Fault::ReplyTooLong));
    assert_eq!(bed.ask(0, &counted(code::MULTI_GET, 1, &keys[..63])).unwrap().len(), 63 * ((1 << 20) + 8));
}

fn reach(joined: &[&str], keys: &[&str], places: &[(&str, &str, u32)]) -> Reach {
    let world = places.iter().map(|place| place.2).sum();
    let mut store = Store::new(Limits::default(), world);
    for (conn, at) in (0..).zip(joined) {
        let mut sent = Sent::default();
        store.connect(Conn(conn));
        store
            .handle(Conn(conn), HERE, &request(code::VALIDATE, &[], &MAGIC.to_le_bytes()), &mut sent)
            .unwrap();
        store.handle(Conn(conn), at.parse().unwrap(), &add(b"init/", 1), &mut sent).unwrap();
        if let Some(key) = keys.get(conn as usize) {
            let set = request(code::SET, &[key.as_bytes(), b"address"], &[]);
            store.handle(Conn(conn), HERE, &set, &mut sent).unwrap();
        }
    }
    assert_eq!(store.seen_mut().take_changed(), !joined.is_empty());
    assert!(!store.seen_mut().take_changed());
    let mut first = 0;
    let places: Vec<Place> = places
        .iter()
        .map(|(node, at, nproc)| {
            first += nproc;
            let addresses = vec![at.parse().unwrap()];
            Place { node: NodeName::new(*node), addresses, first: Rank(first - nproc), nproc: *nproc }
        })
        .collect();
    store.seen().reach(&places)
}

#[test]
fn who_never_came_is_named() {
    let two = [("n1", "10.0.0.1", 2), ("n2", "10.0.0.2", 2)];
    let said =
        |joined: &[&str], keys: &[&str], places: &[(&str, &str, u32)]| reach(joined, keys, places).missing();
    let (a, b) = ("10.0.0.1", "::ffff:10.0.0.2");
    assert_eq!(said(&[], &[], &two), None, "a program that has no use for the store");
    assert_eq!(said(&[a, a, b, b], &[], &two), None);
    assert_eq!(said(&[a, a], &[], &two).unwrap(), "ranks 2-3 (n2)");
    assert_eq!(said(&[a, b, b], &[], &two).unwrap(), "1 of ranks 0-1 (n1)");
    let keys = ["/default_pg/0//cpu//0/1", "/x", "/y"];
    assert_eq!(said(&[a, b, b], &keys, &two).unwrap(), "rank 0 (n1)");
    let one = [("n1", "10.0.0.1", 4)];
    let keys =
        ["/worker/attempt_0/default_pg/0//cpu//0/0", "/default_pg/0//cpu//0/2", "/default_pg/0//cpu//0/77"];
    assert_eq!(said(&["127.0.0.1", "127.0.0.1"], &keys[..2], &one).unwrap(), "rank 1 (n1), rank 3 (n1)");
    assert_eq!(said(&["127.0.0.1", "127.0.0.1", "127.0.0.1"], &keys, &one).unwrap(), "1 of ranks 0-3 (n1)");
    let same = [("n1", "10.0.0.1", 2), ("n2", "10.0.0.1", 2)];
    assert_eq!(said(&[a], &["/default_pg/0//cpu//0/3"], &same).unwrap(), "ranks 0-2");
    let sentence = reach(&[a, a], &[], &two).sentence().unwrap();
    assert_eq!(sentence, "ranks 2-3 (n2) never reached the store (2 of 4 ranks did)");
}

/// Ranks of NCCL put nothing under their number; a client of another kind may come without counting itself.
#[test]
fn who_arrives_at_a_barrier_is_there() {
    let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let place = |node: &str, at, first| Place {
        node: NodeName::new(node),
        addresses: vec![at],
        first: Rank(first),
        nproc: 2,
    };
    let places = [place("n1", a, 0), place("n2", b, 2)];
    let key = &b"/default_pg/store_based_barrier_key:0"[..];
    let missing = |asked: &[(Vec<u8>, IpAddr)]| {
        let (mut store, mut sent) = (Store::new(Limits::default(), 4), Sent::default());
        for (conn, (bytes, at)) in (0..).map(Conn).zip(asked) {
            store.connect(conn);
            let hello = request(code::VALIDATE, &[], &MAGIC.to_le_bytes());
            store.handle(conn, *at, &hello, &mut sent).unwrap();
            store.handle(conn, *at, bytes, &mut sent).unwrap();
        }
        store.seen().reach(&places).missing()
    };
    let (one, ask) = (add(key, 1), add(key, 0));
    assert_eq!(
        missing(&[(one.clone(), a), (one.clone(), a), (ask.clone(), a), (ask, b)]).unwrap(),
        "ranks 2-3 (n2)"
    );
    let init = add(b"init/", 1);
    let both = [(init.clone(), a), (init, a), (one.clone(), a), (one.clone(), b)];
    assert_eq!(missing(&both).unwrap(), "1 of ranks 2-3 (n2)", "nobody counts twice");
    assert_eq!(missing(&[(one.clone(), a), (one.clone(), a), (one.clone(), b), (one.clone(), b)]), None);
    let group = add(b"/default_pg/store_based_barrier_key:1", 1);
    assert_eq!(
        missing(&[(one.clone(), a), (group.clone(), a), (group, a)]).unwrap(),
        "1 of ranks 0-1 (n1), ranks 2-3 (n2)"
    );
    let barrier = |world: i64| request(code::BARRIER, &[b"/b"], &world.to_le_bytes());
    assert_eq!(missing(&[(barrier(4), b), (barrier(4), b)]).unwrap(), "ranks 0-1 (n1)");
    assert_eq!(missing(&[(barrier(2), b)]), None, "a barrier of some tells nothing");
    let ids = |n: u8| request(code::SET, &[format!("/default_pg/0//cuda//{n}").as_bytes(), b"id"], &[]);
    assert_eq!(missing(&[(ids(0), a), (ids(1), a)]), None, "a communicator's number is no rank");
}

proptest! {
    /// In pieces of any size a scanner finds what it finds in one piece.
    #[test]
    fn requests_in_pieces(bytes in prop::collection::vec(0_u8..24, 0..80), cuts in prop::collection::vec(0_usize..80, 0..6)) {
        let whole = Scanner::default().scan(&bytes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut scanner = Scanner::default();
        let pieces = cuts.iter().map(|cut| scanner.scan(&bytes[..*cut])).find(|found| *found != Ok(None));
        prop_assert_eq!(pieces.unwrap_or(Ok(None)), whole);
        if let Ok(Some(length)) = whole {
            prop_assert!(Request::read(&bytes[..length], Dialect::of(&bytes).unwrap()).is_some());
        }
    }

    /// No bytes make it panic, lose count or answer somebody who did not ask.
    #[test]
    fn any_bytes(all in prop::collection::vec((0_u32..4, prop::collection::vec(any::<u8>(), 0..40)), 0..60)) {
        let mut bed = Bed::with(4, Limits { bytes: 2_000 });
        for (conn, mut bytes) in all {
            if let Some(first) = bytes.first_mut() {
                *first %= 20;
            }
            if bed.store.handle(Conn(conn), HERE, &bytes, &mut bed.sent).is_err() {
                bed.store.disconnect(Conn(conn));
                bed.store.connect(Conn(conn));
            }
            bed.store.check();
        }
    }

    /// Ranks of NCCL count themselves, and none of their keys ends with a rank: how many came from each node is known, and
    /// nobody is named who may be there.
    #[test]
    fn ranks_without_numbers(came in prop::collection::vec((1_u32..5, 0_u32..6), 1..5), barrier in any::<bool>()) {
        let at = |node: usize| IpAddr::from([10, 0, 0, u8::try_from(node).unwrap()]);
        let mut first = 0;
        let places: Vec<Place> = came.iter().enumerate().map(|(node, (nproc, _))| {
            first += nproc;
            Place { node: NodeName::new(format!("n{node}")), addresses: vec![at(node)], first: Rank(first - nproc), nproc: *nproc }
        }).collect();
        let mut store = Store::new(Limits::default(), first);
        let mut conn = 0;
        let mut there = Vec::new();
        for (node, (nproc, joins)) in came.iter().enumerate() {
            let joins = *joins.min(nproc);
            there.push(joins);
            for rank in 0..joins {
                let (peer, mut sent) = (at(node), Sent::default());
                store.connect(Conn(conn));
                let id = format!("/default_pg/0//cuda//{}", conn % 3);
                let mut asks = vec![
                    request(code::VALIDATE, &[], &MAGIC.to_le_bytes()),
                    add(b"init/", 1),
                    request(code::SET, &[id.as_bytes(), b"id"], &[]),
                ];
                if barrier && rank % 2 == 0 {
                    asks.push(add(b"/default_pg/store_based_barrier_key:0", 1));
                }
                for bytes in asks {
                    store.handle(Conn(conn), peer, &bytes, &mut sent).unwrap();
                }
                conn += 1;
            }
        }
        let reach = store.seen().reach(&places);
        prop_assert_eq!((reach.there, reach.world), (conn, first));
        // Of one node alone every address is its own; what came from others of its addresses counts there.
        let gaps: Vec<(Option<NodeName>, Rank, u32, u32)> =
            reach.gaps.iter().map(|gap| (gap.node.clone(), gap.first, gap.of, gap.there)).collect();
        let expected: Vec<_> = places.iter().zip(&there).filter(|(place, there)| place.nproc > **there)
            .map(|(place, there)| (Some(place.node.clone()), place.first, place.nproc, *there)).collect();
        prop_assert_eq!(gaps, expected);
    }
}
