//! What this process knows of itself and of its machine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::failure::{ConfigError, UsageError};
use super::flags::RunOptions;
use super::job_output::{self, Asked};
use crate::domain::env;
use crate::domain::settings::{Args, ConfigFile, Facts, Key};
use crate::domain::slurm_env::SlurmPlace;

/// Where a site may say what holds for every run on its machines.
pub const SITE_FILE: &str = "/etc/relight.conf";

/// The process as it was started.
#[derive(Clone, Debug)]
pub struct Process {
    /// The path or name that it was called by.
    pub called_as: OsString,
    /// The command line, for people.
    pub command: Vec<String>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The documented variables that are valid UTF-8.
    pub known: BTreeMap<String, String>,
    /// The working directory; `/` where it is gone.
    pub cwd: PathBuf,
    /// The working directory was removed, or cannot be reached.
    pub cwd_is_gone: bool,
    /// Where the output of the job goes, once somebody has asked.
    asked: OnceLock<Asked>,
}

impl Process {
    /// Reads environment and working directory, once.
    #[must_use]
    pub fn of(called_as: &OsStr, args: &[OsString]) -> Self {
        let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let known = env::ALL
            .iter()
            .filter_map(|var| {
                let (_, value) = env.iter().find(|(name, _)| name == var.name)?;
                Some((var.name.to_owned(), value.to_str()?.to_owned()))
            })
            .collect();
        let cwd = std::env::current_dir();
        let cwd_is_gone = cwd.is_err();
        let cwd = cwd.unwrap_or_else(|_| PathBuf::from("/"));
        let words = std::iter::once(called_as).chain(args.iter().map(OsString::as_os_str));
        let command = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Self {
            called_as: called_as.to_owned(),
            command,
            env,
            known,
            cwd,
            cwd_is_gone,
            asked: OnceLock::new(),
        }
    }

    /// A documented variable that is there, not empty, and valid UTF-8.
    #[must_use]
    pub fn var(&self, var: env::EnvVar) -> Option<&str> {
        self.known.get(var.name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Refuses a variable that decides a setting and whose value is no text: to pass over it would be another run than the
    /// one that was asked for. What an option of the command line decides anyway is not looked at.
    ///
    /// # Errors
    /// The first such variable.
    pub fn readable(&self, args: &Args) -> Result<(), UsageError> {
        let keys = Key::ALL.into_iter().filter(|key| !args.values.contains_key(key));
        for var in keys.flat_map(|key| key.env().iter().take_while(|var| self.var(**var).is_none())) {
            let value = self.env.iter().find(|(name, _)| name == var.name).map(|(_, value)| value);
            if let Some(value) = value.filter(|value| value.to_str().is_none()) {
                let value = value.to_string_lossy().into_owned();
                return Err(UsageError::NotUtf8Variable { name: var.name, value });
            }
        }
        Ok(())
    }

    /// What settings depend on.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts {
            as_torchrun: super::is_torchrun(&self.called_as),
            at_terminal: std::io::stdin().is_terminal() || self.var(env::RELIGHT_TERMINAL) == Some("1"),
            cpus: std::thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            gpus: gpus(self),
            xpus: xpus(self),
            node: self.node(),
            cwd: self.cwd.clone(),
            stamp: jiff::ZonedDateTime::now().strftime("%Y%m%d-%H%M%S").to_string(),
            random: random(),
            // What makes no sense is said where it matters (see `run::prepare`).
            slurm: SlurmPlace::read(&self.known).ok().flatten(),
            job_output: None,
        }
    }

    /// What settings depend on, with the place of the job's output where that decides something.
    #[must_use]
    pub fn facts_for(&self, options: &RunOptions, files: &[ConfigFile]) -> Facts {
        let named = options.run_dir.is_some()
            || self.var(env::RELIGHT_RUN_DIR).is_some()
            || files.iter().any(|file| file.values.contains_key(&Key::RunDir));
        let job_output = if named { None } else { self.job_output().output.clone() };
        Facts { job_output, ..self.facts() }
    }

    /// Where the output of the job goes: Slurm is asked once.
    pub fn job_output(&self) -> &Asked {
        self.asked.get_or_init(|| job_output::ask(self))
    }

