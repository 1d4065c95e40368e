//! Processes that are stopped, clocks that jump, disks that are full: threats T26, T27 and T28.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nnhal_client::{
    Clock, CompilationCache, DevicesOptions, Error, ErrorKind, ExecuteOptions, Input, MonotonicClock, Output,
    PrepareOptions,
};
use nnhal_tests::{TIMEOUT, TestDaemon, wait_until, write_script};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

use crate::client::{Client, Said};
use crate::common::{Bystander, DEVICE, EXE, Place, Stage, add_one, has_noted_end, send};

/// How often a process is stopped and goes on.
const STOPS: usize = 100;

/// What a call waits for a process that is stopped.
const SHORT: Duration = Duration::from_millis(300);

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut { .. })
}

#[test]
fn worker_that_is_stopped_holds_up_its_own_client_for_as_long_as_that_waits() {
    let place = Place::new();
    let mut stage = Stage::new(&place);
    let mut stopped = Bystander::open(&place.runtime_dir());
    stopped.computes();
    let worker = stopped.device.worker().pid;
    send(worker, Signal::SIGSTOP);
    let prepared = stopped.prepared();
    let mut sum = [0.0_f32];
    let error = prepared
        .run(
            &[Input::from(&[1.0_f32])],
            &mut [Output::from(&mut sum)],
            &ExecuteOptions::new().wait_at_most(SHORT),
        )
        .unwrap_err();
    assert!(is_timeout(&error), "{error}");
    stage.bystander.computes();
    Bystander::open(&place.runtime_dir()).computes();
    send(worker, Signal::SIGCONT);
    stopped.computes();
    drop((prepared, stopped));
    stage.expect_as_before("a worker that was stopped");
}

#[test]
fn supervisor_that_is_stopped_holds_up_those_who_come_and_nobody_else() {
    let place = Place::new();
    let mut stage = Stage::new(&place);
    send(stage.daemon.pid(), Signal::SIGSTOP);
    stage.bystander.computes();
    let devices = DevicesOptions::new()
        .runtime_dir(place.runtime_dir())
        .connect_timeout(SHORT)
        .open()
        .unwrap();
    let error = devices.device(DEVICE).unwrap_err();
    assert!(is_timeout(&error), "{error}");
    stage.bystander.computes();
    send(stage.daemon.pid(), Signal::SIGCONT);
    stage.expect_as_before("a supervisor that was stopped");
}

#[test]
fn client_that_is_stopped_at_each_step_holds_up_nobody_and_goes_on() {
    let place = Place::new();
    let mut stage = Stage::new(&place);
    let mut client = Client::start_told(&place);
    while let Some(said) = client.next() {
        match said {
            Said::At(_) => {
                client.go_on();
                send(client.pid(), Signal::SIGSTOP);
                stage.bystander.computes();
                send(client.pid(), Signal::SIGCONT);
            }
            Said::Failed(..) => panic!("{said:?}"),
            _ => {}
        }
    }
    let end = client.end();
    assert!(end.status.success(), "{end:?}");
    stage.expect_as_before("a client that was stopped");
}

#[test]
fn storm_of_stops_tears_no_work_off() {
    let place = Place::new();
    let mut stage = Stage::new(&place);
    let (worker, supervisor) = (stage.bystander.device.worker().pid, stage.daemon.pid());
    let mut longest_after = |signals: &[Signal]| {
        let times = (0..STOPS).map(|_| {
            for &signal in signals {
                send(worker, signal);
                send(supervisor, signal);
            }
            let since = MonotonicClock.now();
            stage.bystander.computes();
            MonotonicClock.now().saturating_since(since)
        });
        times.max().unwrap()
    };
    let alone = longest_after(&[]);
    let in_storm = longest_after(&[Signal::SIGSTOP, Signal::SIGCONT, Signal::SIGWINCH, Signal::SIGURG]);
    println!("the longest of {STOPS} executions: {alone:?}, in a storm of signals {in_storm:?}");
    stage.expect_as_before("a storm of signals");
}

/// The waits in a trace that a jump of the wall clock would prolong or shorten.
fn waits_by_the_wall_clock(trace: &str) -> Vec<&str> {
    let is_wait = |line: &&str| {
        let is_real = line.contains("CLOCK_REALTIME");
        // Without a time there is nothing that the clock could change: threads wait for each other's end so.
        let has_no_time = line.contains("futex(") && line.contains("NULL, FUTEX_BITSET_MATCH_ANY");
        is_real && !has_no_time
    };
    trace.lines().filter(is_wait).collect()
}

