//! Emulated agents for `scripts/bench control-plane`: each speaks the true protocol over two sockets of its own, and has
//! no ranks, no directory and no process.
//!
//! ```text
//! control_load agents RUN_DIR COUNT SEC     all nodes but the first, which is a real agent and leads
//! control_load echo-server                  the floor: a bare server; prints its port, ends with standard input
//! control_load echo PORT COUNT SEC          as many connections and round trips with it
//! ```
//! What is measured goes to standard output as `name value` lines; `steady` and `done` say where it stands.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use relight::domain::exit::ExitKind;
use relight::domain::ids::{Attempt, Incarnation, LocalRank, NodeName, RunId, StoreId, Term};
use relight::domain::lease::{Effect as LeaseEffect, Event as LeaseEvent, Lease, Link};
use relight::domain::mutant::Mutants;
use relight::domain::outbox::{Machine as _, Outbox};
use relight::domain::spec::{NodeSpec, Offer, RunSpec};
use relight::domain::wire::{Ack, Beat, CoordinatorMsg, ExitReport, ToCoordinator};
use relight::net::handshake::{Identity, Role};
use relight::net::secret::Secret;
use relight::net::session::Session;
use relight::sys::clock;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

type Failure = Box<dyn std::error::Error>;

/// Nothing here may take longer.
const LONG: Duration = Duration::from_secs(300);

/// A frame to an agent, as far as an emulated one reads it: the lists at its end are many times its work.
#[derive(Deserialize)]
struct Heard {
    term: Term,
    #[serde(rename = "n")]
    _n: u64,
    msg: Word,
}

/// The messages by their number on the wire.
#[derive(Deserialize)]
enum Word {
    Welcome(Box<Welcome>),
    Refused,
    Start(Attempt),
    Stop(Attempt),
    Committed,
    TryReach,
    PassOn,
    Probe(String),
    Finish,
}

#[derive(Deserialize)]
struct Welcome {
    #[serde(rename = "answers")]
    _answers: u64,
    #[serde(rename = "store")]
    _store: Option<StoreId>,
    spec: RunSpec,
    leader: Incarnation,
}

