//! Where in Slurm a process stands, read from its variables alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::env::{self, EnvVar};
use super::hostlist::{self, HostlistError};
use super::ids::NodeName;

/// Steps with this number or a higher one are no `srun` of a user's: extern, batch, interactive, pending.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;
/// The step behind the prompt of `salloc`.
const INTERACTIVE_STEP: u32 = 4_294_967_290;

/// Nodes on which a coordinator is looked for without a hint: it leads from one of the first.
const MOST_PEERS: usize = 16;

/// How a relight command was started in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By a batch script: it supervises.
    Batch,
    /// At the prompt of `salloc`, wherever that stands: it supervises, and a person looks on.
    Prompt,
    /// As a task of a user's own `srun`: it is an agent without a supervisor.
    Step,
    /// As a task of the `srun` of a supervisor: it is an agent.
    Supervised,
    /// Inside a rank of another run: it has nothing to do with the job around it.
    Nested,
}

/// What Slurm's variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmPlace {
    /// How we were started.
    pub form: Form,
    /// The job's id.
    pub job: String,
    /// How often the job was requeued.
    pub restarts: u32,
    /// The step, inside one that a user or a supervisor started.
    pub step: Option<u32>,
    /// The nodes of the run in order: those of the job, of the step ([`Form::Step`]), or as the supervisor says.
    /// Their names as at the job's start: some may have left it since.
    pub nodes: Vec<NodeName>,
    /// This node's name, where Slurm names it.
    pub node: Option<NodeName>,
    /// This node's place in `nodes`.
    pub index: Option<usize>,
    /// Our task in the step, from 0.
    pub task: u32,
    /// Our task on this node, from 0.
    pub local_task: u32,
    /// Tasks of our step on this node; 1 outside a step.
    pub tasks_here: u32,
    /// Tasks per node that the header asks for; `None` where it does not say, or not the same for every node.
    pub header_tasks: Option<u32>,
    /// CPUs per task that the header asks for.
    pub header_cpus: Option<u32>,
    /// CPUs of the job or step on this node.
    pub cpus_here: Option<u32>,
    /// CPUs of the job on every node; `None` where nodes differ.
    pub cpus: Option<u32>,
    /// GPUs of the job or step on this node; `None` where Slurm knows of none.
    pub gpus: Option<u32>,
    /// What the supervisor calls this launch.
    pub launch: Option<String>,
    /// The port that is open as long as the supervisor lives.
    pub supervisor_port: Option<u16>,
    /// The address of this node as Slurm has it, where the supervisor knows one.
    pub address: Option<String>,
    /// Addresses of the first nodes of the run, in their order, where the supervisor knows one.
    pub peers: Vec<String>,
    /// The address of the node where the step was started.
    pub launch_address: Option<String>,
    /// Components of a heterogeneous job; 1 for any other.
    pub components: u32,
}

/// Slurm's variables contradict what is known of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmEnvError {
    /// No list of nodes.
    #[error("{variable} is no list of nodes: {source}")]
    Nodes {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        source: HostlistError,
    },
}

impl SlurmPlace {
    /// Reads the variables; `None` outside a job.
    ///
    /// # Errors
    /// A list of nodes is none. Other variables that make no sense count as absent.
    pub fn read(vars: &BTreeMap<String, String>) -> Result<Option<Self>, SlurmEnvError> {
        let vars = Vars(vars);
        let Some(job) = vars.text(env::SLURM_JOB_ID) else { return Ok(None) };
        let form = vars.form();
        let nodes = vars.nodes(form)?;
        let node = vars.text(env::SLURMD_NODENAME).map(NodeName::new);
        let in_step = matches!(form, Form::Step | Form::Supervised);
        Ok(Some(Self {
            form,
            job: job.to_owned(),
            restarts: vars.number(env::SLURM_RESTART_COUNT).unwrap_or(0),
            step: vars.number(env::SLURM_STEP_ID).filter(|step| in_step && *step < FIRST_SPECIAL_STEP),
            peers: vars.addresses(&nodes),
            index: node.as_ref().and_then(|node| nodes.iter().position(|other| other == node)),
            nodes,
            node,
            task: vars.number(env::SLURM_PROCID).filter(|_| in_step).unwrap_or(0),
            local_task: vars.number(env::SLURM_LOCALID).filter(|_| in_step).unwrap_or(0),
            tasks_here: if in_step { vars.tasks_here() } else { 1 },
            header_tasks: vars.header_tasks(form),
            header_cpus: vars.header_cpus(form),
            cpus_here: vars.number(env::SLURM_CPUS_ON_NODE),
            cpus: vars.text(env::SLURM_JOB_CPUS_PER_NODE).and_then(Counts::parse).and_then(|c| c.same()),
            gpus: vars.number(env::SLURM_GPUS_ON_NODE),
            launch: vars.text(env::RELIGHT_LAUNCH).map(str::to_owned),
            supervisor_port: vars.text(env::RELIGHT_SUPERVISOR_PORT).and_then(|text| text.parse().ok()),
            address: vars.own_address(),
            launch_address: vars.text(env::SLURM_LAUNCH_NODE_IPADDR).map(str::to_owned),
            components: vars.number(env::SLURM_HET_SIZE).unwrap_or(1).max(1),
        }))
    }
}

struct Vars<'a>(&'a BTreeMap<String, String>);

