//! Vectors, and the choice of the instructions that compute with them.
//!
//! A kernel is written once, generic over [`Instructions`], and run by [`dispatch`], which compiles it for
//! each instruction set and picks one by what the processor has. Using instructions beyond the build's base
//! set is unsafe, and this module is its only place: values of [`avx2::Avx2`], [`avx512::Avx512`] and
//! `amx::Amx` exist only where the processor has them, so whoever holds one may use them. NEON is in the base
//! set of its architecture, but the functions for its instructions are unsafe all the same.
//!
//! Sixteen 8-bit results come out of sixteen 32-bit sums that stand in the order `[0, 1, 2, 3, 8, 9, 10,
//! 11]`, then the others: the order in which interleaving two rows of 16-bit values leaves their products in
//! two vectors of eight. Instruction sets with vectors of sixteen keep to it, so that what is packed for
//! these is the same for all; products of bytes are for some only, and in [`super::depthwise_bytes`] columns
//! stand in natural order.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(super) mod amx_bytes;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;
mod pair;
mod portable;

use std::fmt::Debug;
use std::sync::LazyLock;

use super::rescale::FloatScale;

/// Lanes of a narrow vector.
pub(super) const LANES: usize = 8;

/// Lanes of a wide vector.
pub(super) const WIDE: usize = 2 * LANES;

/// Which of sixteen columns each lane holds.
pub(super) const COLUMN_ORDER: [usize; WIDE] = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15];

/// What turns sixteen 32-bit sums into output steps; see [`super::requantize`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Rescale {
    pub(super) mantissa: [i32; WIDE],
    pub(super) left: [i32; WIDE],
    pub(super) right: [i32; WIDE],
    /// `2^right - 1`.
    pub(super) mask: [i32; WIDE],
}

/// What turns sixteen 32-bit sums into output steps with one shift of at least one bit; see
/// [`super::requantize`]. Its vectors are loaded for a few sums each, and one that lay across two lines of
/// the cache would be loaded twice.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct RescaleOnce {
    mantissa: [i32; WIDE],
    /// Those of odd lanes, each a lane lower.
    #[cfg(target_arch = "x86_64")]
    odd_mantissa: [i32; WIDE],
    /// What is added to products of even lanes, then of odd lanes, if they are not negative, and if they are.
    nudges: [[[i64; LANES]; 2]; 2],
    /// The shift, less one.
    right: [i32; WIDE],
}

impl RescaleOnce {
    /// Of lanes with this mantissa and right shift, from 1 to 31.
    pub(super) fn new(lanes: [(i32, i32); WIDE]) -> RescaleOnce {
        let mantissa = lanes.map(|(mantissa, _)| mantissa);
        let nudge = |(_, right): (i32, i32), negative: i64| (1 << 30) + (((1 << right) / 2 - negative) << 31);
        RescaleOnce {
            mantissa,
            #[cfg(target_arch = "x86_64")]
            odd_mantissa: std::array::from_fn(|lane| mantissa[lane | 1]),
            nudges: std::array::from_fn(|odd| {
                std::array::from_fn(|negative| {
                    std::array::from_fn(|pair| nudge(lanes[2 * pair + odd], negative as i64))
                })
            }),
            right: lanes.map(|(_, right)| right - 1),
        }
    }
}

/// What 8-bit values are made of output steps from real 0, in every lane: the zero point is added, the sum is
/// clamped to unsigned bytes and to a range, and then some bits are turned over, which makes signed values of
/// them or none.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct ByteForm {
    zero_point: [i16; 2 * WIDE],
    least: [u8; 4 * WIDE],
    most: [u8; 4 * WIDE],
    flip: [u8; 4 * WIDE],
    /// Whether the range is less than all bytes.
    #[cfg(target_arch = "x86_64")]
    is_narrow: bool,
    /// Whether the zero point is another one than 0, as it is not where it is the lowest value.
    #[cfg(target_arch = "x86_64")]
    is_moved: bool,
}

