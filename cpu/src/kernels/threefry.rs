//! The generator Threefry2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

/// How far the second word turns, for eight rounds; then they begin anew.
const TURNS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The two words for one counter.
pub(super) fn block(key: [u32; 2], counter: u64) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let mut first = (counter as u32).wrapping_add(key[0]);
    let mut second = ((counter >> 32) as u32).wrapping_add(key[1]);
    for (number, turns) in (1_u32..=5).zip(TURNS.iter().cycle()) {
        for turn in turns {
            first = first.wrapping_add(second);
            second = second.rotate_left(*turn) ^ first;
        }
        let key = |after: u32| keys[((number + after) % 3) as usize];
        first = first.wrapping_add(key(0));
        second = second.wrapping_add(key(1)).wrapping_add(number);
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::block;

    #[test]
    fn generator_gives_the_published_words() {
        assert_eq!(block([0, 0], 0), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(block([u32::MAX; 2], u64::MAX), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            block([0x1319_8a2e, 0x0370_7344], 0x85a3_08d3_243f_6a88),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }
}
