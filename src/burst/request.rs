//! Requests.

use std::num::NonZeroU64;

use crate::fmq::PAYLOAD_BYTES;
use crate::wire::{Handle, MemoryHandle};
use nnhal_hal::{DataLocation, MeasureTiming, Request, RequestArgument};

use super::bytes::{PacketError, Reader, put_u32, put_u64, put_values};

const GENERAL: u8 = 1;
const REGISTER: u8 = 2;
const FIRE: u8 = 3;
const UNREGISTER: u8 = 4;

const MEASURE: u8 = 1;
const FENCED: u8 = 2;
const FENCED_BEHIND: u8 = FENCED | 4;

const HEADER_BYTES: usize = 16;

/// Bytes of inputs that travel in the single cell of a fired request.
pub const FIRE_INLINE_BYTES: usize = PAYLOAD_BYTES - HEADER_BYTES;

/// What every request starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Comes back with the result.
    pub sequence: u32,
    /// Whether to report timing.
    pub measure: MeasureTiming,
    /// Whether it is a fenced execution.
    pub fencing: Fencing,
    /// When the execution must be over, in nanoseconds of the monotonic clock. One word in memory, which the
    /// processor hands on at once when it is looked at right after the header was put together.
    pub deadline_ns: Option<NonZeroU64>,
}

/// Whether a request is a fenced execution. Since version 3 of the protocol; see [`RequestPacket`] for which
/// requests have what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fencing {
    /// It is not.
    #[default]
    No,
    /// It is: a fence for its end can be asked for, and its result has no shapes.
    Fenced,
    /// The same, and it waits for the fenced request before it: if that has failed, it fails and is not run.
    Behind,
}

/// Where the bytes of arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// A memory registered on the control connection.
    Memory(MemoryHandle),
    /// A device buffer, by its token.
    Buffer(u32),
    /// The inputs' bytes inside the request: so many.
    InlineInputs(u32),
    /// The outputs' bytes inside the result: so many. Those that no output covers may be an earlier result's
    /// of the burst.
    InlineOutputs(u32),
}

const POOL_MEMORY: u32 = 0;
const POOL_INLINE_INPUTS: u32 = 1;
const POOL_INLINE_OUTPUTS: u32 = 2;
const POOL_BUFFER: u32 = 3;
const POOL_BYTES: usize = 12;

const HAS_NO_VALUE: u32 = 1;
const ARGUMENT_BYTES: usize = 20;

/// A request spelled out, in memory that is used again and again.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    /// The arguments, whose locations refer to `pools`. Its own pools are the receiver's to fill.
    pub request: Request,
    /// What locations refer to.
    pub pools: Vec<Pool>,
    /// The bytes that it was read from; none unless they were all right.
    encoded: Vec<u8>,
    generation: u64,
}

/// A decoded request; a body, if it has one, is in the [`RequestBody`] that was given for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPacket<'a> {
    /// Execute the body.
    General {
        /// Sequence, timing, deadline.
        header: RequestHeader,
        /// The bytes of [`Pool::InlineInputs`], then zeros.
        inline: &'a [u8],
    },
    /// Keep the body under a number, replacing what was there. The answer is a result without outputs. One
    /// that is [`Fencing::Fenced`] is refused where an execution behind fences would be.
    Register {
        /// Only the sequence and whether it is fenced matter.
        header: RequestHeader,
        /// The number.
        layout: u16,
    },
    /// Execute the registered body. It alone may be [`Fencing::Behind`] another.
    Fire {
        /// Sequence, timing, fencing, deadline.
        header: RequestHeader,
        /// The number.
        layout: u16,
        /// The bytes of [`Pool::InlineInputs`], then zeros.
        inline: &'a [u8],
    },
    /// Forget a registered body. The answer is a result without outputs.
    Unregister {
        /// Only the sequence matters.
        header: RequestHeader,
        /// The number.
        layout: u16,
    },
}