impl ByteForm {
    /// With this zero point, range and flip, before the flip all of them.
    pub(super) fn new(zero_point: u8, [least, most]: [u8; 2], flip: u8) -> ByteForm {
        ByteForm {
            zero_point: [zero_point.into(); 2 * WIDE],
            least: [least; 4 * WIDE],
            most: [most; 4 * WIDE],
            flip: [flip; 4 * WIDE],
            #[cfg(target_arch = "x86_64")]
            is_narrow: [least, most] != [0, u8::MAX],
            #[cfg(target_arch = "x86_64")]
            is_moved: zero_point != 0,
        }
    }

    /// Whether values are signed.
    #[inline(always)]
    pub(super) fn is_signed(&self) -> bool {
        self.flip[0] != 0
    }
}

/// Lanes of an array from the `first` on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn lanes_from<T, const N: usize>(all: &[T], first: usize) -> &[T; N] {
    match all[first..].first_chunk() {
        Some(lanes) => lanes,
        None => unreachable!("vectors lie within the lanes of {} values", all.len()),
    }
}

/// A float that is stored in half precision, if it is finite: the same without calls and branches.
#[inline(always)]
fn of_half(bits: u16) -> f32 {
    /// What the exponent of one is away from the other's, as a factor.
    const TWO_TO_112: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * TWO_TO_112;
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// The operations of an instruction set on vectors of `N` lanes.
pub(super) trait Simd<const N: usize>: Copy {
    /// 32-bit floats.
    type F32: Copy + Debug;
    /// 32-bit integers, or pairs of 16-bit ones.
    type I32: Copy + Debug;
    /// 16-bit integers in memory, two for each lane.
    type Pairs: bytemuck::Pod;
    /// Whether tiles take one value or pair of each row at a time, not two. Of two values, LLVM loads those
    /// of all rows first where loads are cheap, and has no registers for them; of two pairs, where one
    /// instruction multiplies and adds, it makes a product and a sum of the second, which waits less but
    /// takes twice as long where there is no waiting.
    const ONE_BY_ONE: bool = false;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &[f32; N]) -> Self::F32;
    /// Floats that are stored in half precision; of what is infinite or none, anything.
    #[inline(always)]
    fn load_half(self, from: &[u16; N]) -> Self::F32 {
        self.load(&from.map(of_half))
    }
    fn store(self, vector: Self::F32, to: &mut [f32; N]);
    fn add(self, left: Self::F32, right: Self::F32) -> Self::F32;
    fn mul(self, left: Self::F32, right: Self::F32) -> Self::F32;
    /// `left * right + sum`, rounded once or twice.
    fn mul_add(self, left: Self::F32, right: Self::F32, sum: Self::F32) -> Self::F32;
    /// The larger of the two; a NaN in `value` stays one.
    fn at_least(self, value: Self::F32, low: Self::F32) -> Self::F32;
    /// The smaller of the two; a NaN in `value` stays one.
    fn at_most(self, value: Self::F32, high: Self::F32) -> Self::F32;
    /// `value` where it is at least 0, else `value * factor`.
    fn scale_negative(self, value: Self::F32, factor: Self::F32) -> Self::F32;

    fn splat_i32(self, value: i32) -> Self::I32;
    fn load_i32(self, from: &[i32; N]) -> Self::I32;
    fn store_i32(self, vector: Self::I32, to: &mut [i32; N]);
    fn add_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    fn sub_i32(self, left: Self::I32, right: Self::I32) -> Self::I32;
    /// The floats nearest to integers.
    fn floats(self, integers: Self::I32) -> Self::F32;
    /// The integers nearest to floats, of two the even one; anything of magnitudes from `2^22` on.
    fn nearest(self, floats: Self::F32) -> Self::I32;
    /// `value` times `2^bits`, which fits 32 bits.
    fn shift_left(self, value: Self::I32, bits: i32) -> Self::I32;
    /// `value` clamped to `low..=high`.
    fn clamp_i32(self, value: Self::I32, low: Self::I32, high: Self::I32) -> Self::I32;
    /// Pairs of 16-bit integers.
    fn load_pairs(self, from: &Self::Pairs) -> Self::I32;
    /// `sums` plus the sums of the products of pairs.
    fn add_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    /// Rescales sums as [`crate::kernels::fixed_point::Multiplier::apply`] does, those of the lanes from the
    /// `first` on.
    fn rescale(self, sums: Self::I32, by: &Rescale, first: usize) -> Self::I32;
    /// Rescales sums likewise, in one step.
    fn rescale_once(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32;
    /// The same where results below 0 may be others that are not above 0.
    fn rescale_positive(self, sums: Self::I32, by: &RescaleOnce, first: usize) -> Self::I32;
}

/// What is done with sixteen columns of 8-bit values or of pairs of 16-bit ones.
pub(super) trait Columns: Simd<WIDE> {
    /// Vectors of half as many lanes.
    type Narrow: Simd<LANES>;

    /// A wide vector of two narrow ones.
    fn join(
        self,
        low: <Self::Narrow as Simd<LANES>>::I32,
        high: <Self::Narrow as Simd<LANES>>::I32,
    ) -> Self::I32;
    /// Pairs of what two rows hold for each of sixteen columns, in [`COLUMN_ORDER`].
    fn interleave(self, first: &[i16; WIDE], second: &[i16; WIDE]) -> Self::I32;
    /// Whether there are instructions that round floats towards zero, whatever others do: those that
    /// [`FloatScale`] needs.
    const TRUNCATES: bool = false;
    /// Rescales sums by floats, of which there are some only where [`Columns::TRUNCATES`] says so; with
    /// `CLAMPED`, results below 0 may be others that are not above 0.
    #[inline(always)]
    fn rescale_by_floats<const CLAMPED: bool>(self, _: Self::I32, _: &FloatScale) -> Self::I32 {
        unreachable!("nothing is rescaled by floats with these instructions")
    }
    /// `sums` plus the sums of the products of four bytes, unsigned ones on the left with signed ones on the
    /// right.
    fn add_byte_products(self, sums: Self::I32, left: Self::I32, right: Self::I32) -> Self::I32;
    /// Sixteen 8-bit columns in [`COLUMN_ORDER`].
    fn load_bytes<const SIGNED: bool>(self, from: &[u8; WIDE]) -> Self::I32;
    /// Sixteen columns in natural order, clamped to 8 bits and to a range.
    fn store_bytes<const SIGNED: bool>(self, columns: Self::I32, range: [u8; 2], to: &mut [u8; WIDE]);
    /// What four rows hold at each of 64 places, side by side, with the bits `flip` turned over.
    #[inline(always)]
    fn by_fours(self, rows: [&[u8; 4 * WIDE]; 4], flip: u8, to: &mut [[u8; 4]; 4 * WIDE]) {
        for (at, to) in to.iter_mut().enumerate() {
            for (row, to) in rows.iter().zip(to) {
                *to = row[at] ^ flip;
            }
        }
    }
    /// What a table has for each of 64 bytes.
    #[inline(always)]
    fn look_up(self, table: &[u8; 256], bytes: &[u8; 4 * WIDE], to: &mut [u8; 4 * WIDE]) {
        for (byte, to) in bytes.iter().zip(to) {
            *to = table[usize::from(*byte)];
        }
    }
    /// Four times sixteen columns of output steps from real 0, in natural order or in [`COLUMN_ORDER`], in a
    /// form of 8 bits.
    #[inline(always)]
    fn bytes_of_four<const NATURAL: bool>(self, columns: [Self::I32; 4], form: &ByteForm) -> [[u8; WIDE]; 4] {
        let mut all = [[0; WIDE]; 4];
        let zero_point = self.splat_i32(form.zero_point[0].into());
        let (range, flip) = ([form.least[0], form.most[0]], form.flip[0]);
        for (columns, to) in columns.into_iter().zip(&mut all) {
            self.store_bytes::<false>(self.add_i32(columns, zero_point), range, to);
            if NATURAL {
                let bytes = *to;
                for (to, column) in to.iter_mut().zip(COLUMN_ORDER) {
                    *to = bytes[column];
                }
            }
            for byte in to {
                *byte ^= flip;
            }
        }
        all
    }
    /// The same of two times twice sixteen columns in [`COLUMN_ORDER`], neighbours in natural order side by
    /// side.
    #[inline(always)]
    fn bytes_of_pairs(self, columns: [Self::I32; 4], form: &ByteForm) -> [[u8; 2 * WIDE]; 2] {
        bytemuck::cast(self.bytes_of_four::<false>(columns, form))
    }
}

/// An instruction set.
pub(super) trait Instructions: Copy {
    /// Vectors of [`LANES`] lanes.
    type Narrow: Simd<LANES>;
    /// Vectors of [`WIDE`] lanes, one register or several.
    type Wide: Columns<Narrow = Self::Narrow>;
    /// Whether a wide vector is one register, of which there are 32, instead of two of 16 or four of 32, and
    /// bytes are multiplied and added by one instruction.
    const HAS_WIDE: bool;
    /// Whether a product and a sum that is rounded once is one instruction.
    const FUSES: bool;

    fn narrow(self) -> Self::Narrow;
    fn wide(self) -> Self::Wide;
    /// Runs a part of a kernel as a function of its own where there are few registers: in a large function,
    /// loops are given memory for what would fit into registers.
    fn apart<W: Work>(self, work: W) -> W::Output;
}

/// A kernel with its arguments.
pub(super) trait Work {
    /// What it returns.
    type Output;

    /// Computes; to be marked `#[inline(always)]`, as everything that it calls and that is worth vectors.
    fn run<S: Instructions>(self, simd: S) -> Self::Output;
}

/// Runs a kernel with the best instructions that the processor has. Always inlined, down to the function that
/// is compiled for them, so that the kernel's arguments are stored once: what is copied right after its parts
/// were stored makes a processor wait until they have left the store buffer.
#[inline(always)]
pub(super) fn dispatch<W: Work>(work: W) -> W::Output {
    run_by(used(), work)
}

/// Runs a kernel with these instructions.
#[inline(always)]
fn run_by<W: Work>(instructions: InstructionSet, work: W) -> W::Output {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Amx(amx) => amx.run(work),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512(simd) => simd.run(work),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2(simd) => simd.run(work),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => neon::Neon.run(work),
        InstructionSet::Portable => portable::Portable.run(work),
    }
}

