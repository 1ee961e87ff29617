//! A user's own `srun` options: which of them decide where agents run, and which contradict a supervisor.

use std::collections::BTreeSet;

use crate::domain::hostlist::{self, HostlistError};
use crate::domain::ids::NodeName;

/// Why a line of `srun` cannot be supervised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It asks for a number of tasks.
    #[error("relight starts one agent per node, with all of its cores and GPUs: leave {option} out")]
    Tasks {
        /// As typed.
        option: String,
    },
    /// It contradicts what keeps a run alive.
    #[error("{option} cannot be: {why}")]
    Contradicts {
        /// As typed.
        option: String,
        /// Why not.
        why: &'static str,
    },
    /// Short for more than one option.
    #[error("{option} of srun is short for {one} and for {other}")]
    Ambiguous {
        /// As typed.
        option: String,
        /// Two of them.
        one: String,
        /// Two of them.
        other: String,
    },
    /// Letters that stand together, and one of them matters.
    #[error("{option} of srun: write each option by itself")]
    Together {
        /// As typed.
        option: String,
    },
    /// The value is missing.
    #[error("{option} of srun needs a value")]
    NeedsValue {
        /// As typed.
        option: String,
    },
    /// A number of nodes that is none.
    #[error("{option} of srun: '{value}' is no number of nodes")]
    NotANumber {
        /// As typed.
        option: String,
        /// Its value.
        value: String,
    },
    /// A list of nodes that is none.
    #[error("{option} of srun: {source}")]
    Nodes {
        /// As typed.
        option: String,
        /// What is wrong.
        source: HostlistError,
    },
    /// The node does not belong to the job.
    #[error("{node} is no node of this job")]
    NotInJob {
        /// The node.
        node: NodeName,
    },
    /// The job is smaller.
    #[error("the job has {there} nodes for srun, {wanted} are wanted")]
    TooFew {
        /// Wanted.
        wanted: usize,
        /// What is there.
        there: usize,
    },
}

impl LineError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Tasks { .. } => Some("ranks per node: relight run --nproc-per-node N".to_owned()),
            Self::Contradicts { option, .. } => Some(format!("leave {option} out")),
            Self::Ambiguous { .. } => Some("write it in full".to_owned()),
            _ => None,
        }
    }
}

