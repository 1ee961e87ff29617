//! Explanations: what a machine says of what it does, as data.

/// One explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {}
