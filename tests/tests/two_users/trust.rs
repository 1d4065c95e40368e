//! Whose drivers a client uses: its own user's, root's, and those of whom it is told to trust.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nnhal_client::Devices;
use nnhal_tests::wait_until;

use crate::common::{
    DRIVER, NOBODY, SYSTEM, again_as, expect_success, in_own_run, keep_warnings, make_directory, part,
    warnings,
};
use crate::drivers::SystemDriver;

const TEST: &str = "trust::drivers_of_strangers_are_left_out_unless_they_are_named";

const STRANGER: u32 = 54_321;

/// Where the stranger's driver has its socket.
const FOREIGN: &str = "/run/foreign";

/// The client's own.
const HOME: &str = "/run/home";
const HOME_DIR: &str = "/run/home/nnhal";

const DEVICE: &str = "nnhal-reference";

#[test]
fn drivers_of_strangers_are_left_out_unless_they_are_named() {
    match part().as_deref() {
        None => in_own_run(TEST),
        Some(SYSTEM) => {
            make_directory(Path::new(FOREIGN), 0o755, STRANGER);
            make_directory(Path::new(HOME), 0o700, NOBODY);
            make_directory(Path::new(HOME_DIR), 0o700, NOBODY);
            let driver = driver_of_stranger();
            let client = |part: &str, variable: (&str, &str)| {
                let mut command = again_as(NOBODY, TEST, &format!("{} {part}", driver.pid()));
                command.env("NNHAL_DRIVER", DRIVER).env(variable.0, variable.1);
                command
            };
            let named = ("NNHAL_RUNTIME_DIR", FOREIGN);
            expect_success(&mut client("/run/foreign belongs to user 54321", named));
            expect_success(client("", named).env("NNHAL_DRIVER_USERS", "1, 54321"));
            // In a directory that is trusted the one who listens need not be.
            let socket = format!("{DEVICE}.sock");
            let moved = Path::new(HOME_DIR).join(&socket);
            fs::rename(Path::new(FOREIGN).join(&socket), &moved).unwrap();
            let own = ("XDG_RUNTIME_DIR", HOME);
            let warned = format!("{} is served by user 54321", moved.display());
            expect_success(&mut client(&warned, own));
            expect_success(client("", own).env("NNHAL_DRIVER_USERS", "54321"));
        }
        Some(part) => {
            keep_warnings();
            let (pid, warned) = part.split_once(' ').unwrap();
            let devices = Devices::open().unwrap();
            for device in [devices.device(DEVICE).unwrap(), devices.fastest().unwrap()] {
                let is_foreign = device.supervisor().pid.to_string() == pid;
                assert_eq!(is_foreign, warned.is_empty(), "T38: {part}");
            }
            let warnings = warnings();
            if warned.is_empty() {
                assert_eq!(warnings, [""; 0]);
            } else {
                assert!(
                    warnings.iter().any(|warning| warning.contains(warned)),
                    "{warnings:#?}"
                );
            }
        }
    }
}

fn driver_of_stranger() -> SystemDriver {
    let settings = Path::new("/run/settings.toml");
    fs::write(settings, "[clients]\nother_users = true\n").unwrap();
    let mut command = Command::new(DRIVER);
    command
        .args(["--device", DEVICE, "--log", "info", "--runtime-dir", FOREIGN])
        .arg("--config")
        .arg(settings)
        .uid(STRANGER)
        .gid(STRANGER);
    let driver = SystemDriver::start(&mut command);
    wait_until("the stranger's driver serves", || {
        driver.log().contains("serving")
    });
    driver
}