/// What is done with an option.
#[derive(Clone, Copy)]
enum Rule {
    /// Counts, and is replaced by ours.
    Nodes,
    NodeList,
    Exclude,
    Export,
    /// Must be 1 per node, or as many as nodes.
    Tasks,
    TasksPerNode,
    /// Ours has this value (or none); another one is refused.
    Only(Value, &'static str, &'static str),
    /// Has a value and stays; we look at it.
    Image,
    Cpus,
    Gpus,
    /// Refused, with a reason.
    Never(Value, &'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Needed,
    Optional,
}

const ONE: &str = "relight starts one agent per node, with all of its cores and GPUs";
const GPUS: &str = "an agent needs all GPUs of its node; ask for them with --gpus-per-node";
const INPUT: &str = "agents have no standard input";

/// Long name, short name (or a space), rule. All other options stay as they are.
const RULES: &[(&str, char, Rule)] = &[
    ("nodes", 'N', Rule::Nodes),
    ("nodelist", 'w', Rule::NodeList),
    ("exclude", 'x', Rule::Exclude),
    ("export", ' ', Rule::Export),
    ("ntasks", 'n', Rule::Tasks),
    ("ntasks-per-node", ' ', Rule::TasksPerNode),
    ("tasks-per-node", ' ', Rule::TasksPerNode),
    ("cpus-per-task", 'c', Rule::Cpus),
    ("gpus", 'G', Rule::Gpus),
    ("gpus-per-node", ' ', Rule::Gpus),
    ("gres", ' ', Rule::Gpus),
    ("container-image", ' ', Rule::Image),
    ("container", ' ', Rule::Image),
    ("no-kill", 'k', Rule::Only(Value::None, "", "a lost node would end the others")),
    ("kill-on-bad-exit", 'K', Rule::Only(Value::Optional, "0", "one agent's end would end the others")),
    ("wait", 'W', Rule::Only(Value::Needed, "0", "agents do not end together")),
    ("mpi", ' ', Rule::Only(Value::Needed, "none", "the ranks are started by relight, not by srun")),
    ("cpu-bind", ' ', Rule::Only(Value::Needed, "none", "an agent needs all cores of its node")),
    ("cpu_bind", ' ', Rule::Only(Value::Needed, "none", "an agent needs all cores of its node")),
    ("input", 'i', Rule::Only(Value::Needed, "none", INPUT)),
    ("overlap", ' ', Rule::Only(Value::None, "", "a lost agent could not be started again")),
    ("unbuffered", 'u', Rule::Only(Value::None, "", "it is so anyway")),
    ("oom-kill-step", ' ', Rule::Only(Value::Optional, "0", "one rank out of memory would end all of them")),
    ("gpus-per-task", ' ', Rule::Never(Value::Needed, GPUS)),
    ("tres-per-task", ' ', Rule::Never(Value::Needed, GPUS)),
    ("gpus-per-socket", ' ', Rule::Never(Value::Needed, GPUS)),
    ("ntasks-per-core", ' ', Rule::Never(Value::Needed, ONE)),
    ("ntasks-per-socket", ' ', Rule::Never(Value::Needed, ONE)),
    ("ntasks-per-gpu", ' ', Rule::Never(Value::Needed, ONE)),
    ("multi-prog", ' ', Rule::Never(Value::None, ONE)),
    ("het-group", ' ', Rule::Never(Value::Needed, "relight runs in one component of a heterogeneous job")),
    ("pack-group", ' ', Rule::Never(Value::Needed, "relight runs in one component of a heterogeneous job")),
    ("pty", ' ', Rule::Never(Value::None, INPUT)),
    ("exclusive", ' ', Rule::Never(Value::Optional, "a lost agent could not be started again")),
    ("jobid", ' ', Rule::Never(Value::Needed, "relight supervises the job in which it runs")),
    ("relative", 'r', Rule::Never(Value::Needed, "relight names the nodes itself; use --nodelist")),
    ("immediate", 'I', Rule::Never(Value::Optional, "relight decides how long it waits for Slurm")),
    ("external-launcher", ' ', Rule::Never(Value::Optional, ONE)),
];

/// srun's other long options: what a shortened one may stand for.
const OTHERS: &str = "accel-bind account acctg-freq autocomplete bb bbf bcast bcast-exclude begin chdir cluster-constraint \
    clusters comment compress consolidate-segments constraint container-id contiguous core-spec \
    cores-per-socket cpu-freq cpus-per-gpu deadline debugger-test delay-boot dependency disable-status \
    distribution epilog error exact extra extra-node-info gid gpu-bind gpu-freq gres-flags help hint \
    hold interactive job-name label launch-cmd launcher-opts licenses mail-type mail-user max-threads \
    mcs-label mem mem-bind mem_bind mem-per-cpu mem-per-gpu mincpus msg-timeout network nice no-allocate \
    nodefile open-mode output overcommit oversubscribe partition power prefer preserve-env priority \
    profile prolog propagate qos quiet quit-on-interrupt reboot reservation resv-ports segment send-libs \
    share signal slurmd-debug sockets-per-node spread-job stepmgr switches task-epilog task-prolog \
    test-only thread-spec threads threads-per-core time time-min tmp treewidth tres-bind uid usage \
    use-min-nodes verbose version wckey whole x11";

fn others() -> impl Iterator<Item = &'static str> {
    OTHERS.split_whitespace()
}

/// Short options of srun without a value: others may follow in the same word.
const FLAGS: &str = "EHklOqQsuvVXZ";

/// A user's options, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SrunLine {
    /// Those that stay, as typed.
    pub options: Vec<String>,
    /// The container image that the agents run in.
    pub image: Option<String>,
    /// `--cpus-per-task` is among the options.
    pub has_cpus: bool,
    /// The options say something about GPUs.
    pub has_gpus: bool,
    /// The value of `--export`.
    pub export: Option<String>,
    nodes: Option<usize>,
    list: Option<Vec<NodeName>>,
    exclude: Vec<NodeName>,
    tasks: Option<(String, usize)>,
}

