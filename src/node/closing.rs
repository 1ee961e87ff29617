//! What the last agent does for the job when the coordinator is gone: in the batch form nobody may be left who could.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::control::Life;
use crate::domain::finding;
use crate::net::tcp;

const SCANCEL: &str = "scancel";
/// For the supervisor's port to answer.
const ANSWER: Duration = Duration::from_secs(4);
/// For the journal.
const JOURNAL: Duration = Duration::from_secs(5);
/// For `scancel`, and no longer: a network that comes back late must not carry it out.
const CANCEL: Duration = Duration::from_secs(5);

impl Life {
    /// The run has ended for want of a coordinator. With `--no-kill` a job whose batch host is dead stays for ever: Slurm
    /// waits for a script that nobody runs. Whoever lives on is the job's only voice.
    pub(super) async fn end_job(&self) {
        let place = &self.boot.context.place;
        let (true, Some(job)) = (place.supervised, &place.job) else { return };
        let host: Option<IpAddr> = place.towards.as_ref().and_then(|text| text.parse().ok());
        let Some(supervisor) = host.zip(place.supervisor_port).map(SocketAddr::from) else { return };
        if tcp::dial(&[supervisor], ANSWER).await.is_ok() {
            // It lives, and ends its script with the run's code.
            return;
        }
        tokio::time::sleep(finding::closing_turn(place.index)).await;
        let errands = self.errands();
        if !self.is_abandoned().await {
            return;
        }
        self.teller.say(&format!(
            "ending job {}: its supervisor is gone with the batch host, and Slurm would keep the job without them",
            job.id
        ));
        // An order that fails has nobody left to repeat it.
        if let Err(why) = errands.ask(&[SCANCEL.to_owned(), job.id.clone()], CANCEL).await {
            self.teller.say(&format!("it could not be ended from {}: {why}", self.boot.context.node));
        }
    }

    /// The journal can be read, and nothing goes on without this node since it lost the coordinator.
    async fn is_abandoned(&self) -> bool {
        let store = self.store.clone();
        let opened = match tokio::time::timeout(JOURNAL, store.open(self.options(false))).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) | Err(_) => return false,
        };
        let read = usize::try_from(self.read.get()).unwrap_or(usize::MAX);
        finding::is_abandoned(opened.records.iter().skip(read), &self.boot.context.node)
    }
}
