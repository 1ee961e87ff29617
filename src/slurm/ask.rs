//! Questions to Slurm, and how its answers are read: whatever is not understood is no answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::children::{Children, CommandError};
use crate::domain::hostlist;
use crate::domain::ids::NodeName;
use crate::sys::capability::Capabilities;

/// How long a question may take: a controller that is down answers after 18 s, and nobody waits for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an order to Slurm may take.
const ORDER: Duration = Duration::from_secs(15);

/// Asks Slurm by its commands.
#[derive(Clone, Debug)]
pub struct Slurm {
    children: Children,
    env: Vec<(OsString, OsString)>,
    job: String,
}

impl Slurm {
    /// For this job, with this environment.
    #[must_use]
    pub fn new(children: Children, env: Vec<(OsString, OsString)>, job: String) -> Self {
        Self { children, env, job }
    }

    /// Does this `srun` know the option?
    pub async fn srun_knows(&self, option: &str) -> bool {
        let help = self.children.ask(&["srun", "--help"], &self.env, PATIENCE).await;
        help.is_ok_and(|help| {
            help.split(|c: char| c.is_whitespace() || c == '=' || c == '[').any(|w| w == option)
        })
    }

    /// The number of the step that the `srun` with this pid started.
    ///
    /// # Errors
    /// Slurm did not answer.
    pub async fn step_of(&self, pid: i32) -> Result<Option<String>, CommandError> {
        let words = ["scontrol", "--oneliner", "show", "step", &self.job];
        Ok(step_of(&self.children.ask(&words, &self.env, PATIENCE).await?, &self.job, pid))
    }

    /// What a question's command prints, or why it does not.
    pub async fn question(&self, words: &[String]) -> Result<String, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match self.children.ask(&words, &self.env, PATIENCE).await {
            Ok(answer) => Ok(answer),
            Err(CommandError::Failed { words, .. }) => Err(words),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a signal to every task of a step.
    ///
    /// # Errors
    /// Slurm refused or did not answer.
    pub async fn signal(&self, step: &str, signal: u8) -> Result<(), CommandError> {
        let signal = format!("--signal={signal}");
        self.children.ask(&["scancel", &signal, step], &self.env, ORDER).await.map(drop)
    }

    /// The addresses of nodes that have another one than their name.
    ///
    /// # Errors
    /// Slurm did not answer.
    pub async fn addresses(&self, nodes: &[NodeName]) -> Result<BTreeMap<NodeName, String>, CommandError> {
        let list = hostlist::compress(nodes);
        let words = ["scontrol", "--oneliner", "show", "node", &list];
        Ok(addresses(&self.children.ask(&words, &self.env, PATIENCE).await?, nodes))
    }
}

/// The file to which the output of a job's batch script goes.
///
/// # Errors
/// Slurm did not answer.
pub fn stdout_of(
    env: &[(OsString, OsString)],
    job: &str,
    caps: Capabilities,
) -> Result<Option<PathBuf>, CommandError> {
    const COMMAND: &str = "scontrol";
    let pipe = |source| CommandError::Pipe { program: COMMAND.to_owned(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(pipe)?;
    runtime.block_on(async {
        let children = Children::new(caps).map_err(pipe)?;
        let words = [COMMAND, "--oneliner", "show", "job", job];
        let answer = match children.ask(&words, env, PATIENCE).await {
            Err(CommandError::Late { .. } | CommandError::Failed { .. }) => {
                children.ask(&words, env, PATIENCE).await
            }
            answer => answer,
        };
        Ok(stdout(&answer?, job))
    })
}

/// A path may have blanks in it: it ends where the next name begins. The number of an array stands for all of its jobs.
fn stdout(answer: &str, job: &str) -> Option<PathBuf> {
    let line = answer.lines().find(|line| value(line, "JobId") == Some(job))?;
    let (_, rest) = line.split_once(" StdOut=")?;
    let is_name = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'/')
        })
    };
    let starts = rest.match_indices(' ').map(|(at, _)| at);
    let mut ends = starts.filter(|at| {
        let next = rest[at + 1..].split(' ').next();
        next.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && is_name(word))
    });
    let path = &rest[..ends.next().unwrap_or(rest.len())];
    Some(PathBuf::from(path.trim_end())).filter(|path| path.is_absolute())
}