/// Runs a kernel by each instruction set that the processor has.
#[cfg(test)]
pub(super) fn run_by_each<W: Work>(make: impl Fn() -> W) -> Vec<W::Output> {
    available()
        .map(|instructions| run_by(instructions, make()))
        .collect()
}

/// A loop that becomes one over vectors if it is compiled for instructions that have them. To be marked
/// `#[inline(always)]`.
pub(crate) trait Loop {
    /// Runs it.
    fn run(self);
}

/// Runs a loop compiled for the best instructions that the processor has. Results are the same whatever they
/// are.
pub(crate) fn vectorised(work: impl Loop) {
    struct Vectorised<L>(L);

    impl<L: Loop> Work for Vectorised<L> {
        type Output = ();

        #[inline(always)]
        fn run<S: Instructions>(self, _: S) {
            self.0.run();
        }
    }

    dispatch(Vectorised(work));
}

/// The instruction sets that there are kernels for, with the right to use them.
#[derive(Clone, Copy, Debug)]
enum InstructionSet {
    /// AVX-512, and tiles for what is worth it.
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl InstructionSet {
    fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Amx(_) => "amx",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => "neon",
            InstructionSet::Portable => "portable",
        }
    }
}

/// Those that the processor has, the best first.
fn available() -> impl Iterator<Item = InstructionSet> {
    #[cfg(test)]
    permit_tiles();
    #[cfg(target_arch = "x86_64")]
    let vectors = {
        let amx = amx::Amx::find().map(InstructionSet::Amx);
        let avx512 = avx512::Avx512::find().map(InstructionSet::Avx512);
        let avx2 = avx2::Avx2::find().map(InstructionSet::Avx2);
        amx.into_iter().chain(avx512).chain(avx2)
    };
    #[cfg(target_arch = "aarch64")]
    let vectors = std::iter::once(InstructionSet::Neon);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let vectors = std::iter::empty();
    vectors.chain([InstructionSet::Portable])
}