#[inline]
fn put_header(buffer: &mut Vec<u8>, kind: u8, layout: u16, header: &RequestHeader) {
    let measure = if header.measure == MeasureTiming::Yes {
        MEASURE
    } else {
        0
    };
    let flags = measure
        | match header.fencing {
            Fencing::No => 0,
            Fencing::Fenced => FENCED,
            Fencing::Behind => FENCED_BEHIND,
        };
    let start =
        u64::from(kind) | u64::from(flags) << 8 | u64::from(layout) << 16 | u64::from(header.sequence) << 32;
    buffer.clear();
    // Two words, as the ring takes them: what is stored byte by byte is not there at once for who reads
    // words.
    put_u64(buffer, start);
    put_u64(buffer, header.deadline_ns.map_or(0, NonZeroU64::get));
}

fn put_arguments(buffer: &mut Vec<u8>, arguments: &[RequestArgument]) {
    put_u32(buffer, arguments.len() as u32);
    for argument in arguments {
        put_u32(buffer, if argument.has_no_value { HAS_NO_VALUE } else { 0 });
        put_u32(buffer, argument.location.pool_index);
        put_u32(buffer, argument.location.offset);
        put_u32(buffer, argument.location.length);
        put_u32(buffer, argument.dimensions.len() as u32);
        for dimension in &argument.dimensions {
            put_u32(buffer, *dimension);
        }
    }
}

fn put_body(buffer: &mut Vec<u8>, request: &Request, pools: &[Pool]) {
    put_arguments(buffer, &request.inputs);
    put_arguments(buffer, &request.outputs);
    put_u32(buffer, pools.len() as u32);
    for pool in pools {
        let (tag, value) = match *pool {
            Pool::Memory(memory) => (POOL_MEMORY, Handle::from(memory).to_bits()),
            Pool::Buffer(token) => (POOL_BUFFER, u64::from(token)),
            Pool::InlineInputs(size) => (POOL_INLINE_INPUTS, u64::from(size)),
            Pool::InlineOutputs(size) => (POOL_INLINE_OUTPUTS, u64::from(size)),
        };
        put_u32(buffer, tag);
        put_u64(buffer, value);
    }
}

/// Writes a general request into `buffer`, which is cleared first. `pools` stand for those of `request`,
/// which says nothing of them here; `inline` are the bytes of [`Pool::InlineInputs`].
pub fn encode_general(
    buffer: &mut Vec<u8>,
    header: &RequestHeader,
    request: &Request,
    pools: &[Pool],
    inline: &[u8],
) {
    put_header(buffer, GENERAL, 0, header);
    put_body(buffer, request, pools);
    buffer.extend_from_slice(inline);
}

/// Writes a registration into `buffer`, which is cleared first.
pub fn encode_register(buffer: &mut Vec<u8>, sequence: u32, layout: u16, request: &Request, pools: &[Pool]) {
    put_header(buffer, REGISTER, layout, &only(sequence));
    put_body(buffer, request, pools);
}

/// The same for one that is to be executed behind fences.
pub fn encode_register_fenced(
    buffer: &mut Vec<u8>,
    sequence: u32,
    layout: u16,
    request: &Request,
    pools: &[Pool],
) {
    let header = RequestHeader {
        fencing: Fencing::Fenced,
        ..only(sequence)
    };
    put_header(buffer, REGISTER, layout, &header);
    put_body(buffer, request, pools);
}

/// Writes a fired request into `buffer`, which is cleared first.
#[inline]
pub fn encode_fire(buffer: &mut Vec<u8>, header: &RequestHeader, layout: u16, inline: &[u8]) {
    put_header(buffer, FIRE, layout, header);
    put_values(buffer, inline);
}

/// Writes the end of a registration into `buffer`, which is cleared first.
pub fn encode_unregister(buffer: &mut Vec<u8>, sequence: u32, layout: u16) {
    put_header(buffer, UNREGISTER, layout, &only(sequence));
}

fn only(sequence: u32) -> RequestHeader {
    RequestHeader {
        sequence,
        measure: MeasureTiming::No,
        fencing: Fencing::No,
        deadline_ns: None,
    }
}

