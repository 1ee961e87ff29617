//! A scenario: how many nodes, which clocks, and what goes wrong when. Made from a seed, written as text, and
//! read back, so that a failing one can be kept and cut down by hand.

use std::fmt;
use std::str::FromStr;

use super::rng::Rng;

/// Which direction between a node and the coordinator is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Towards the coordinator.
    To,
    /// From the coordinator.
    From,
    /// Both.
    Both,
}

/// What the store does while it is in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// Every operation takes up to 5 s.
    Slow,
    /// Records are written and an error is reported.
    LostReply,
    /// Nothing is written and an error is reported.
    Fails,
    /// An error is reported and the record lands later.
    Late,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing passes this way for so long.
    Cut {
        /// The way.
        way: Way,
        /// How long, ms.
        ms: u64,
    },
    /// The agent is killed; its guardian starts it again.
    Crash,
    /// Guardian, agent and ranks of the node are killed; the host lives and closes their connections.
    Gone {
        /// They are started again after so long, ms; 0: only if somebody asks for it.
        ms: u64,
    },
    /// The node loses power.
    Down {
        /// It comes back after so long, ms; 0: never.
        ms: u64,
    },
    /// The agent is stopped for so long.
    Freeze {
        /// How long, ms.
        ms: u64,
    },
    /// The control thread of the agent stands still for so long, its beat thread goes on.
    Stuck {
        /// How long, ms.
        ms: u64,
    },
    /// A rank exits with this code; 0 while its peers run.
    Exit {
        /// The code.
        code: u8,
    },
    /// A rank dies by this signal.
    Signal {
        /// The signal.
        no: u8,
    },
    /// Every rank of the run ends with 0.
    Finish,
    /// The node's guardian gets this signal.
    Stop {
        /// The signal.
        no: u8,
    },
    /// The store is in trouble for so long.
    Store {
        /// How.
        kind: StoreFault,
        /// How long, ms.
        ms: u64,
    },
    /// The node's control connection breaks.
    Reset,
    /// A rank is stopped and stays so.
    Hang,
    /// Ranks ask for their node to be taken out.
    Leave,
    /// Many messages are lost, doubled and late for so long.
    Storm {
        /// How long, ms.
        ms: u64,
    },
    /// Ranks that are killed on this node in so long survive it for a while.
    Stubborn {
        /// How long, ms.
        ms: u64,
    },
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When, ms.
    pub at: u64,
    /// On which node.
    pub node: usize,
    /// What.
    pub what: What,
}