/// The value of `key=` in one line of `scontrol`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn step_of(answer: &str, job: &str, pid: i32) -> Option<String> {
    let pid = pid.to_string();
    let mut steps = answer.lines().filter_map(|line| {
        // SrunHost:Pid=n01:4711
        let srun = value(line, "SrunHost:Pid")?;
        let ours = srun.rsplit(':').next() == Some(pid.as_str());
        let step = value(line, "StepId").filter(|_| ours)?;
        let number = step.strip_prefix(job)?.strip_prefix('.')?;
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then(|| step.to_owned())
    });
    steps.next_back()
}

fn addresses(answer: &str, nodes: &[NodeName]) -> BTreeMap<NodeName, String> {
    let mut found = BTreeMap::new();
    for line in answer.lines() {
        let (Some(name), Some(address)) = (value(line, "NodeName"), value(line, "NodeAddr")) else {
            continue;
        };
        let name = NodeName::new(name);
        let plain = address.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_'));
        if plain && !address.is_empty() && address != name.as_str() && nodes.contains(&name) {
            found.insert(name, address.to_owned());
        }
    }
    found
}

/// As agents are told ([`crate::domain::env::RELIGHT_NODE_ADDRS`]); nothing where that would be too long for an
/// environment.
#[must_use]
pub fn told(addresses: &BTreeMap<NodeName, String>) -> Option<String> {
    const LONGEST: usize = 96 << 10;
    let text: Vec<String> = addresses.iter().map(|(node, address)| format!("{node}={address}")).collect();
    Some(text.join(",")).filter(|text| !text.is_empty() && text.len() <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_job() {
        let of = |answer: &str| stdout(answer, "7").map(|path| path.display().to_string());
        let line = "JobId=7 JobName=a StdErr=/x/e StdIn=/dev/null StdOut=/scratch/my logs/7 a=b.out Power= ";
        assert_eq!(of(line).as_deref(), Some("/scratch/my logs/7 a=b.out"));
        assert_eq!(of("JobId=7 X=1 StdOut=/l/slurm-7.out").as_deref(), Some("/l/slurm-7.out"));
        // One line for each job of an array.
        let array = "JobId=9 ArrayJobId=7 ArrayTaskId=1 StdOut=/l/7_1.out\nJobId=7 ArrayJobId=7 ArrayTaskId=2 StdOut=/l/7_2.out\n";
        assert_eq!(of(array).as_deref(), Some("/l/7_2.out"));
        for none in ["", "JobId=7", "JobId=7 StdOut=", "JobId=7 StdOut=relative", "JobId=70 StdOut=/x"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_step_is_known_by_the_pid_of_its_srun() {
        let answer = "StepId=7.0 UserId=5 StartTime=2026-12-01T05:00:00 TimeLimit=UNLIMITED State=RUNNING Partition=p NodeList=n[01-02] \
            Nodes=2 CPUs=4 Tasks=2 Name=relight Network=(null) TRES=cpu=4 ResvPorts=(null) CPUFreqReq=Default Dist=Cyclic SrunHost:Pid=n01:4711\n\
            StepId=7.1 State=RUNNING SrunHost:Pid=n01:471\n\
            StepId=7.batch State=RUNNING SrunHost:Pid=n01:99\n\
            StepId=7.TBD State=PENDING SrunHost:Pid=n01:98\n\
            garbage = =\n\
            StepId=8.3 SrunHost:Pid=n01:97\n";
        let step = |pid| step_of(answer, "7", pid);
        assert_eq!(step(4711).as_deref(), Some("7.0"));
        assert_eq!(step(471).as_deref(), Some("7.1"));
        for pid in [1, 97, 98, 99] {
            assert_eq!(step(pid), None, "{pid}");
        }
    }

    #[test]
    fn addresses_are_those_of_our_nodes_that_differ() {
        let answer = "NodeName=n01 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.77.0.2 NodeHostName=n01 Version=22.05.8 OS=Linux 6.1 #1 SMP\n\
            NodeName=n02 NodeAddr=n02 NodeHostName=n02\nNodeName=n03 NodeAddr=$(rm)\nNodeName=x NodeAddr=1.2.3.4\n\n";
        let nodes = hostlist::expand("n[01-04]").unwrap();
        let found = addresses(answer, &nodes);
        assert_eq!(told(&found).as_deref(), Some("n01=10.77.0.2"));
        assert_eq!(told(&BTreeMap::new()), None);
    }
}
