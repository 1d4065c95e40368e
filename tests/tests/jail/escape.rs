//! Ways out of a worker that has a client.

use std::process::Command;

use nix::libc;
use nnhal_tests::escape::{NEEDED_IOCTL, NEEDY, Way};
use nnhal_tests::{KillOnDrop, wait_until};

use crate::common::{Jailed, Outcome, can_try_without_jail, without_jail};

/// More than any architecture has, and those behind them that only x32 has.
const NUMBERS: std::ops::Range<i32> = 0..560;

/// Calls that end a thread or its process whatever their arguments are, and a handler that is none.
const WITHOUT_RETURN: [i64; 3] = [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigreturn];

/// Calls that no filter sees, as the kernel makes them itself where it probes a program: `uretprobe` and
/// `uprobe`. It refuses them to whoever makes them elsewhere, or ends it by SIGILL.
const OF_THE_KERNEL: &[i32] = if cfg!(target_arch = "x86_64") {
    &[335, 336]
} else {
    &[]
};

/// How many ways out must be open without a jail, so that the tests show something: a kernel may lack some.
const LEAST_OPEN: usize = 60;

/// Ways out that no test may take where they are open.
const UNTRIED: [(Way, &str); 2] = [
    (
        Way::Reboot,
        "whatever the kernel takes for a command changes the machine",
    ),
    (
        Way::LoadModule,
        "whatever the kernel takes for a module changes it",
    ),
];

/// How a kernel says that it has no such thing, or that a container around the test does not permit it.
const LACKING: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP, libc::ENOENT];

/// Whether the kernel lacks what a way is about. Some answer otherwise then: typing on terminals, another
/// root, calls of 32 bits.
fn is_lacking(way: Way, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(errno) if LACKING.contains(errno) => true,
        Outcome::Refused(libc::EIO | libc::EBADF) => way == Way::TypeOnTerminal,
        Outcome::Refused(libc::EINVAL) => way == Way::PivotRoot,
        Outcome::Died(_) => way == Way::CallOf32Bits,
        _ => false,
    }
}

/// The most calls that a worker may make.
const MOST: usize = 45;

/// What keeps a way out closed: mostly the end of the worker. What the C library and a panic do by the way is
/// refused instead, by the filter itself.
fn expected(way: Way) -> Outcome {
    match way {
        Way::OpenPassword
        | Way::CreateFile
        | Way::OpenNull
        | Way::OpenRoot
        | Way::OpenMemoryOfParent
        | Way::OpenOwnMemory
        | Way::OpenOwnDescriptor => Outcome::Refused(libc::EACCES),
        Way::ForkByNewerCall => Outcome::Refused(libc::ENOSYS),
        _ => Outcome::Killed,
    }
}

#[test]
fn no_known_way_out_of_a_worker_is_open() {
    let mut jailed = Jailed::start("");
    let outcomes: Vec<_> = Way::ALL.iter().map(|&way| (way, jailed.way(way))).collect();
    let killed = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Killed);
    println!(
        "{} ways out: {} ended their worker, the filter refused the others",
        Way::ALL.len(),
        killed.count()
    );
    let wrong: Vec<_> = outcomes
        .iter()
        .filter(|(way, outcome)| *outcome != expected(*way))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// So that it is the jail that closes them, and not how they are tried.
#[test]
fn ways_out_are_open_without_a_jail() {
    if !can_try_without_jail() {
        return;
    }
    let other = KillOnDrop(Command::new("sleep").arg("1000").spawn().unwrap());
    let (mut open, mut lacking) = (0, Vec::new());
    let (mut alike, mut wrongly_tried) = (Vec::new(), Vec::new());
    for &way in Way::ALL
        .iter()
        .filter(|way| UNTRIED.iter().all(|(untried, _)| untried != *way))
    {
        match without_jail(way, other.0.id()) {
            Outcome::Done(_) => open += 1,
            outcome => {
                if outcome == expected(way) {
                    alike.push((way, outcome.clone()));
                }
                if !is_lacking(way, &outcome) {
                    wrongly_tried.push((way, outcome.clone()));
                }
                lacking.push((way, outcome));
            }
        }
    }
    println!(
        "{} ways out without a jail: {open} are open; {} the kernel lacks: {lacking:?}; not tried: {UNTRIED:?}",
        Way::ALL.len(),
        lacking.len()
    );
    assert!(
        wrongly_tried.is_empty(),
        "not for these arguments: {wrongly_tried:?}"
    );
    assert!(alike.is_empty(), "the jail answers no otherwise: {alike:?}");
    assert!(open >= LEAST_OPEN, "{open}: the test does not try them");
}

