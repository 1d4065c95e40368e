//! Programs with more rights than who starts them: what that user says in the environment does not lead them.

use std::fs;
use std::path::Path;

use nix::unistd::geteuid;
use nnhal_client::Devices;

use crate::common::{NOBODY, SYSTEM, expect_success, in_own_run, make_directory, part, run_as, set_mode};

const TEST: &str = "privileges::set_user_id_program_does_not_heed_its_callers_environment";

/// The caller's, with what is to be started for a driver.
const TRAP: &str = "/run/trap";

/// What is there if it has been.
const SPRUNG: &str = "/tmp/sprung";

const TRACE: &str = "/tmp/trace";

#[test]
fn set_user_id_program_does_not_heed_its_callers_environment() {
    match part().as_deref() {
        None => in_own_run(TEST),
        Some(SYSTEM) => {
            make_directory(Path::new(TRAP), 0o755, NOBODY);
            let driver = Path::new(TRAP).join("nnhald");
            fs::write(&driver, format!("#!/bin/sh\n: >{SPRUNG}\n")).unwrap();
            set_mode(&driver, 0o755);
            let program = Path::new("/run/program");
            fs::copy("/proc/self/exe", program).unwrap();
            set_mode(program, 0o4755);
            let variables = [
                ("NNHAL_DRIVER", driver.to_str().unwrap()),
                ("NNHAL_RUNTIME_DIR", TRAP),
                ("XDG_RUNTIME_DIR", TRAP),
                ("NNHAL_TRACE", TRACE),
                ("PATH", "/run/trap:/bin:/usr/bin"),
            ];
            expect_success(run_as(NOBODY, program, TEST, "program").envs(variables));
        }
        Some(_) if !geteuid().is_root() => println!("SKIPPED: set-user-ID has no effect here"),
        Some(_) => {
            let devices = Devices::open().unwrap();
            assert_eq!(devices.directories(), [Path::new("/run/nnhal")]);
            let error = devices.names().unwrap_err().to_string();
            assert!(error.contains("more rights"), "{error}");
            for path in [SPRUNG, TRACE] {
                assert!(!Path::new(path).exists(), "{path}");
            }
        }
    }
}
