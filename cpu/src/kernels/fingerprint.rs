//! The 64-bit fingerprint of bytes that LSH_PROJECTION hashes with.
//!
//! It is FarmHash's `Fingerprint64`, whose results are fixed for all time; the HAL's reference uses it, so
//! that bit patterns agree between devices.

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// The fingerprint of `bytes`.
pub(super) fn fingerprint64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => up_to_16(bytes),
        17..=32 => up_to_32(bytes),
        33..=64 => up_to_64(bytes),
        _ => longer(bytes),
    }
}

/// The 8 bytes at `at`, which lie inside.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |word| u64::from_le_bytes(*word))
}

fn half_word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
}

fn shift_mix(value: u64) -> u64 {
    value ^ (value >> 47)
}

/// Mixes two words into one by a multiplier.
fn mix(left: u64, right: u64, multiplier: u64) -> u64 {
    let first = shift_mix((left ^ right).wrapping_mul(multiplier));
    shift_mix((right ^ first).wrapping_mul(multiplier)).wrapping_mul(multiplier)
}

/// A multiplier that depends on the length.
fn multiplier(length: usize) -> u64 {
    K2.wrapping_add(2 * length as u64)
}

fn up_to_16(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let by = multiplier(length);
    match *bytes {
        [] => K2,
        _ if length >= 8 => {
            let a = word(bytes, 0).wrapping_add(K2);
            let b = word(bytes, length - 8);
            let c = b.rotate_right(37).wrapping_mul(by).wrapping_add(a);
            let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(by);
            mix(c, d, by)
        }
        _ if length >= 4 => {
            let head = half_word(bytes, 0);
            mix(length as u64 + (head << 3), half_word(bytes, length - 4), by)
        }
        [first, ..] => {
            let (middle, last) = (bytes[length / 2], bytes[length - 1]);
            let y = u64::from(first) + (u64::from(middle) << 8);
            let z = length as u64 + (u64::from(last) << 2);
            shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K0)).wrapping_mul(K2)
        }
    }
}

/// The four words that both middle lengths start from: two of the head, two of the tail.
fn ends(bytes: &[u8], by: u64, first: u64) -> [u64; 4] {
    let length = bytes.len();
    [
        word(bytes, 0).wrapping_mul(first),
        word(bytes, 8),
        word(bytes, length - 8).wrapping_mul(by),
        word(bytes, length - 16).wrapping_mul(K2),
    ]
}

fn up_to_32(bytes: &[u8]) -> u64 {
    let by = multiplier(bytes.len());
    let [a, b, c, d] = ends(bytes, by, K1);
    let (left, right) = fold(a, b, c, d);
    mix(left, right, by)
}

fn fold(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    (
        a.wrapping_add(b)
            .rotate_right(43)
            .wrapping_add(c.rotate_right(30))
            .wrapping_add(d),
        a.wrapping_add(b.wrapping_add(K2).rotate_right(18))
            .wrapping_add(c),
    )
}

fn up_to_64(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let by = multiplier(length);
    let [a, b, c, d] = ends(bytes, by, K2);
    let (y, right) = fold(a, b, c, d);
    let z = mix(y, right, by);
    let e = word(bytes, 16).wrapping_mul(by);
    let f = word(bytes, 24);
    let g = y.wrapping_add(word(bytes, length - 32)).wrapping_mul(by);
    let h = z.wrapping_add(word(bytes, length - 24)).wrapping_mul(by);
    let left = e
        .wrapping_add(f)
        .rotate_right(43)
        .wrapping_add(g.rotate_right(30))
        .wrapping_add(h);
    let right = e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g);
    mix(left, right, by)
}

/// What is carried from block to block.
struct State {
    x: u64,
    y: u64,
    z: u64,
    v: (u64, u64),
    w: (u64, u64),
}