/// The variable of the environment that names the best instruction set to use: `amx`, `avx512`, `avx2`,
/// `neon` or `portable`.
const LIMIT: &str = "NNHAL_CPU_INSTRUCTIONS";

/// The one that is used: the one that [`LIMIT`] names, or the best that the processor has.
#[inline]
fn used() -> InstructionSet {
    static USED: LazyLock<InstructionSet> = LazyLock::new(|| {
        let limit = nnhal_os::environment::var(LIMIT);
        from_limit(limit.as_deref())
    });
    *USED
}

fn from_limit(limit: Option<&str>) -> InstructionSet {
    // A name that is not known limits nothing, nor does one that the processor does not have: what it has is
    // less then.
    let named = available().find(|set| limit == Some(set.name()));
    named
        .or_else(|| available().next())
        .unwrap_or(InstructionSet::Portable)
}

/// Whether [`Columns::add_byte_products`] is one instruction of those that [`dispatch`] picks.
pub(super) fn multiplies_bytes() -> bool {
    struct Ask;

    impl Work for Ask {
        type Output = bool;

        #[inline(always)]
        fn run<S: Instructions>(self, _: S) -> bool {
            S::HAS_WIDE
        }
    }

    dispatch(Ask)
}

/// Whether those that [`dispatch`] picks rescale by floats.
pub(super) fn rescales_by_floats() -> bool {
    struct Ask;

    impl Work for Ask {
        type Output = bool;

        #[inline(always)]
        fn run<S: Instructions>(self, _: S) -> bool {
            S::Wide::TRUNCATES
        }
    }

    dispatch(Ask)
}