/// One option as typed.
struct Typed {
    /// Option and value, for people.
    shown: String,
    /// Option alone.
    option: String,
    value: Option<String>,
    words: Vec<String>,
}

impl SrunLine {
    /// Reads the words between `srun` and its program.
    ///
    /// # Errors
    /// One contradicts.
    pub fn parse(words: &[String]) -> Result<Self, LineError> {
        let mut line = Self::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let (rule, inline) = find(word)?;
            let mut typed = Typed {
                shown: word.clone(),
                option: inline.as_ref().map_or_else(|| word.clone(), |(option, _)| option.clone()),
                value: inline.map(|(_, value)| value),
                words: vec![word.clone()],
            };
            let wants = rule.map_or(Value::Optional, Rule::wants);
            let separate = wants == Value::Needed || (rule.is_none() && !word.contains('='));
            if typed.value.is_none()
                && separate
                && let Some(value) = words.next_if(|next| wants == Value::Needed || !next.starts_with('-'))
            {
                typed.shown = format!("{word} {value}");
                typed.words.push(value.clone());
                typed.value = Some(value.clone());
            }
            match rule {
                None => line.options.append(&mut typed.words),
                Some(rule) => line.take(rule, typed)?,
            }
        }
        Ok(line)
    }

    fn take(&mut self, rule: Rule, mut typed: Typed) -> Result<(), LineError> {
        if typed.value.is_none() && rule.wants() == Value::Needed {
            return Err(LineError::NeedsValue { option: typed.option });
        }
        let value = typed.value.clone().unwrap_or_default();
        match rule {
            Rule::Nodes => self.nodes = Some(count(&typed.option, &value)?),
            Rule::NodeList => self.list = Some(list(&typed.option, &value)?),
            Rule::Exclude => self.exclude = list(&typed.option, &value)?,
            Rule::Export => self.export = Some(value),
            Rule::Tasks => self.tasks = Some((typed.shown, count(&typed.option, &value)?)),
            Rule::TasksPerNode if value == "1" => {}
            Rule::TasksPerNode => return Err(LineError::Tasks { option: typed.shown }),
            Rule::Only(_, ours, _) if value == ours => {}
            Rule::Only(_, _, why) => return Err(LineError::Contradicts { option: typed.shown, why }),
            Rule::Image => {
                self.image = Some(value);
                self.options.append(&mut typed.words);
            }
            Rule::Cpus => {
                self.has_cpus = true;
                self.options.append(&mut typed.words);
            }
            Rule::Gpus => {
                self.has_gpus = true;
                self.options.append(&mut typed.words);
            }
            Rule::Never(_, why) => return Err(LineError::Contradicts { option: typed.shown, why }),
        }
        Ok(())
    }

    /// The nodes that get an agent, in the job's order.
    ///
    /// # Errors
    /// The options name other nodes or more than there are.
    pub fn choose(&self, job: &[NodeName]) -> Result<Vec<NodeName>, LineError> {
        let wanted: BTreeSet<&NodeName> = self.list.iter().flatten().collect();
        if let Some(node) = wanted.iter().find(|node| !job.contains(node)) {
            return Err(LineError::NotInJob { node: (**node).clone() });
        }
        let fit: Vec<&NodeName> = job.iter().filter(|node| !self.exclude.contains(node)).collect();
        let number = self.nodes.unwrap_or(if self.list.is_some() { wanted.len() } else { fit.len() });
        if number == 0 || fit.len() < number {
            return Err(LineError::TooFew { wanted: number.max(1), there: fit.len() });
        }
        // Those that are named, then others up to the number; in the job's order at the end.
        let named = fit.iter().filter(|node| wanted.contains(**node));
        let others = fit.iter().filter(|node| !wanted.contains(**node));
        let chosen: BTreeSet<&NodeName> = named.chain(others).take(number).copied().collect();
        let chosen: Vec<NodeName> = fit.into_iter().filter(|node| chosen.contains(node)).cloned().collect();
        match &self.tasks {
            Some((option, tasks)) if *tasks != chosen.len() => {
                Err(LineError::Tasks { option: option.clone() })
            }
            _ => Ok(chosen),
        }
    }
}

impl Rule {
    fn wants(self) -> Value {
        match self {
            Self::Only(value, _, _) | Self::Never(value, _) => value,
            _ => Value::Needed,
        }
    }
}

