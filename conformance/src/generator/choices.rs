//! The choices that a generated model is made of.
//!
//! Everything random about a model is a sequence of small numbers. A seed gives the numbers; recorded, they
//! give the same model again; and because any sequence gives some model (a number that is missing is 0, one
//! that is too large is cut), a failing model is shrunk by making its sequence shorter and its numbers
//! smaller. By convention 0 is the simplest choice.

/// A source of choices that remembers what it gave.
#[derive(Clone, Debug)]
pub struct Choices {
    source: Source,
    made: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Source {
    Random(Random),
    Replay(Vec<u32>),
}

/// A small random number generator (SplitMix64): the same numbers from the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u32
    }
}

impl Choices {
    /// Choices made at random from this seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Choices {
        Choices {
            source: Source::Random(Random::new(seed)),
            made: Vec::new(),
        }
    }

    /// These choices, and 0 after them.
    #[must_use]
    pub fn replay(choices: Vec<u32>) -> Choices {
        Choices {
            source: Source::Replay(choices),
            made: Vec::new(),
        }
    }

    /// What was chosen so far.
    #[must_use]
    pub fn made(&self) -> &[u32] {
        &self.made
    }

    /// A number below `bound`; 0 if there is no other.
    pub fn below(&mut self, bound: u32) -> u32 {
        if bound <= 1 {
            return 0;
        }
        let choice = match &mut self.source {
            Source::Random(random) => random.below(bound),
            Source::Replay(choices) => choices
                .get(self.made.len())
                .copied()
                .unwrap_or_default()
                .min(bound - 1),
        };
        self.made.push(choice);
        choice
    }

    /// True once in `times` times; false is the simpler answer.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) + 1 == times && times > 1
    }

    /// One of `items`; the first is the simplest. `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u32) as usize)
    }
}

/// At most this many sequences are tried when one is shrunk.
const SHRINK_ATTEMPTS: usize = 4000;

/// The simplest sequence found from `choices` for which `fails` still holds: parts left out, numbers lowered.
pub fn shrink(choices: Vec<u32>, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut best = choices;
    let mut attempts = 0;
    loop {
        let before = best.clone();
        let mut length = best.len();
        while length > 0 {
            let mut end = best.len();
            while end >= length && attempts < SHRINK_ATTEMPTS {
                let mut candidate = best.clone();
                candidate.drain(end - length..end);
                attempts += 1;
                if fails(&candidate) {
                    best = candidate;
                }
                end = (end - length).min(best.len());
                if end == 0 {
                    break;
                }
            }
            length /= 2;
        }
        for at in 0..best.len() {
            for smaller in [0, best.get(at).copied().unwrap_or_default() / 2] {
                let lower = best.get(at).is_some_and(|choice| smaller < *choice);
                if lower && attempts < SHRINK_ATTEMPTS {
                    let mut candidate = best.clone();
                    candidate[at] = smaller;
                    attempts += 1;
                    if fails(&candidate) {
                        best = candidate;
                    }
                }
            }
        }
        if best == before || attempts >= SHRINK_ATTEMPTS {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Choices, shrink};

    #[test]
    fn what_was_made_is_replayed() {
        let draw =
            |choices: &mut Choices| -> Vec<u32> { (1..50).map(|bound| choices.below(bound)).collect() };
        let mut first = Choices::from_seed(7);
        let drawn = draw(&mut first);
        assert_eq!(draw(&mut Choices::replay(first.made().to_vec())), drawn);
        assert_ne!(draw(&mut Choices::from_seed(8)), drawn);
    }

    #[test]
    fn replayed_choices_are_cut_to_their_bound_and_end_in_zeros() {
        let mut choices = Choices::replay(vec![100]);
        assert_eq!([choices.below(5), choices.below(5)], [4, 0]);
    }

    #[test]
    fn shrinking_leaves_only_what_is_needed() {
        let long: Vec<u32> = (0..100).collect();
        let shrunk = shrink(long, |choices| choices.iter().any(|choice| *choice >= 40));
        assert_eq!(shrunk.len(), 1);
        assert!((40..80).contains(&shrunk[0]));
    }
}
