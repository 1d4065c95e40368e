//! When the CPU of this process takes over, and when not.

use nnhal_client::runtime::{CompilationOptions, Partitioning, Recovery, ResultCode};
use nnhal_tests::{DaemonOptions, TestDaemon};

use crate::common::{EXE, FAST, chain, in_turn, kill_workers, on, run, runtime, start, sum};

#[test]
fn step_whose_driver_died_runs_on_the_cpu_if_the_application_says_so() {
    let (daemon, runtime) = start();
    let options = CompilationOptions::new()
        .filter(in_turn(1))
        .recovery(Recovery::OnCpu);
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
fn whole_model_whose_driver_died_runs_on_the_cpu_if_the_application_says_so() {
    let (daemon, runtime) = start();
    let options = CompilationOptions::new().recovery(Recovery::OnCpu);
    let compilation = runtime.compile(&chain(2, false), &options).unwrap();
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
    let by_default = CompilationOptions::new();
    let divided = CompilationOptions::new().filter(in_turn(1));
    let compilations = [explicit, without, by_default, divided]
        .map(|options| runtime.compile(&chain(2, false), &options).unwrap());
    kill_workers(&daemon);
    for compilation in compilations {
        for _ in 0..2 {
            let error = run(&compilation).unwrap_err();
            assert_eq!(error.code(), ResultCode::DeadObject, "{error}");
        }
    }
}

#[test]
fn model_that_kills_its_worker_runs_nowhere_else() {
    for (fault, recovery) in [
        ("prepare", Recovery::None),
        ("fault", Recovery::None),
        ("fault", Recovery::Reopen { attempts: 2 }),
        ("prepare", Recovery::OnCpu),
        ("fault", Recovery::OnCpu),
    ] {
        let settings = format!("devices = [\"nnhal-empty\"]\n[device.nnhal-empty]\n{fault} = \"abort\"\n");
        let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(&settings));
        let runtime = runtime(&daemon);
        // It would be the CPU's otherwise, which is as fast.
        let options = CompilationOptions::new()
            .filter(std::sync::Arc::new(|device, _, _| device.name == "nnhal-empty"))
            .recovery(recovery);
        let result = runtime
            .compile(&chain(2, false), &options)
            .and_then(|compilation| run(&compilation));
        if recovery == Recovery::OnCpu {
            assert_eq!(result.unwrap().0, [4.0; 4], "{fault}");
        } else {
            assert_eq!(
                result.unwrap_err().code(),
                ResultCode::DeadObject,
                "{fault}, {recovery:?}"
            );
        }
    }
}

#[test]
fn model_that_kills_whoever_is_asked_about_it_runs_nowhere_else() {
    let settings = "devices = [\"nnhal-empty\"]\n[device.nnhal-empty]\nask = \"abort\"\n";
    let daemon = TestDaemon::start(EXE, &DaemonOptions::with_settings(settings));
    let runtime = runtime(&daemon);
    let compile = |recovery| runtime.compile(&chain(2, false), &CompilationOptions::new().recovery(recovery));
    for recovery in [Recovery::None, Recovery::Reopen { attempts: 2 }] {
        let error = compile(recovery).unwrap_err();
        assert_eq!(error.code(), ResultCode::DeadObject, "{error}");
    }
    assert_eq!(run(&compile(Recovery::OnCpu).unwrap()).unwrap().0, [4.0; 4]);
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

#[test]
fn model_that_a_driver_fails_to_prepare_runs_on_the_cpu() {
    // Each device takes one prepared model and gets two steps.
    let settings = nnhal_tests::DaemonOptions::with_settings("[limits]\nobjects = 1\n");
    let daemon = nnhal_tests::TestDaemon::start(crate::common::EXE, &settings);
    let runtime = crate::common::runtime(&daemon);
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&chain(4, false), &options).unwrap();
    let reason = compilation.explain().fallback.clone().unwrap();
    assert!(reason.contains("preparing a step on nnhal-"), "{reason}");
    assert_eq!(run(&compilation).unwrap(), (vec![1.0 + sum(4); 4], None));

    for options in [
        options.clone().partitioning(Partitioning::WithoutFallback),
        options.devices(&runtime.devices()[..2]),
    ] {
        let error = runtime.compile(&chain(4, false), &options).unwrap_err();
        assert_eq!(error.code(), ResultCode::ResourceExhaustedTransient, "{error}");
    }
}

#[test]
fn loop_that_runs_too_long_is_reported_and_not_repeated() {
    use nnhal_client::runtime::{RunInput, RunOutput};
    use nnhal_client::{ExecuteOptions, ModelBuilder, OperationType, TensorType};
    let (_daemon, runtime) = start();
    let flag = || TensorType::bool8(&[1]);
    let graph = |is_condition: bool| {
        let mut graph = ModelBuilder::new();
        let input = graph.input(flag());
        let output = graph.output(flag());
        // True for ever: input or not input; and the same value on and on.
        if is_condition {
            let inverse = graph.temporary(flag());
            graph.operation(OperationType::LOGICAL_NOT, &[input], &[inverse]);
            graph.operation(OperationType::LOGICAL_OR, &[input, inverse], &[output]);
        } else {
            graph.operation(OperationType::LOGICAL_OR, &[input, input], &[output]);
        }
        graph
    };
    let mut model = ModelBuilder::new();
    let (condition, body) = (model.graph(graph(true)), model.graph(graph(false)));
    let (x, y) = (model.input(flag()), model.output(flag()));
    model.operation(OperationType::WHILE, &[condition, body, x], &[y]);
    let model = model.finish().unwrap();
    let options = CompilationOptions::new().filter(in_turn(1));
    let compilation = runtime.compile(&model, &options).unwrap();
    assert_eq!(compilation.devices()[0].name(), FAST);
    let mut output = [0];
    let error = compilation
        .execute(
            &[RunInput::bytes(&[0])],
            &mut [RunOutput::bytes(&mut output)],
            &ExecuteOptions::new().loop_timeout(std::time::Duration::from_millis(5)),
        )
        .unwrap_err();
    assert_eq!(error.code(), ResultCode::MissedDeadlineTransient);
    assert!(error.to_string().contains("failed on nnhal-cpu"), "{error}");
}
