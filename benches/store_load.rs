//! A server and clients of the rendezvous store, for `scripts/bench store`.
//!
//! ```text
//! store_load serve ADDRESS:PORT RANKS         until standard input ends; prints where it listens
//! store_load floor ADDRESS:PORT               likewise, but it keeps nothing and looks nothing up: answers of the right length
//! store_load init ADDRESS:PORT CLIENTS        every client connects, counts itself, and waits for all the others
//! store_load ops ADDRESS:PORT CLIENTS SEC MIX PID
//!                                             every client asks, one question at a time, and again when it is answered
//! ```
//! MIX is `get`, `add`, `set-get`, `check`, `sets` or `mixed`; PID is the server's: its processor time is read when all clients
//! have connected and when the time is over, so that neither connecting nor closing counts. All clients are one thread over
//! epoll. What is measured goes to standard output as `name value` lines. The floor is what one thread can do at most that
//! receives and sends for every question, as both stores do.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use relight::domain::torch_store::Scanner;
use relight::sys::epoll::{Epoll, Interest};
use relight::sys::process::nofile;
use relight::torch_store::{COUNT_AFTER, Limits, MOST_BUFFERED, Opening, listen, room};
use socket2::{Domain, Socket, Type};

type Failure = Box<dyn std::error::Error>;

const SET: u8 = 1;
const GET: u8 = 3;
const ADD: u8 = 4;
const CHECK: u8 = 5;
const WAIT: u8 = 6;
const PING: u8 = 13;
/// Of a second, in `/proc`.
const TICKS: f64 = 100.0;
/// Of the mix `sets`.
const SETS: usize = 31;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", at, ranks] => serve(at.parse()?, ranks.parse()?),
        ["floor", at] => floor(at.parse()?),
        ["init", at, clients] => init(at.parse()?, clients.parse()?),
        ["ops", at, clients, sec, mix, pid] => {
            ops(at.parse()?, clients.parse()?, sec.parse()?, mix, pid.parse()?)
        }
        _ => Err("usage: store_load serve|floor|init|ops ...; see the source".into()),
    }
}

fn serve(at: SocketAddr, world: u32) -> Result<(), Failure> {
    let opening = Opening {
        places: Vec::new(),
        world,
        limits: Limits::default(),
        most: room(world, nofile(), 64),
        buffered: MOST_BUFFERED,
        count_after: COUNT_AFTER,
        tell: Box::new(|told| println!("told {told:?}")),
    };
    let server = listen(at.ip(), at.port())?.serve(opening)?;
    println!("listens {}", server.address());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Until standard input ends, as the other one; here the process is ended with it.
fn floor(at: SocketAddr) -> Result<(), Failure> {
    const LISTENER: u32 = u32::MAX;
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.bind(&at.into())?;
    // Thousands connect at once.
    socket.listen(4_096)?;
    let listener = TcpListener::from(socket);
    println!("listens {}", listener.local_addr()?);
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    let mut epoll = Epoll::new(512)?;
    epoll.add(&listener, LISTENER, Interest::READ)?;
    let mut all: Vec<Option<(TcpStream, Vec<u8>, Scanner)>> = Vec::new();
    let (mut chunk, mut replies) = (vec![0; 64 << 10], Vec::new());
    loop {
        let ready: Vec<u32> = epoll.wait(None)?.map(|ready| ready.token).collect();
        for number in ready {
            if number == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                epoll.add(&stream, u32::try_from(all.len())?, Interest::READ)?;
                all.push(Some((stream, Vec::new(), Scanner::default())));
                continue;
            }
            let Some((stream, kept, scanner)) = &mut all[number as usize] else { continue };
            // It is told of when there is something to read: a blocking read does not wait.
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => all[number as usize] = None,
                Ok(length) => {
                    kept.extend_from_slice(&chunk[..length]);
                    replies.clear();
                    let mut done = 0;
                    while let Some(length) = scanner.scan(&kept[done..])? {
                        replies.resize(replies.len() + answer(kept[done]), 0);
                        done += length;
                    }
                    kept.drain(..done);
                    if !replies.is_empty() {
                        stream.write_all(&replies)?;
                    }
                }
            }
        }
    }
}

