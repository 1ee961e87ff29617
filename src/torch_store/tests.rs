//! The server over real sockets, with clients that know nothing but bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::{COUNT_AFTER, Fault, Limits, MOST_BUFFERED, Opening, Server, Told, files, listen, room};
use crate::domain::torch_store::{MAGIC, MOST_KEY, MOST_VALUE, STOP_WAITING, WAIT_CANCELED};
use crate::sys::process::{nofile, raise_nofile};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn serve(world: u32) -> (Server, Receiver<Told>) {
    serve_most(world, room(world, nofile(), 64))
}

fn serve_most(world: u32, most: usize) -> (Server, Receiver<Told>) {
    serve_with(|opening| (opening.world, opening.most) = (world, most))
}

fn opening(tell: Box<dyn FnMut(Told) + Send>) -> Opening {
    Opening {
        places: Vec::new(),
        world: 1,
        limits: Limits::default(),
        most: 8,
        buffered: MOST_BUFFERED,
        count_after: COUNT_AFTER,
        tell,
    }
}

fn serve_with(change: impl FnOnce(&mut Opening)) -> (Server, Receiver<Told>) {
    let (tell, told) = channel();
    let mut opening = opening(Box::new(move |word| {
        let _ = tell.send(word);
    }));
    change(&mut opening);
    let server = listen(IpAddr::from([127, 0, 0, 1]), 0).unwrap().serve(opening).unwrap();
    (server, told)
}

struct Client(TcpStream);

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

fn ask(opcode: u8, strings: &[&[u8]]) -> Vec<u8> {
    let strings: Vec<u8> = strings.iter().flat_map(|string| text(string)).collect();
    [&[opcode][..], &strings].concat()
}

fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    ask(1, &[key, value])
}

fn wait(key: &[u8]) -> Vec<u8> {
    [&[6][..], &1_u64.to_le_bytes(), &text(key)].concat()
}

impl Client {
    /// As the first torch that says the magic number comes: without a ping.
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self(stream);
        client.send(&[&[0][..], &MAGIC.to_le_bytes()].concat());
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn value(&mut self) -> Vec<u8> {
        let length = u64::from_le_bytes(self.read(8).try_into().unwrap());
        self.read(usize::try_from(length).unwrap())
    }

    fn get(&mut self, key: &[u8]) -> Vec<u8> {
        self.send(&ask(3, &[key]));
        self.value()
    }

    fn count(&mut self) -> u64 {
        self.send(&[7]);
        u64::from_le_bytes(self.read(8).try_into().unwrap())
    }

    /// The server closed it without another byte.
    fn assert_closed(mut self) {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("not closed: {other:?}"),
        }
    }
}

#[test]
fn a_request_may_come_byte_by_byte_and_many_at_once() {
    let (server, _told) = serve(1);
    let mut client = Client::new(&server);
    for byte in set(b"/k", b"value") {
        client.send(&[byte]);
    }
    let many = [ask(3, &[b"/k"]), set(b"/k", b"other"), ask(3, &[b"/k"]), vec![13, 1, 2, 3, 4]].concat();
    client.send(&many);
    assert_eq!((client.value(), client.value()), (b"value".to_vec(), b"other".to_vec()));
    assert_eq!(client.read(4), [1, 2, 3, 4]);
}

#[test]
fn what_is_no_request_closes_its_own_connection_alone() {
    let (server, told) = serve(1);
    let mut good = Client::new(&server);
    good.send(&set(b"/k", b"v"));
    let long_key = [&[3][..], &(MOST_KEY + 1).to_le_bytes()].concat();
    let long_value = [ask(1, &[b"/k"]), (MOST_VALUE + 1).to_le_bytes().to_vec()].concat();
    let many_keys = [&[5][..], &131_073_u64.to_le_bytes()].concat();
    let no_number = [ask(4, &[b"/k"]), 1_u64.to_le_bytes().to_vec()].concat();
    for bad in [vec![19], vec![255], long_key, long_value, many_keys, no_number, vec![0, 0, 0, 0, 0]] {
        let mut client = Client::new(&server);
        client.send(&bad);
        client.assert_closed();
    }
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Closed([127, 0, 0, 1].into(), Fault::Unknown(19)));
    assert!(told.try_recv().is_err(), "one of them is told");
    for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[200]] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(first).unwrap();
        Client(stream).assert_closed();
    }
    assert_eq!(good.get(b"/k"), b"v");
}

