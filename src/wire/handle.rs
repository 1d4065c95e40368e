//! Names of objects in a worker.

/// Names an entry of a worker's table. Handles mean something on one connection only, and a handle of an
/// object that is gone never names its successor: the generation differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// Which entry.
    pub index: u32,
    /// How often the entry had been used before; an entry whose generations are spent is not used again.
    pub generation: u32,
}

impl Handle {
    /// The handle as one number, for places that hold 64 bits.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The handle that [`Handle::to_bits`] made this number of.
    #[must_use]
    pub fn from_bits(bits: u64) -> Handle {
        Handle {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Handle);

        impl From<Handle> for $name {
            fn from(handle: Handle) -> Self {
                Self(handle)
            }
        }

        impl From<$name> for Handle {
            fn from(handle: $name) -> Self {
                handle.0
            }
        }
    )*};
}

handles! {
    /// Names a prepared model.
    PreparedModelHandle
    /// Names a memory that the client shares; also the memory slot of a burst.
    MemoryHandle
    /// Names a burst.
    BurstHandle
    /// Names a device buffer. Executions name it by its token instead.
    BufferHandle
    /// Names a fenced execution, to ask for its outcome.
    ExecutionHandle
    /// Names a fence that was handed over before the execution that waits for it.
    FenceHandle
}

#[cfg(test)]
mod tests {
    use super::Handle;

    #[test]
    fn handle_survives_its_bits() {
        for handle in [
            Handle {
                index: 0,
                generation: 0,
            },
            Handle {
                index: u32::MAX,
                generation: 1,
            },
            Handle {
                index: 7,
                generation: u32::MAX,
            },
        ] {
            assert_eq!(Handle::from_bits(handle.to_bits()), handle);
        }
    }
}