/// Has the device `nnhal-cpu` use AMX's tiles in this process, if the processor and the kernel have them: for
/// programs that call this before anything is prepared for that device. From then on the kernel refuses
/// alternative signal stacks that have no room for tiles, so no library should. See
/// [`nnhal_os::cpu::permit_tiles`].
pub fn permit_tiles() {
    // Not for processes that are told to use less.
    const LESS: [&str; 3] = ["avx512", "avx2", "portable"];
    let is_less = nnhal_os::environment::var(LIMIT).is_some_and(|limit| LESS.contains(&limit.as_str()));
    if !is_less {
        nnhal_os::cpu::permit_tiles();
    }
}

/// The tiles that there are beside the instructions that [`dispatch`] picks.
#[cfg(target_arch = "x86_64")]
pub(super) fn tiles() -> Option<amx::Amx> {
    match used() {
        InstructionSet::Amx(amx) => Some(amx),
        _ => None,
    }
}

/// The name of the instructions that [`dispatch`] picks.
pub(crate) fn instruction_set() -> &'static str {
    used().name()
}

#[cfg(test)]
mod tests {
    use super::portable::Portable;
    use super::{
        ByteForm, Columns, InstructionSet, Instructions, LANES, Rescale, RescaleOnce, Simd, WIDE, Work,
        available, from_limit, run_by,
    };

    /// Every function of an instruction set on some values, and what comes out.
    struct Everything;

    #[derive(Debug, Default, PartialEq)]
    struct Found {
        floats: Vec<f32>,
        integers: Vec<i32>,
        bytes: Vec<u8>,
    }

    const SHIFTS: [i32; WIDE] = [0, 1, 5, 9, 0, 0, 13, 31, 2, 3, 4, 7, 30, 6, 8, 12];

    impl Found {
        #[inline(always)]
        fn floats<V: Simd<N>, const N: usize>(&mut self, simd: V) {
            let mut keep = |vector: V::F32| {
                let mut lanes = [0.0; N];
                simd.store(vector, &mut lanes);
                self.floats.extend(lanes);
            };
            let left = simd.load(&std::array::from_fn(|lane| lane as f32 * 3.0 - 7.5));
            let right = simd.load(&std::array::from_fn(|lane| (lane % 3) as f32 + 0.5));
            keep(simd.add(left, right));
            keep(simd.mul(left, right));
            keep(simd.mul_add(left, right, simd.splat(2.0)));
            keep(simd.at_least(left, right));
            keep(simd.at_most(left, right));
            // One, the least normal number and the least of all, the largest, and both zeros, of both signs.
            let halves = [0x3c00, 0x8400, 0x0001, 0xfbff, 0x7bff, 0x8001, 0x0000, 0x8000];
            keep(simd.load_half(&std::array::from_fn(|lane| halves[lane % halves.len()])));
        }