#[test]
fn few_system_calls_are_allowed_and_all_others_end_the_worker() {
    let mut jailed = Jailed::start("");
    let mut allowed: Vec<i32> = WITHOUT_RETURN.iter().map(|&number| number as i32).collect();
    let mut refused = Vec::new();
    for number in NUMBERS {
        if WITHOUT_RETURN.contains(&i64::from(number)) {
            continue;
        }
        let outcome = jailed.number(number);
        if OF_THE_KERNEL.contains(&number) {
            assert!(!matches!(outcome, Outcome::Done(_)), "call {number}: {outcome:?}");
            continue;
        }
        match outcome {
            Outcome::Killed => {}
            Outcome::Refused(libc::EACCES | libc::ENOSYS) => refused.push(number),
            Outcome::Done(_) | Outcome::Refused(_) => allowed.push(number),
            Outcome::Died(how) => panic!("call {number}: {how}"),
        }
    }
    println!(
        "{} calls are allowed with any arguments: {allowed:?}",
        allowed.len()
    );
    println!("{} are refused: {refused:?}", refused.len());
    assert!(allowed.len() <= MOST, "{allowed:?}");
}

#[test]
fn filter_alone_closes_some_ways_out() {
    let mut jailed = Jailed::start("[jail]\nsystem_calls = false\n");
    for way in [Way::MapWritableCode, Way::ProtectAsCode, Way::UnixSocket] {
        assert!(
            matches!(jailed.way(way), Outcome::Done(_)),
            "{way:?}: the test does not try it"
        );
    }
}

#[test]
fn device_gets_what_it_needs_and_nothing_else() {
    let mut jailed = Jailed::start_device(NEEDY, "");
    assert!(matches!(jailed.way(Way::OpenNull), Outcome::Done(_)));
    for &way in Way::ALL.iter().filter(|way| **way != Way::OpenNull) {
        let outcome = jailed.way(way);
        let is_open_call = expected(way) == Outcome::Refused(libc::EACCES);
        // By Landlock, since it may open the file that it needs; or there is no such file.
        let refused = [libc::EACCES, libc::ENOENT].map(Outcome::Refused);
        assert!(
            outcome == expected(way) || (is_open_call && refused.contains(&outcome)),
            "{way:?}: {outcome:?}"
        );
    }
    let needed = NEEDED_IOCTL.cast_signed();
    // There is no terminal, nor need there be one.
    assert!(!matches!(
        jailed.call(libc::SYS_ioctl, &[2, needed]),
        Outcome::Killed
    ));
    assert_eq!(jailed.call(libc::SYS_ioctl, &[2, needed + 1]), Outcome::Killed);
    assert!(matches!(jailed.call(libc::SYS_getuid, &[]), Outcome::Done(_)));
    assert_eq!(jailed.call(libc::SYS_getppid, &[]), Outcome::Killed);

    let mut other = Jailed::start("");
    assert_eq!(other.call(libc::SYS_getuid, &[]), Outcome::Killed);
    assert!(matches!(other.way(Way::OpenNull), Outcome::Refused(_)));
}

/// Nobody counts them in the worker: the supervisor asks the kernel.
#[test]
fn threads_that_a_device_starts_count_among_those_of_its_user() {
    let mut jailed = Jailed::start("[user_limits]\nthreads = 100\n");
    let mut bystander = Jailed::start("[user_limits]\nthreads = 100\n");
    assert_eq!(bystander.start_threads(50), Outcome::Done(50));
    let mut end = Outcome::Done(0);
    // Under much load a client may learn only that its worker is gone; then another one has them.
    while !matches!(&end, Outcome::Died(how) if !how.ends_with("closed the connection")) {
        // The count may come while they are started.
        let started = jailed.start_threads(200);
        if started != Outcome::Done(200) {
            end = started;
            continue;
        }
        wait_until("the worker has ended", || {
            end = jailed.start_threads(0);
            end != Outcome::Done(0)
        });
    }
    let Outcome::Died(how) = end else {
        panic!("{end:?}")
    };
    assert!(how.contains("all workers of the user"), "{how}");
    assert!(how.contains("user_limits.threads"), "{how}");
    assert_eq!(bystander.start_threads(0), Outcome::Done(0));
}
