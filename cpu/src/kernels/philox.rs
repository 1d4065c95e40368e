//! The generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

use std::hash::{BuildHasher, Hasher};

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::random::GENERATOR_WORDS;

use crate::kernel::{Inputs, KernelError, Outputs};

/// A generator: its key, and the counter of the words that come next.
#[derive(Clone)]
pub(super) struct Philox {
    key: [u32; 2],
    counter: u128,
}

impl Philox {
    pub(super) fn new(key: [u32; 2]) -> Philox {
        Philox { key, counter: 0 }
    }

    /// One that differs from all others: its key is from the operating system's randomness, by way of the
    /// standard library's hash keys.
    pub(super) fn any() -> Philox {
        let random = std::hash::RandomState::new().build_hasher().finish();
        Philox::new([random as u32, (random >> 32) as u32])
    }

    /// The generator whose state is this input. One of zeros stands for any.
    pub(super) fn read(inputs: &Inputs<'_>, index: usize) -> Result<Philox, KernelError> {
        let words = inputs.data::<i32>(index)?;
        let Ok(words) = <[i32; GENERATOR_WORDS]>::try_from(words) else {
            let message = format!(
                "(generator) has {} words, must have {GENERATOR_WORDS}",
                words.len()
            );
            return Err(OpError::input(index, message).into());
        };
        if words == [0; GENERATOR_WORDS] {
            return Ok(Philox::any());
        }
        let [first, second, counter @ ..] = words.map(|word| word as u32);
        Ok(Philox {
            key: [first, second],
            counter: counter
                .iter()
                .rev()
                .fold(0, |upper, word| upper << 32 | u128::from(*word)),
        })
    }

    /// Makes the state this output.
    pub(super) fn write(&self, outputs: &mut Outputs<'_>, index: usize) -> Result<(), KernelError> {
        let words = self.key.into_iter().chain(words(self.counter));
        for (to, word) in outputs.data::<i32>(index)?.iter_mut().zip(words) {
            *to = word as i32;
        }
        Ok(())
    }

    /// The next four words.
    pub(super) fn next_block(&mut self) -> [u32; 4] {
        let words = block(self.key, self.counter);
        self.skip(1);
        words
    }

    /// Leaves out so many times four words.
    pub(super) fn skip(&mut self, blocks: u64) {
        self.counter = self.counter.wrapping_add(u128::from(blocks));
    }

    /// The next words by twos.
    pub(super) fn pairs(&mut self) -> impl Iterator<Item = [u32; 2]> {
        let blocks = std::iter::repeat_with(|| self.next_block());
        blocks.flat_map(|[first, second, third, fourth]| [[first, second], [third, fourth]])
    }
}

/// The words of a counter, the lowest first.
fn words(counter: u128) -> [u32; 4] {
    [0, 32, 64, 96].map(|shift| (counter >> shift) as u32)
}

/// The four words for one counter.
pub(super) fn block(mut key: [u32; 2], counter: u128) -> [u32; 4] {
    const ROUNDS: u32 = 10;
    let mut words = words(counter);
    for _ in 0..ROUNDS {
        let [first, second, third, fourth] = words;
        let even = u64::from(first) * 0xd251_1f53;
        let odd = u64::from(third) * 0xcd9e_8d57;
        words = [
            (odd >> 32) as u32 ^ second ^ key[0],
            odd as u32,
            (even >> 32) as u32 ^ fourth ^ key[1],
            even as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{Philox, block};

    #[test]
    fn generator_gives_the_published_words() {
        assert_eq!(
            block([0, 0], 0),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            block([u32::MAX; 2], u128::MAX),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            block(
                [0xa409_3822, 0x299f_31d0],
                0x0370_7344_1319_8a2e_85a3_08d3_243f_6a88
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn words_follow_each_other_across_blocks_and_around_the_end() {
        let mut random = Philox {
            key: [1, 2],
            counter: u128::MAX,
        };
        let last = block([1, 2], u128::MAX);
        let pairs: Vec<[u32; 2]> = random.pairs().take(3).collect();
        let first = block([1, 2], 0);
        assert_eq!(
            pairs,
            [[last[0], last[1]], [last[2], last[3]], [first[0], first[1]]]
        );
        assert_eq!(random.counter, 1);
        random.skip(u64::MAX);
        assert_eq!(random.counter, 1 << 64);
    }
}
