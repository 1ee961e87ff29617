//! Settings that depend on where in Slurm the process stands: nodes, spares, ranks, and its place in the launch.

use std::net::IpAddr;

use super::args::Facts;
use super::key::Key;
use super::resolve::{Layers, Place, Settings, SettingsError};
use super::value::{self, Nodes, Origin, Value, ValueProblem};
use crate::domain::env::{self, GpuVisibility, SlurmEnv};
use crate::domain::slurm_env::{Form, SlurmPlace};
use crate::domain::spec::{DIRECT, Direct, JobRef, LaunchPlace};

/// Nodes of the world and spares. What is given of the two decides the other; what of the allocation is left over waits
/// as a spare.
pub(super) fn nodes(
    layers: &Layers<'_>,
    slurm: Option<&SlurmPlace>,
    standalone: bool,
) -> Result<(Value<Nodes>, Value<u32>), SettingsError> {
    let there = slurm.map_or(1, |place| u32::try_from(place.nodes.len()).unwrap_or(u32::MAX).max(1));
    let given = layers.get(Key::Spares, |text| value::number(text, value::MOST_NODES), || (0, ""))?;
    let typed = matches!(given.origin, Origin::Default(_));
    let default = || {
        let max = there.saturating_sub(given.value).max(1);
        let why = if slurm.is_some() { "the allocation less the spares" } else { "" };
        (Nodes { min: max, max }, why)
    };
    let parse = |text: &str| match value::nodes(text)? {
        // Nobody could join; where one node is enough torchrun starts with it, too.
        nodes if slurm.is_none() && standalone && nodes.min == 1 => Ok(Nodes { min: 1, max: 1 }),
        nodes if nodes.max > 1 && slurm.is_none() && standalone => Err(ValueProblem::SeveralNodes),
        // Machines without Slurm: nobody knows how many there are.
        nodes if slurm.is_none() => Ok(nodes),
        nodes if nodes.min > there => Err(ValueProblem::TooFewNodes { there }),
        // One line for jobs of any size: at most is what there is, less the spares that were asked for.
        Nodes { min, max } if min < max => {
            Ok(Nodes { min, max: max.min(there.saturating_sub(given.value)).max(min) })
        }
        nodes => Ok(nodes),
    };
    let nnodes = layers.get(Key::Nnodes, parse, default)?;
    if slurm.is_none() && nnodes.value.max > 1 {
        // Machines beyond those of the world that come are spares, however many.
        return Ok((nnodes, given));
    }
    let left = there.saturating_sub(nnodes.value.max);
    if given.value > left {
        let (typed, origin) = layers.find(Key::Spares).unwrap_or(("", Origin::Default("")));
        let place = Box::new(Place { key: Key::Spares, typed: typed.to_owned(), origin });
        return Err(SettingsError::Bad { place, problem: ValueProblem::TooFewNodes { there } });
    }
    let spares = if typed && left > 0 {
        Value { value: left, origin: Origin::Default("what the world leaves of the allocation") }
    } else {
        given
    };
    Ok((nnodes, spares))
}

/// In a job: the header's tasks per node, else the node's GPUs, else 1. torchrun knows neither.
pub(super) fn default_nproc(facts: &Facts, slurm: Option<&SlurmPlace>) -> (u32, &'static str) {
    let Some(place) = slurm.filter(|_| !facts.as_torchrun) else { return (1, "") };
    match place.header_tasks {
        Some(tasks) if tasks > 1 => (tasks, "tasks per node of the job's header"),
        _ if facts.gpus > 0 => (facts.gpus, "GPUs of this node"),
        _ => (1, "no GPU is visible"),
    }
}

/// `--slurm-env`.
pub(super) fn slurm_env(text: &str) -> Result<SlurmEnv, ValueProblem> {
    let found = SlurmEnv::ALL.into_iter().find(|mode| mode.name() == text.trim());
    found.ok_or(ValueProblem::NotOneOf("task, hide, keep"))
}

/// `--gpu-visibility`.
pub(super) fn gpus(text: &str) -> Result<GpuVisibility, ValueProblem> {
    let found = GpuVisibility::ALL.into_iter().find(|which| which.name() == text.trim());
    found.ok_or(ValueProblem::NotOneOf("all, own"))
}

/// `--heartbeat-hooks`.
pub(super) fn hooks(text: &str) -> Result<bool, ValueProblem> {
    match text.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ValueProblem::NotOneOf("on, off")),
    }
}

/// CPUs of one of this node's ranks.
pub(super) fn threads(facts: &Facts, nproc: u32) -> Option<u32> {
    let slurm = facts.slurm.as_ref();
    let cpus = env::Cpus {
        in_job: slurm.is_some(),
        as_torchrun: facts.as_torchrun,
        usable: facts.cpus,
        allotted: slurm.and_then(|place| place.cpus_here),
        header_tasks: slurm.and_then(|place| place.header_tasks),
        header_cpus: slurm.and_then(|place| place.header_cpus),
    };
    env::threads(&cpus, nproc)
}

/// An address, not a name: nothing here looks names up.
pub(super) fn address(text: &str) -> Result<Option<String>, ValueProblem> {
    match text.trim().parse::<IpAddr>() {
        Ok(ip) => Ok(Some(ip.to_string())),
        Err(_) => Err(ValueProblem::NotAnAddress),
    }
}

impl Settings {
    /// Where this node stands in its launch; alone where no agents of other nodes belong to it.
    #[must_use]
    pub fn place(&self) -> LaunchPlace {
        if let Some(at) = &self.meeting.at {
            // An id of somebody's choice keeps two runs at one endpoint apart.
            let chosen = !matches!(self.run_id.origin, Origin::Default(_));
            let id = if chosen { self.run_id.value.as_str() } else { "" };
            return LaunchPlace {
                token: format!("{DIRECT}{}:{id}", at.port),
                index: at.rank.unwrap_or(1),
                address: self.local_addr.value.clone(),
                direct: Some(Direct {
                    host: at.host.clone(),
                    port: at.port,
                    rank: at.rank,
                    secret: String::new(),
                }),
                ..LaunchPlace::default()
            };
        }
        let together = self.slurm.as_ref().filter(|p| matches!(p.form, Form::Step | Form::Supervised));
        let Some(place) = together else { return LaunchPlace::default() };
        let supervised = place.form == Form::Supervised;
        let token = match (&place.launch, place.step) {
            (Some(launch), _) if supervised => launch.clone(),
            (_, Some(step)) if !supervised => format!("{}.{}.{step}", place.job, place.restarts),
            _ => format!("{}.{}.{}", place.job, place.restarts, self.run_id.value),
        };
        LaunchPlace {
            token,
            job: Some(JobRef { id: place.job.clone(), restart: place.restarts }),
            nodes: place.nodes.clone(),
            index: u32::try_from(place.index.unwrap_or(0)).unwrap_or(0),
            supervised,
            contained: false,
            address: self.local_addr.value.clone().or_else(|| place.address.clone()),
            supervisor_port: place.supervisor_port,
            towards: place.launch_address.clone(),
            peers: place.peers.clone(),
            direct: None,
        }
    }

    /// This node is none of the launch, as Slurm lists it: the sentence that says so.
    #[must_use]
    pub fn out_of_place(&self) -> Option<String> {
        let place = self.slurm.as_ref().filter(|p| matches!(p.form, Form::Step | Form::Supervised))?;
        (place.index.is_none() && !place.nodes.is_empty())
            .then(|| format!("{} is none of the nodes in {}", self.node, env::SLURM_STEP_NODELIST.name))
    }
}
