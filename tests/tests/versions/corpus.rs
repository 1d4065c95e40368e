//! The conformance corpus on devices in the form of older versions: what a version can express passes, by
//! synchronous executions and by burst; the rest is not supported.

use nnhal_client::{
    Burst, BurstOptions, Device, Devices, Error, ExecuteOptions, MeasureTiming, Memory, Model,
    PrepareOptions, PreparedModel, Request,
};
use nnhal_conformance::corpus::Corpus;
use nnhal_conformance::implementation::{
    Answer, Breakdown, ExecutionAnswer, ExecutionCall, Form, Implementation, ModelWithPools,
    PreparedModel as UnderTest,
};
use nnhal_conformance::procedure::Outcome;
use nnhal_conformance::report::CaseReport;
use nnhal_conformance::runner::{self, Observer, Selection};
use nnhal_hal::{HalVersion, OperationSupport};
use nnhal_tests::older_device::{OF_1_0, OF_1_1, OF_1_2};
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-older-driver");

/// A device of a driver.
struct Remote(Device);

/// A model prepared on it, executed without and with a burst.
struct Prepared {
    model: PreparedModel,
    burst: Burst,
}

fn breakdown(error: Error) -> Breakdown {
    Breakdown(error.to_string())
}

fn answer<T>(result: nnhal_client::Result<T>) -> Answer<T> {
    result.map_or_else(
        |error| error.failure().cloned().map(Err).ok_or_else(|| breakdown(error)),
        |value| Ok(Ok(value)),
    )
}

fn shared(model: &ModelWithPools) -> Result<Model, Breakdown> {
    Model::with_pool_bytes((*model.model).clone(), model.pools.iter()).map_err(breakdown)
}

impl Implementation for Remote {
    type Prepared = Prepared;

    fn forms(&self) -> &[Form] {
        &[Form::Synchronous, Form::Burst]
    }

    fn hal_version(&self) -> HalVersion {
        self.0.info().hal_version
    }

    fn supported_operations(&mut self, model: &ModelWithPools) -> Answer<Vec<OperationSupport>> {
        answer(self.0.supported_operations(&shared(model)?))
    }

    fn prepare(&mut self, model: &ModelWithPools) -> Answer<Prepared> {
        let prepared = self.0.prepare(&shared(model)?, &PrepareOptions::new());
        answer(prepared)?.map_or_else(
            |failure| Ok(Err(failure)),
            |model| {
                let burst = model.burst(&BurstOptions::new()).map_err(breakdown)?;
                Ok(Ok(Prepared { model, burst }))
            },
        )
    }
}

impl UnderTest for Prepared {
    fn execute(&mut self, call: &ExecutionCall<'_>) -> Result<ExecutionAnswer, Breakdown> {
        let inputs = Memory::new(call.inputs.len() as u64).map_err(breakdown)?;
        inputs.write_at(0, call.inputs).map_err(breakdown)?;
        let outputs = Memory::new(call.outputs as u64).map_err(breakdown)?;
        let mut options = ExecuteOptions::new();
        if call.measure == MeasureTiming::Yes {
            options = options.measure_timing();
        }
        let request = Request::from_hal(call.request.clone(), vec![inputs, outputs.clone()]);
        let outcome = match call.form {
            Form::Burst => self.burst.execute(&request, &options),
            _ => self.model.execute(&request, &options),
        };
        let result = nnhal_client::execution_result(outcome).map_err(breakdown)?;
        let mut bytes = vec![0; call.outputs];
        outputs.read_at(0, &mut bytes).map_err(breakdown)?;
        Ok(ExecutionAnswer {
            result,
            outputs: bytes,
        })
    }
}

/// Shows what fails, and what is skipped for another reason than the version.
struct Watcher;

impl Observer for Watcher {
    fn case(&self, report: &CaseReport) {
        match &report.outcome {
            Outcome::Failed { reason } => println!("FAILED {}: {reason}", report.name),
            Outcome::Skipped { reason } if !reason.contains("is of HAL") => {
                println!("SKIPPED {}: {reason}", report.name);
            }
            _ => {}
        }
    }
}

/// Runs the corpus on a device. No case may fail, and none that its version can express be skipped:
/// `at_least` so many pass.
fn check(name: &str, version: HalVersion, at_least: u32) {
    let root = Corpus::default_root();
    if !root.is_dir() {
        eprintln!("SKIPPED: there is no conformance corpus at {}", root.display());
        return;
    }
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let corpus = Corpus::open(&root).unwrap();
    let make = || {
        devices
            .device(name)
            .map(Remote)
            .map_err(|error| error.to_string())
    };
    let tally = runner::run(&corpus, &Selection::default(), 2, make, &Watcher).unwrap();
    println!("HAL {version}: {}", tally.total);
    assert_eq!(tally.total.failed, 0);
    assert!(tally.total.passed >= at_least, "{}", tally.total);
}

#[test]
fn g01_g02_g03_corpus_on_a_device_of_1_0() {
    check(OF_1_0, HalVersion::V1_0, 759);
}

#[test]
fn g01_g02_g03_corpus_on_a_device_of_1_1() {
    check(OF_1_1, HalVersion::V1_1, 1049);
}

#[test]
fn g01_g02_g03_corpus_on_a_device_of_1_2() {
    check(OF_1_2, HalVersion::V1_2, 4713);
}
