//! The bytes of a client's device buffers, which count against its own limit and its user's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nnhal_hal::Failure;

use super::table::over_quota;
use crate::usage::{Permit, Quotas};

/// What all device buffers of a client have together.
#[derive(Debug)]
pub(super) struct Account {
    used: AtomicU64,
    most: u64,
    quotas: Quotas,
}

impl Account {
    /// Of a client that may have so many bytes, beside the others of its user.
    pub(super) fn new(most: u64, quotas: Quotas) -> Account {
        Account {
            used: AtomicU64::new(0),
            most,
            quotas,
        }
    }

    /// The most bytes that the client may have.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    fn take(&self, bytes: u64) -> Result<(), Failure> {
        let with_these = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_these);
        taken.map(drop).map_err(|_| {
            Failure::new(
                over_quota(bytes, self.most),
                format!(
                    "{bytes} bytes more of device buffers exceed the {} bytes that one client may have (the driver's \
                     setting limits.buffer_bytes)",
                    self.most
                ),
            )
        })
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes of one buffer, until dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: u64,
    /// Among those of the user's clients.
    permit: Option<Permit>,
}

impl Charge {
    /// That of a buffer without bytes.
    pub(super) fn none(account: Arc<Account>) -> Charge {
        Charge {
            account,
            bytes: 0,
            permit: None,
        }
    }

    /// How many bytes are counted.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many bytes from now on. An error leaves it as it was; fewer than before are none.
    pub(super) fn resize(&mut self, bytes: u64) -> Result<(), Failure> {
        let more = bytes.saturating_sub(self.bytes);
        self.account.take(more)?;
        if let Err(failure) = self.account.quotas.resize_buffer(&mut self.permit, bytes) {
            self.account.give_back(more);
            return Err(failure);
        }
        self.account.give_back(self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ErrorStatus;

    use super::*;

    #[test]
    fn bytes_are_counted_as_they_grow_and_shrink_and_given_back() {
        let account = Arc::new(Account::new(100, Quotas::alone()));
        let mut one = Charge::none(Arc::clone(&account));
        let mut other = Charge::none(Arc::clone(&account));
        one.resize(70).unwrap();
        let refused = other.resize(31).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedTransient);
        assert!(refused.detail.contains("limits.buffer_bytes"), "{refused}");
        one.resize(69).unwrap();
        other.resize(31).unwrap();
        let refused = one.resize(101).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedTransient);
        assert_eq!((one.bytes(), other.bytes()), (69, 31));
        drop(one);
        other.resize(100).unwrap();
        other.resize(0).unwrap();
        assert_eq!(account.used.load(Ordering::Relaxed), 0);
    }
}