/// A minute later in a run; here at once, so that what is counted together depends on no clock.
#[test]
fn how_many_connections_were_closed_is_told_once() {
    let (server, told) = serve_with(|opening| opening.count_after = Duration::ZERO);
    let from = IpAddr::from([127, 0, 0, 1]);
    let bad = || {
        let mut client = Client::new(&server);
        client.send(&[19]);
        client.assert_closed();
    };
    let mut good = Client::new(&server);
    // A second answer comes when all that the first was taken with is done.
    let mut none_told = || {
        good.get(b"/k");
        good.get(b"/k");
        assert_eq!(told.try_recv().ok(), None);
    };
    bad();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Closed(from, Fault::Unknown(19)));
    none_told();
    // However long after the first.
    bad();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::ClosedInAll(2));
    bad();
    bad();
    none_told();

    let (server, told) = serve_with(|opening| opening.count_after = Duration::from_secs(3_600));
    for _ in 0..3 {
        let mut client = Client::new(&server);
        client.send(&[19]);
        client.assert_closed();
    }
    let mut good = Client::new(&server);
    good.get(b"/k");
    good.get(b"/k");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [Told::Closed(from, Fault::Unknown(19))], "not yet");
}

/// In bytes: the most memory that this process had, and what it has now.
fn memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    (kib("VmHWM:"), kib("VmRSS:"))
}

/// A thousand connections announce the largest value there may be, and send of it as much as they may: a store that may hold
/// 32 MB holds no more. Who sent the most loses its connection, and nobody who behaves.
#[test]
fn half_requests_of_a_thousand_connections_take_no_more_memory_than_the_bound() {
    const BOUND: usize = 32 << 20;
    const PIECE: usize = 64 << 10;
    let attackers = 1_000_u32;
    raise_nofile(u64::from(attackers) * 2 + 512);
    if nofile() < u64::from(attackers) * 2 + 64 {
        eprintln!("skipped: {} files may be open, {} are needed (ulimit -n)", nofile(), attackers * 2 + 64);
        return;
    }
    let (server, told) = serve_with(|opening| {
        (opening.most, opening.buffered, opening.count_after) = (2_000, BOUND, Duration::ZERO);
    });
    let mut good = Client::new(&server);
    good.send(&set(b"/k", b"v"));
    let mut all: Vec<Option<Client>> = (0..attackers).map(|_| Some(Client::new(&server))).collect();
    let begins = [ask(1, &[b"/large"]), MOST_VALUE.to_le_bytes().to_vec()].concat();
    all.iter_mut().flatten().for_each(|client| client.send(&begins));
    assert_eq!(good.get(b"/k"), b"v");
    let ((_, before), piece) = (memory(), vec![7; PIECE]);
    // In turn, so that every connection that is left holds as much as the others.
    let mut sent = 0_usize;
    for _ in 0..(1 << 20) / PIECE {
        for client in &mut all {
            match client.as_mut().map(|client| client.0.write_all(&piece)) {
                Some(Ok(())) => sent += PIECE,
                Some(Err(_)) => *client = None,
                None => {}
            }
        }
        assert_eq!(good.get(b"/k"), b"v", "who behaves is served meanwhile");
    }
    let closed = all.iter().filter(|client| client.is_none()).count();
    let (most, _) = memory();
    let grown = usize::try_from(most.saturating_sub(before)).unwrap();
    eprintln!("{closed} of {attackers} closed; {} MB sent, {} MB taken", sent >> 20, grown >> 20);
    assert!(sent > 2 * BOUND, "{sent} bytes were sent");
    assert!(closed > 0, "nobody was closed");
    // A buffer that grows is there twice for a moment, and is half empty then.
    assert!(grown < BOUND + (32 << 20), "{grown} bytes");
    let why = |told: &Told| matches!(told, Told::Closed(_, Fault::Holds));
    assert!(told.try_iter().any(|told| why(&told)), "it is said why");
}

