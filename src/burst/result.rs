//! Results.

use crate::fmq::PAYLOAD_BYTES;
use nnhal_hal::{ErrorStatus, OutputShape, Timing};

use super::bytes::{PacketError, Reader, put_u32, put_u64, put_values};

const TIMING: u8 = 1;
const SHAPES: u8 = 2;
const DETAIL: u8 = 4;

const HEADER_BYTES: usize = 8;

const SUFFICIENT: u32 = 1;
const SHAPE_BYTES: usize = 8;

/// Longest text of a failure, in bytes; more is cut off.
pub const MAX_DETAIL_BYTES: usize = 1024;

/// What every result starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultHeader {
    /// That of the request; 0 for a packet that could not be understood.
    pub sequence: u32,
    /// How the request ended.
    pub status: ErrorStatus,
    /// The timing, if it was asked for and the request succeeded.
    pub timing: Timing,
    /// Whether shapes came along. A success without them has those that the model and the request determine.
    pub has_shapes: bool,
}

/// What else a result may hold, in memory that is used again and again.
#[derive(Clone, Debug, Default)]
pub struct ResultBody {
    /// One for each output, if [`ResultHeader::has_shapes`].
    pub shapes: Vec<OutputShape>,
    /// For failures: what was wrong, where, and what would be right.
    pub detail: String,
}

#[inline]
fn put_header(buffer: &mut Vec<u8>, sequence: u32, status: ErrorStatus, flags: u8) {
    // The codes of statuses end at 8.
    let start = u64::from(status.code() as u8) | u64::from(flags) << 8;
    buffer.clear();
    // One word, as the ring takes it.
    put_u64(buffer, start | u64::from(sequence) << 32);
}

fn put_shapes<'s>(buffer: &mut Vec<u8>, count: usize, shapes: impl Iterator<Item = (&'s [u32], bool)>) {
    put_u32(buffer, count as u32);
    for (dimensions, is_sufficient) in shapes {
        put_u32(buffer, if is_sufficient { SUFFICIENT } else { 0 });
        put_u32(buffer, dimensions.len() as u32);
        for dimension in dimensions {
            put_u32(buffer, *dimension);
        }
    }
}

/// Writes the result of an execution that succeeded into `buffer`, which is cleared first. `shapes` come
/// along if the client cannot know them; the outputs' inline bytes follow.
#[inline]
pub fn encode_success(
    buffer: &mut Vec<u8>,
    sequence: u32,
    timing: Timing,
    shapes: Option<&mut dyn ExactSizeIterator<Item = (&[u32], bool)>>,
    inline: &[u8],
) {
    if timing == Timing::NONE && shapes.is_none() {
        put_header(buffer, sequence, ErrorStatus::None, 0);
    } else {
        put_details(buffer, sequence, timing, shapes);
    }
    if !inline.is_empty() {
        put_values(buffer, inline);
    }
}

/// Writes what a result starts with that tells more than its success.
#[inline(never)]
fn put_details(
    buffer: &mut Vec<u8>,
    sequence: u32,
    timing: Timing,
    shapes: Option<&mut dyn ExactSizeIterator<Item = (&[u32], bool)>>,
) {
    let timed = timing != Timing::NONE;
    let flags = if timed { TIMING } else { 0 } | if shapes.is_some() { SHAPES } else { 0 };
    put_header(buffer, sequence, ErrorStatus::None, flags);
    if timed {
        put_u64(buffer, timing.time_on_device_us);
        put_u64(buffer, timing.time_in_driver_us);
    }
    if let Some(shapes) = shapes {
        put_shapes(buffer, shapes.len(), shapes);
    }
}

