//! What the tests of the jail and the driver of theirs agree on: how a model asks for a system call.
//!
//! The device `test-escape` takes a NEG of whole numbers for an order: the first number names a [`Way`], or a
//! system call by [`RAW`] with its number and its arguments; the first two of the output are what came of it.

use nnhal_device::{Need, Needs};

/// The device's name.
pub const DEVICE: &str = "test-escape";

/// The same device with [`NEEDS`].
pub const NEEDY: &str = "test-escape_with_needs";

/// A device that starts a thread while it is made, named [`THREAD`].
pub const THREADED: &str = "test-escape_with_thread";

/// A device that looks for hardware while it is made, in every way that it may.
pub const LOOKING: &str = "test-escape_that_looks";

/// See [`THREADED`].
pub const THREAD: &str = "outside";

/// The file of [`Way::OpenNull`], an ioctl and a call.
pub const NEEDS: Needs = Needs {
    files: &[Need {
        what: "/dev/null",
        reason: "stands for a device node",
    }],
    ioctls: &[Need {
        what: NEEDED_IOCTL,
        reason: "stands for one of a device node",
    }],
    calls: &[Need {
        what: nix::libc::SYS_getuid,
        reason: "stands for a call",
    }],
};

/// `TCGETS`, which every terminal has.
pub const NEEDED_IOCTL: u32 = 0x5401;

/// How many whole numbers an order has.
pub const NUMBERS: usize = 16;

/// The order for a system call: then its number, then six arguments, two numbers each, lower half first.
pub const RAW: i32 = -1;

/// The order for threads that wait for ever: then how many.
pub const THREADS: i32 = -2;

/// The argument by which the driver of the tests tries a way out without a jail, followed by its place in
/// [`Way::ALL`] and the number of another process.
pub const TRY: &str = "--try";

/// The file that some ways out make, by the number of the other process, which nobody else has meanwhile.
#[must_use]
pub fn escaped(other: u32) -> String {
    format!("/tmp/nnhal-escaped-{other}")
}

/// What it prints before the result.
pub const TRIED: &str = "tried: ";

/// The order for one of [`Way::ALL`], by its place there, and the number of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Opens a file that everybody may read.
    OpenPassword,
    /// The same, by the older call.
    OpenByOlderCall,
    /// The same, by `openat2`.
    OpenByNewerCall,
    /// Creates a file.
    CreateFile,
    /// Opens the node that takes everything.
    OpenNull,
    /// Lists a directory by way of the root.
    OpenRoot,
    /// Reads what another process has in memory, by `/proc`.
    OpenMemoryOfParent,
    /// Opens its own memory by `/proc`, for writing.
    OpenOwnMemory,
    /// Opens a descriptor of its own again.
    OpenOwnDescriptor,
    /// Becomes a shell.
    ExecuteShell,
    /// Becomes this executable again.
    ExecuteItself,
    /// Becomes what it has written to a memory of its own.
    ExecuteMemory,
    /// Maps a memory of its own as code.
    MapMemoryAsCode,
    /// Maps memory that is written and executed.
    MapWritableCode,
    /// Makes memory executable that it has written.
    ProtectAsCode,
    /// The same, by `pkey_mprotect`.
    ProtectAsCodeByKey,
    /// Has `READ_IMPLIES_EXEC` make all its memory code.
    PersonalityOfCode,
    /// Starts a process.
    Fork,
    /// The same, as `vfork` does.
    ForkByOlderCall,
    /// The same, by `clone3`.
    ForkByNewerCall,
    /// A process in namespaces of its own.
    ForkInNewNamespace,
    /// Traces its supervisor.
    TraceParent,
    /// Reads its supervisor's memory.
    ReadParent,
    /// Writes it.
    WriteParent,
    /// Takes a descriptor of its supervisor.
    TakeDescriptorOfParent,
    /// Opens its supervisor as a process.
    OpenParent,
    /// Compares itself with it.
    CompareWithParent,
    /// Kills its supervisor.
    KillParent,
    /// All processes of its user.
    KillAll,
    /// A thread of its supervisor.
    KillThreadOfParent,
    /// Makes a socket of the network.
    InternetSocket,
    /// One that sees all packets.
    PacketSocket,
    /// One of the kernel's.
    NetlinkSocket,
    /// One for other processes.
    UnixSocket,
    /// A pair.
    SocketPair,
    /// Connects a descriptor of its own.
    ConnectDescriptor,
    /// Makes a queue for calls that no filter sees.
    IoUring,
    /// Answers for its own page faults.
    UserFaultFd,
    /// Loads a program into the kernel.
    Bpf,
    /// Watches the kernel's events.
    PerfEvents,
    /// Reads keys.
    Keys,
    /// Adds one.
    AddKey,
    /// Mounts a file system.
    Mount,
    /// The same, by the newer calls.
    MountByNewerCall,
    /// Changes its root.
    ChangeRoot,
    /// The same, for all.
    PivotRoot,
    /// Takes a user namespace, with all capabilities in it.
    NewUserNamespace,
    /// Takes a network namespace.
    NewNetwork,
    /// Joins that of its supervisor.
    JoinNamespace,
    /// Becomes root.
    BecomeRoot,
    /// Takes capabilities.
    TakeCapabilities,
    /// Is dumpable again.
    BeDumpable,
    /// Raises a limit.
    RaiseLimit,
    /// Raises that of its supervisor.
    RaiseLimitOfParent,
    /// Takes a real-time priority.
    RealTime,
    /// Gives its supervisor another.
    PriorityOfParent,
    /// Shares memory by a key.
    SharedMemoryByKey,
    /// Sends messages by a key.
    MessagesByKey,
    /// Loads a module.
    LoadModule,
    /// Boots another kernel.
    LoadKernel,
    /// Restarts the machine.
    Reboot,
    /// Makes a device node.
    MakeNode,
    /// Sets the clock.
    SetClock,
    /// Types on its terminal.
    TypeOnTerminal,
    /// Makes a descriptor for all signals.
    SignalDescriptor,
    /// Watches the whole file system.
    WatchFiles,
    /// Opens a file by its handle, past all directories.
    OpenByHandle,
    /// Has another filter.
    FilterOfItsOwn,
    /// Calls the kernel as a program of 32 bits.
    CallOf32Bits,
    /// Calls it by a number of the x32 interface.
    CallOfX32,
}

