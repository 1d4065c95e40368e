//! What a case may do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use nix::sys::signal::Signal;
use nnhal_client::{BurstOptions, Device, ExecuteOptions, Memory, Model, PrepareOptions, Request};
use nnhal_conformance::generator::choices::Choices;
use nnhal_conformance::generator::property::{self, Verdict};
use nnhal_conformance::generator::{Generated, mutation};
use nnhal_conformance::implementation::Form;
use nnhal_hal::{ErrorStatus, OperationSupport};
use nnhal_os::pidfd;

use super::case::{Case, Checked, FORMS, death_of};
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
    let death = Mutex::new(None);
    let client = |models: &[Generated]| {
        let mut own = DeviceUnderTest::open(devices, &subject.name, &FORMS, MemoryKind::Shared)
            .map_err(|error| error.to_string())?;
        let checked = computes(subject, &mut own, models);
        if checked.is_err()
            && let Some(died) = death_of(&own)
        {
            *death.lock().unwrap_or_else(PoisonError::into_inner) = Some(died);
        }
        checked
    };
    let client = &client;
    let checked = std::thread::scope(|scope| {
        let clients: Vec<_> = work
            .iter()
            .map(|models| scope.spawn(move || client(models)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
    });
    case.death_of_another = death.into_inner().unwrap_or_else(PoisonError::into_inner);
    checked
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
    let device = case.under_test.device_in_use();
    let (worker, supervisor) = (device.worker().pid, device.supervisor().pid);
    let stop = AtomicBool::new(false);
    let (done, counted) = mpsc::channel();
    std::thread::scope(|scope| {
        let client =
            scope.spawn(|| computes_until_death(&mut case.under_test, &generated, worker, &stop, done));
        // The channel ends with the client.
        let _ = counted.iter().take(before as usize).count();
        // A driver of another user keeps its workers.
        stop.store(!kill_worker(worker, supervisor), Ordering::Relaxed);
        client
            .join()
            .unwrap_or_else(|_| Err("the client panicked".into()))
    })?;
    gives_the_right_result(case)
}

/// Kills the worker with this number, if the process is one of that supervisor's; tells whether it did. The
/// numbers are the driver's word, and may be those of processes that have nothing to do with it.
fn kill_worker(worker: u32, supervisor: u32) -> bool {
    let process = i32::try_from(worker).ok().filter(|pid| *pid > 0);
    let Some(process) = process.and_then(|pid| pidfd::open(pid).ok()) else {
        return false;
    };
    // Asked of the number while the process behind it is held: if it has ended, the signal goes nowhere.
    parent_of(worker) == Some(supervisor) && pidfd::send_signal(&process, Signal::SIGKILL).unwrap_or(false)
}

/// The number of a process's parent.
fn parent_of(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_a_child_of_the_supervisor_is_killed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        assert!(!kill_worker(child.id(), own + 1));
        assert!(!kill_worker(0, own) && !kill_worker(u32::MAX, own));
        assert!(child.try_wait().unwrap().is_none());
        assert!(kill_worker(child.id(), own));
        assert!(!child.wait().unwrap().success());
    }
}