impl State {
    /// Takes in a block of 64 bytes. For the last block the multiplier is another, and two words count
    /// `extra` times.
    fn take(&mut self, block: &[u8], by: u64, extra: u64) {
        let State { x, y, z, v, w } = self;
        *x = x
            .wrapping_add(*y)
            .wrapping_add(v.0)
            .wrapping_add(word(block, 8))
            .rotate_right(37)
            .wrapping_mul(by);
        *y = y
            .wrapping_add(v.1)
            .wrapping_add(word(block, 48))
            .rotate_right(42)
            .wrapping_mul(by);
        *x ^= w.1.wrapping_mul(extra);
        *y = y
            .wrapping_add(v.0.wrapping_mul(extra))
            .wrapping_add(word(block, 40));
        *z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(by);
        *v = half_block(block, 0, v.1.wrapping_mul(by), x.wrapping_add(w.0));
        *w = half_block(block, 32, z.wrapping_add(w.1), y.wrapping_add(word(block, 16)));
        std::mem::swap(z, x);
    }
}

/// Two words from 32 bytes and two seeds.
fn half_block(block: &[u8], at: usize, seed0: u64, seed1: u64) -> (u64, u64) {
    let [first, second, third, fourth] = [0, 8, 16, 24].map(|offset| word(block, at + offset));
    let a = seed0.wrapping_add(first);
    let b = seed1.wrapping_add(a).wrapping_add(fourth).rotate_right(21);
    let sum = a.wrapping_add(second).wrapping_add(third);
    (
        sum.wrapping_add(fourth),
        b.wrapping_add(sum.rotate_right(44)).wrapping_add(a),
    )
}

fn longer(bytes: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let mut state = State {
        x: SEED.wrapping_mul(K2).wrapping_add(word(bytes, 0)),
        y,
        z: shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2),
        v: (0, 0),
        w: (0, 0),
    };
    // The last 64 bytes, which may overlap the block before, are taken in their own way.
    let blocks = (bytes.len() - 1) / 64;
    for block in bytes.chunks_exact(64).take(blocks) {
        state.take(block, K1, 1);
    }
    let by = K1.wrapping_add((state.z & 0xff) << 1);
    state.w.0 = state.w.0.wrapping_add(((bytes.len() - 1) % 64) as u64);
    state.v.0 = state.v.0.wrapping_add(state.w.0);
    state.w.0 = state.w.0.wrapping_add(state.v.0);
    state.take(&bytes[bytes.len() - 64..], by, 9);
    let State { x, y, z, v, w } = state;
    mix(
        mix(v.0, w.0, by)
            .wrapping_add(shift_mix(y).wrapping_mul(K0))
            .wrapping_add(z),
        mix(v.1, w.1, by).wrapping_add(x),
        by,
    )
}

#[cfg(test)]
mod tests {
    use super::fingerprint64;

    #[test]
    fn fingerprints_are_those_of_farmhash_at_every_length_class() {
        let known = [
            (0, 0x9ae1_6a3b_2f90_404f),
            (1, 0x4271_b80e_2915_c76a),
            (3, 0x373a_2b2a_12e0_c581),
            (4, 0xcc1e_7781_37ae_6d69),
            (7, 0x9608_38fb_c6d9_c975),
            (8, 0x7d50_7025_ed4e_ecfd),
            (12, 0x12a0_d52d_6f92_2439),
            (16, 0xd836_4803_26a9_74d6),
            (17, 0x5cde_d6cb_65c9_dac6),
            (31, 0x52a4_67e8_7c92_d522),
            (32, 0xa033_00e1_b2be_6da7),
            (33, 0x8391_54ca_6781_5696),
            (64, 0x000f_03ea_c52d_3535),
            (65, 0xfb36_0c50_23f6_0db6),
            (127, 0xd70e_348f_cbf6_4d04),
            (128, 0x33ef_435f_17af_1739),
            (129, 0xc30a_81b6_37d2_e4dd),
            (200, 0x5132_0a19_a60c_bd6e),
            (1000, 0xc6db_d344_bb8f_49f4),
        ];
        for (length, expected) in known {
            let bytes: Vec<u8> = (0..length).map(|index: u32| (index * 37 + 11) as u8).collect();
            assert_eq!(fingerprint64(&bytes), expected, "of {length} bytes");
        }
    }
}
