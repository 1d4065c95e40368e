//! What a case may do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_client::{BurstOptions, Device, ExecuteOptions, Memory, Model, PrepareOptions, Request};
use nnhal_conformance::generator::choices::Choices;
use nnhal_conformance::generator::property::{self, Verdict};
use nnhal_conformance::generator::{Generated, mutation};
use nnhal_conformance::implementation::Form;
use nnhal_hal::{ErrorStatus, OperationSupport};

use super::case::{Case, Checked, FORMS};
use crate::arguments::MemoryKind;
use crate::form;
use crate::random_models;
use crate::under_test::{DeviceUnderTest, Subject};

/// A name, and what is done.
type Scenario = (&'static str, fn(&mut Case) -> Checked);

/// All scenarios, each as likely as the others.
pub(super) const SCENARIOS: [Scenario; 6] = [
    ("models by every path", models),
    ("graphs that break rules", broken_graphs),
    ("several clients at once", clients),
    ("models and bursts until there is no more room", pressure),
    ("deadlines", deadlines),
    ("a worker that is killed", kills),
];

/// Random models give one result by every path, the right one.
fn models(case: &mut Case) -> Checked {
    for _ in 0..20 {
        gives_the_right_result(case)?;
    }
    Ok(())
}

fn gives_the_right_result(case: &mut Case) -> Checked {
    let generated = case.model();
    kept(random_models::verdict(
        &case.subject,
        &mut case.under_test,
        &generated,
    ))
}

/// What breaks a rule is refused; what may break one crashes nothing.
fn broken_graphs(case: &mut Case) -> Checked {
    for _ in 0..40 {
        let generated = case.model();
        let mut choices = Choices::from_seed(case.random.bits());
        let (broken, rule) = mutation::break_rule(&generated, &mut choices);
        kept(property::is_refused(&mut case.under_test, &broken))
            .map_err(|text| format!("{rule}: {text}"))?;
        let changed = mutation::change(&generated, &mut choices);
        kept(property::does_not_crash(&mut case.under_test, &changed))?;
    }
    Ok(())
}

/// Several connections compute at once.
fn clients(case: &mut Case) -> Checked {
    let work: Vec<Vec<Generated>> = (0..4).map(|_| (0..5).map(|_| case.model()).collect()).collect();
    let (devices, subject) = (&case.devices, &case.subject);
    let client = |models: &[Generated]| {
        let mut own = DeviceUnderTest::open(devices, &subject.name, &FORMS, MemoryKind::Shared)
            .map_err(|error| error.to_string())?;
        computes(subject, &mut own, models)
    };
    let client = &client;
    std::thread::scope(|scope| {
        let clients: Vec<_> = work
            .iter()
            .map(|models| scope.spawn(move || client(models)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
    })
}

fn computes(subject: &Subject, under_test: &mut DeviceUnderTest, models: &[Generated]) -> Checked {
    models
        .iter()
        .try_for_each(|model| kept(random_models::verdict(subject, under_test, model)))
}

/// Prepared models and bursts pile up. A refusal says what there is not enough of, and afterwards all is as
/// before.
fn pressure(case: &mut Case) -> Checked {
    let mut prepared = Vec::new();
    let mut bursts = Vec::new();
    for _ in 0..64 {
        let generated = case.model();
        let model = shared(&generated).map_err(|error| error.to_string())?;
        let device = case.under_test.device_in_use();
        match device.prepare(&model, &PrepareOptions::new()) {
            Ok(model) => prepared.push(model),
            Err(error) if is_exhaustion(&error) || !supports(device, &model) => {}
            Err(error) => return Err(format!("the model was not prepared: {error}")),
        }
        if let Some(model) = prepared.last() {
            match model.burst(&BurstOptions::new()) {
                Ok(burst) => bursts.push(burst),
                Err(error) if is_exhaustion(&error) => {}
                Err(error) => return Err(format!("the burst was not opened: {error}")),
            }
        }
        if case.random.below(8) == 0 {
            bursts.clear();
        }
    }
    drop((bursts, prepared));
    gives_the_right_result(case)
}

/// An execution with a deadline gives the result, or says that it was late.
fn deadlines(case: &mut Case) -> Checked {
    for _ in 0..40 {
        let generated = case.model();
        let limit = Duration::from_micros(case.random.below(3000).into());
        let form = *case.pick(&FORMS);
        let device = case.under_test.device_in_use();
        let execute = |form, options: &ExecuteOptions| execute(device, &generated, form, options);
        let expected = match execute(Form::Synchronous, &ExecuteOptions::new()) {
            Ok(expected) => expected,
            Err(error) if error.is_dead_object() => return Err(error.to_string()),
            // Not every device computes every model.
            Err(_) => continue,
        };
        match execute(form, &ExecuteOptions::new().timeout(limit)) {
            Ok(found) if found == expected => {}
            Ok(_) => return Err(format!("{form} execution with a deadline gave another result")),
            Err(error) if is_late(&error) => {}
            // A fenced execution needs the dimensions of all outputs beforehand.
            Err(error) if form == Form::Fenced && error.status() == ErrorStatus::InvalidArgument => {}
            Err(error) => return Err(format!("{form} execution with a deadline: {error}")),
        }
    }
    Ok(())
}

/// The bytes that an execution leaves in the outputs' pool.
fn execute(
    device: &Device,
    generated: &Generated,
    form: Form,
    options: &ExecuteOptions,
) -> nnhal_client::Result<Vec<u8>> {
    let prepared = device.prepare(&shared(generated)?, &PrepareOptions::new())?;
    let inputs = Memory::new(generated.inputs.len() as u64)?;
    inputs.write_at(0, &generated.inputs)?;
    let outputs = Memory::new(generated.outputs_size as u64)?;
    let request = Request::from_hal(generated.request.clone(), vec![inputs, outputs.clone()]);
    match form {
        Form::Burst => prepared.burst(&BurstOptions::new())?.execute(&request, options)?,
        form => form::execute(&prepared, &request, options, form)?,
    };
    let mut bytes = vec![0; generated.outputs_size];
    outputs.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The worker is killed while it computes. Its client is told, and goes on with another one.
fn kills(case: &mut Case) -> Checked {
    let generated = case.model();
    let before = case.random.below(50);
    let worker = case.under_test.device_in_use().worker().pid;
    let stop = AtomicBool::new(false);
    let (done, counted) = mpsc::channel();
    std::thread::scope(|scope| {
        let client =
            scope.spawn(|| computes_until_death(&mut case.under_test, &generated, worker, &stop, done));
        // The channel ends with the client.
        let _ = counted.iter().take(before as usize).count();
        let killed = match i32::try_from(worker) {
            Ok(pid) if pid > 0 => kill(Pid::from_raw(pid), Signal::SIGKILL),
            _ => Err(Errno::ESRCH),
        };
        // A driver of another user keeps its workers.
        stop.store(killed.is_err(), Ordering::Relaxed);
        client
            .join()
            .unwrap_or_else(|_| Err("the client panicked".into()))
    })?;
    gives_the_right_result(case)
}

/// Computes until the worker with this number is dead, or until it is told to stop.
fn computes_until_death(
    under_test: &mut DeviceUnderTest,
    generated: &Generated,
    worker: u32,
    stop: &AtomicBool,
    done: mpsc::Sender<()>,
) -> Checked {
    while !stop.load(Ordering::Relaxed) {
        let verdict = property::one_result_by_every_path(under_test, generated);
        let device = under_test.device_in_use();
        if device.worker().pid != worker || device.ended().is_some() {
            return Ok(());
        }
        kept(verdict)?;
        // Nobody counts any more once the worker is killed.
        let _ = done.send(());
    }
    Ok(())
}

fn shared(generated: &Generated) -> nnhal_client::Result<Model> {
    Model::with_pool_bytes((*generated.model.model).clone(), generated.model.pools.iter())
}

fn kept(verdict: Verdict) -> Checked {
    match verdict {
        Verdict::Kept => Ok(()),
        Verdict::Broken(text) => Err(text),
    }
}

fn is_late(error: &nnhal_client::Error) -> bool {
    matches!(
        error.status(),
        ErrorStatus::MissedDeadlineTransient | ErrorStatus::MissedDeadlinePersistent
    )
}

fn is_exhaustion(error: &nnhal_client::Error) -> bool {
    matches!(
        error.status(),
        ErrorStatus::ResourceExhaustedTransient | ErrorStatus::ResourceExhaustedPersistent
    )
}

fn supports(device: &Device, model: &Model) -> bool {
    device.supported_operations(model).is_ok_and(|supported| {
        supported
            .iter()
            .all(|support| *support == OperationSupport::Supported)
    })
}