/// In bytes: what a store answers to this request of [`questions`].
fn answer(opcode: u8) -> usize {
    match opcode {
        GET => 48,
        ADD => 8,
        CHECK | WAIT => 1,
        PING => 4,
        _ => 0,
    }
}

/// Processor seconds of a process so far: its own, and the kernel's for it.
fn cpu(pid: u32) -> Result<(f64, f64), Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let seconds = |at: usize| -> Result<f64, Failure> {
        let ticks: f64 = fields.get(at).ok_or("a short line in /proc")?.parse()?;
        Ok(ticks / TICKS)
    };
    Ok((seconds(11)?, seconds(12)?))
}

fn text(all: &mut Vec<u8>, bytes: &[u8]) {
    all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    all.extend_from_slice(bytes);
}

fn keyed(opcode: u8, key: &[u8]) -> Vec<u8> {
    let mut all = vec![opcode];
    text(&mut all, key);
    all
}

fn add(key: &[u8]) -> Vec<u8> {
    let mut all = keyed(ADD, key);
    all.extend_from_slice(&1_u64.to_le_bytes());
    all
}

fn counted(opcode: u8, key: &[u8]) -> Vec<u8> {
    let mut all = vec![opcode];
    all.extend_from_slice(&1_u64.to_le_bytes());
    text(&mut all, key);
    all
}

fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut all = keyed(SET, key);
    text(&mut all, value);
    all
}

fn hello() -> Vec<u8> {
    let mut all = vec![0];
    all.extend_from_slice(&0x3c85_f7ce_u32.to_le_bytes());
    all.push(13);
    all.extend_from_slice(&7_u32.to_le_bytes());
    all
}

struct Client {
    stream: TcpStream,
    step: u32,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        // One small request at a time always fits into an empty socket.
        self.stream.write_all(bytes)
    }
}

fn connect(
    at: SocketAddr,
    count: u32,
    epoll: &Epoll,
    mut each: impl FnMut(&mut Client) -> io::Result<()>,
) -> Result<Vec<Client>, Failure> {
    let mut all = Vec::new();
    for number in 0..count {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll.add(&stream, number, Interest::READ)?;
        let mut client = Client { stream, step: 0 };
        each(&mut client)?;
        all.push(client);
    }
    Ok(all)
}

