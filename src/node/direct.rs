//! Several machines without Slurm: who leads listens where everybody was told, and there is no directory that all share.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

use super::control::{Life, Stop};
use super::finding::{Found, Search};
use crate::domain::exit_code;
use crate::domain::finding::Seeker;
use crate::domain::ids::StoreId;
use crate::domain::ledger::Ledger;
use crate::domain::spec::Direct;
use crate::domain::time::human;
use crate::net::tcp;
use crate::store::layout::Opened;
use crate::sys::addresses;

/// For a name to be looked up: the system's own resolver, in a process of its own.
const LOOKUP: Duration = Duration::from_secs(10);
/// Who waits for longer says so.
const SPEAK: Duration = Duration::from_secs(3);
/// For a connection to be made.
const DIAL: Duration = Duration::from_secs(3);

impl Life {
    /// Leads, or waits until the one that leads is there.
    pub(super) async fn meet(&mut self, direct: Direct, search: &mut Search) -> Result<Found, Stop> {
        let endpoint = self.resolve(&direct, search).await?;
        self.boot.context.place.towards = endpoint.first().map(|at| at.ip().to_string());
        let own = addresses::own();
        let here = endpoint.iter().any(|at| own.contains(&at.ip()) || at.ip().is_loopback());
        let leads = direct.rank.map_or(here, |rank| rank == 0);
        if leads && !here {
            self.lead_elsewhere(&direct, &endpoint).await?;
        }
        if leads {
            match tcp::listen_at(direct.port) {
                Ok(socket) => self.socket = Some(socket),
                // Of two on one machine the first one leads.
                Err(error) if direct.rank.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    let sentence =
                        format!("port {} of this machine cannot be listened on: {error}", direct.port);
                    let hint = "end what listens there, or choose another --master-port on every machine; one machine alone is --node-rank 0";
                    return Err(Stop::Say(exit_code::USAGE, sentence, hint.into()));
                }
            }
        }
        if self.socket.is_some() {
            (self.boot.context.place.index, self.boot.node.order) = (0, 0);
            let mut found = self.lead(search).await?;
            found.opened.secret.clone_from(&direct.secret);
            return Ok(found);
        }
        self.wait_for(&direct, &endpoint, search).await?;
        self.endpoint = endpoint;
        let opened = Opened {
            store: StoreId::new(""),
            secret: direct.secret,
            records: Vec::new(),
            unreadable_tail: None,
            previous: None,
        };
        Ok(Found { opened, ledger: Ledger::default(), leads: None })
    }

    /// This machine leads by its number, and the address is none of its own: others may know it by that, through a router
    /// that rewrites addresses, or two machines have the number 0.
    async fn lead_elsewhere(&mut self, direct: &Direct, at: &[SocketAddr]) -> Result<(), Stop> {
        let (host, port) = (&direct.host, direct.port);
        if self.hearing(tcp::dial(at, DIAL)).await?.is_ok() {
            let sentence = format!("--node-rank 0 leads, and another machine does at {host}, port {port}");
            let hint = "give each machine a number of its own; 0 is the one whose address that is";
            return Err(Stop::Say(exit_code::USAGE, sentence, hint.into()));
        }
        self.teller.say(&format!(
            "warning: this machine leads (--node-rank 0), and {host} is no address of its own: others look for it there"
        ));
        Ok(())
    }

    /// Until somebody listens there.
    async fn wait_for(&mut self, direct: &Direct, at: &[SocketAddr], search: &Search) -> Result<(), Stop> {
        let limit = search.seeker.join_timeout;
        let mut pause = Seeker::pause(None);
        let (began, mut said) = (Instant::now(), false);
        while search.began.elapsed() < limit {
            if self.hearing(tcp::dial(at, DIAL)).await?.is_ok() {
                return Ok(());
            }
            if began.elapsed() > SPEAK && !std::mem::replace(&mut said, true) {
                let (host, port, limit) = (&direct.host, direct.port, human(limit));
                self.teller.say(&format!(
                    "looking for the machine that leads at {host}, port {port}, for up to {limit}"
                ));
            }
            self.hearing(tokio::time::sleep(pause)).await?;
            pause = Seeker::pause(Some(pause));
        }
        let (host, port, waited) = (&direct.host, direct.port, human(limit));
        let sentence = format!("nobody has led at {host}, port {port}, for {waited}");
        let hint = "start the machine that leads (--node-rank 0, or the one with that address), and let its port through; \
                    --join-timeout says how long to wait";
        Err(Stop::Say(exit_code::FAILED, sentence, hint.into()))
    }

    /// The addresses of the endpoint. A name that is not known yet may be a moment later: machines of a cloud get theirs as
    /// they start.
    async fn resolve(&mut self, direct: &Direct, search: &Search) -> Result<Vec<SocketAddr>, Stop> {
        let at = |ip: IpAddr| SocketAddr::new(ip, direct.port);
        if let Ok(ip) = direct.host.parse() {
            return Ok(vec![at(ip)]);
        }
        let words = ["getent", "ahosts", direct.host.as_str()].map(str::to_owned);
        loop {
            let (errands, words) = (self.errands(), words.clone());
            let answer = self.hearing(async move { errands.ask(&words, LOOKUP).await }).await?;
            let mut found: Vec<SocketAddr> = Vec::new();
            let text = answer.as_deref().unwrap_or_default();
            for ip in text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
                if !found.contains(&at(ip)) {
                    found.push(at(ip));
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
            if search.began.elapsed() >= search.seeker.join_timeout.min(LOOKUP) {
                let why = answer.err().unwrap_or_else(|| "it has no address".to_owned());
                let sentence = format!("{} is not known on this machine: {why}", direct.host);
                let hint = "use an IP address, or a name that this machine can look up";
                return Err(Stop::Say(exit_code::USAGE, sentence, hint.into()));
            }
            self.hearing(tokio::time::sleep(Seeker::pause(None))).await?;
        }
    }
}