    /// What is to be said where Slurm was asked and did not answer.
    #[must_use]
    pub fn silence(&self) -> Option<&str> {
        self.asked.get()?.silence.as_deref()
    }

    /// `SLURMD_NODENAME`, else the host name.
    #[must_use]
    pub fn node(&self) -> String {
        if let Some(name) = self.var(env::SLURMD_NODENAME) {
            return name.to_owned();
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        if name.is_empty() || name.contains('/') { "localhost".to_owned() } else { name.to_owned() }
    }

    /// The configuration files in order: the one that is named, then the site's.
    ///
    /// # Errors
    /// The named one cannot be read, or one makes no sense.
    pub fn config_files(&self, named: Option<&str>) -> Result<Vec<ConfigFile>, ConfigError> {
        let named = named.or_else(|| self.var(env::RELIGHT_CONFIG));
        let mut files = Vec::new();
        if let Some(name) = named {
            files.push(config_file(&self.cwd.join(name))?);
        }
        match config_file(Path::new(SITE_FILE)) {
            Ok(file) => files.push(file),
            Err(ConfigError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(files)
    }
}

fn config_file(path: &Path) -> Result<ConfigFile, ConfigError> {
    const LONGEST: u64 = 256 * 1024;
    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) if text.len() as u64 > LONGEST => Err(ConfigError::TooLarge { path: path.to_owned() }),
        Ok(text) => Ok(ConfigFile::parse(path, &text)?),
        Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
    }
}

/// Sixteen random bits, to tell two runs of one second apart; the process id serves where there are none.
fn random() -> u16 {
    getrandom::u32().map_or_else(|_| (std::process::id() & 0xffff) as u16, |bits| (bits & 0xffff) as u16)
}

/// GPUs that a rank would see: those of the machine, less what the environment hides.
fn gpus(process: &Process) -> u32 {
    let (there, visible) = match nvidia() {
        0 => (amd(), process.known.get(env::HIP_VISIBLE_DEVICES.name)),
        n => (n, process.known.get(env::CUDA_VISIBLE_DEVICES.name)),
    };
    match visible {
        None => there,
        Some(_) if there == 0 => 0,
        Some(list) => {
            // As the drivers read it: the list ends at the first entry that is no device.
            let listed =
                list.split(',').map(str::trim).take_while(|entry| !entry.is_empty() && *entry != "-1");
            let slices = list.trim_start().starts_with("MIG");
            let listed = u32::try_from(listed.count()).unwrap_or(u32::MAX);
            if slices { listed } else { listed.min(there) }
        }
    }
}

fn nvidia() -> u32 {
    let counted = |dir: &str, is_device: fn(&str) -> bool| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let devices = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_device)).count();
        u32::try_from(devices).unwrap_or(u32::MAX)
    };
    match counted("/proc/driver/nvidia/gpus", |_| true) {
        // Containers see device files only.
        0 => counted("/dev", |name| {
            name.strip_prefix("nvidia")
                .is_some_and(|no| !no.is_empty() && no.bytes().all(|b| b.is_ascii_digit()))
        }),
        n => n,
    }
}

fn amd() -> u32 {
    let nodes = std::fs::read_dir("/sys/class/kfd/kfd/topology/nodes").into_iter().flatten().flatten();
    let is_gpu = |node: &std::fs::DirEntry| {
        std::fs::read_to_string(node.path().join("gpu_id")).is_ok_and(|id| id.trim() != "0")
    };
    u32::try_from(nodes.filter(is_gpu).count()).unwrap_or(u32::MAX)
}

/// GPUs of Intel, less what the environment hides.
fn xpus(process: &Process) -> u32 {
    const INTEL: &str = "0x8086";
    let entries = std::fs::read_dir("/sys/class/drm").into_iter().flatten().flatten();
    let renders = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"));
    let vendor = |entry: &std::fs::DirEntry| std::fs::read_to_string(entry.path().join("device/vendor"));
    let there = renders.filter(|entry| vendor(entry).is_ok_and(|id| id.trim() == INTEL)).count();
    let there = u32::try_from(there).unwrap_or(u32::MAX);
    match process.var(env::ZE_AFFINITY_MASK) {
        Some(mask) => u32::try_from(mask.split(',').count()).unwrap_or(u32::MAX).min(there),
        None => there,
    }
}
