//! What a user finds of the drivers of others: all that may be used, and no trouble with the rest.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal::wire::directory;
use nnhal_client::runtime::{CompilationOptions, Runtime};
use nnhal_client::{
    Clock, Deadline, Device, DeviceChange, Devices, DevicesOptions, ExecuteOptions, Input, Model,
    ModelBuilder, MonotonicClock, OperationType, Output, PrepareOptions, TensorType,
};
use nnhal_os::socket::{Listener, probe};
use nnhal_tests::{DaemonOptions, TIMEOUT, TestDaemon, wait_until};

use crate::common::{
    DRIVER, NOBODY, SYSTEM, again_as, expect_success, in_own_run, keep_warnings, make_directory, mode, part,
    set_mode, warnings,
};

const TEST: &str = "drivers::user_has_the_drivers_that_it_may_use_whatever_others_keep";

/// Where drivers of the whole system are.
const SYSTEM_DIR: &str = "/run/nnhal";

/// The other user's own.
const HOME: &str = "/run/home";
const HOME_DIR: &str = "/run/home/nnhal";

const REFERENCE: &str = "nnhal-reference";
const FAST: &str = "nnhal-cpu";

const SIZE: usize = 512;

/// A driver as a service manager starts it, with nothing that says where.
pub(crate) struct SystemDriver {
    child: Child,
    log: PathBuf,
}