/// The rule of a long option, written in full or as short as srun takes it. Which options there are depends on srun's
/// version and plugins: what may stand for one that matters must be written in full.
fn long_rule(option: &str, name: &str) -> Result<Option<Rule>, LineError> {
    if let Some((_, _, rule)) = RULES.iter().find(|(known, _, _)| *known == name) {
        return Ok(Some(*rule));
    }
    if others().any(|known| known == name) {
        return Ok(None);
    }
    let ours: Vec<&(&str, char, Rule)> =
        RULES.iter().filter(|(known, _, _)| known.starts_with(name)).collect();
    let other = others().find(|known| known.starts_with(name));
    match (ours.as_slice(), other) {
        ([], _) => Ok(None),
        ([(_, _, rule)], None) => Ok(Some(*rule)),
        ([(one, ..), rest @ ..], other) => Err(LineError::Ambiguous {
            option: option.to_owned(),
            one: format!("--{one}"),
            other: format!("--{}", other.or(rest.first().map(|(name, ..)| *name)).unwrap_or(one)),
        }),
    }
}

/// The rule of a word, and option and value where both stand in it.
type Found = (Option<Rule>, Option<(String, String)>);

fn find(word: &str) -> Result<Found, LineError> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some((format!("--{name}"), value.to_owned()))),
            None => (long, None),
        };
        let rule = long_rule(&format!("--{name}"), name)?;
        return Ok((rule, value));
    }
    let Some(letter) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
        return Ok((None, None));
    };
    let of = |letter: char| RULES.iter().find(|(_, short, _)| *short == letter && letter != ' ');
    if FLAGS.contains(letter) && word.chars().count() > 2 {
        // Up to the first that takes the rest of the word as its value.
        let flags = word.chars().skip(1).take_while(|l| FLAGS.contains(*l)).count();
        if word.chars().skip(1).take(flags + 1).any(|letter| of(letter).is_some()) {
            return Err(LineError::Together { option: word.to_owned() });
        }
        return Ok((None, None));
    }
    let Some((_, _, rule)) = of(letter) else {
        return Ok((None, None));
    };
    let rest = &word[1 + letter.len_utf8()..];
    let value = (!rest.is_empty() && rule.wants() != Value::None)
        .then(|| (format!("-{letter}"), rest.trim_start_matches('=').to_owned()));
    Ok((Some(*rule), value))
}

fn count(option: &str, value: &str) -> Result<usize, LineError> {
    // MIN-MAX: as many as there can be.
    let most = value.rsplit('-').next().unwrap_or(value);
    most.parse().map_err(|_| LineError::NotANumber { option: option.to_owned(), value: value.to_owned() })
}