/// Decodes a request. The body of a general request or a registration is left in `body`; after an error it
/// may hold a part of one.
///
/// # Errors
/// [`PacketError`]; the request's sequence is unknown then.
#[inline]
pub fn decode_request<'a>(bytes: &'a [u8], body: &mut RequestBody) -> Result<RequestPacket<'a>, PacketError> {
    let mut reader = Reader::new(bytes);
    let mut start = [0; 4];
    start.copy_from_slice(reader.take(4, "header")?);
    let [kind, flags, low, high] = start;
    let layout = u16::from_le_bytes([low, high]);
    let most = match kind {
        FIRE => Fencing::Behind,
        REGISTER => Fencing::Fenced,
        _ => Fencing::No,
    };
    let fencing = match flags & !MEASURE {
        0 => Some(Fencing::No),
        FENCED => Some(Fencing::Fenced),
        FENCED_BEHIND => Some(Fencing::Behind),
        _ => None,
    };
    let Some(fencing) = fencing.filter(|fencing| *fencing <= most) else {
        return Err(PacketError::Value {
            what: "flags",
            value: u64::from(flags),
        });
    };
    let measure = if flags & MEASURE != 0 {
        MeasureTiming::Yes
    } else {
        MeasureTiming::No
    };
    let sequence = reader.u32("sequence")?;
    let deadline = reader.u64("deadline")?;
    let header = RequestHeader {
        sequence,
        measure,
        fencing,
        deadline_ns: NonZeroU64::new(deadline),
    };
    match kind {
        FIRE => Ok(RequestPacket::Fire {
            header,
            layout,
            inline: reader.rest(),
        }),
        GENERAL => {
            if body.is_next(&reader) {
                reader.take(body.encoded.len(), "body")?;
            } else {
                body.read(&mut reader)?;
            }
            let inline = reader.inline(body.inline_inputs())?;
            Ok(RequestPacket::General { header, inline })
        }
        REGISTER => {
            body.read(&mut reader)?;
            reader.finish()?;
            Ok(RequestPacket::Register { header, layout })
        }
        UNREGISTER => {
            reader.finish()?;
            Ok(RequestPacket::Unregister { header, layout })
        }
        kind => Err(PacketError::Value {
            what: "kind",
            value: u64::from(kind),
        }),
    }
}

