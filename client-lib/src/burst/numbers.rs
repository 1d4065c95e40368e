//! The numbers of registered requests.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal::burst::MAX_REGISTERED;

use crate::error::{Error, Result};

/// The numbers of one burst.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The lowest number that was never given out.
    next: u16,
    /// Those that were given back.
    free: Vec<u16>,
}

/// A number, given back when dropped. Requests are carried out in order, so whoever gets it next may register
/// it at once, even while an execution that nobody waits for any more uses what is registered now.
#[derive(Debug)]
pub(super) struct Number {
    value: u16,
    numbers: Arc<Numbers>,
}

impl Numbers {
    /// A number that is not in use.
    pub(super) fn take(numbers: &Arc<Numbers>) -> Result<Number> {
        let mut state = numbers.state.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match state.free.pop() {
            Some(value) => value,
            None if state.next < MAX_REGISTERED => {
                state.next += 1;
                state.next - 1
            }
            None => {
                return Err(Error::argument(format!(
                    "{MAX_REGISTERED} requests are registered with this burst, the most that it can know; drop one"
                )));
            }
        };
        drop(state);
        Ok(Number {
            value,
            numbers: Arc::clone(numbers),
        })
    }
}

impl Number {
    /// As packets name it.
    #[inline]
    pub(super) fn value(&self) -> u16 {
        self.value
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut state = self.numbers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_bounded() {
        let numbers = Arc::new(Numbers::default());
        let mut taken: Vec<Number> = (0..MAX_REGISTERED)
            .map(|_| Numbers::take(&numbers).unwrap())
            .collect();
        let error = Numbers::take(&numbers).unwrap_err().to_string();
        assert!(error.contains("1024 requests are registered"), "{error}");
        assert_eq!(taken.remove(7).value(), 7);
        assert_eq!(Numbers::take(&numbers).unwrap().value(), 7);
    }
}
