//! Ways out of a worker that has a client.

use nix::libc;
use nnhal_tests::escape::{NEEDED_IOCTL, NEEDY, Way};

use crate::common::{Jailed, Outcome};

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

/// The most calls that a worker may make.
const MOST: usize = 45;

#[test]
fn no_known_way_out_of_a_worker_is_open() {
    let mut jailed = Jailed::start("");
    let mut open = Vec::new();
    let (mut killed, mut refused) = (0, 0);
    for &way in Way::ALL {
        match jailed.way(way) {
            Outcome::Killed => killed += 1,
            Outcome::Refused(_) => refused += 1,
            outcome => open.push((way, outcome)),
        }
    }
    println!(
        "{} ways out: {killed} ended their worker, {refused} were refused, {} are open",
        Way::ALL.len(),
        open.len()
    );
    assert!(open.is_empty(), "{open:?}");
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
fn ways_out_are_open_without_a_jail() {
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
        assert!(
            matches!(outcome, Outcome::Killed | Outcome::Refused(_)),
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
