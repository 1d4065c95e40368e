//! Packed weights that workers share: what a worker and the supervisor say to each other about them.
//!
//! Contract: once a worker has a client, the two talk over the packet socket on the worker's standard input, by which the
//! client was handed over. The worker asks, the supervisor answers each question but [`Question::Release`]. Every message
//! has a fixed size, whatever it says, and is decoded without allocating: the supervisor takes a worker for hostile, and
//! has nothing to parse. Memories travel beside the messages, sealed; the supervisor checks their seals and size and never
//! maps them.
//!
//! What a memory holds is not believed by its name: whoever gets one compares it with the weights that it has packed by
//! itself. So nobody can put other weights under a name, not even another worker of the same user.

use highway::{HighwayHash, HighwayHasher, Key};

/// Bytes of an encoded [`Question`].
pub(crate) const QUESTION_BYTES: usize = 48;

/// Bytes of an encoded [`Answer`].
pub(crate) const ANSWER_BYTES: usize = 8;

/// Names packed weights: for the same weights of the same device it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WeightsName {
    digest: [u8; 32],
    /// Size of the memory that holds them.
    pub(crate) size: u64,
}

/// Computes a [`WeightsName`].
///
/// It must be as fast as memory is read, and need not be safe against forgery, since the weights are compared.
pub(crate) struct NameHasher(HighwayHasher);

impl NameHasher {
    /// For weights that the device of this name and version has packed.
    pub(crate) fn new((name, version): (&str, &str)) -> NameHasher {
        // Any key would do, as long as all workers have the same.
        let mut hasher = HighwayHasher::new(Key([0; 4]));
        for text in [name, version] {
            hasher.append(&(text.len() as u64).to_le_bytes());
            hasher.append(text.as_bytes());
        }
        NameHasher(hasher)
    }

    /// The next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// The name of a memory of this size.
    pub(crate) fn finish(self, size: u64) -> WeightsName {
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(8).zip(self.0.finalize256()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        WeightsName { digest, size }
    }
}

/// From a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Who has these weights?
    Get(WeightsName),
    /// Here they are, for others. Descriptor: the memory.
    Offer(WeightsName),
    /// One program less uses what was got or offered. Has no answer.
    Release(WeightsName),
}

/// From the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Another worker has offered them. Descriptor: its memory.
    Given,
    /// Nobody has offered them.
    Wanted,
    /// What was offered is kept for others.
    Kept,
    /// There is no room for them, or they are not shared.
    Refused,
}

impl Question {
    pub(crate) fn name(&self) -> &WeightsName {
        match self {
            Question::Get(name) | Question::Offer(name) | Question::Release(name) => name,
        }
    }

    pub(crate) fn encode(&self) -> [u8; QUESTION_BYTES] {
        let code: u64 = match self {
            Question::Get(_) => 1,
            Question::Offer(_) => 2,
            Question::Release(_) => 3,
        };
        let WeightsName { digest, size } = self.name();
        let mut bytes = [0; QUESTION_BYTES];
        let (head, rest) = bytes.split_at_mut(8);
        let (middle, last) = rest.split_at_mut(8);
        head.copy_from_slice(&code.to_le_bytes());
        middle.copy_from_slice(&size.to_le_bytes());
        last.copy_from_slice(digest);
        bytes
    }

    /// `None` for what is no question.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Question> {
        let (code, rest) = bytes.split_first_chunk::<8>()?;
        let (size, digest) = rest.split_first_chunk::<8>()?;
        let name = WeightsName {
            digest: digest.try_into().ok()?,
            size: u64::from_le_bytes(*size),
        };
        match u64::from_le_bytes(*code) {
            1 => Some(Question::Get(name)),
            2 => Some(Question::Offer(name)),
            3 => Some(Question::Release(name)),
            _ => None,
        }
    }
}

impl Answer {
    pub(crate) fn encode(self) -> [u8; ANSWER_BYTES] {
        let code: u64 = match self {
            Answer::Given => 1,
            Answer::Wanted => 2,
            Answer::Kept => 3,
            Answer::Refused => 4,
        };
        code.to_le_bytes()
    }

    /// `None` for what is no answer.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Answer> {
        match u64::from_le_bytes(bytes.try_into().ok()?) {
            1 => Some(Answer::Given),
            2 => Some(Answer::Wanted),
            3 => Some(Answer::Kept),
            4 => Some(Answer::Refused),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) fn name_of(text: &str, size: u64) -> WeightsName {
    let mut hasher = NameHasher::new(("device", "1"));
    hasher.update(text.as_bytes());
    hasher.finish(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let name = name_of("weights", 1 << 40);
        for question in [
            Question::Get(name),
            Question::Offer(name),
            Question::Release(name),
        ] {
            assert_eq!(Question::decode(&question.encode()), Some(question));
            assert_eq!(question.name(), &name);
        }
        for answer in [Answer::Given, Answer::Wanted, Answer::Kept, Answer::Refused] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_has_another_size_or_code_is_no_message() {
        let question = Question::Get(name_of("weights", 64)).encode();
        for length in 0..QUESTION_BYTES {
            assert_eq!(Question::decode(&question[..length]), None, "{length}");
        }
        assert_eq!(Question::decode(&[&question[..], &[0]].concat()), None);
        for code in [0, 4, 255] {
            let mut bytes = question;
            bytes[0] = code;
            assert_eq!(Question::decode(&bytes), None, "{code}");
            bytes[0] = 1;
            bytes[7] = code.max(1);
            assert_eq!(Question::decode(&bytes), None, "the highest byte {code}");
        }
        for bytes in [
            &[][..],
            &[1],
            &[0; 8],
            &[5, 0, 0, 0, 0, 0, 0, 0],
            &[1; 8],
            &[0; 9],
        ] {
            assert_eq!(Answer::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn names_differ_by_device_version_content_and_size() {
        let name = |device, text: &str, size| {
            let mut hasher = NameHasher::new(device);
            hasher.update(text.as_bytes());
            hasher.finish(size)
        };
        let names = [
            name(("device", "1"), "weights", 64),
            name(("device", "2"), "weights", 64),
            name(("device1", ""), "weights", 64),
            name(("device", "1weights"), "", 64),
            name(("device", "1"), "weighty", 64),
            name(("device", "1"), "weights", 128),
        ];
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        let mut parts = NameHasher::new(("device", "1"));
        for part in ["wei", "", "ghts"] {
            parts.update(part.as_bytes());
        }
        assert_eq!(parts.finish(64), names[0]);
    }
}
