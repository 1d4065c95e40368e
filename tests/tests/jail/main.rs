//! What a worker that was taken over can still do: threat T32. The device of the tests' own driver makes the
//! system calls that a model asks for, from inside a worker that has a client.

mod common;
mod escape;
mod in_force;
mod rules;