        #[inline(always)]
        fn integers<V: Simd<N>, const N: usize>(&mut self, simd: V) {
            let mut keep = |vector: V::I32| {
                let mut lanes = [0; N];
                simd.store_i32(vector, &mut lanes);
                self.integers.extend(lanes);
            };
            let pairs = |by: i16| -> V::I32 {
                let values: Vec<i16> = (0..2 * N as i16).map(|at| 300 - at * by).collect();
                simd.load_pairs(&bytemuck::pod_read_unaligned(bytemuck::cast_slice(&values)))
            };
            keep(simd.add_products(simd.splat_i32(5), pairs(31), pairs(-7)));
            let least = simd.load_i32(&[i32::from_ne_bytes([0, 0x80, 0, 0x80]); N]);
            keep(simd.add_products(simd.splat_i32(-5), least, least));
            let sums = simd.load_i32(&std::array::from_fn(|lane| (lane as i32 - 3) * 1_234_567));
            let by = Rescale {
                mantissa: [0x5234_5678; WIDE],
                left: std::array::from_fn(|lane| [0, 0, 0, 0, 1, 9, 0, 31][lane % 8]),
                right: SHIFTS,
                mask: SHIFTS.map(|shift| ((1_u32 << shift) - 1) as i32),
            };
            let once = RescaleOnce::new(std::array::from_fn(|lane| {
                (0x5234_5678 + lane as i32, [1, 2, 7, 31][lane % 4])
            }));
            let scaled = simd.rescale(sums, &by, 0);
            keep(scaled);
            keep(simd.rescale(sums, &by, WIDE - N));
            keep(simd.rescale_once(sums, &once, 0));
            keep(simd.rescale_once(sums, &once, WIDE - N));
            keep(simd.rescale_positive(sums, &once, 0));
            keep(simd.rescale_positive(sums, &once, WIDE - N));
            keep(simd.nearest(simd.load(&std::array::from_fn(|lane| lane as f32 * 0.75 - 4.5))));
            let clamp = simd.clamp_i32(scaled, simd.splat_i32(-100), simd.splat_i32(100));
            keep(simd.add_i32(clamp, clamp));
            keep(simd.sub_i32(clamp, scaled));
            keep(simd.shift_left(clamp, 19));
        }

