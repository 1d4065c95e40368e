//! Packed weights that workers share: what a worker and the supervisor say to each other about them.
//!
//! Contract: once a worker has a client, the two talk over the packet socket on the worker's standard input,
//! by which the client was handed over. The worker asks, the supervisor answers each request but
//! [`WeightRequest::Release`]. Every message has a fixed size, whatever it says, and is decoded without
//! allocating: the supervisor takes a worker for hostile, and has nothing to parse. Memories travel beside
//! the messages, sealed; the supervisor checks their seals and size and never maps them.
//!
//! What a memory holds is not believed by its name: whoever gets one compares it with the weights that it has
//! packed by itself. So nobody can put other weights under a name, not even another worker of the same user.

use highway::{HighwayHash, HighwayHasher, Key};
use nnhal_os::buffer::ALIGNMENT;

/// Bytes of an encoded [`WeightRequest`].
pub(crate) const WEIGHT_REQUEST_BYTES: usize = 48;

/// Bytes of an encoded [`Answer`].
pub(crate) const ANSWER_BYTES: usize = 8;

/// Names packed weights: for the same weights of the same device it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WeightsName {
    digest: [u8; 32],
    /// Size of the memory that holds them.
    pub(crate) size: u64,
}

/// Weights are named by a line of each so many bytes.
const STRIDE: usize = 4096;

/// Names the weights in `parts`, each of which begins at a multiple of [`ALIGNMENT`] and is followed by zeros
/// up to the next, in a memory of `size` bytes. They were packed by the device of this name and version.
///
/// A line of each page is read, another one in each, not all of them: the name is for finding weights, which
/// are compared before they are used. Models that are the same there and differ elsewhere do not share, and
/// nothing worse.
pub(crate) fn name((device, version): (&str, &str), parts: &[&[u8]], size: u64) -> WeightsName {
    // Any key would do, as long as all workers have the same.
    let mut hasher = HighwayHasher::new(Key([0; 4]));
    for text in [device, version] {
        hasher.append(&(text.len() as u64).to_le_bytes());
        hasher.append(text.as_bytes());
    }
    let (mut start, mut stride) = (0, 0);
    for part in parts {
        let end = start + part.len().next_multiple_of(ALIGNMENT);
        loop {
            let at = stride * STRIDE + stride % (STRIDE / ALIGNMENT) * ALIGNMENT;
            if at >= end {
                break;
            }
            // Lines do not lie across parts, and those of earlier parts are behind us.
            let line = part.get(at - start..).unwrap_or_default();
            let line = line.get(..ALIGNMENT).unwrap_or(line);
            hasher.append(line);
            hasher.append(&[0; ALIGNMENT][line.len()..]);
            stride += 1;
        }
        start = end;
    }
    hasher.append(&(start as u64).to_le_bytes());
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(8).zip(hasher.finalize256()) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    WeightsName { digest, size }
}

/// From a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightRequest {
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

impl WeightRequest {
    pub(crate) fn name(&self) -> &WeightsName {
        match self {
            WeightRequest::Get(name) | WeightRequest::Offer(name) | WeightRequest::Release(name) => name,
        }
    }

    pub(crate) fn encode(&self) -> [u8; WEIGHT_REQUEST_BYTES] {
        let code: u64 = match self {
            WeightRequest::Get(_) => 1,
            WeightRequest::Offer(_) => 2,
            WeightRequest::Release(_) => 3,
        };
        let WeightsName { digest, size } = self.name();
        let mut bytes = [0; WEIGHT_REQUEST_BYTES];
        let (head, rest) = bytes.split_at_mut(8);
        let (middle, last) = rest.split_at_mut(8);
        head.copy_from_slice(&code.to_le_bytes());
        middle.copy_from_slice(&size.to_le_bytes());
        last.copy_from_slice(digest);
        bytes
    }

    /// `None` for what is no request.
    pub(crate) fn decode(bytes: &[u8]) -> Option<WeightRequest> {
        let (code, rest) = bytes.split_first_chunk::<8>()?;
        let (size, digest) = rest.split_first_chunk::<8>()?;
        let name = WeightsName {
            digest: digest.try_into().ok()?,
            size: u64::from_le_bytes(*size),
        };
        match u64::from_le_bytes(*code) {
            1 => Some(WeightRequest::Get(name)),
            2 => Some(WeightRequest::Offer(name)),
            3 => Some(WeightRequest::Release(name)),
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
    name(("device", "1"), &[text.as_bytes()], size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let name = name_of("weights", 1 << 40);
        for request in [
            WeightRequest::Get(name),
            WeightRequest::Offer(name),
            WeightRequest::Release(name),
        ] {
            assert_eq!(WeightRequest::decode(&request.encode()), Some(request));
            assert_eq!(request.name(), &name);
        }
        for answer in [Answer::Given, Answer::Wanted, Answer::Kept, Answer::Refused] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_has_another_size_or_code_is_no_message() {
        let request = WeightRequest::Get(name_of("weights", 64)).encode();
        for length in 0..WEIGHT_REQUEST_BYTES {
            assert_eq!(WeightRequest::decode(&request[..length]), None, "{length}");
        }
        assert_eq!(WeightRequest::decode(&[&request[..], &[0]].concat()), None);
        for code in [0, 4, 255] {
            let mut bytes = request;
            bytes[0] = code;
            assert_eq!(WeightRequest::decode(&bytes), None, "{code}");
            bytes[0] = 1;
            bytes[7] = code.max(1);
            assert_eq!(WeightRequest::decode(&bytes), None, "the highest byte {code}");
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
        let of = |device, text: &str, size| name(device, &[text.as_bytes()], size);
        let names = [
            of(("device", "1"), "weights", 64),
            of(("device", "2"), "weights", 64),
            of(("device1", ""), "weights", 64),
            of(("device", "1weights"), "", 64),
            of(("device", "1"), "weighty", 64),
            of(("device", "1"), "weights", 128),
        ];
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn same_weights_have_the_same_name_in_one_part_or_many() {
        let bytes: Vec<u8> = (0..5 * STRIDE).map(|at| ((at * 151) >> 3) as u8).collect();
        let of = |parts: &[&[u8]]| name(("device", "1"), parts, 1);
        for cut in (0..bytes.len()).step_by(61 * ALIGNMENT) {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(of(&[first, &[], second]), of(&[&bytes]), "{cut}");
        }
        let mut padded = bytes.clone();
        padded.resize(bytes.len() + 2 * ALIGNMENT, 0);
        padded[bytes.len()] = 7;
        assert_eq!(of(&[&bytes, &[7], &[0]]), of(&[&padded]));
        assert_ne!(of(&[&bytes]), of(&[&bytes, &[0]]), "longer");
    }

    #[test]
    fn weights_that_differ_in_any_page_have_other_names() {
        let mut bytes = vec![0; 70 * STRIDE];
        let mut names = std::collections::HashSet::new();
        let pages = bytes.len() / STRIDE;
        for page in 0..pages {
            bytes[page * STRIDE..][..STRIDE].fill(1);
            names.insert(name(("device", "1"), &[&bytes], 1));
        }
        assert_eq!(names.len(), pages);
    }
}