fn main() -> Result<(), Failure> {
    // Two sockets an agent; what the system does not allow shows as an error when they are opened.
    if let Ok((_, hard)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words[..] {
        ["agents", dir, count, seconds] => {
            LocalSet::new().block_on(&runtime, agents(dir.into(), count.parse()?, seconds.parse()?))
        }
        ["echo-server"] => LocalSet::new().block_on(&runtime, echo_server()),
        ["echo", port, count, seconds] => {
            LocalSet::new().block_on(&runtime, echo(port.parse()?, count.parse()?, seconds.parse()?))
        }
        _ => Err("usage: control_load agents|echo-server|echo ...; see the source".into()),
    }
}

// ---------------------------------------------------------------- agents

/// What all emulated agents share.
struct Cluster {
    run: RunId,
    secret: Secret,
    store: StoreId,
    proof: u64,
    to: SocketAddr,
    count: usize,
    welcomed: Cell<usize>,
    /// By the newest attempt: who was started, and who stopped.
    attempt: Cell<u64>,
    started: Cell<usize>,
    stops: Cell<usize>,
    beats: Cell<u64>,
    fail: Notify,
    moved: Notify,
    first_start: Cell<Option<Instant>>,
}

fn read(path: &Path) -> Result<Value, Failure> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

async fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let until = Instant::now() + LONG;
    loop {
        if let Some(found) = ask() {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(format!("not within {} s: {what}", LONG.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Cluster {
    async fn find(dir: &Path, count: usize) -> Result<Self, Failure> {
        let hint = wait("the coordinator's hint", || read(&dir.join("coordinator")).ok()).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let address: SocketAddr = text(&hint["addresses"][0]).parse()?;
        Ok(Self {
            run: RunId::new(dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()),
            secret: Secret::from_hex(&std::fs::read_to_string(dir.join("secret"))?)?,
            store: StoreId::new(text(&hint["store"])),
            proof: hint["proof"].as_u64().unwrap_or_default(),
            to: SocketAddr::from(([127, 0, 0, 1], address.port())),
            count,
            welcomed: Cell::new(0),
            attempt: Cell::new(0),
            started: Cell::new(0),
            stops: Cell::new(0),
            beats: Cell::new(0),
            fail: Notify::new(),
            moved: Notify::new(),
            first_start: Cell::new(None),
        })
    }

    fn identity(&self, role: Role, index: usize) -> Identity {
        let (node, incarnation) = (name(index), life(index));
        Identity { run: self.run.clone(), role, node, incarnation }
    }

    async fn dial(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn count_start(&self, attempt: Attempt) {
        if attempt.0 > self.attempt.get() {
            self.attempt.set(attempt.0);
            self.started.set(0);
        }
        if self.started.get() == 0 {
            self.first_start.set(Some(Instant::now()));
        }
        self.started.set(self.started.get() + 1);
        self.moved.notify_one();
    }

    /// Waits until so many of this attempt are counted.
    async fn reached(&self, what: &str, attempt: u64, cell: &Cell<usize>) -> Result<Instant, Failure> {
        let all = async {
            while self.attempt.get() < attempt || cell.get() < self.count {
                self.moved.notified().await;
            }
        };
        match tokio::time::timeout(LONG, all).await {
            Ok(()) => Ok(Instant::now()),
            Err(_) => {
                Err(format!("{what}: {} of {} in attempt {}", cell.get(), self.count, self.attempt.get())
                    .into())
            }
        }
    }
}

fn name(index: usize) -> NodeName {
    NodeName::new(format!("n{index:04}"))
}

/// Any number that differs: splitmix64 of the place.
fn life(index: usize) -> Incarnation {
    let mut z = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Incarnation(z ^ (z >> 27))
}

async fn agents(dir: PathBuf, count: usize, seconds: f64) -> Result<(), Failure> {
    let cluster = Rc::new(Cluster::find(&dir, count - 1).await?);
    let began = Instant::now();
    for index in 1..count {
        let cluster = cluster.clone();
        spawn_local(async move {
            if let Err(error) = agent(cluster, index).await {
                eprintln!("{}: {error}", name(index));
            }
        });
    }
    let all = async {
        while cluster.welcomed.get() < cluster.count {
            cluster.moved.notified().await;
        }
    };
    tokio::time::timeout(LONG, all)
        .await
        .map_err(|_| format!("{} of {count} were welcomed", cluster.welcomed.get()))?;
    println!("joined {:.6}", began.elapsed().as_secs_f64());
    let at = cluster.reached("the first start", 0, &cluster.started).await?;
    println!("started {:.6}", (at - began).as_secs_f64());
    running(&dir, 0).await?;
    println!("running {:.6}", began.elapsed().as_secs_f64());
    // What is left of the start is over, so that the restart is measured alone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("calm 0");
    let began = Instant::now();
    cluster.fail.notify_one();
    let at = cluster.reached("the restart", 1, &cluster.started).await?;
    let first = cluster.first_start.get().unwrap_or(at);
    println!("stopped {:.6}", (first - began).as_secs_f64());
    println!("restarted {:.6}", (at - began).as_secs_f64());
    running(&dir, 1).await?;
    println!("again {:.6}", began.elapsed().as_secs_f64());
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.beats.set(0);
    println!("steady 0");
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    println!("beats_s {:.1}", cluster.beats.get() as f64 / seconds);
    println!("done 0");
    Ok(())
}

/// Until the coordinator knows that every rank of this attempt runs.
async fn running(dir: &Path, attempt: u64) -> Result<(), Failure> {
    wait("every rank runs", || {
        let status = read(&dir.join("status.json")).ok()?;
        (status["phase"] == "running" && status["attempt"] == attempt).then_some(())
    })
    .await
}

/// One agent's words to the coordinator.
struct Mouth {
    out: mpsc::UnboundedSender<ToCoordinator>,
    term: Cell<Option<Term>>,
    incarnation: Incarnation,
    n: Cell<u64>,
}

impl Mouth {
    fn say(&self, msg: CoordinatorMsg) {
        let n = self.n.get();
        self.n.set(n + 1);
        let _ = self.out.send(ToCoordinator { term: self.term.get(), incarnation: self.incarnation, n, msg });
    }
}

fn offer(index: usize) -> Offer {
    Offer { address: "127.0.0.1".to_owned(), port: u16::try_from(20_000 + index).unwrap_or(1), hosted: false }
}

fn join(cluster: &Cluster, index: usize) -> CoordinatorMsg {
    let spec = NodeSpec {
        nproc: 8,
        role: String::new(),
        script_digest: Some(7),
        log_dir: format!("/scratch/project/logs/{}_{}", cluster.run, name(index)),
        address: format!("10.0.{}.{}", index / 250, index % 250 + 1),
        port: 0,
        order: u32::try_from(index).unwrap_or(u32::MAX),
        ..NodeSpec::default()
    };
    CoordinatorMsg::Join {
        spec: Box::new(spec),
        offer: Some(offer(index)),
        store: Some(cluster.store.clone()),
        proof: Some(cluster.proof),
        clean_of: Vec::new(),
        running: None,
        next: Default::default(),
        survivors: Vec::new(),
    }
}

fn report(code: u8, ours: bool) -> ExitReport {
    ExitReport {
        local_rank: LocalRank(0),
        pid: 4_000,
        exit: if ours { ExitKind::Signal { no: 15, core: false } } else { ExitKind::Code(code) },
        ours,
        at: clock::boot(),
        ago_ms: 0,
        summary: String::new(),
        words: String::new(),
        recorded: None,
        evidence: Default::default(),
    }
}

/// What the agent of a node knows between two messages.
#[derive(Default)]
struct Team {
    waiting: Option<Attempt>,
    runs: Option<Attempt>,
    newest: Option<Attempt>,
}

async fn agent(cluster: Rc<Cluster>, index: usize) -> Result<(), Failure> {
    let session = loop {
        let stream = cluster.dial().await?;
        let identity = cluster.identity(Role::Agent, index);
        match Session::<Heard, ToCoordinator>::connect(stream, &identity, &cluster.secret).await {
            Ok(session) => break session,
            // A real agent dials again, too.
            Err(error) => eprintln!("{}: {error}", name(index)),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let (mut sender, mut receiver) = session.split();
    let (out, mut words) = mpsc::unbounded_channel();
    spawn_local(async move {
        while let Some(word) = words.recv().await {
            if sender.send(&word).await.is_err() {
                break;
            }
        }
    });
    let mouth = Rc::new(Mouth { out, term: Cell::new(None), incarnation: life(index), n: Cell::new(0) });
    mouth.say(join(&cluster, index));
    let team = Rc::new(RefCell::new(Team::default()));
    let granted = Rc::new(Cell::new(false));
    if index == 1 {
        spawn_local(one_that_fails(cluster.clone(), mouth.clone(), team.clone()));
    }
    loop {
        let heard = receiver.recv().await?;
        match heard.msg {
            Word::Welcome(welcome) => {
                let new = mouth.term.replace(Some(heard.term)).is_none();
                if new {
                    cluster.welcomed.set(cluster.welcomed.get() + 1);
                    cluster.moved.notify_one();
                    let (cluster, mouth, team, granted) =
                        (cluster.clone(), mouth.clone(), team.clone(), granted.clone());
                    let Welcome { leader, spec, .. } = *welcome;
                    spawn_local(async move {
                        let begin = LeaseEvent::Welcome {
                            leader,
                            term: heard.term,
                            forever: false,
                            previous_leader_dead: false,
                            numbers: Box::new(spec.numbers),
                        };
                        lease(&cluster, index, begin, || {
                            granted.set(true);
                            start(&cluster, &mouth, &mut team.borrow_mut());
                        })
                        .await;
                    });
                }
            }
            Word::Start(attempt) => {
                let mut team = team.borrow_mut();
                if team.runs == Some(attempt) {
                    mouth.say(CoordinatorMsg::Started(attempt));
                } else if team.newest < Some(attempt) {
                    team.waiting = Some(attempt);
                    if granted.get() {
                        start(&cluster, &mouth, &mut team);
                    }
                }
            }
            Word::Stop(attempt) => {
                let mut team = team.borrow_mut();
                let exits = if team.runs.take().is_some() { vec![report(0, true)] } else { Vec::new() };
                cluster.stops.set(cluster.stops.get() + 1);
                let offer = Some(offer(index));
                mouth.say(CoordinatorMsg::Stopped { attempt, exits, survivors: Vec::new(), offer });
            }
            Word::Probe(name) => mouth.say(CoordinatorMsg::Probed { name, won: false }),
            Word::Refused | Word::Finish => return Err("was told to go".into()),
            Word::Committed | Word::TryReach | Word::PassOn => {}
        }
    }
}

/// Ranks start as soon as there is a grant.
fn start(cluster: &Cluster, mouth: &Mouth, team: &mut Team) {
    let Some(attempt) = team.waiting.take() else { return };
    (team.runs, team.newest) = (Some(attempt), Some(attempt));
    mouth.say(CoordinatorMsg::Started(attempt));
    cluster.count_start(attempt);
}

async fn one_that_fails(cluster: Rc<Cluster>, mouth: Rc<Mouth>, team: Rc<RefCell<Team>>) {
    loop {
        cluster.fail.notified().await;
        let attempt = team.borrow().runs;
        if let Some(attempt) = attempt {
            mouth.say(CoordinatorMsg::Exited { attempt, exits: vec![report(1, false)] });
        }
    }
}

/// The beat connections that are open.
type Links = Vec<(Link, mpsc::UnboundedSender<Beat>)>;

/// The lease of one agent, over connections of its own.
async fn lease(cluster: &Rc<Cluster>, index: usize, begin: LeaseEvent, mut granted: impl FnMut()) {
    let (tell, mut told) = mpsc::unbounded_channel::<LeaseEvent>();
    let mut lease = Lease::new(life(index), Mutants::NONE);
    let links: Rc<RefCell<Links>> = Rc::default();
    let (ticks, mut next) = (Instant::now(), Some(begin));
    loop {
        let event = match next.take() {
            Some(event) => event,
            None => {
                let left = lease.deadline().map_or(LONG, |at| at.since(clock::boot()));
                match tokio::time::timeout(left, told.recv()).await {
                    Ok(Some(event)) => event,
                    Ok(None) => return,
                    // As the control thread of a real agent counts.
                    Err(_) => LeaseEvent::Tick { tick: 1 + ticks.elapsed().as_millis() as u64 / 250 },
                }
            }
        };
        let mut out = Outbox::default();
        lease.handle(clock::now(), event, &mut out);
        for effect in out.take_effects() {
            match effect {
                LeaseEffect::Dial(link) => {
                    let (cluster, tell, links) = (cluster.clone(), tell.clone(), links.clone());
                    spawn_local(async move {
                        if let Err(error) = beats(&cluster, index, link, &tell, &links).await {
                            eprintln!("{}: beats: {error}", name(index));
                        }
                        let _ = tell.send(LeaseEvent::LinkDown(link));
                    });
                }
                LeaseEffect::CloseLink(link) => links.borrow_mut().retain(|(other, _)| *other != link),
                LeaseEffect::SendBeat { link, beat } => {
                    cluster.beats.set(cluster.beats.get() + 1);
                    if let Some((_, beats)) = links.borrow().iter().find(|(other, _)| *other == link) {
                        let _ = beats.send(beat);
                    }
                }
                LeaseEffect::Granted(_) => granted(),
                LeaseEffect::LeaderSilent { .. } => eprintln!("{}: the leader is silent", name(index)),
            }
        }
    }
}

async fn beats(
    cluster: &Cluster,
    index: usize,
    link: Link,
    tell: &mpsc::UnboundedSender<LeaseEvent>,
    links: &RefCell<Links>,
) -> Result<(), Failure> {
    let stream = cluster.dial().await?;
    let session =
        Session::<Ack, Beat>::connect(stream, &cluster.identity(Role::Beat, index), &cluster.secret).await?;
    let (mut sender, mut receiver) = session.split();
    let (out, mut outgoing) = mpsc::unbounded_channel();
    links.borrow_mut().push((link, out));
    tell.send(LeaseEvent::LinkUp(link))?;
    spawn_local(async move {
        while let Some(beat) = outgoing.recv().await {
            if sender.send(&beat).await.is_err() {
                return;
            }
        }
        sender.close().await;
    });
    while let Ok(ack) = receiver.recv().await {
        tell.send(LeaseEvent::Acked { link, ack })?;
    }
    Ok(())
}

// ---------------------------------------------------------------- the floor

/// Length of what goes to and fro; a small frame.
const ECHO: usize = 64;

async fn echo_server() -> Result<(), Failure> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(socket.into())?;
    println!("port {}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        spawn_local(async move {
            let mut buffer = [0; ECHO];
            while stream.read_exact(&mut buffer).await.is_ok() && stream.write_all(&buffer).await.is_ok() {}
        });
    }
}

/// The connections and round trips of a rendezvous (two connections an agent; on each two round trips of the handshake, then
/// join and start, or two beats), of a restart (two round trips), and one round trip a second, without any meaning.
async fn echo(port: u16, agents: usize, seconds: f64) -> Result<(), Failure> {
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let began = Instant::now();
    let mut streams = Vec::new();
    for _ in 0..2 * agents {
        streams.push(spawn_local(async move {
            let mut stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            turns(&mut stream, 4).await?;
            std::io::Result::Ok(stream)
        }));
    }
    let mut open = Vec::new();
    for stream in streams {
        open.push(stream.await??);
    }
    println!("running {:.6}", began.elapsed().as_secs_f64());
    let beats = open.split_off(agents);
    println!("calm 0");
    let began = Instant::now();
    let restarts: Vec<_> = open
        .into_iter()
        .map(|mut stream| spawn_local(async move { turns(&mut stream, 2).await.map(|()| stream) }))
        .collect();
    let mut kept = Vec::new();
    for one in restarts {
        kept.push(one.await??);
    }
    println!("again {:.6}", began.elapsed().as_secs_f64());
    for mut stream in beats {
        spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if turns(&mut stream, 1).await.is_err() {
                    return;
                }
            }
        });
    }
    println!("steady 0");
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    println!("done 0");
    Ok(())
}

async fn turns(stream: &mut TcpStream, count: usize) -> std::io::Result<()> {
    let mut buffer = [7; ECHO];
    for _ in 0..count {
        stream.write_all(&buffer).await?;
        stream.read_exact(&mut buffer).await?;
    }
    Ok(())
}
