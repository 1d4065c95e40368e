//! Several users of one machine: what one keeps from another, and what one gives to another. Only root can be
//! several users: without its rights the tests say so and end.

mod caches;
mod common;
mod drivers;
mod privileges;
mod service;
mod trust;
mod turns;
mod unread;