/// Writes a failure into `buffer`, which is cleared first. Only OUTPUT_INSUFFICIENT_SIZE has `shapes`.
pub fn encode_failure(
    buffer: &mut Vec<u8>,
    sequence: u32,
    status: ErrorStatus,
    shapes: &[OutputShape],
    detail: &str,
) {
    let flags = DETAIL | if shapes.is_empty() { 0 } else { SHAPES };
    put_header(buffer, sequence, status, flags);
    if !shapes.is_empty() {
        let shapes_ref = shapes
            .iter()
            .map(|shape| (&shape.dimensions[..], shape.is_sufficient));
        put_shapes(buffer, shapes.len(), shapes_ref);
    }
    let mut length = detail.len().min(MAX_DETAIL_BYTES);
    while !detail.is_char_boundary(length) {
        length -= 1;
    }
    put_u32(buffer, length as u32);
    buffer.extend_from_slice(&detail.as_bytes()[..length]);
}

/// Decodes a result. Shapes and text are left in `body`; what follows, the outputs' inline bytes and zeros,
/// is returned.
///
/// # Errors
/// [`PacketError`].
// Always inlined, as who is handed all of this through memory waits for it.
#[inline(always)]
pub fn decode_result<'a>(
    bytes: &'a [u8],
    body: &mut ResultBody,
) -> Result<(ResultHeader, &'a [u8]), PacketError> {
    // Most results say no more than that it went well.
    if let Some(([0, 0, 0, 0, sequence @ ..], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        body.shapes.clear();
        body.detail.clear();
        let header = ResultHeader {
            sequence: u32::from_le_bytes(*sequence),
            status: ErrorStatus::None,
            timing: Timing::NONE,
            has_shapes: false,
        };
        return Ok((header, rest));
    }
    decode_details(bytes, body)
}

/// Decodes any result.
#[inline(never)]
fn decode_details<'a>(
    bytes: &'a [u8],
    body: &mut ResultBody,
) -> Result<(ResultHeader, &'a [u8]), PacketError> {
    let mut reader = Reader::new(bytes);
    let mut start = [0; 4];
    start.copy_from_slice(reader.take(4, "header")?);
    let [code, flags, first, second] = start;
    let value = |what, value: u8| PacketError::Value {
        what,
        value: u64::from(value),
    };
    let status = ErrorStatus::from_code(u32::from(code)).ok_or_else(|| value("status", code))?;
    if flags & !(TIMING | SHAPES | DETAIL) != 0 || first != 0 || second != 0 {
        return Err(value("flags", flags));
    }
    let sequence = reader.u32("sequence")?;
    let mut timing = Timing::NONE;
    if flags & TIMING != 0 {
        timing.time_on_device_us = reader.u64("timing")?;
        timing.time_in_driver_us = reader.u64("timing")?;
    }
    let has_shapes = flags & SHAPES != 0;
    if has_shapes {
        read_shapes(&mut reader, &mut body.shapes)?;
    } else {
        body.shapes.clear();
    }
    body.detail.clear();
    if flags & DETAIL != 0 {
        let length = reader.count(1, "detail")?;
        if length > MAX_DETAIL_BYTES {
            return Err(PacketError::Value {
                what: "detail's length",
                value: length as u64,
            });
        }
        let text =
            std::str::from_utf8(reader.take(length, "detail")?).map_err(|error| PacketError::Value {
                what: "detail",
                value: error.valid_up_to() as u64,
            })?;
        body.detail.push_str(text);
    }
    // A failure has no shapes but those of outputs that are too small, and no timing.
    let shapes_allowed = matches!(status, ErrorStatus::None | ErrorStatus::OutputInsufficientSize);
    if has_shapes && !shapes_allowed || timing != Timing::NONE && status != ErrorStatus::None {
        return Err(value("flags", flags));
    }
    Ok((
        ResultHeader {
            sequence,
            status,
            timing,
            has_shapes,
        },
        reader.rest(),
    ))
}