/// The sequence that a packet claims to have, even if it cannot be decoded; 0 if it is too short for one.
#[must_use]
pub fn claimed_sequence(bytes: &[u8]) -> u32 {
    let word = bytes.get(4..8).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

impl RequestBody {
    /// How many bytes of inputs follow.
    fn inline_inputs(&self) -> usize {
        let sizes = self.pools.iter().map(|pool| match pool {
            Pool::InlineInputs(size) => *size as usize,
            _ => 0,
        });
        sizes.fold(0, usize::saturating_add)
    }

    /// Which of the bodies that were read into it this is, counted from 1 on. One that has the bytes of the
    /// body before is not read again, and has its number.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether what comes next is this very body. A body says itself where it ends, so as many bytes are
    /// enough to look at.
    #[inline]
    fn is_next(&self, reader: &Reader<'_>) -> bool {
        !self.encoded.is_empty() && reader.rest().starts_with(&self.encoded)
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), PacketError> {
        self.encoded.clear();
        self.generation += 1;
        let before = reader.rest();
        self.read_parts(reader)?;
        let length = before.len() - reader.rest().len();
        self.encoded.extend(before.iter().take(length));
        Ok(())
    }

    fn read_parts(&mut self, reader: &mut Reader<'_>) -> Result<(), PacketError> {
        read_arguments(reader, &mut self.request.inputs, "input")?;
        read_arguments(reader, &mut self.request.outputs, "output")?;
        let count = reader.count(POOL_BYTES, "pool")?;
        self.pools.clear();
        for _ in 0..count {
            let [tag, low, high] = reader.words("pool")?;
            let value = u64::from(low) | u64::from(high) << 32;
            let word = |what| u32::try_from(value).map_err(|_| PacketError::Value { what, value });
            self.pools.push(match tag {
                POOL_MEMORY => Pool::Memory(Handle::from_bits(value).into()),
                POOL_BUFFER => Pool::Buffer(word("device buffer's token")?),
                POOL_INLINE_INPUTS => Pool::InlineInputs(word("inline pool's size")?),
                POOL_INLINE_OUTPUTS => Pool::InlineOutputs(word("inline pool's size")?),
                tag => {
                    return Err(PacketError::Value {
                        what: "pool kind",
                        value: u64::from(tag),
                    });
                }
            });
        }
        Ok(())
    }
}

fn read_arguments(
    reader: &mut Reader<'_>,
    arguments: &mut Vec<RequestArgument>,
    what: &'static str,
) -> Result<(), PacketError> {
    let count = reader.count(ARGUMENT_BYTES, what)?;
    // Entries are kept for the memory of their dimensions.
    arguments.resize_with(count, RequestArgument::default);
    for argument in arguments {
        let [flags, pool_index, offset, length, rank] = reader.words(what)?;
        if flags & !HAS_NO_VALUE != 0 {
            return Err(PacketError::Value {
                what: "argument's flags",
                value: u64::from(flags),
            });
        }
        argument.has_no_value = flags & HAS_NO_VALUE != 0;
        argument.location = DataLocation {
            pool_index,
            offset,
            length,
        };
        reader.expect(rank as usize, 4, what)?;
        argument.dimensions.clear();
        for _ in 0..rank {
            argument.dimensions.push(reader.u32(what)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn argument() -> impl Strategy<Value = RequestArgument> {
        (
            any::<bool>(),
            any::<[u32; 3]>(),
            prop::collection::vec(any::<u32>(), 0..6),
        )
            .prop_map(
                |(has_no_value, [pool_index, offset, length], dimensions)| RequestArgument {
                    has_no_value,
                    location: DataLocation {
                        pool_index,
                        offset,
                        length,
                    },
                    dimensions,
                },
            )
    }

    fn pool() -> impl Strategy<Value = Pool> {
        prop_oneof![
            any::<u64>().prop_map(|bits| Pool::Memory(Handle::from_bits(bits).into())),
            any::<u32>().prop_map(Pool::Buffer),
            any::<u32>().prop_map(Pool::InlineInputs),
            any::<u32>().prop_map(Pool::InlineOutputs),
        ]
    }

    fn request() -> impl Strategy<Value = Request> {
        let arguments = || prop::collection::vec(argument(), 0..5);
        (arguments(), arguments()).prop_map(|(inputs, outputs)| Request {
            inputs,
            outputs,
            pools: Vec::new(),
        })
    }

    fn header() -> impl Strategy<Value = RequestHeader> {
        (
            any::<u32>(),
            any::<bool>(),
            prop_oneof![Just(Fencing::No), Just(Fencing::Fenced), Just(Fencing::Behind)],
            any::<u64>().prop_map(NonZeroU64::new),
        )
            .prop_map(|(sequence, measure, fencing, deadline_ns)| RequestHeader {
                sequence,
                measure: if measure {
                    MeasureTiming::Yes
                } else {
                    MeasureTiming::No
                },
                fencing,
                deadline_ns,
            })
    }

    proptest! {
        #[test]
        fn requests_survive_their_encoding(
            header in header(),
            layout in any::<u16>(),
            request in request(),
            pools in prop::collection::vec(pool(), 0..4),
            inline in prop::collection::vec(any::<u8>(), 0..100),
            fill in 0..PAYLOAD_BYTES,
        ) {
            let mut buffer = Vec::new();
            let mut body = RequestBody::default();
            let mut pools = pools;
            pools.retain(|pool| !matches!(pool, Pool::InlineInputs(_)));
            if !inline.is_empty() {
                pools.push(Pool::InlineInputs(inline.len() as u32));
            }
            let unfenced = RequestHeader { fencing: Fencing::No, ..header };
            encode_general(&mut buffer, &unfenced, &request, &pools, &inline);
            buffer.resize(buffer.len() + fill, 0);
            for _ in 0..2 {
                let RequestPacket::General { header: found, inline: found_inline } =
                    decode_request(&buffer, &mut body).unwrap() else { panic!("another kind") };
                prop_assert_eq!((found, body.generation()), (unfenced, 1));
                prop_assert_eq!(found_inline, &inline[..]);
            }
            prop_assert_eq!(&body.request, &request);
            prop_assert_eq!(&body.pools, &pools);

            encode_register(&mut buffer, header.sequence, layout, &request, &pools);
            buffer.resize(buffer.len() + fill, 0);
            let found = decode_request(&buffer, &mut body).unwrap();
            prop_assert_eq!(found, RequestPacket::Register { header: only(header.sequence), layout });
            prop_assert_eq!(&body.request, &request);

            encode_register_fenced(&mut buffer, header.sequence, layout, &request, &pools);
            let found = decode_request(&buffer, &mut body).unwrap();
            let fenced = RequestHeader { fencing: Fencing::Fenced, ..only(header.sequence) };
            prop_assert_eq!(found, RequestPacket::Register { header: fenced, layout });

            encode_fire(&mut buffer, &header, layout, &inline);
            let found = decode_request(&buffer, &mut body).unwrap();
            prop_assert_eq!(found, RequestPacket::Fire { header, layout, inline: &inline });
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0..6_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(flags) = bytes.get_mut(1) {
                *flags &= 7;
            }
            let mut body = RequestBody::default();
            let _ = decode_request(&bytes, &mut body);
            // Nothing was believed that is not there.
            prop_assert!(body.request.inputs.capacity() <= 2 * bytes.len() / ARGUMENT_BYTES + 4);
        }
    }

    #[test]
    fn bytes_after_the_end_of_a_general_request_are_refused() {
        let mut buffer = Vec::new();
        let mut body = RequestBody::default();
        for (pools, inline, is_good) in [
            (&[][..], &[][..], true),
            (&[], &[0, 0, 0], true),
            (&[], &[0, 0, 1], false),
            (&[], &[0; PAYLOAD_BYTES], false),
            (&[Pool::InlineInputs(2)], &[1, 2], true),
            (&[Pool::InlineInputs(2)], &[1, 2, 0], true),
            (&[Pool::InlineInputs(2)], &[1, 2, 3], false),
            (&[Pool::InlineOutputs(2)], &[1], false),
        ] {
            encode_general(&mut buffer, &only(1), &Request::default(), pools, inline);
            let decoded = decode_request(&buffer, &mut body);
            assert_eq!(decoded.is_ok(), is_good, "{pools:?} {inline:?}: {decoded:?}");
        }
        // Fewer than announced are told by whoever knows what they are for.
        encode_general(
            &mut buffer,
            &only(1),
            &Request::default(),
            &[Pool::InlineInputs(9)],
            &[1, 2],
        );
        let decoded = decode_request(&buffer, &mut body);
        assert!(
            matches!(decoded, Ok(RequestPacket::General { inline: [1, 2], .. })),
            "{decoded:?}"
        );
    }

    #[test]
    fn only_what_can_be_fenced_is() {
        let mut body = RequestBody::default();
        let fire = |fencing| {
            let header = RequestHeader { fencing, ..only(1) };
            let mut buffer = Vec::new();
            encode_fire(&mut buffer, &header, 0, &[]);
            buffer
        };
        for (kind, flags, is_good) in [
            (FIRE, FENCED, true),
            (FIRE, FENCED_BEHIND, true),
            (FIRE, FENCED_BEHIND & !FENCED, false),
            (FIRE, 8, false),
            (UNREGISTER, FENCED, false),
            (GENERAL, FENCED, false),
            (REGISTER, FENCED_BEHIND, false),
        ] {
            let mut bytes = fire(Fencing::No);
            bytes[..2].copy_from_slice(&[kind, flags]);
            let decoded = decode_request(&bytes, &mut body);
            assert_eq!(decoded.is_ok(), is_good, "{kind} {flags}: {decoded:?}");
        }
    }

    #[test]
    fn counts_beyond_the_packet_are_refused() {
        let mut buffer = Vec::new();
        put_header(&mut buffer, GENERAL, 0, &only(1));
        put_u32(&mut buffer, u32::MAX);
        let error = decode_request(&buffer, &mut RequestBody::default()).unwrap_err();
        assert!(
            matches!(error, PacketError::Truncated { what: "input", .. }),
            "{error}"
        );
    }
}