#[test]
fn no_wait_depends_on_the_wall_clock() {
    if !Command::new("strace")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("SKIPPED: there is no strace, which shows what processes wait by");
        return;
    }
    let place = Place::new();
    let (traced, trace) = (place.temporary().join("traced"), place.trace());
    let clients_trace = place.temporary().join("client");
    let calls = "trace=futex,futex_waitv,clock_nanosleep,nanosleep,timerfd_create,timerfd_settime,timer_create,\
                 setitimer,ppoll,poll,select,pselect6,epoll_wait,epoll_pwait,recvmmsg,clock_gettime,gettimeofday,time";
    let script = format!(
        "exec strace -DDD -f -q -s 0 -e {calls} -o '{}' '{EXE}' \"$@\"",
        trace.display()
    );
    write_script(&traced, &script);
    let mut daemon = TestDaemon::start_in(&place.runtime_dir(), traced.to_str().unwrap(), &place.options());
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-s", "0", "-e", calls, "-o"])
        .arg(&clients_trace);
    let mut client = Client::start_under(strace, &place);
    while let Some(said) = client.next() {
        assert!(!matches!(said, Said::Failed(..)), "{said:?}");
    }
    assert!(client.end().status.success());
    // strace runs beside the supervisor, which has the process of the script. It ends after its workers.
    let supervisor = daemon.pid();
    daemon.close_owner();
    assert!(daemon.wait().success());
    wait_until("the trace is whole", || has_noted_end(&trace, supervisor));
    let mut lines = 0;
    for path in [&trace, &clients_trace] {
        let text = std::fs::read_to_string(path).unwrap();
        lines += text.lines().count();
        let found = waits_by_the_wall_clock(&text);
        assert!(found.is_empty(), "{found:?}");
    }
    println!("{lines} waits, 0 of them by the wall clock");
}

/// Fills a file system to its last byte.
fn fill(directory: &Path) {
    let file = directory.join("full");
    let mut written = std::fs::File::create(&file).unwrap();
    let block = [0_u8; 4096];
    while std::io::Write::write_all(&mut written, &block).is_ok() {}
    // And no file more can be made.
    let mut number = 0;
    while std::fs::File::create(directory.join(format!("full-{number}"))).is_ok() {
        number += 1;
    }
}

fn free(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().map_while(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with("full") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// A file system of a few pages, in a mount namespace that ends with its thread.
fn with_small_disk(test: impl FnOnce(&Path) + Send) {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
            let mounted = unshare(CloneFlags::CLONE_NEWNS)
                .map_err(std::io::Error::from)
                .and_then(|()| Ok(mount_change("/", private)?))
                .and_then(|()| {
                    let size = c"size=64k,nr_inodes=24,mode=700";
                    Ok(mount("none", disk, "tmpfs", MountFlags::empty(), Some(size))?)
                });
            if let Err(error) = mounted {
                println!("SKIPPED: no file system can be mounted ({error}), so none is full");
                return;
            }
            test(disk);
            unmount(disk, UnmountFlags::DETACH).unwrap();
        });
    });
}

#[test]
fn driver_whose_disk_is_full_says_so_or_goes_on() {
    with_small_disk(|disk| {
        let place = Place::new();
        let run = disk.join("run");
        fill(disk);
        let (status, text) = TestDaemon::try_start_in(&run, EXE, &place.options())
            .err()
            .unwrap();
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(
            text.contains("No space left on device") || text.contains("ENOSPC"),
            "{text}"
        );
        free(disk);
        assert!(
            !run.exists(),
            "the driver that did not start has left its directory"
        );

        let mut daemon = TestDaemon::start_in(&run, EXE, &place.options());
        fill(disk);
        // What is there already is enough for all that clients ask for.
        let mut client = Bystander::open(&run);
        client.computes();
        send(daemon.pid(), Signal::SIGHUP);
        Bystander::open(&run).computes();
        client.computes();
        drop(client);
        daemon.close_owner();
        assert!(daemon.wait().success());
        assert!(!run.exists(), "the driver has left its directory");
    });
}

#[test]
fn cache_whose_disk_is_full_costs_time_and_nothing_else() {
    with_small_disk(|disk| {
        let place = Place::new();
        let daemon = TestDaemon::start_in(&place.runtime_dir(), EXE, &place.options());
        let device = Bystander::open(&place.runtime_dir()).device;
        let cache = CompilationCache::open(disk.join("cache"), 1 << 20).unwrap();
        let options = PrepareOptions::new().wait_at_most(TIMEOUT);
        for is_full in [false, true, true] {
            if is_full {
                fill(disk);
            }
            let prepared = cache.prepare(&device, &add_one(), &options).unwrap();
            let mut sum = [0.0_f32];
            let run = prepared.run(
                &[Input::from(&[1.0_f32])],
                &mut [Output::from(&mut sum)],
                &ExecuteOptions::new(),
            );
            run.unwrap();
            assert_eq!(sum, [2.0]);
        }
        drop(daemon);
    });
}
