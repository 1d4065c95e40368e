//! The driver as docs/settings.md has a service manager run it.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nnhal_client::Devices;
use nnhal_os::socket::Listener;
use nnhal_tests::TIMEOUT;

use crate::common::{
    DRIVER, EXE, NOBODY, SYSTEM, again_as, expect_success, in_own_run, keep_warnings, make_directory, part,
    set_mode, warnings,
};
use crate::drivers::SystemDriver;

const TEST: &str = "service::documented_service_serves_all_users";

/// Who stands for the documented user.
const SERVICE: u32 = 54_321;

/// Where the documented service has its executable.
const INSTALLED: &str = "/usr/bin/nnhald";

/// The example with this path in its first line.
fn documented(path: &str) -> &'static str {
    let text = include_str!("../../../docs/settings.md");
    let start = text
        .find(&format!("# {path}\n"))
        .expect("an example of that name");
    let (example, _) = text[start..].split_once("\n```").expect("its end");
    example
}

/// The value of a key, which must be there once.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values
        .next()
        .unwrap_or_else(|| panic!("{key} is missing in {unit}"));
    assert_eq!(values.next(), None, "{key}");
    value
}

fn service() -> &'static str {
    documented("/etc/systemd/system/nnhald.service")
}

fn socket() -> &'static str {
    documented("/etc/systemd/system/nnhald.socket")
}

#[test]
fn documented_units_are_sound() {
    for (unit, target) in [(service(), "multi-user.target"), (socket(), "sockets.target")] {
        assert!(unit.contains("\n[Install]\n"), "{unit}");
        assert_eq!(value(unit, "WantedBy"), target);
    }
    // The death of a worker is none of the service, and its clients may have a process with threads each.
    assert_eq!(value(service(), "OOMPolicy"), "continue");
    let tasks: u32 = value(service(), "TasksMax").parse().unwrap();
    assert!(tasks >= 1024 * 100, "{tasks}");
    // Whichever of the two makes the directory.
    assert_eq!(
        value(socket(), "DirectoryMode"),
        value(service(), "RuntimeDirectoryMode")
    );
    let folder = tempfile::tempdir().unwrap();
    let units = [("nnhald.service", service()), ("nnhald.socket", socket())].map(|(name, unit)| {
        let path = folder.path().join(name);
        fs::write(&path, unit.replace(INSTALLED, EXE)).unwrap();
        path
    });
    let output = match Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(units)
        .output()
    {
        Ok(output) => output,
        Err(error) => return println!("SKIPPED: systemd-analyze cannot be run: {error}"),
    };
    let said = String::from_utf8(output.stderr).unwrap();
    // Units of the machine that they depend on may be as they like.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("nnhald")).collect();
    assert!(ours.is_empty(), "{said}");
}

#[test]
fn documented_service_serves_all_users() {
    match part().as_deref() {
        None => in_own_run(TEST),
        Some(SYSTEM) => {
            run_service(false);
            run_service(true);
        }
        Some(pid) => {
            keep_warnings();
            let devices = Devices::open().unwrap();
            assert_eq!(devices.names().unwrap(), ["nnhal-cpu", "nnhal-reference"]);
            for device in [
                devices.fastest().unwrap(),
                devices.device("nnhal-reference").unwrap(),
            ] {
                assert_eq!(device.supervisor().pid.to_string(), pid);
            }
            assert_eq!(warnings(), [""; 0]);
        }
    }
}

/// Does what a service manager does with the documented files.
fn run_service(has_socket: bool) {
    assert_eq!(value(service(), "Type"), "notify");
    assert_eq!(value(service(), "User"), "nnhal");
    let directory = Path::new("/run").join(value(service(), "RuntimeDirectory"));
    let octal = |mode: &str| u32::from_str_radix(mode, 8).unwrap();
    let mode = if has_socket {
        value(socket(), "DirectoryMode")
    } else {
        value(service(), "RuntimeDirectoryMode")
    };
    make_directory(&directory, octal(mode), SERVICE);

    let start = value(service(), "ExecStart")
        .strip_prefix(INSTALLED)
        .expect("its path");
    let (_, settings) = start.split_once("--config ").expect("a settings file");
    let here = Path::new("/run/nnhald.toml");
    fs::write(here, documented(settings)).unwrap();
    let arguments = start.replace(settings, here.to_str().unwrap());

    let path = Path::new("/run/notify");
    let manager = UnixDatagram::bind(path).unwrap();
    set_mode(path, 0o666);
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = if has_socket {
        activated()
    } else {
        Command::new(DRIVER)
    };
    command
        .args(arguments.split_whitespace())
        .env("NOTIFY_SOCKET", path);
    let driver = SystemDriver::start(command.uid(SERVICE).gid(SERVICE));
    let hear = |wanted: &str| {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        let said = String::from_utf8_lossy(&bytes[..length]);
        assert!(
            said.lines().any(|line| line == wanted),
            "{said}\n{}",
            driver.log()
        );
    };
    hear("READY=1");
    expect_success(&mut again_as(NOBODY, TEST, &driver.pid().to_string()));
    assert_eq!(driver.log(), "");
    driver.signal(nix::sys::signal::Signal::SIGTERM);
    hear("STOPPING=1");
    driver.wait();
    assert!(directory.exists(), "it is the service manager's");
    fs::remove_dir_all(&directory).unwrap();
    fs::remove_file(path).unwrap();
}

/// The driver with the documented socket, which is made for it.
fn activated() -> Command {
    const SCRIPT: &str = "exec 3<&0 </dev/null && export LISTEN_PID=$$ LISTEN_FDS=1 && exec \"$@\"";
    let path = Path::new(value(socket(), "ListenSequentialPacket"));
    let listener = Listener::bind(path).unwrap();
    set_mode(
        path,
        u32::from_str_radix(value(socket(), "SocketMode"), 8).unwrap(),
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", SCRIPT, "sh", DRIVER])
        .env("LISTEN_FDNAMES", value(socket(), "FileDescriptorName"))
        .stdin(Stdio::from(listener.as_fd().try_clone_to_owned().unwrap()));
    command
}
