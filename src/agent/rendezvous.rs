//! The ranks' rendezvous store on this node: listened for with the offer, opened with the attempt, closed when the next
//! attempt is started here or the agent goes; where the next one is without this node, when nobody is connected any more.
//! So it outlives the ranks of its attempt on every node: the coordinator starts an attempt when nobody has a rank of an
//! older one.

use std::io;
use std::net::IpAddr;

use tokio::sync::mpsc::UnboundedSender;

use super::driver::Input;
use super::start::Refused;
use crate::domain::errno::errno_name;
use crate::domain::ids::{Attempt, Rank, Slot};
use crate::domain::port_conflict;
use crate::domain::rendezvous;
use crate::domain::torch_store::seen::Place;
use crate::domain::wire::World;
use crate::sys::port::PortHold;
use crate::sys::process::{nofile, raise_nofile};
use crate::sys::spawn::Nofile;
use crate::torch_store::{
    COUNT_AFTER, Fault, Limits, Listening, MOST_BUFFERED, Opening, Server, Told, files, listen, room,
};

/// Files that an agent has open beside its store's: its own, and of each rank.
const OWN_FILES: u64 = 512;
const FILES_OF_A_RANK: u64 = 8;

const EADDRINUSE: i32 = 98;

/// What of it there is.
#[derive(Debug, Default)]
pub(super) struct Rendezvous {
    /// For the next attempt: its port, and who connects there waits.
    next: Option<(u16, Listening)>,
    /// Of the newest attempt that was started here.
    server: Option<(Attempt, Server)>,
    /// What ranks may open, where the agent may open more.
    before: Option<Nofile>,
}

impl Rendezvous {
    /// Listens for the next attempt.
    ///
    /// # Errors
    /// Why it cannot, as a sentence: rank 0 hosts the store then.
    pub(super) fn offer(&mut self, address: &str, port: u16) -> Result<(), String> {
        self.next = None;
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "port {port} of {address} cannot be listened on: {error}; rank 0 hosts the store of the next attempt"
            )
        };
        let ip: IpAddr = address.parse().map_err(|error| failed(&error))?;
        let listening = listen(ip, port).map_err(|error| failed(&error))?;
        self.next = Some((port, listening));
        Ok(())
    }

    /// An attempt is started here: the store of the one before is closed, and if this one's is to be here, it is opened.
    pub(super) fn open(
        &mut self,
        attempt: Attempt,
        world: &World,
        slot: Slot,
        inbox: &UnboundedSender<Input>,
    ) -> Result<(), Refused> {
        self.server = None;
        let next = self.next.take();
        let ours = world.members.first().is_some_and(|first| first.slot == slot);
        if !ours || !world.master.hosted {
            return Ok(());
        }
        let refused = |errno: i32, what: String| Refused {
            errno,
            what: format!(
                "the rendezvous store of attempt {attempt} ({what}); --rdzv-store rank0 does without"
            ),
        };
        let Some((_, listening)) = next.filter(|(port, _)| *port == world.master.port) else {
            const EADDRNOTAVAIL: i32 = 99;
            return Err(refused(EADDRNOTAVAIL, format!("port {} is not held", world.master.port)));
        };
        let ranks = rendezvous::world_size(&world.members);
        // The node of the first slot is this one.
        let here = world.members.first().map_or(0, |first| u64::from(first.nproc));
        let others = OWN_FILES + FILES_OF_A_RANK * here;
        let before = raise_nofile(files(ranks, others));
        self.before = self.before.or(before);
        let inbox = inbox.clone();
        let opening = Opening {
            places: places(world),
            world: ranks,
            limits: Limits::default(),
            most: room(ranks, nofile(), others),
            buffered: MOST_BUFFERED,
            count_after: COUNT_AFTER,
            tell: Box::new(move |told| {
                // The agent is going.
                let _ = inbox.send(Input::Store(attempt, told));
            }),
        };
        let failed = |error: io::Error| {
            let errno = error.raw_os_error().unwrap_or(0);
            refused(errno, errno_name(errno).to_string())
        };
        self.server = Some((attempt, listening.serve(opening).map_err(failed)?));
        Ok(())
    }

    /// The next world is without this node: the store of this attempt goes with the last who is connected.
    pub(super) fn over(&mut self, attempt: Attempt) {
        if let Some((_, server)) = self.server.as_ref().filter(|(of, _)| *of == attempt) {
            server.retire();
        }
    }

    /// Where rank 0 hosts the store, it does so at the port that was held for it: unless somebody else listens there by now.
    ///
    /// # Errors
    /// Somebody does.
    pub(super) fn leave_to_rank_0(
        &self,
        world: &World,
        slot: Slot,
        hold: Option<PortHold>,
    ) -> Result<(), Refused> {
        let ours = world.members.first().is_some_and(|first| first.slot == slot);
        let hold = hold.filter(|hold| ours && !world.master.hosted && hold.port() == world.master.port);
        match hold {
            Some(hold) if !hold.is_free() => {
                Err(Refused { errno: EADDRINUSE, what: port_conflict::taken(hold.port()) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What ranks get for RLIMIT_NOFILE, where this agent has more.
    pub(super) fn nofile(&self) -> Option<Nofile> {
        self.before
    }
}

/// Where the ranks of this world are.
fn places(world: &World) -> Vec<Place> {
    let mut first = 0_u32;
    let place = |(at, member): (usize, &crate::domain::record::Member)| {
        let addresses = world.addresses.get(at).map_or(&[][..], Vec::as_slice);
        let place = Place {
            node: member.node.clone(),
            addresses: addresses.iter().filter_map(|text| text.parse().ok()).collect(),
            first: Rank(first),
            nproc: member.nproc,
        };
        first = first.saturating_add(member.nproc);
        place
    };
    world.members.iter().enumerate().map(place).collect()
}

/// A word of the store for people.
pub(super) fn said(told: &Told) -> String {
    match told {
        Told::Reach(reach) => format!("{} of {} ranks are there", reach.there, reach.world),
        Told::Stranger(from) => {
            format!("a connection from {from} was refused: no node of this world has that address")
        }
        Told::Closed(from, why) => {
            let hint = match why {
                Fault::Other => {
                    "; if the program listens at MASTER_PORT itself: --rdzv-store rank0 leaves it free"
                }
                _ => "",
            };
            format!("a connection from {from} was closed: it {why}{hint}")
        }
        Told::ClosedInAll(count) => format!("{count} connections were closed for what they sent"),
        Told::NoRoom(why) => format!("connections have to wait: {why}"),
    }
}
