//! `relight ctl`: a person's orders to a run.

use std::path::Path;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{CtlArgs, CtlCommand};
use super::runs::RunsError;
use super::{output, runs, secret};
use crate::domain::env;
use crate::domain::exit_code::Outcome;
use crate::domain::ids::NodeName;
use crate::domain::record::{Order, Ordered};
use crate::domain::wire::ToOperator;
use crate::node::operator;
use crate::store::look;
use crate::sys::files;

/// Gives the order and says what became of it.
///
/// # Errors
/// There is no such run, or the order did not arrive.
pub fn ctl(process: &Process, command: &CtlCommand) -> Result<Outcome, Failure> {
    let (order, args) = match command {
        CtlCommand::Pause(args) => (Order::Pause, args),
        CtlCommand::Resume(args) => (Order::Resume, args),
        CtlCommand::Restart(args) => (Order::Restart, args),
        CtlCommand::Evict { node, args } => (Order::Evict { node: NodeName::new(node) }, args),
        CtlCommand::Stop(args) => (Order::Stop, args),
    };
    let CtlArgs { why, secret_file, run } = args;
    let dir = runs::find(process, run)?;
    let view = look::read_run(&dir).map_err(RunsError::Layout)?;
    if view.end().is_some() {
        output::complain(&format!("relight: run {} is over: there is nothing to order\n", view.run.run));
        return Ok(Outcome::Failed);
    }
    let by = format!("user {} on {}", files::my_uid(), process.node());
    let ordered = Ordered { order, reason: why.clone(), by };
    let file = secret_file.as_deref().or_else(|| process.var(env::RELIGHT_SECRET_FILE)).map(Path::new);
    let shared = secret::of_machines(file, &process.cwd)?;
    match operator::order(&dir, view.run.run.clone(), NodeName::new(process.node()), shared, ordered)? {
        ToOperator::Done { sentence } => output::print(&format!("{sentence}\n")).map(|()| Outcome::Finished),
        ToOperator::Refused { sentence } => {
            output::complain(&format!("relight: refused: {sentence}\n"));
            Ok(Outcome::Failed)
        }
    }
}
