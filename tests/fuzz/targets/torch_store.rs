//! Clients of the rendezvous store that send anything, in pieces. The input is `client (1) | length (2) | bytes …`; a length of
//! 65,535 closes the connection, and another one has its place.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use relight::domain::torch_store::{Conn, Limits, MAGIC, MOST_FRAME, Scanner, Sink, Store};

use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "torch_store",
    seeds,
    run,
    longest: 16 << 10,
    // What is kept has a limit of its own; replies may repeat a value for each time it is asked for.
    heap: |length| 96 * length * length.min(64) + (4 << 20),
    words: &[b"/default_pg/0//cpu//0/1", b"init/", b"\x05\x00\x00\x00\x00\x00\x00\x00init/", b"\xce\xf7\x85\x3c"],
};

const CLIENTS: u8 = 4;
const ROOM: usize = 64 << 10;

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

fn part(client: u8, bytes: &[u8]) -> Vec<u8> {
    [&[client][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let hello = [&[0][..], &MAGIC.to_le_bytes()].concat();
    let one = |opcode: u8, tail: &[u8]| [&[opcode][..], &text(b"/k"), tail].concat();
    let many = |opcode: u8, of: &[&[u8]], count: u64| {
        [&[opcode][..], &count.to_le_bytes(), &of.iter().flat_map(|s| text(s)).collect::<Vec<u8>>()].concat()
    };
    let eight = 2_i64.to_le_bytes();
    let requests = [
        one(1, &text(b"v")),
        one(2, &[text(b""), text(b"v")].concat()),
        one(3, &[]),
        one(4, &eight),
        many(5, &[b"/k", b"/l"], 2),
        many(6, &[b"/k", b"/l"], 2),
        vec![7],
        one(8, &[]),
        one(9, &text(b"v")),
        many(10, &[b"/k", b"/l"], 2),
        many(11, &[b"/k", b"v", b"/l", b"v"], 2),
        vec![12],
        vec![13, 1, 2, 3, 4],
        one(14, &text(b"v")),
        one(15, &[]),
        one(16, &[]),
        vec![17],
        one(18, &eight),
    ];
    let greeted: Vec<u8> = (0..CLIENTS).flat_map(|client| part(client, &hello)).collect();
    let all: Vec<u8> = requests.iter().flat_map(|request| part(0, request)).collect();
    let leaves = [0, 255, 255];
    let mut seeds = vec![
        [greeted.clone(), all].concat(),
        [greeted.clone(), part(0, &requests[5]), part(1, &requests[17]), leaves.to_vec(), part(2, &requests[10])].concat(),
        part(1, &[&hello[..], &requests[0], &requests[2]].concat()),
        part(0, &[1, 255, 255, 255, 255, 255, 255, 255, 255]),
    ];
    // As torch 2.1 speaks.
    let old = requests[..12].iter().map(|request| [&[request[0] - 1], &request[1..]].concat());
    seeds.extend(old.map(|request| [part(1, &request), part(1, &request)].concat()));
    seeds.extend(requests.iter().map(|request| [greeted.clone(), part(3, request), part(2, request)].concat()));
    seeds
}

#[derive(Default)]
struct Sent(BTreeMap<u32, Vec<u8>>);

impl Sink for Sent {
    fn reply(&mut self, to: Conn) -> &mut Vec<u8> {
        self.0.entry(to.0).or_default()
    }
}

fn run(input: &[u8]) -> u64 {
    let mut store = Store::new(Limits { bytes: ROOM }, 4);
    let mut clients: Vec<(Vec<u8>, Scanner)> = (0..CLIENTS).map(|_| Default::default()).collect();
    (0..u32::from(CLIENTS)).for_each(|client| store.connect(Conn(client)));
    let (mut rest, mut shapes, mut sent) = (input, Vec::new(), Sent::default());
    while let Some((&[client, low, high], behind)) = rest.split_first_chunk::<3>() {
        let (client, length) = (client % CLIENTS, usize::from(u16::from_le_bytes([low, high])));
        let conn = Conn(u32::from(client));
        let (buffer, scanner) = &mut clients[usize::from(client)];
        let mut fault = None;
        if length == usize::from(u16::MAX) {
            rest = behind;
            fault = Some(0);
        } else {
            let (bytes, behind) = behind.split_at(length.min(behind.len()));
            rest = behind;
            buffer.extend_from_slice(bytes);
            while fault.is_none() {
                match scanner.scan(buffer) {
                    Ok(None) => break,
                    Ok(Some(length)) => {
                        assert!(length > 0 && length <= buffer.len());
                        let request: Vec<u8> = buffer.drain(..length).collect();
                        let before = store.used();
                        sent.0.clear();
                        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, client));
                        match store.handle(conn, peer, &request, &mut sent) {
                            Ok(()) => shapes.push((request[0], sent.0.len(), shape(store.used().cmp(&before)))),
                            Err(why) => fault = Some(shape(why)),
                        }
                        assert!(store.used() <= ROOM, "{} bytes are kept", store.used());
                        assert!(sent.0.values().all(|bytes| bytes.len() <= MOST_FRAME));
                        // Others hear one byte at most: that their wait is over.
                        assert!(sent.0.iter().all(|(to, bytes)| *to == conn.0 || bytes[..] == [0]));
                    }
                    Err(why) => fault = Some(shape(why)),
                }
            }
        }
        if let Some(fault) = fault {
            shapes.push((255, usize::from(client), fault));
            store.disconnect(conn);
            store.connect(conn);
            clients[usize::from(client)] = Default::default();
        }
    }
    (0..u32::from(CLIENTS)).for_each(|client| store.disconnect(Conn(client)));
    behaviour(shapes)
}
