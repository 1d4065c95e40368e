//! When the CPU of this process takes over, and when not.

use nnhal_client::runtime::{CompilationOptions, Partitioning, ResultCode};

use crate::common::{FAST, chain, in_turn, kill_workers, on, run, start, sum};

#[test]
fn step_whose_driver_died_runs_on_the_cpu() {
    let (daemon, runtime) = start();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&chain(4, false), &options).unwrap();
    assert_eq!(run(&compilation).unwrap().1, None);
    kill_workers(&daemon);
    for _ in 0..2 {
        let (values, fallback) = run(&compilation).unwrap();
        assert_eq!(values, [1.0 + sum(4); 4]);
        let reason = fallback.unwrap();
        assert!(
            reason.contains("a step failed on nnhal-") && reason.contains("DEAD_OBJECT"),
            "{reason}"
        );
    }
}

#[test]
fn whole_model_whose_driver_died_runs_on_the_cpu() {
    let (daemon, runtime) = start();
    let compilation = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    kill_workers(&daemon);
    let (values, fallback) = run(&compilation).unwrap();
    assert_eq!(values, [4.0; 4]);
    assert!(fallback.unwrap().contains("DEAD_OBJECT"));
    // A new compilation uses the device again.
    runtime.device(FAST).unwrap().wait().unwrap();
    let compilation = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    assert_eq!(run(&compilation).unwrap(), (vec![4.0; 4], None));
}

#[test]
fn death_is_reported_where_nothing_may_take_over() {
    let (daemon, runtime) = start();
    let explicit = on(&runtime, &[FAST]);
    let without = CompilationOptions::new().partitioning(Partitioning::WithoutFallback);
    let compilations =
        [explicit, without].map(|options| runtime.compile(&chain(2, false), &options).unwrap());
    kill_workers(&daemon);
    for compilation in compilations {
        let error = run(&compilation).unwrap_err();
        assert_eq!(error.code(), ResultCode::DeadObject);
    }
}

#[test]
fn driver_that_is_gone_supports_nothing() {
    let (mut daemon, runtime) = start();
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait();
    let compilation = runtime
        .compile(&chain(2, false), &CompilationOptions::new())
        .unwrap();
    assert_eq!(compilation.devices(), [runtime.cpu().clone()]);
    assert_eq!(
        runtime.device(FAST).unwrap().wait().unwrap_err().code(),
        ResultCode::DeadObject
    );
}