impl Vars<'_> {
    fn text(&self, var: EnvVar) -> Option<&str> {
        self.0.get(var.name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn number(&self, var: EnvVar) -> Option<u32> {
        self.text(var)?.parse().ok()
    }

    fn form(&self) -> Form {
        if self.text(env::RELIGHT_ATTEMPT).is_some() {
            return Form::Nested;
        }
        if self.text(env::RELIGHT_SUPERVISED) == Some("1") {
            return Form::Supervised;
        }
        match self.number(env::SLURM_STEP_ID) {
            Some(INTERACTIVE_STEP) => Form::Prompt,
            Some(step) if step < FIRST_SPECIAL_STEP => Form::Step,
            // slurmd names the node in a batch script; the prompt of an older salloc is no process of slurmd's.
            _ if self.text(env::SLURMD_NODENAME).is_some() => Form::Batch,
            _ => Form::Prompt,
        }
    }

    /// `node=address` in what the supervisor says; a name in the place of an address is none.
    fn pairs(&self) -> impl Iterator<Item = (&str, String)> {
        let text = self.text(env::RELIGHT_NODE_ADDRS).unwrap_or_default();
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.filter_map(|(node, address)| Some((node, address.parse::<IpAddr>().ok()?.to_string())))
    }

    fn own_address(&self) -> Option<String> {
        let node = self.text(env::SLURMD_NODENAME)?;
        self.pairs().find(|(name, _)| *name == node).map(|(_, address)| address)
    }

    fn addresses(&self, nodes: &[NodeName]) -> Vec<String> {
        let by_name: BTreeMap<&str, String> = self.pairs().collect();
        nodes.iter().filter_map(|node| by_name.get(node.as_str()).cloned()).take(MOST_PEERS).collect()
    }

    fn list(&self, var: EnvVar) -> Result<Option<Vec<NodeName>>, SlurmEnvError> {
        let expand = |text| {
            hostlist::expand(text).map_err(|source| SlurmEnvError::Nodes { variable: var.name, source })
        };
        self.text(var).map(expand).transpose()
    }

    fn nodes(&self, form: Form) -> Result<Vec<NodeName>, SlurmEnvError> {
        if form == Form::Supervised
            && let Some(nodes) = self.list(env::RELIGHT_NODELIST)?
        {
            return Ok(nodes);
        }
        let job = self.list(env::SLURM_JOB_NODELIST)?.unwrap_or_default();
        if form != Form::Step {
            return Ok(job);
        }
        // The step's list may be in another order than the job's; a step may have fewer nodes than its job.
        let Some(step) = self.list(env::SLURM_STEP_NODELIST)? else { return Ok(job) };
        let in_step: std::collections::BTreeSet<&NodeName> = step.iter().collect();
        let mut nodes: Vec<NodeName> = job.into_iter().filter(|node| in_step.contains(node)).collect();
        if nodes.len() != in_step.len() {
            nodes = step;
        }
        Ok(nodes)
    }

    /// Tasks of our step on our node.
    fn tasks_here(&self) -> u32 {
        let counts = self.text(env::SLURM_STEP_TASKS_PER_NODE).and_then(Counts::parse);
        let at = self.number(env::SLURM_NODEID);
        let by_node = counts.and_then(|counts| counts.same().or_else(|| counts.get(at?)));
        let ids = || self.text(env::SLURM_GTIDS).map(|ids| ids.split(',').count());
        by_node.or_else(|| ids().and_then(|n| u32::try_from(n).ok())).unwrap_or(1).max(1)
    }

    /// In a step this variable speaks of the step's tasks.
    fn header_cpus(&self, form: Form) -> Option<u32> {
        match form {
            Form::Supervised => self.number(env::RELIGHT_HEADER_CPUS),
            Form::Batch | Form::Prompt => self.number(env::SLURM_CPUS_PER_TASK),
            Form::Step | Form::Nested => None,
        }
    }

    /// In a step Slurm's variables speak of the step: what the header said comes from the supervisor, or is what
    /// the batch script's environment has left.
    fn header_tasks(&self, form: Form) -> Option<u32> {
        if form == Form::Supervised {
            return self.number(env::RELIGHT_HEADER_TASKS);
        }
        let asked = self.number(env::SLURM_NTASKS_PER_NODE);
        if asked.is_some() || form == Form::Step {
            return asked.filter(|tasks| *tasks > 0);
        }
        // Without a number of tasks in the header this variable counts something else.
        self.text(env::SLURM_NTASKS)?;
        Counts::parse(self.text(env::SLURM_TASKS_PER_NODE)?)?.same()
    }
}

/// Numbers by node in Slurm's form, as `4(x3),2`.
#[must_use]
pub fn by_node(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((same, times)) if *same == number => *times += 1,
            _ => runs.push((number, 1)),
        }
    }
    let shown = runs.iter().map(|(number, times)| match times {
        1 => number.to_string(),
        _ => format!("{number}(x{times})"),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// Slurm's numbers by node: `4(x3),2`.
struct Counts(Vec<(u32, u32)>);

impl Counts {
    fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| match part.split_once("(x") {
            Some((count, times)) => Some((count.parse().ok()?, times.strip_suffix(')')?.parse().ok()?)),
            None => Some((part.parse().ok()?, 1)),
        };
        text.split(',').map(part).collect::<Option<Vec<_>>>().map(Self)
    }

    fn get(&self, mut node: u32) -> Option<u32> {
        for (count, times) in &self.0 {
            match node.checked_sub(*times) {
                Some(rest) => node = rest,
                None => return Some(*count),
            }
        }
        None
    }

    fn same(&self) -> Option<u32> {
        let (first, _) = self.0.first()?;
        self.0.iter().all(|(count, _)| count == first).then_some(*first)
    }
}

#[cfg(test)]
#[path = "slurm_env_tests.rs"]
mod tests;
