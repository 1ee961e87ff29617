//! The command line from outside: what is printed, the exit code, and that no words make it panic.

mod docs;
mod home;
mod parse;
mod ranks;
mod screens;