impl SystemDriver {
    pub(crate) fn start(command: &mut Command) -> SystemDriver {
        let log = PathBuf::from("/run/log");
        let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        SystemDriver { child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has ended as it was told.
    pub(crate) fn wait(mut self) {
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}

impl Drop for SystemDriver {
    fn drop(&mut self) {
        // After its end in order there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(device: &str) -> PathBuf {
    Path::new(SYSTEM_DIR).join(format!("{device}.sock"))
}

fn as_nobody(part: &str) -> Command {
    let mut command = again_as(NOBODY, TEST, part);
    command.env("XDG_RUNTIME_DIR", HOME);
    command
}

/// As the other user without a driver of its own.
fn expect_success_with_a_private_driver(part: &str) {
    expect_success(as_nobody(part).env("NNHAL_DRIVER", DRIVER));
}

#[test]
fn user_has_the_drivers_that_it_may_use_whatever_others_keep() {
    match part().as_deref() {
        None => in_own_run(TEST),
        Some(SYSTEM) => {
            make_directory(Path::new(HOME), 0o700, NOBODY);
            closed_directory();
            squatted_directory();
            drivers_of_root();
        }
        Some(part) => {
            keep_warnings();
            match part.split_once(' ').unwrap_or((part, "")) {
                ("own", _) => has_its_own(),
                ("watch", _) => sees_what_is_opened(),
                ("private", closed) => has_a_private_one(closed),
                ("none", _) => has_none(),
                ("system", pid) => has_the_systems(pid.parse().unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// As a driver leaves it that was killed, or any other program of root's.
fn closed_directory() {
    make_directory(Path::new(SYSTEM_DIR), 0o700, 0);
    let _driver = Listener::bind(&socket(FAST)).unwrap();
    set_mode(&socket(FAST), 0o666);
    expect_success(&mut as_nobody("own"));
    expect_success_with_a_private_driver("private /run/nnhal: Permission denied");
    for (path, closed, opened) in [
        (Path::new(SYSTEM_DIR), 0o700, 0o755),
        (&socket(FAST), 0o600, 0o666),
    ] {
        set_mode(path, closed);
        let mut watching = as_nobody("watch").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == WATCHING));
        set_mode(path, opened);
        assert!(watching.wait().unwrap().success());
    }
    fs::remove_dir_all(SYSTEM_DIR).unwrap();
}

/// What it says when it watches.
const WATCHING: &str = "WATCHING";

fn sees_what_is_opened() {
    let mut watch = Devices::open().unwrap().watch().unwrap();
    println!("\n{WATCHING}");
    assert_eq!(
        watch.wait(soon()).unwrap(),
        Some(DeviceChange::Came(FAST.to_owned()))
    );
}

fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

/// What somebody else made in the user's place is no driver's.
fn squatted_directory() {
    let directory = Path::new("/tmp/nnhal-65534");
    make_directory(directory, 0o755, 54_321);
    let path = directory.join("nnhal-cpu.sock");
    let listener = Listener::bind(&path).unwrap();
    set_mode(&path, 0o666);
    let mut command = as_nobody("private /tmp/nnhal-65534 belongs to user 54321");
    expect_success(command.env_remove("XDG_RUNTIME_DIR").env("NNHAL_DRIVER", DRIVER));
    assert!(
        listener.accept().unwrap().is_none(),
        "T29: somebody has connected"
    );
    fs::remove_dir_all(directory).unwrap();
}

fn drivers_of_root() {
    let settings = Path::new("/run/settings.toml");
    fs::write(settings, "").unwrap();
    let mut command = Command::new("sh");
    // Its directory is for others to look into even where nothing else is that root makes.
    command.args([
        "-c",
        "umask 077 && exec \"$@\"",
        "sh",
        DRIVER,
        "--log",
        "info",
        "--config",
    ]);
    command.arg(settings).env_remove("XDG_RUNTIME_DIR");
    let driver = SystemDriver::start(&mut command);
    wait_until("root's driver serves", || {
        driver.log().matches("serving").count() == 2
    });
    let modes = || {
        (
            mode(Path::new(SYSTEM_DIR)),
            mode(&socket(FAST)),
            mode(&socket(REFERENCE)),
        )
    };
    assert_eq!(modes(), (0o755, 0o600, 0o600));
    expect_success(&mut as_nobody("own"));
    expect_success_with_a_private_driver("private /run/nnhal/nnhal-cpu.sock");
    expect_success(&mut as_nobody("none"));
    // As sockets of a service manager may be, which lets in whom the driver does not.
    for device in [FAST, REFERENCE] {
        set_mode(&socket(device), 0o666);
    }
    expect_success_with_a_private_driver("private user 65534 may not use a driver of user 0");
    expect_success(&mut as_nobody("none"));

    let reload = |other_users: bool, times: usize| {
        fs::write(settings, format!("[clients]\nother_users = {other_users}\n")).unwrap();
        driver.signal(Signal::SIGHUP);
        wait_until("the settings are read", || {
            driver.log().matches("settings read again").count() == times
        });
    };
    reload(false, 1);
    assert_eq!(modes(), (0o755, 0o600, 0o600));
    reload(true, 2);
    assert_eq!(modes(), (0o755, 0o666, 0o666));
    expect_success(&mut as_nobody(&format!("system {}", driver.pid())));
    assert!(!driver.log().contains("WARN"), "{}", driver.log());
    driver.signal(Signal::SIGTERM);
    driver.wait();
    assert!(!Path::new(SYSTEM_DIR).exists(), "it was made by the driver");
}

fn model() -> Model {
    let mut model = ModelBuilder::new();
    let ty = |dimensions: &[usize]| {
        let dimensions: Vec<u32> = dimensions.iter().map(|extent| *extent as u32).collect();
        TensorType::float32(&dimensions)
    };
    let x = model.input(ty(&[1, SIZE]));
    // Enough to be shared with other clients.
    let weights = model.constant(ty(&[SIZE, SIZE]), &vec![1.0_f32; SIZE * SIZE]);
    let bias = model.constant(ty(&[SIZE]), &[0.5_f32; SIZE]);
    let no_activation = model.scalar(0_i32);
    let y = model.output(ty(&[1, SIZE]));
    let inputs = [x, weights, bias, no_activation];
    model.operation(OperationType::FULLY_CONNECTED, &inputs, &[y]);
    model.finish().unwrap()
}

fn computes(device: &Device) {
    let prepared = device.prepare(&model(), &PrepareOptions::new()).unwrap();
    let mut output = [0.0_f32; SIZE];
    let run = prepared.run(
        &[Input::from(&[1.0_f32; SIZE][..])],
        &mut [Output::from(&mut output[..])],
        &ExecuteOptions::new(),
    );
    run.unwrap();
    assert_eq!(output, [SIZE as f32 + 0.5; SIZE]);
}

/// Every way to a device, which must lead to these; returns the process ids of their supervisors.
fn has(devices: &Devices, names: &[&str]) -> Vec<u32> {
    assert_eq!(devices.names().unwrap(), names);
    let listed = devices.list().unwrap();
    let listed: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(listed, names);
    let fastest = devices.fastest().unwrap();
    assert_eq!(fastest.name(), names[0]);
    computes(&fastest);
    let by_name = devices.device(names[0]).unwrap();
    let runtime = Runtime::open().unwrap();
    assert_eq!(runtime.devices().len(), names.len() + 1);
    runtime.compile(&model(), &CompilationOptions::new()).unwrap();
    vec![fastest.supervisor().pid, by_name.supervisor().pid]
}

fn has_its_own() {
    let options = DaemonOptions {
        devices: vec![REFERENCE.to_owned()],
        ..DaemonOptions::default()
    };
    let own = TestDaemon::start_in(Path::new(HOME_DIR), DRIVER, &options);
    let devices = Devices::open().unwrap();
    assert_eq!(
        devices.directories(),
        [Path::new(HOME_DIR), Path::new(SYSTEM_DIR)]
    );
    let supervisors = has(&devices, &[REFERENCE]);
    assert_eq!(supervisors, [own.pid(); 2]);
    let change = devices.watch().unwrap().wait(soon()).unwrap();
    assert_eq!(change, Some(DeviceChange::Came(REFERENCE.to_owned())));
    // Each of two handles says once what it leaves out.
    let warnings = warnings();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(
        warnings.iter().all(|warning| warning.contains(SYSTEM_DIR)),
        "{warnings:#?}"
    );
    drop((devices, own));
    // A worker that was being started has the killed driver's sockets until it is a program of its own.
    wait_until("nobody listens there", || {
        probe(&directory::socket_path(Path::new(HOME_DIR), REFERENCE)).is_err()
    });
}

fn has_a_private_one(warned: &str) {
    let devices = Devices::open().unwrap();
    has(&devices, &[FAST, REFERENCE]);
    let warnings = warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains(warned)),
        "{warnings:#?}"
    );
    let mut different = warnings.clone();
    different.sort();
    different.dedup();
    // Of two handles and two sockets or one directory.
    assert!(warnings.len() <= 4 && different.len() <= 2, "{warnings:#?}");
}

fn has_none() {
    let devices = DevicesOptions::new().without_private_driver().open().unwrap();
    assert!(devices.list().unwrap().is_empty());
    for error in [devices.fastest().unwrap_err(), devices.device(FAST).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("/run/nnhal/nnhal-"), "{text}");
        assert!(text.contains("may not use"), "{text}");
    }
}

fn has_the_systems(pid: u32) {
    let devices = Devices::open().unwrap();
    assert_eq!(has(&devices, &[FAST, REFERENCE]), [pid; 2]);
    assert_eq!(warnings(), [""; 0]);
}