#[test]
fn the_first_words_of_another_protocol_are_told_as_such() {
    let (server, told) = serve(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    Client(stream).assert_closed();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Closed([127, 0, 0, 1].into(), Fault::Other));
}

/// All files of an agent are not its store's: without one it could start no rank, and say nothing.
#[test]
fn connections_leave_files_to_others() {
    assert_eq!(room(8, 1 << 20, 576), 1_024, "as many as a program may want");
    assert_eq!(room(1_000, 1 << 20, 576), 16_000);
    assert_eq!(room(1_000, 4_096, 576), 3_520, "a low limit");
    assert_eq!(room(8, 1_024, 576), 448);
    assert_eq!(room(8, 256, 576), 64, "too low for anybody");
    assert_eq!(files(1_000, 576), 16_576);

    let (server, told) = serve_most(1, 2);
    let (mut first, mut second) = (Client::new(&server), Client::new(&server));
    first.send(&set(b"/k", b"v"));
    assert_eq!((first.get(b"/k"), second.get(b"/k")), (b"v".to_vec(), b"v".to_vec()));
    let mut third = Client::new(&server);
    third.send(&ask(3, &[b"/k"]));
    match told.recv_timeout(PATIENCE).unwrap() {
        Told::NoRoom(why) => assert!(why.starts_with("2 connections are open"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(first.get(b"/k"), b"v");
    drop(second);
    assert_eq!(third.value(), b"v", "who waits at the port comes in when another leaves");
}

#[test]
fn the_largest_value_and_a_hundred_thousand_keys() {
    let (server, _told) = serve(1);
    let mut client = Client::new(&server);
    let large = vec![7; usize::try_from(MOST_VALUE).unwrap()];
    client.send(&set(b"/large", &large));
    assert!(client.get(b"/large") == large);
    let pairs: Vec<u8> =
        (0..100_000).flat_map(|n| [text(format!("/key/{n}").as_bytes()), text(b"v")].concat()).collect();
    client.send(&[&[11][..], &100_000_u64.to_le_bytes(), &pairs].concat());
    assert_eq!(client.count(), 100_001);
    assert_eq!(client.get(b"/key/99999"), b"v");
    client.send(&[17]);
    assert_eq!(u64::from_le_bytes(client.read(8).try_into().unwrap()), 100_001);
    assert_eq!((client.value(), client.value()), (b"/key/0".to_vec(), b"/key/1".to_vec()));
}

#[test]
fn who_does_not_read_keeps_nobody_waiting() {
    let (server, _told) = serve(1);
    let mut slow = Client::new(&server);
    let large = vec![7; usize::try_from(MOST_VALUE).unwrap()];
    slow.send(&set(b"/large", &large));
    let questions = 40;
    for _ in 0..questions {
        slow.send(&ask(3, &[b"/large"]));
    }
    let mut other = Client::new(&server);
    for number in 0_u32..200 {
        other.send(&set(b"/n", &number.to_le_bytes()));
        assert_eq!(other.get(b"/n"), number.to_le_bytes());
    }
    // What it asked for comes all the same, once it reads.
    for _ in 0..questions {
        assert!(slow.value() == large);
    }
    assert_eq!(slow.get(b"/n"), 199_u32.to_le_bytes());
}

#[test]
fn waits_end_with_the_key_with_a_cancel_and_with_the_connection() {
    let (server, _told) = serve(1);
    let (mut first, mut second, mut third) =
        (Client::new(&server), Client::new(&server), Client::new(&server));
    first.send(&wait(b"/k"));
    second.send(&wait(b"/k"));
    drop(second);
    third.send(&wait(b"/never"));
    third.send(&[12]);
    assert_eq!(third.read(1), [WAIT_CANCELED]);
    third.send(&set(b"/k", b"v"));
    assert_eq!(first.read(1), [STOP_WAITING]);
    assert_eq!(first.get(b"/k"), b"v");
}

#[test]
fn thousands_of_clients_meet_at_a_barrier() {
    let clients = 2_000_u32;
    raise_nofile(u64::from(clients) * 2 + 512);
    let (server, told) = serve(clients);
    let mut all = Vec::new();
    for _ in 0..clients {
        let Ok(stream) = TcpStream::connect(server.address()) else { break };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        all.push(Client(stream));
        let client = all.last_mut().unwrap();
        client.send(&[&[0][..], &MAGIC.to_le_bytes(), &ask(4, &[b"init/"]), &1_u64.to_le_bytes()].concat());
    }
    if all.len() < clients as usize {
        eprintln!("skipped: {} files may be open, {} are needed (ulimit -n)", all.len(), clients * 2);
        return;
    }
    let world = i64::from(clients).to_le_bytes();
    for client in &mut all {
        client.read(8);
        client.send(&[ask(18, &[b"/all"]), world.to_vec()].concat());
    }
    for client in &mut all {
        assert_eq!(client.read(1), [STOP_WAITING]);
    }
    let mut last = None;
    while last != Some(clients) {
        match told.recv_timeout(PATIENCE) {
            Ok(Told::Reach(reach)) => last = Some(reach.there),
            other => panic!("{other:?} after {last:?} of {clients}"),
        }
    }
    drop(server);
    all.remove(0).assert_closed();
}

/// The next attempt is started by who closes the store of the last one.
#[test]
fn to_close_a_store_takes_no_time_whatever_it_is_at() {
    let ((says, said), (goes, go)) = (channel(), channel());
    let tell = Box::new(move |_| {
        let _ = says.send(());
        let _: Result<(), _> = go.recv();
    });
    let server = listen(IpAddr::from([127, 0, 0, 1]), 0).unwrap().serve(opening(tell)).unwrap();
    let mut client = Client::new(&server);
    client.send(&[19]);
    said.recv_timeout(PATIENCE).unwrap();
    // Its thread is held.
    let (is_dropped, dropped) = channel();
    let dropping = std::thread::spawn(move || {
        drop(server);
        let _ = is_dropped.send(());
    });
    assert_eq!(dropped.recv_timeout(PATIENCE), Ok(()), "it waits for the store's thread");
    drop(goes);
    dropping.join().unwrap();
    client.assert_closed();
}

#[test]
fn strangers_are_refused_and_told() {
    let (server, told) = serve(1);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let stranger = IpAddr::from([127, 0, 0, 77]);
    socket.bind(&SocketAddr::new(stranger, 0).into()).unwrap();
    socket.connect(&server.address().into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(stream).assert_closed();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Stranger(stranger));
}

#[test]
fn who_comes_before_the_store_is_open_waits() {
    let listening = listen(IpAddr::from([127, 0, 0, 1]), 0).unwrap();
    let mut stream = TcpStream::connect(listening.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&[0][..], &MAGIC.to_le_bytes(), &[13, 5, 6, 7, 8]].concat()).unwrap();
    let _server = listening.serve(opening(Box::new(|_| ()))).unwrap();
    assert_eq!(Client(stream).read(4), [5, 6, 7, 8]);
}

#[test]
fn a_store_that_is_over_goes_with_its_last_client() {
    let (server, _told) = serve(1);
    let mut first = Client::new(&server);
    first.send(&set(b"/k", b"v"));
    assert_eq!(first.get(b"/k"), b"v");
    server.retire();
    let mut second = Client::new(&server);
    drop(first);
    assert_eq!(second.get(b"/k"), b"v", "who is there is served, and who comes");
    drop(second);
    let began = std::time::Instant::now();
    // Until its thread has seen the end of the last connection one more may be taken in.
    while TcpStream::connect(server.address()).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it still takes connections");
    }
}
