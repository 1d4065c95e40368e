//! Suites that harm the processes of the real daemon and of its clients, in a short form. The long forms,
//! which `.ci/full` runs, have more rounds; variables say how many: see CONTRIBUTING.md.

#![forbid(unsafe_code)]

mod client;
mod common;
mod crowds;
mod faults;
mod kills;
mod soak;
mod stops;
