//! A client of the C API, which finds its driver and its limits by the environment.

use std::path::{Path, PathBuf};

use nnhal_capi_caller::{Arguments, Compilation, Computation, ExecutionSettings, Library, Model};
use nnhal_conformance::generator::choices::Random;
use nnhal_hal::{DataLocation, Request, RequestArgument, RequestPool};
use nnhal_tests::hostile_driver::{DEVICE, HostileDriver};

use crate::cases::Cases;
use crate::rust_api::double_model;

/// Executions of one case.
const STEPS: u32 = 6;

/// Runs cases by the library.
pub(crate) fn run(cases: &Cases, library: &Path) {
    let directory = PathBuf::from(std::env::var_os("NNHAL_RUNTIME_DIR").expect("a directory"));
    // The library looks for its devices once: it has to find this one.
    let driver = HostileDriver::start(&directory, 0, 1);
    let library = Library::open(library).expect("the library");
    assert!(
        library
            .device_names()
            .expect("devices")
            .iter()
            .any(|name| name == DEVICE)
    );
    cases.run(0, |seed| {
        let before = driver.spoilt();
        driver.begin_case(seed);
        let _ = run_case(library, &mut Random::new(!seed));
        driver.spoilt() - before
    });
}

fn argument(pool_index: u32) -> RequestArgument {
    RequestArgument {
        has_no_value: false,
        location: DataLocation {
            pool_index,
            offset: 0,
            length: 16,
        },
        dimensions: Vec::new(),
    }
}

fn run_case(library: Library, random: &mut Random) -> Result<(), nnhal_capi_caller::CallError> {
    let hal = double_model().hal().clone();
    let model = Model::new(library, &hal, &[])?;
    let device = (random.below(4) > 0).then_some(DEVICE);
    let _ = model.supported_operations(1, &[DEVICE]);
    let mut compilation = Compilation::new(&model, &hal, device)?;
    let request = Request {
        inputs: vec![argument(0)],
        outputs: vec![argument(1)],
        pools: vec![RequestPool::Memory { size: 16 }, RequestPool::Memory { size: 16 }],
    };
    let computations = [
        Computation::Synchronous,
        Computation::Asynchronous,
        Computation::Burst,
        Computation::Fenced,
    ];
    for _ in 0..STEPS {
        let settings = ExecutionSettings {
            computation: computations[random.below(4) as usize],
            arguments: [Arguments::Memories, Arguments::Own][random.below(2) as usize],
            is_measured: false,
            loop_timeout: None,
        };
        let mut outputs = [0; 16];
        // Errors are what is expected.
        let _ = compilation.execute(&request, &settings, &[1; 16], &mut outputs);
    }
    Ok(())
}