impl Fault {
    /// When it is over, ms.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.at
            + match self.what {
                What::Cut { ms, .. }
                | What::Freeze { ms }
                | What::Stuck { ms }
                | What::Store { ms, .. }
                | What::Storm { ms }
                | What::Stubborn { ms }
                | What::Gone { ms }
                | What::Down { ms } => ms,
                _ => 0,
            }
    }
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSetup {
    /// Its guardian starts so late, ms.
    pub late: u64,
    /// Its clock runs fast by so many millionths.
    pub ppm: i64,
    /// Its clock at the start, ms.
    pub offset: u64,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// For everything that is drawn while it runs.
    pub seed: u64,
    /// The nodes; the first one leads.
    pub nodes: Vec<NodeSetup>,
    /// How many of them are spares.
    pub spares: u32,
    /// So many nodes fewer than a full world has may run: `--nnodes MIN:MAX` with MAX - MIN.
    pub fewer: u32,
    /// How long the least wait for more before the first world, ms.
    pub last_call: u64,
    /// Ranks on each node.
    pub nproc: u32,
    /// `--max-restarts`.
    pub max_restarts: Option<u32>,
    /// Messages in a thousand that are lost, the whole time.
    pub drop: u64,
    /// Messages in a thousand that come twice, the whole time.
    pub double: u64,
    /// There is a supervisor that starts agents again.
    pub supervised: bool,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

const LAST_FAULT: u64 = 45_000;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let count = rng.range(3, 9);
        let spares = u32::try_from(rng.below(3)).unwrap_or(0).min(u32::try_from(count).unwrap_or(3) - 2);
        let nodes = (0..count).map(|i| NodeSetup {
            late: if i > 0 && rng.chance(40) { rng.below(25_000) } else { rng.below(500) },
            ppm: i64::try_from(rng.below(401)).unwrap_or(0) - 200,
            offset: rng.range(1_000, 90_000_000),
        });
        let nodes: Vec<NodeSetup> = nodes.collect();
        let nproc = u32::try_from(rng.range(1, 4)).unwrap_or(1);
        let max_restarts = match rng.below(10) {
            0 => Some(0),
            1 => Some(1),
            2 | 3 => None,
            _ => Some(30),
        };
        let (drop, double) = (rng.below(30), rng.below(30));
        let supervised = rng.chance(500);
        let wild = rng.range(4, 22);
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..wild {
            let at = rng.range(300, LAST_FAULT);
            Self::draw(&mut rng, at, count, &mut faults);
        }
        if rng.chance(150) {
            let (at, node) = (rng.range(15_000, LAST_FAULT), Self::node(&mut rng, count));
            faults.push(Fault { at, node, what: What::Stop { no: [15, 2][rng.below(2) as usize] } });
        }
        if rng.chance(250) {
            faults.push(Fault { at: rng.range(8_000, LAST_FAULT), node: 0, what: What::Finish });
        }
        if rng.chance(30) {
            faults.push(Fault { at: rng.range(5_000, LAST_FAULT), node: 0, what: What::Down { ms: 0 } });
        }
        faults.sort_by_key(|f| (f.at, f.node));
        // Drawn last, so that the seeds of fixed worlds stay what they were.
        let full = u32::try_from(count).unwrap_or(3).saturating_sub(spares);
        let fewer = if rng.chance(500) { u32::try_from(rng.below(u64::from(full))).unwrap_or(0) } else { 0 };
        let last_call = rng.range(1_000, 20_000);
        if rng.chance(200) {
            for _ in 0..rng.range(1, 3) {
                let (at, node) = (rng.range(5_000, LAST_FAULT), Self::node(&mut rng, count));
                faults.push(Fault { at, node, what: What::Hang });
            }
            faults.sort_by_key(|f| (f.at, f.node));
        }
        if rng.chance(200) {
            for _ in 0..rng.range(1, 6) {
                let (at, node) = (rng.range(5_000, LAST_FAULT), Self::node(&mut rng, count));
                faults.push(Fault { at, node, what: What::Leave });
            }
            faults.sort_by_key(|f| (f.at, f.node));
        }
        Self { seed, nodes, spares, fewer, last_call, nproc, max_restarts, drop, double, supervised, faults }
    }

    /// A world of 80 to 139 nodes, in which few things go wrong. Above 64 lists of nodes are packed, and who is in a world
    /// hears of its record when it runs already.
    #[must_use]
    pub fn large(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x1a46e);
        let count = rng.range(80, 140);
        let node = |_| NodeSetup {
            late: rng.below(3_000),
            ppm: i64::try_from(rng.below(401)).unwrap_or(0) - 200,
            offset: rng.range(1_000, 90_000_000),
        };
        let nodes: Vec<NodeSetup> = (0..count).map(node).collect();
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..rng.range(3, 7) {
            let at = rng.range(6_000, LAST_FAULT);
            Self::draw(&mut rng, at, count, &mut faults);
        }
        // Whatever was drawn, one node is lost for good and one rank fails.
        let (lost, fails) = (1 + Self::node(&mut rng, count - 1), Self::node(&mut rng, count));
        faults.push(Fault { at: rng.range(8_000, 14_000), node: lost, what: What::Down { ms: 0 } });
        faults.push(Fault { at: rng.range(25_000, LAST_FAULT), node: fails, what: What::Signal { no: 9 } });
        faults.sort_by_key(|f| (f.at, f.node));
        let fewer = if rng.chance(500) { u32::try_from(rng.below(10)).unwrap_or(0) } else { 0 };
        Self {
            seed,
            nodes,
            spares: 4,
            fewer,
            last_call: rng.range(1_000, 10_000),
            nproc: 1,
            max_restarts: Some(30),
            drop: rng.below(5),
            double: rng.below(5),
            supervised: rng.chance(500),
            faults,
        }
    }

    fn node(rng: &mut Rng, count: u64) -> usize {
        usize::try_from(rng.below(count)).unwrap_or(0)
    }

    fn draw(rng: &mut Rng, at: u64, count: u64, faults: &mut Vec<Fault>) {
        let node = Self::node(rng, count);
        let other = 1 + Self::node(rng, count - 1);
        let way = [Way::To, Way::From, Way::Both][rng.below(3) as usize];
        let long = |rng: &mut Rng| match rng.below(4) {
            0 => rng.range(8_000, 25_000),
            1 => rng.range(4_000, 8_000),
            _ => rng.range(200, 4_000),
        };
        let (node, what) = match rng.below(100) {
            0..18 => (other, What::Cut { way, ms: long(rng) }),
            18..22 => {
                let ms = long(rng);
                for node in 1..count as usize {
                    if rng.chance(500) {
                        faults.push(Fault { at, node, what: What::Cut { way: Way::Both, ms } });
                    }
                }
                return;
            }
            22..30 => (other, What::Crash),
            30..36 => (0, What::Crash),
            36..38 => {
                // The coordinator's agent dies while a node is out of reach or stopped.
                let ms = rng.range(3_000, 12_000);
                let before = at.saturating_sub(rng.range(10, 2_500));
                let what = if rng.chance(500) { What::Freeze { ms } } else { What::Cut { way, ms } };
                faults.push(Fault { at: before, node: other, what });
                (0, What::Crash)
            }
            38..40 => (other, What::Gone { ms: if rng.chance(500) { 0 } else { rng.range(1_000, 12_000) } }),
            40..44 => (other, What::Down { ms: if rng.chance(500) { 0 } else { rng.range(1_000, 20_000) } }),
            44..51 => (
                other,
                What::Freeze {
                    ms: if rng.chance(150) { rng.range(20_000, 60_000) } else { rng.range(500, 15_000) },
                },
            ),
            51..57 => (0, What::Freeze { ms: rng.range(500, 7_000) }),
            57..60 => (node, What::Stuck { ms: rng.range(500, 9_000) }),
            60..68 => (node, What::Exit { code: 1 + rng.below(3) as u8 }),
            68..72 => (node, What::Exit { code: 0 }),
            72..79 => (node, What::Signal { no: [9, 11, 6][rng.below(3) as usize] }),
            79..88 => {
                let kind = [StoreFault::Slow, StoreFault::LostReply, StoreFault::Fails, StoreFault::Late]
                    [rng.below(4) as usize];
                let ms = rng.range(500, 12_000);
                if rng.chance(600) {
                    // Worth something only while a record is being written.
                    let at = at + rng.below(300).min(ms);
                    faults.push(Fault { at, node, what: What::Exit { code: 1 } });
                }
                if kind == StoreFault::Late && rng.chance(500) {
                    // The writer dies, and what it wrote lands under the eyes of its next life.
                    let at = at + rng.range(50, 500);
                    faults.push(Fault { at, node: 0, what: What::Crash });
                }
                (0, What::Store { kind, ms })
            }
            88..93 => (other, What::Reset),
            93..97 => (0, What::Storm { ms: rng.range(500, 6_000) }),
            _ => {
                faults.push(Fault { at: at + 50, node, what: What::Exit { code: 1 } });
                (node, What::Stubborn { ms: rng.range(3_000, 9_000) })
            }
        };
        faults.push(Fault { at, node, what });
    }

    /// When the last fault is over, ms.
    #[must_use]
    pub fn quiet_from(&self) -> u64 {
        let late = self.nodes.iter().map(|n| n.late);
        self.faults.iter().map(Fault::end).chain(late).max().unwrap_or(0)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} node {} ", self.at, self.node)?;
        match self.what {
            What::Cut { way, ms } => {
                let way = match way {
                    Way::To => "to",
                    Way::From => "from",
                    Way::Both => "both",
                };
                write!(f, "cut {way} {ms}")
            }
            What::Crash => f.write_str("crash"),
            What::Gone { ms } => write!(f, "gone {ms}"),
            What::Down { ms } => write!(f, "down {ms}"),
            What::Freeze { ms } => write!(f, "freeze {ms}"),
            What::Stuck { ms } => write!(f, "stuck {ms}"),
            What::Exit { code } => write!(f, "exit {code}"),
            What::Signal { no } => write!(f, "signal {no}"),
            What::Finish => f.write_str("finish"),
            What::Stop { no } => write!(f, "stop {no}"),
            What::Store { kind, ms } => {
                let kind = match kind {
                    StoreFault::Slow => "slow",
                    StoreFault::LostReply => "lost-reply",
                    StoreFault::Fails => "fails",
                    StoreFault::Late => "late",
                };
                write!(f, "store {kind} {ms}")
            }
            What::Reset => f.write_str("reset"),
            What::Hang => f.write_str("hang"),
            What::Leave => f.write_str("leave"),
            What::Storm { ms } => write!(f, "storm {ms}"),
            What::Stubborn { ms } => write!(f, "stubborn {ms}"),
        }
    }
}