impl Way {
    /// All of them.
    pub const ALL: &[Way] = &[
        Way::OpenPassword,
        Way::OpenByOlderCall,
        Way::OpenByNewerCall,
        Way::CreateFile,
        Way::OpenNull,
        Way::OpenRoot,
        Way::OpenMemoryOfParent,
        Way::OpenOwnMemory,
        Way::OpenOwnDescriptor,
        Way::ExecuteShell,
        Way::ExecuteItself,
        Way::ExecuteMemory,
        Way::MapMemoryAsCode,
        Way::MapWritableCode,
        Way::ProtectAsCode,
        Way::ProtectAsCodeByKey,
        Way::PersonalityOfCode,
        Way::Fork,
        Way::ForkByOlderCall,
        Way::ForkByNewerCall,
        Way::ForkInNewNamespace,
        Way::TraceParent,
        Way::ReadParent,
        Way::WriteParent,
        Way::TakeDescriptorOfParent,
        Way::OpenParent,
        Way::CompareWithParent,
        Way::KillParent,
        Way::KillAll,
        Way::KillThreadOfParent,
        Way::InternetSocket,
        Way::PacketSocket,
        Way::NetlinkSocket,
        Way::UnixSocket,
        Way::SocketPair,
        Way::ConnectDescriptor,
        Way::IoUring,
        Way::UserFaultFd,
        Way::Bpf,
        Way::PerfEvents,
        Way::Keys,
        Way::AddKey,
        Way::Mount,
        Way::MountByNewerCall,
        Way::ChangeRoot,
        Way::PivotRoot,
        Way::NewUserNamespace,
        Way::NewNetwork,
        Way::JoinNamespace,
        Way::BecomeRoot,
        Way::TakeCapabilities,
        Way::BeDumpable,
        Way::RaiseLimit,
        Way::RaiseLimitOfParent,
        Way::RealTime,
        Way::PriorityOfParent,
        Way::SharedMemoryByKey,
        Way::MessagesByKey,
        Way::LoadModule,
        Way::LoadKernel,
        Way::Reboot,
        Way::MakeNode,
        Way::SetClock,
        Way::TypeOnTerminal,
        Way::SignalDescriptor,
        Way::WatchFiles,
        Way::OpenByHandle,
        Way::FilterOfItsOwn,
        Way::CallOf32Bits,
        Way::CallOfX32,
    ];
}
