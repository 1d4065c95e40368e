//! The processes of a driver, and how one of them ended.

use std::fmt;

use nnhal::wire::CauseOfDeath;

/// A process of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// What it does.
    pub role: Role,
    /// Its process id when the connection was made; 0 if it is not known.
    pub pid: u32,
}

/// What a driver's process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Serves this client's connection and nobody else's.
    Worker,
    /// Accepts connections.
    Supervisor,
}

/// The end of a driver's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The process.
    pub process: Process,
    /// How it ended, where that could be found out.
    pub cause: Option<CauseOfDeath>,
    /// What the process or its supervisor said about it; may be empty.
    pub last_words: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Worker => "worker",
            Role::Supervisor => "supervisor",
        };
        match self.pid {
            0 => write!(f, "the driver's {role}"),
            pid => write!(f, "the driver's {role}, process {pid},"),
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.process)?;
        match self.cause {
            Some(cause) => cause.fmt(f)?,
            None => f.write_str("closed the connection")?,
        }
        if self.last_words.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.last_words)
        }
    }
}