/// What one client was sent; replies are small and come whole.
fn read(client: &mut Client, buffer: &mut [u8]) -> Result<usize, Failure> {
    match client.stream.read(buffer) {
        Ok(0) => Err("the server closed a connection".into()),
        Ok(length) => Ok(length),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn init(at: SocketAddr, count: u32) -> Result<(), Failure> {
    let mut epoll = Epoll::new(512)?;
    let began = Instant::now();
    let mut clients = connect(at, count, &epoll, |client| client.send(&hello()))?;
    println!("connected_s {:.6}", began.elapsed().as_secs_f64());
    let (joins, arrives, waits) = (add(b"init/"), add(b"/barrier"), counted(WAIT, b"/barrier/last"));
    let (mut left, mut last, mut buffer) = (count, 0.0, [0; 64]);
    while left > 0 {
        let ready: Vec<u32> = epoll.wait(Some(Duration::from_secs(60)))?.map(|ready| ready.token).collect();
        if ready.is_empty() {
            return Err(format!("{left} clients were not answered for a minute").into());
        }
        for number in ready {
            let client = &mut clients[number as usize];
            let length = read(client, &mut buffer)?;
            match (client.step, length) {
                (_, 0) => continue,
                (0, 4) => client.send(&joins)?,
                (1, 8) => client.send(&arrives)?,
                (2, 8) => {
                    if buffer[..8] == u64::from(count).to_le_bytes() {
                        last = began.elapsed().as_secs_f64();
                        client.send(&set(b"/barrier/last", b"1"))?;
                    }
                    client.send(&waits)?;
                }
                (3, 1) => left -= 1,
                (step, length) => return Err(format!("{length} bytes at step {step}").into()),
            }
            client.step += 1;
        }
    }
    let all = began.elapsed().as_secs_f64();
    println!("arrived_s {last:.6}\nreleased_s {:.6}\nall_s {all:.6}", all - last);
    Ok(())
}

/// The questions of one client, in turn, with the lengths of their answers.
fn questions(mix: &str, number: u32) -> Result<Vec<(Vec<u8>, usize)>, Failure> {
    let key = format!("/default_pg/0//cpu//0/{number}").into_bytes();
    let value = [7_u8; 40];
    let get = (keyed(GET, &key), 48);
    let set_get = ([set(&key, &value), get.0.clone()].concat(), 48);
    let check = (counted(CHECK, &key), 1);
    let wait_get = (counted(WAIT, &key), 1);
    Ok(match mix {
        "get" => vec![get],
        "add" => vec![(add(b"/counter"), 8)],
        "set-get" => vec![set_get],
        "check" => vec![check],
        // Values without an answer, as many as a program writes at once, and a question behind them.
        "sets" => vec![([set(&key, &value).repeat(SETS), get.0.clone()].concat(), 48)],
        // What a client's `get` is: a wait, then a get.
        "mixed" => vec![set_get, wait_get, get, (add(b"/counter"), 8), check],
        _ => return Err(format!("no mix {mix}").into()),
    })
}

fn ops(at: SocketAddr, count: u32, seconds: f64, mix: &str, server: u32) -> Result<(), Failure> {
    let mut epoll = Epoll::new(512)?;
    let mut first = connect(at, count, &epoll, |client| client.send(&hello()))?;
    let all: Vec<Vec<(Vec<u8>, usize)>> = (0..count).map(|n| questions(mix, n)).collect::<Result<_, _>>()?;
    let each: u64 = match mix {
        "set-get" => 2,
        "sets" => SETS as u64 + 1,
        _ => 1,
    };
    let (mut buffer, mut done, mut missing) = ([0; 256], 0_u64, vec![4_usize; count as usize]);
    let mut began: Option<(Instant, (f64, f64))> = None;
    let mut greeted = 0;
    loop {
        let ready: Vec<u32> = epoll.wait(Some(Duration::from_secs(60)))?.map(|ready| ready.token).collect();
        if ready.is_empty() {
            return Err("nobody was answered for a minute".into());
        }
        for number in ready {
            let client = &mut first[number as usize];
            let length = read(client, &mut buffer)?;
            let lacks = &mut missing[number as usize];
            *lacks = lacks.checked_sub(length).ok_or("more came than was asked for")?;
            if *lacks > 0 || length == 0 {
                continue;
            }
            if client.step == 0 {
                // A value for everybody, so that no answer is empty.
                client.send(&set(format!("/default_pg/0//cpu//0/{number}").as_bytes(), &[7; 40]))?;
                greeted += 1;
                if greeted == count {
                    began = Some((Instant::now(), cpu(server)?));
                }
            } else if began.is_some() {
                let set_gets = mix == "mixed" && (client.step - 1) % 5 == 0;
                done += each + u64::from(set_gets);
            }
            let mine = &all[number as usize];
            let (question, answer) = &mine[client.step as usize % mine.len()];
            client.step += 1;
            *lacks = *answer;
            client.send(question)?;
        }
        if let Some((began, before)) = began.filter(|(began, _)| began.elapsed().as_secs_f64() >= seconds) {
            let (took, after) = (began.elapsed().as_secs_f64(), cpu(server)?);
            let (own, kernel) = (after.0 - before.0, after.1 - before.1);
            println!("ops {done}\nseconds {took:.6}\nown_s {own:.2}\nkernel_s {kernel:.2}");
            return Ok(());
        }
    }
}
