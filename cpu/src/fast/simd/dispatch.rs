//! The choice of the instruction set: what the processor has, and what the environment permits.

use once_cell::race::OnceBox;

use super::amx::Amx;
use super::instructions::{Instructions, Loop, Work};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
use super::vectors::Columns;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Runs a kernel with the best instructions that the processor has. Always inlined, down to the function that
/// is compiled for them, so that the kernel's arguments are stored once: what is copied right after its parts
/// were stored makes a processor wait until they have left the store buffer.
#[inline(always)]
pub(in crate::fast) fn dispatch<W: Work>(work: W) -> W::Output {
    run_by(used(), work)
}

/// Runs a kernel with these instructions.
#[inline(always)]
pub(super) fn run_by<W: Work>(instructions: InstructionSet, work: W) -> W::Output {
    match instructions {
        InstructionSet::Amx(amx) => amx.run(work),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512(simd) => simd.run(work),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2(simd) => simd.run(work),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::NeonDot(simd) => simd.run(work),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon(simd) => simd.run(work),
        InstructionSet::Portable => portable::Portable.run(work),
    }
}

/// Runs a kernel by each instruction set that the processor has.
#[cfg(test)]
pub(in crate::fast) fn run_by_each<W: Work>(make: impl Fn() -> W) -> Vec<W::Output> {
    available()
        .map(|instructions| run_by(instructions, make()))
        .collect()
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
pub(super) enum InstructionSet {
    /// AVX-512, and tiles for what is worth it.
    Amx(Amx),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "aarch64")]
    NeonDot(neon::Neon<true>),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    Portable,
}

impl InstructionSet {
    pub(super) fn name(self) -> &'static str {
        match self {
            InstructionSet::Amx(_) => "amx",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::NeonDot(_) => "neon-dotprod",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon(_) => "neon",
            InstructionSet::Portable => "portable",
        }
    }
}

/// Those that the processor has, the best first.
pub(super) fn available() -> impl Iterator<Item = InstructionSet> {
    #[cfg(test)]
    permit_tiles();
    let tiles = Amx::find().map(InstructionSet::Amx);
    tiles.into_iter().chain(without_tiles())
}

/// Those among them that have vectors and nothing else.
fn without_tiles() -> impl Iterator<Item = InstructionSet> {
    #[cfg(target_arch = "x86_64")]
    let vectors = {
        let avx512 = avx512::Avx512::find().map(InstructionSet::Avx512);
        let avx2 = avx2::Avx2::find().map(InstructionSet::Avx2);
        avx512.into_iter().chain(avx2)
    };
    #[cfg(target_arch = "aarch64")]
    let vectors = {
        let neon = InstructionSet::Neon(neon::Neon::new());
        let with_dot = neon::Neon::find().map(InstructionSet::NeonDot);
        with_dot.into_iter().chain([neon])
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let vectors = std::iter::empty();
    vectors.chain([InstructionSet::Portable])
}

/// The variable of the environment that names the best instruction set to use, by [`InstructionSet::name`].
const LIMIT: &str = "NNHAL_CPU_INSTRUCTIONS";

/// The one that is used: the one that [`LIMIT`] names, or the best that the processor has.
#[inline]
fn used() -> InstructionSet {
    // No lock is taken, which a child of `fork()` could find held for ever.
    static USED: OnceBox<InstructionSet> = OnceBox::new();
    *USED.get_or_init(|| {
        let limit = nnhal_os::environment::var(LIMIT);
        Box::new(from_limit(limit.as_deref()))
    })
}

pub(super) fn from_limit(limit: Option<&str>) -> InstructionSet {
    // A name that is not known limits nothing, nor does one that the processor does not have: what it has is
    // less then.
    let named = available().find(|set| limit == Some(set.name()));
    named
        .or_else(|| available().next())
        .unwrap_or(InstructionSet::Portable)
}

/// What kernels choose by before they are compiled for an instruction set.
struct Features {
    multiplies_bytes: bool,
    has_wide: bool,
    rescales_by_floats: bool,
}

/// Asks the instructions that [`dispatch`] picks.
struct Ask;

impl Work for Ask {
    type Output = Features;

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) -> Features {
        Features {
            multiplies_bytes: S::MULTIPLIES_BYTES,
            has_wide: S::HAS_WIDE,
            rescales_by_floats: S::Wide::TRUNCATES,
        }
    }
}

/// Whether those that [`dispatch`] picks [multiply bytes](Instructions::MULTIPLIES_BYTES).
pub(in crate::fast) fn multiplies_bytes() -> bool {
    dispatch(Ask).multiplies_bytes
}

/// Whether those that [`dispatch`] picks [have wide registers](Instructions::HAS_WIDE).
pub(in crate::fast) fn has_wide() -> bool {
    dispatch(Ask).has_wide
}

/// Whether those that [`dispatch`] picks rescale by floats.
pub(in crate::fast) fn rescales_by_floats() -> bool {
    dispatch(Ask).rescales_by_floats
}

/// Has the device `nnhal-cpu` use AMX's tiles in this process, if the processor and the kernel have them: for
/// programs that call this before anything is prepared for that device. From then on the kernel refuses
/// alternative signal stacks that have no room for tiles, so no library should. See
/// [`nnhal_os::cpu::permit_tiles`].
pub fn permit_tiles() {
    // Not for processes that are told to use less.
    let limit = nnhal_os::environment::var(LIMIT);
    if without_tiles().all(|set| limit.as_deref() != Some(set.name())) {
        nnhal_os::cpu::permit_tiles();
    }
}

/// The tiles that there are beside the instructions that [`dispatch`] picks.
pub(in crate::fast) fn tiles() -> Option<Amx> {
    match used() {
        InstructionSet::Amx(amx) => Some(amx),
        _ => None,
    }
}

/// The name of the instructions that [`dispatch`] picks.
pub(crate) fn instruction_set() -> &'static str {
    used().name()
}