        #[inline(always)]
        fn columns<V: Columns>(&mut self, narrow: V::Narrow, simd: V) {
            let mut keep = |vector: <V as Simd<WIDE>>::I32| {
                let mut lanes = [0; WIDE];
                simd.store_i32(vector, &mut lanes);
                self.integers.extend(lanes);
            };
            let rows: [[i16; WIDE]; 2] = [
                std::array::from_fn(|at| at as i16 * 7 - 50),
                std::array::from_fn(|at| 300 - at as i16 * 31),
            ];
            keep(simd.interleave(&rows[0], &rows[1]));
            let raw = std::array::from_fn(|at| (at * 37) as u8);
            keep(simd.load_bytes::<true>(&raw));
            keep(simd.load_bytes::<false>(&raw));
            let fours = |by: usize| {
                let bytes: [[u8; 4]; WIDE] = std::array::from_fn(|lane| {
                    std::array::from_fn(|at| (lane * 4 + at).wrapping_mul(by).wrapping_add(99) as u8)
                });
                simd.load_i32(&bytemuck::cast(bytes))
            };
            let least = simd.splat_i32(i32::from_ne_bytes([128; 4]));
            keep(simd.add_byte_products(simd.splat_i32(i32::MAX), simd.splat_i32(-1), least));
            keep(simd.add_byte_products(simd.splat_i32(7), fours(3), fours(5)));
            let (low, high) = (narrow.splat_i32(3), narrow.splat_i32(-100_000));
            keep(simd.join(low, high));
            let mut bytes = [0; WIDE];
            let some = simd.load_i32(&std::array::from_fn(|lane| lane as i32 * 31 - 200));
            let rows: [[u8; 4 * WIDE]; 4] =
                std::array::from_fn(|row| std::array::from_fn(|at| (at * 3 + row * 71) as u8));
            let mut fours = [[0; 4]; 4 * WIDE];
            simd.by_fours(rows.each_ref(), 0x80, &mut fours);
            self.bytes.extend(fours.as_flattened());
            let table = std::array::from_fn(|byte| (byte * 7 + byte / 32) as u8);
            let places = std::array::from_fn(|at| (at * 67 + at / 8) as u8);
            let mut values = [0; 4 * WIDE];
            simd.look_up(&table, &places, &mut values);
            self.bytes.extend(values);
            let four = [
                some,
                simd.join(low, high),
                simd.splat_i32(70_000),
                simd.splat_i32(9),
            ];
            for form in [
                ByteForm::new(5, [3, 156], 0x80),
                ByteForm::new(0, [0, 255], 0),
                ByteForm::new(200, [0, 254], 0x80),
            ] {
                let in_order = simd.bytes_of_four::<false>(four, &form);
                self.bytes.extend(in_order.as_flattened());
                let natural = simd.bytes_of_four::<true>(four, &form);
                self.bytes.extend(natural.as_flattened());
                let pairs = simd.bytes_of_pairs(four, &form);
                self.bytes.extend(pairs.as_flattened());
            }
            let far = [simd.join(low, high), simd.join(high, low)];
            for columns in [some, far[0], far[1], simd.splat_i32(70_000)] {
                for range in [[-128, 127], [-20, 30]] {
                    simd.store_bytes::<true>(columns, range.map(|end: i8| end as u8), &mut bytes);
                    self.bytes.extend(bytes);
                }
                for range in [[0, 255], [3, 156]] {
                    simd.store_bytes::<false>(columns, range, &mut bytes);
                    self.bytes.extend(bytes);
                }
            }
        }
    }

    impl Work for Everything {
        type Output = Found;

        #[inline(always)]
        fn run<S: Instructions>(self, simd: S) -> Found {
            let mut found = Found::default();
            found.floats::<_, LANES>(simd.narrow());
            found.floats::<_, WIDE>(simd.wide());
            found.integers::<_, LANES>(simd.narrow());
            found.integers::<_, WIDE>(simd.wide());
            found.columns(simd.narrow(), simd.wide());
            found
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same() {
        let expected = Everything.run(Portable);
        for set in available() {
            assert_eq!(run_by(set, Everything), expected, "{}", set.name());
        }
    }

    #[test]
    fn nan_and_zeros_stay_when_clamped() {
        struct Clamp {
            value: f32,
            range: (f32, f32),
        }

        impl Work for Clamp {
            type Output = [f32; LANES];

            #[inline(always)]
            fn run<S: Instructions>(self, simd: S) -> [f32; LANES] {
                let simd = simd.narrow();
                let raised = simd.at_least(simd.splat(self.value), simd.splat(self.range.0));
                let mut lanes = [0.0; LANES];
                simd.store(simd.at_most(raised, simd.splat(self.range.1)), &mut lanes);
                lanes
            }
        }
        for set in available() {
            let clamp = |value: f32, range: (f32, f32)| run_by(set, Clamp { value, range })[0];
            assert!(clamp(f32::NAN, (0.0, 6.0)).is_nan(), "{}", set.name());
            assert!(clamp(-0.0, (0.0, 6.0)).is_sign_negative(), "{}", set.name());
            assert!(clamp(0.0, (-1.0, -0.0)).is_sign_positive(), "{}", set.name());
        }
    }

    #[test]
    fn a_limit_leaves_what_is_not_better() {
        let best = available().next().unwrap_or(InstructionSet::Portable).name();
        assert_eq!(from_limit(None).name(), best);
        assert_eq!(from_limit(Some("something")).name(), best);
        assert_eq!(from_limit(Some("portable")).name(), "portable");
        assert_ne!(from_limit(Some("avx2")).name(), "avx512");
        for set in available() {
            assert_eq!(from_limit(Some(set.name())).name(), set.name());
        }
    }
}