fn list(option: &str, value: &str) -> Result<Vec<NodeName>, LineError> {
    hostlist::expand(value).map_err(|source| LineError::Nodes { option: option.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn parse(line: &str) -> Result<SrunLine, String> {
        SrunLine::parse(&words(line)).map_err(|error| error.to_string())
    }

    fn choose(line: &str) -> Result<String, String> {
        let job: Vec<NodeName> = (1..=4).map(|no| NodeName::new(format!("n{no}"))).collect();
        let chosen = parse(line)?.choose(&job).map_err(|error| error.to_string())?;
        Ok(hostlist::compress(&chosen))
    }

    #[test]
    fn options_that_are_no_business_of_ours_stay() {
        let line = "--container-image=llm.sqsh --container-mounts /data,/home -l -A acc --time=10 -v";
        let read = parse(line).unwrap();
        assert_eq!(read.options, words(line));
        assert_eq!(read.image.as_deref(), Some("llm.sqsh"));
        let read = parse("--container-image llm.sqsh -c 4 --gres=gpu:2 --export=ALL,A=1").unwrap();
        assert_eq!(read.options, words("--container-image llm.sqsh -c 4 --gres=gpu:2"));
        assert_eq!((read.image.as_deref(), read.export.as_deref()), (Some("llm.sqsh"), Some("ALL,A=1")));
        assert!(read.has_cpus && read.has_gpus);
        // Shortened, together, and of a plugin.
        let line = "--tim=10 --part gpu -vvl -lA acc --spank-option=1 --cpus-per-t 4";
        let read = parse(line).unwrap();
        assert_eq!(read.options, words(line));
        assert!(read.has_cpus);
    }

    #[test]
    fn nodes_are_chosen_as_srun_would() {
        let table = [
            ("", "n[1-4]"),
            ("-N2", "n[1-2]"),
            ("-N 2", "n[1-2]"),
            ("--nodes=2-3", "n[1-3]"),
            ("--nodes 3 -x n2", "n[1,3-4]"),
            ("-w n[3,2]", "n[2-3]"),
            ("--nodelist=n4 -N2", "n[1,4]"),
            ("--exclude n1", "n[2-4]"),
            ("-N2 -n2", "n[1-2]"),
            ("-n 4 --ntasks-per-node=1", "n[1-4]"),
        ];
        for (line, expected) in table {
            assert_eq!(choose(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_contradicts_is_refused() {
        let one = "relight starts one agent per node, with all of its cores and GPUs";
        let table = [
            ("-n 8", format!("{one}: leave -n 8 out")),
            ("-n8", format!("{one}: leave -n8 out")),
            ("--ntasks-per-node=8", format!("{one}: leave --ntasks-per-node=8 out")),
            ("--multi-prog", format!("--multi-prog cannot be: {one}")),
            (
                "--het-group=1",
                "--het-group=1 cannot be: relight runs in one component of a heterogeneous job".into(),
            ),
            ("-K", "-K cannot be: one agent's end would end the others".into()),
            ("--kill-on-bad-exit=1", "--kill-on-bad-exit=1 cannot be: one agent's end would end the others".into()),
            ("--wait=30", "--wait=30 cannot be: agents do not end together".into()),
            ("-W 30", "-W 30 cannot be: agents do not end together".into()),
            ("--mpi=pmix", "--mpi=pmix cannot be: the ranks are started by relight, not by srun".into()),
            ("--mpi pmix", "--mpi pmix cannot be: the ranks are started by relight, not by srun".into()),
            ("--cpu-bind cores", "--cpu-bind cores cannot be: an agent needs all cores of its node".into()),
            ("--pty", "--pty cannot be: agents have no standard input".into()),
            (
                "--gpus-per-task=1",
                "--gpus-per-task=1 cannot be: an agent needs all GPUs of its node; ask for them with --gpus-per-node".into(),
            ),
            ("--ntasks-per-node 8", format!("{one}: leave --ntasks-per-node 8 out")),
            ("--ntasks-per-n 8", format!("{one}: leave --ntasks-per-n 8 out")),
            ("--ntasks-per-no=8", format!("{one}: leave --ntasks-per-no=8 out")),
            ("--tasks-per-n=8", format!("{one}: leave --tasks-per-n=8 out")),
            ("--kill-on=1", "--kill-on=1 cannot be: one agent's end would end the others".into()),
            ("--ntasks-per 8", "--ntasks-per of srun is short for --ntasks-per-node and for --ntasks-per-core".into()),
            ("--cont=x", "--cont of srun is short for --container-image and for --container-id".into()),
            ("-lK", "-lK of srun: write each option by itself".into()),
            ("-kN2", "-kN2 of srun: write each option by itself".into()),
            ("-vn8", "-vn8 of srun: write each option by itself".into()),
            ("-N", "-N of srun needs a value".into()),
            ("-N many", "-N of srun: 'many' is no number of nodes".into()),
            ("-w n[1", "-w of srun: the bracket at position 1 is not closed".into()),
            ("-w n9", "n9 is no node of this job".into()),
            ("-N 5", "the job has 4 nodes for srun, 5 are wanted".into()),
            ("-N 4 -x n1", "the job has 3 nodes for srun, 4 are wanted".into()),
        ];
        for (line, expected) in table {
            assert_eq!(choose(line), Err(expected), "{line}");
        }
    }

    #[test]
    fn what_is_said_twice_is_no_matter() {
        let line = "-k --no-kill --overlap -u --mpi=none --kill-on-bad-exit=0 -K0 --wait=0 -W 0 -W0 --cpu-bind=none -i none";
        assert_eq!(parse(line), Ok(SrunLine::default()));
    }
}
