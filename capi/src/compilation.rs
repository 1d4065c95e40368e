//! Compilations.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal_client::runtime::{self, CompilationOptions, Direction, Recovery, RuntimeDevice};
use nnhal_client::{ExecutionPreference, Priority};

use crate::codes::{PreferenceCode, PriorityCode};
use crate::extension::Attributes;
use crate::model::Finished;
use crate::process;
use crate::result::{Failure, Outcome};

/// How the memory of an argument is best made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreferredMemory {
    /// What its address is a multiple of.
    pub(crate) alignment: u32,
    /// What its size is a multiple of.
    pub(crate) padding: u32,
}

/// On a cache line, which is enough for any vector instruction; nothing is read beyond a value.
const PREFERRED_MEMORY: PreferredMemory = PreferredMemory {
    alignment: 64,
    padding: 1,
};

/// What is behind an `ANeuralNetworksCompilation`.
#[derive(Debug)]
pub(crate) struct Compilation {
    model: Arc<Finished>,
    /// The devices that the caller named, if it did.
    devices: Option<Vec<RuntimeDevice>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open(Settings),
    Finished(runtime::Compilation),
    Failed(Cow<'static, str>),
}

/// What the caller asks of a compilation before it is made.
#[derive(Clone, Debug, Default)]
struct Settings {
    preference: ExecutionPreference,
    priority: Priority,
    timeout: Option<Duration>,
    cache: Option<(PathBuf, [u8; 32])>,
    recovery: Option<Recovery>,
    attributes: Attributes,
}

impl Compilation {
    pub(crate) fn new(model: Arc<Finished>, devices: Option<Vec<RuntimeDevice>>) -> Compilation {
        Compilation {
            model,
            devices,
            state: Mutex::new(State::Open(Settings::default())),
        }
    }

    pub(crate) fn set_preference(&self, code: i32) -> Outcome {
        use PreferenceCode as Code;
        let known = [
            (
                Code::ANEURALNETWORKS_PREFER_LOW_POWER as i32,
                ExecutionPreference::LowPower,
            ),
            (
                Code::ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER as i32,
                ExecutionPreference::FastSingleAnswer,
            ),
            (
                Code::ANEURALNETWORKS_PREFER_SUSTAINED_SPEED as i32,
                ExecutionPreference::SustainedSpeed,
            ),
        ];
        self.change(|settings| {
            settings.preference = meaning("preference", code, known)?;
            Ok(())
        })
    }

    pub(crate) fn set_priority(&self, code: i32) -> Outcome {
        use PriorityCode as Code;
        let known = [
            (Code::ANEURALNETWORKS_PRIORITY_LOW as i32, Priority::Low),
            (Code::ANEURALNETWORKS_PRIORITY_MEDIUM as i32, Priority::Medium),
            (Code::ANEURALNETWORKS_PRIORITY_HIGH as i32, Priority::High),
        ];
        self.change(|settings| {
            settings.priority = meaning("priority", code, known)?;
            Ok(())
        })
    }

    /// 0 is no limit.
    pub(crate) fn set_timeout(&self, nanoseconds: u64) -> Outcome {
        self.change(|settings| {
            self.expect_one_device("a time limit")?;
            settings.timeout = (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
            Ok(())
        })
    }

    pub(crate) fn set_caching(&self, directory: OsString, token: [u8; 32]) -> Outcome {
        self.change(|settings| {
            settings.cache = Some((directory.into(), token));
            Ok(())
        })
    }

    pub(crate) fn add_attribute(&self, extension: &OsStr, within: u16) -> Outcome {
        self.change(|settings| {
            self.expect_one_device("an attribute")?;
            settings.attributes.add(extension, within)
        })
    }

    /// How often executions are repeated when a driver's process dies.
    pub(crate) fn set_recovery(&self, attempts: u32) -> Outcome {
        self.change(|settings| {
            settings.recovery = Some(process::repeated(attempts));
            Ok(())
        })
    }

    /// Refuses what only compilations for exactly one device that the caller named can have.
    pub(crate) fn expect_one_device(&self, what: &str) -> Outcome {
        match &self.devices {
            Some(devices) if devices.len() == 1 => Ok(()),
            _ => Err(Failure::bad_data(format!(
                "{what} needs a compilation made by ANeuralNetworksCompilation_createForDevices for exactly one device"
            ))),
        }
    }

    pub(crate) fn finish(&self) -> Outcome {
        self.change(|_| Ok(()))?;
        let mut state = self.lock();
        let State::Open(settings) = &*state else {
            return Err(Failure::bad_state("the compilation was finished meanwhile"));
        };
        let settings = settings.clone();
        *state = State::Failed("its making was cut short".into());
        match self.compile(settings) {
            Ok(compilation) => {
                *state = State::Finished(compilation);
                Ok(())
            }
            Err(failure) => {
                *state = State::Failed(failure.text.clone());
                Err(failure)
            }
        }
    }

    fn compile(&self, settings: Settings) -> Outcome<runtime::Compilation> {
        let mut options = CompilationOptions::new()
            .preference(settings.preference)
            .priority(settings.priority);
        if let Some(devices) = &self.devices {
            options = options.devices(devices);
        }
        if let Some(timeout) = settings.timeout {
            options = options.timeout(timeout);
        }
        if let Some((directory, token)) = settings.cache {
            options = options.caching(directory, token);
        }
        if let Some(recovery) = settings.recovery {
            options = options.recovery(recovery);
        }
        Ok(process::runtime()?.compile(self.model.model(), &options)?)
    }

    /// The compilation, which must be finished.
    pub(crate) fn finished(&self) -> Outcome<runtime::Compilation> {
        match &*self.lock() {
            State::Finished(compilation) => Ok(compilation.clone()),
            State::Open(_) => Err(Failure::bad_state(
                "the compilation is not finished; call ANeuralNetworksCompilation_finish first",
            )),
            State::Failed(why) => Err(Failure::bad_state(format!(
                "ANeuralNetworksCompilation_finish has failed: {why}"
            ))),
        }
    }

    /// The preferred alignment and padding of an argument.
    pub(crate) fn preferred_memory(&self, direction: Direction, index: u32) -> Outcome<PreferredMemory> {
        let compilation = self.finished()?;
        let arguments = match direction {
            Direction::Input => compilation.inputs().len(),
            Direction::Output => compilation.outputs().len(),
        };
        if index as usize >= arguments {
            return Err(Failure::bad_data(format!(
                "there is no {direction} {index}, the model has {arguments}"
            )));
        }
        Ok(PREFERRED_MEMORY)
    }

    fn change(&self, change: impl FnOnce(&mut Settings) -> Outcome) -> Outcome {
        match &mut *self.lock() {
            State::Open(settings) => change(settings),
            State::Finished(_) => Err(Failure::bad_state(
                "the compilation is finished and cannot be changed any more",
            )),
            State::Failed(why) => Err(Failure::bad_state(format!(
                "ANeuralNetworksCompilation_finish has failed, after which a compilation cannot be changed: {why}"
            ))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a number of the interface means.
fn meaning<T: Copy, const N: usize>(what: &str, code: i32, known: [(i32, T); N]) -> Outcome<T> {
    let found = known.iter().find(|(number, _)| *number == code);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let numbers = known.map(|(number, _)| number);
        Failure::bad_data(format!("there is no {what} {code}; there are {numbers:?}"))
    })
}