/// A line of a scenario that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of a scenario: {0}")]
pub struct BadLine(String);

impl FromStr for Fault {
    type Err = BadLine;

    fn from_str(line: &str) -> Result<Self, BadLine> {
        let bad = || BadLine(line.to_owned());
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok()).ok_or_else(bad);
        let small = |i: usize| number(i).and_then(|n| u8::try_from(n).map_err(|_| bad()));
        let word = |i: usize| words.get(i).copied().ok_or_else(bad);
        if word(0)? != "at" || word(2)? != "node" {
            return Err(bad());
        }
        let what = match word(4)? {
            "cut" => {
                let way = match word(5)? {
                    "to" => Way::To,
                    "from" => Way::From,
                    "both" => Way::Both,
                    _ => return Err(bad()),
                };
                What::Cut { way, ms: number(6)? }
            }
            "crash" => What::Crash,
            "gone" => What::Gone { ms: number(5)? },
            "down" => What::Down { ms: number(5)? },
            "freeze" => What::Freeze { ms: number(5)? },
            "stuck" => What::Stuck { ms: number(5)? },
            "exit" => What::Exit { code: small(5)? },
            "signal" => What::Signal { no: small(5)? },
            "finish" => What::Finish,
            "stop" => What::Stop { no: small(5)? },
            "store" => {
                let kind = match word(5)? {
                    "slow" => StoreFault::Slow,
                    "lost-reply" => StoreFault::LostReply,
                    "fails" => StoreFault::Fails,
                    "late" => StoreFault::Late,
                    _ => return Err(bad()),
                };
                What::Store { kind, ms: number(6)? }
            }
            "reset" => What::Reset,
            "hang" => What::Hang,
            "leave" => What::Leave,
            "storm" => What::Storm { ms: number(5)? },
            "stubborn" => What::Stubborn { ms: number(5)? },
            _ => return Err(bad()),
        };
        Ok(Self { at: number(1)?, node: usize::try_from(number(3)?).map_err(|_| bad())?, what })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.max_restarts.map_or_else(|| "none".to_owned(), |n| n.to_string());
        writeln!(
            f,
            "seed {} spares {} fewer {} last-call {} nproc {} max-restarts {max} drop {} double {} supervised {}",
            self.seed,
            self.spares,
            self.fewer,
            self.last_call,
            self.nproc,
            self.drop,
            self.double,
            u8::from(self.supervised)
        )?;
        for node in &self.nodes {
            writeln!(f, "node late {} ppm {} offset {}", node.late, node.ppm, node.offset)?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

impl FromStr for Scenario {
    type Err = BadLine;

    /// Reads what [`fmt::Display`] writes; lines that begin with `#` are remarks.
    fn from_str(text: &str) -> Result<Self, BadLine> {
        let mut scenario = Self {
            seed: 0,
            nodes: Vec::new(),
            spares: 0,
            fewer: 0,
            last_call: 30_000,
            nproc: 1,
            max_restarts: None,
            drop: 0,
            double: 0,
            supervised: false,
            faults: Vec::new(),
        };
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let value = |key: &str| {
                let at = words.iter().position(|w| *w == key)?;
                words.get(at + 1)?.parse::<i64>().ok()
            };
            let number = |key: &str| {
                value(key).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| BadLine(line.to_owned()))
            };
            match words.first() {
                Some(&"seed") => {
                    scenario.seed = number("seed")?;
                    scenario.spares = u32::try_from(number("spares")?).unwrap_or(0);
                    // Scenarios that were kept before there were such worlds say nothing of them.
                    let or = |key: &str, none: i64| u64::try_from(value(key).unwrap_or(none)).unwrap_or(0);
                    scenario.fewer = u32::try_from(or("fewer", 0)).unwrap_or(0);
                    scenario.last_call = or("last-call", 30_000);
                    scenario.nproc = u32::try_from(number("nproc")?).unwrap_or(1);
                    scenario.max_restarts = value("max-restarts").and_then(|n| u32::try_from(n).ok());
                    scenario.supervised = value("supervised") == Some(1);
                    (scenario.drop, scenario.double) = (number("drop")?, number("double")?);
                }
                Some(&"node") => scenario.nodes.push(NodeSetup {
                    late: number("late")?,
                    ppm: value("ppm").ok_or_else(|| BadLine(line.to_owned()))?,
                    offset: number("offset")?,
                }),
                _ => scenario.faults.push(line.parse()?),
            }
        }
        if scenario.nodes.is_empty() || scenario.faults.iter().any(|f| f.node >= scenario.nodes.len()) {
            return Err(BadLine("no such node".to_owned()));
        }
        Ok(scenario)
    }
}