fn read_shapes(reader: &mut Reader<'_>, shapes: &mut Vec<OutputShape>) -> Result<(), PacketError> {
    let count = reader.count(SHAPE_BYTES, "shape")?;
    // Entries are kept for the memory of their dimensions.
    shapes.resize_with(count, OutputShape::default);
    for shape in shapes {
        let flags = reader.u32("shape")?;
        if flags & !SUFFICIENT != 0 {
            return Err(PacketError::Value {
                what: "shape's flags",
                value: u64::from(flags),
            });
        }
        shape.is_sufficient = flags & SUFFICIENT != 0;
        let rank = reader.count(4, "shape")?;
        shape.dimensions.clear();
        for _ in 0..rank {
            shape.dimensions.push(reader.u32("shape")?);
        }
    }
    Ok(())
}

/// Bytes of outputs that travel in the single cell of a result without shapes and timing.
pub const RESULT_INLINE_BYTES: usize = PAYLOAD_BYTES - HEADER_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Vec<OutputShape>> {
        let shape = (any::<bool>(), prop::collection::vec(any::<u32>(), 0..6)).prop_map(
            |(is_sufficient, dimensions)| OutputShape {
                dimensions,
                is_sufficient,
            },
        );
        prop::collection::vec(shape, 1..4)
    }

    proptest! {
        #[test]
        fn successes_survive_their_encoding(
            sequence in any::<u32>(),
            times in any::<(u64, u64)>(),
            shapes in prop::option::of(shapes()),
            inline in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let timing = Timing { time_on_device_us: times.0, time_in_driver_us: times.1 };
            let mut buffer = Vec::new();
            let mut pairs =
                shapes.iter().flatten().map(|shape| (&shape.dimensions[..], shape.is_sufficient)).collect::<Vec<_>>()
                .into_iter();
            let pairs: Option<&mut dyn ExactSizeIterator<Item = (&[u32], bool)>> =
                if shapes.is_some() { Some(&mut pairs) } else { None };
            encode_success(&mut buffer, sequence, timing, pairs, &inline);
            let mut body = ResultBody::default();
            let (header, rest) = decode_result(&buffer, &mut body).unwrap();
            let expected =
                ResultHeader { sequence, status: ErrorStatus::None, timing, has_shapes: shapes.is_some() };
            prop_assert_eq!(header, expected);
            prop_assert_eq!(rest, &inline[..]);
            prop_assert_eq!(body.shapes, shapes.unwrap_or_default());
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), code in 0..10_u8) {
            let mut bytes = bytes;
            if bytes.len() >= 4 {
                bytes[0] = code;
                bytes[1] &= 7;
                bytes[2..4].fill(0);
            }
            let mut body = ResultBody::default();
            let _ = decode_result(&bytes, &mut body);
            prop_assert!(body.shapes.capacity() <= 2 * bytes.len() / SHAPE_BYTES + 4);
        }
    }

    #[test]
    fn failures_carry_shapes_and_a_text_that_is_cut_at_a_character() {
        let mut buffer = Vec::new();
        let shapes = [OutputShape {
            dimensions: vec![2, 3],
            is_sufficient: false,
        }];
        let detail = "\u{e4}".repeat(MAX_DETAIL_BYTES);
        encode_failure(
            &mut buffer,
            7,
            ErrorStatus::OutputInsufficientSize,
            &shapes,
            &detail,
        );
        let mut body = ResultBody::default();
        let (header, _) = decode_result(&buffer, &mut body).unwrap();
        assert_eq!(header.status, ErrorStatus::OutputInsufficientSize);
        assert_eq!(body.shapes, shapes);
        assert_eq!(body.detail.len(), MAX_DETAIL_BYTES);
    }

    #[test]
    fn failure_with_timing_is_refused() {
        let mut buffer = Vec::new();
        let timing = Timing {
            time_on_device_us: 1,
            time_in_driver_us: 2,
        };
        encode_success(&mut buffer, 1, timing, None, &[]);
        buffer[0] = ErrorStatus::GeneralFailure.code() as u8;
        assert!(decode_result(&buffer, &mut ResultBody::default()).is_err());
    }
}
