//! Memories of clients, and what is refused.

use nix::fcntl::SealFlag;
use nnhal_hal::{DataLocation, Operand, OperandType};

use super::*;

fn description(size: u64) -> MemoryDescription {
    MemoryDescription {
        name: "ashmem".into(),
        fds: 1,
        size,
        offset: 0,
        protection: 3,
    }
}

fn memfd(size: u64) -> Vec<OwnedFd> {
    vec![SharedMemory::create(size).unwrap().into()]
}

fn memories() -> Memories {
    let limits = Limits {
        shared_bytes: 10_000,
        objects: 3,
        ..Limits::default()
    };
    Memories::new(&limits, Quotas::alone())
}

fn status(result: Result<MemoryHandle, Failure>) -> ErrorStatus {
    result.unwrap_err().status
}

#[test]
fn memory_is_found_by_its_handle_until_it_is_removed() {
    let memories = memories();
    let handle = memories.register(&description(100), memfd(100)).unwrap();
    assert_eq!(memories.get(handle).unwrap().size(), 100);
    memories.remove(handle).unwrap();
    assert_eq!(
        memories.get(handle).unwrap_err().status,
        ErrorStatus::InvalidArgument
    );
    assert_eq!(
        memories.remove(handle).unwrap_err().status,
        ErrorStatus::InvalidArgument
    );
}

#[test]
fn quotas_of_bytes_and_of_objects_hold() {
    let memories = memories();
    let first = memories.register(&description(6000), memfd(6000)).unwrap();
    let refused = memories.register(&description(6000), memfd(6000));
    assert_eq!(status(refused), ErrorStatus::ResourceExhaustedTransient);
    let refused = memories.register(&description(10_001), memfd(10_001));
    assert_eq!(status(refused), ErrorStatus::ResourceExhaustedPersistent);
    memories.remove(first).unwrap();
    for _ in 0..3 {
        memories.register(&description(10), memfd(10)).unwrap();
    }
    let refused = memories.register(&description(10), memfd(10));
    assert_eq!(status(refused), ErrorStatus::ResourceExhaustedTransient);
}

#[test]
fn descriptions_that_make_no_sense_are_invalid() {
    let memories = memories();
    let bad = [
        (
            MemoryDescription {
                name: "hardware_buffer".into(),
                ..description(10)
            },
            1,
        ),
        (
            MemoryDescription {
                name: "nonsense".into(),
                ..description(10)
            },
            1,
        ),
        (
            MemoryDescription {
                offset: 4,
                ..description(10)
            },
            1,
        ),
        (
            MemoryDescription {
                name: "mmap_fd".into(),
                offset: u64::MAX,
                ..description(10)
            },
            1,
        ),
        (
            MemoryDescription {
                name: "mmap_fd".into(),
                offset: 200,
                ..description(10)
            },
            1,
        ),
        (description(0), 1),
        (description(101), 1),
        (description(u64::MAX), 1),
        (
            MemoryDescription {
                fds: 0,
                ..description(10)
            },
            0,
        ),
        (
            MemoryDescription {
                fds: 2,
                ..description(10)
            },
            2,
        ),
    ];
    for (description, fds) in bad {
        let fds = (0..fds).flat_map(|_| memfd(100)).collect();
        let refused = memories.register(&description, fds);
        assert_eq!(status(refused), ErrorStatus::InvalidArgument, "{description:?}");
    }
}

#[test]
fn memory_with_an_offset_starts_there() {
    let shared = SharedMemory::create(100).unwrap();
    Mapping::new(&shared, Access::ReadWrite)
        .unwrap()
        .as_slice()
        .write_at(40, b"here")
        .unwrap();
    let description = MemoryDescription {
        name: "mmap_fd".into(),
        offset: 40,
        protection: 1,
        ..description(4)
    };
    let memories = memories();
    let handle = memories.register(&description, vec![shared.into()]).unwrap();
    let memory = memories.get(handle).unwrap();
    let mut bytes = [0; 4];
    memory.slice().unwrap().read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"here");
    assert!(!memory.is_writable());
    assert!(memory.slice().unwrap().read_at(1, &mut bytes).is_err());
}

fn model_with_constants(ends: &[(u32, u32)]) -> Model {
    let mut model = Model::default();
    for (pool, &(offset, length)) in ends.iter().enumerate() {
        let mut operand =
            Operand::new(OperandType::TENSOR_FLOAT32, &[1]).with_lifetime(OperandLifeTime::ConstantReference);
        operand.location = DataLocation {
            pool_index: pool as u32,
            offset,
            length,
        };
        model.main.operands.push(operand);
    }
    model
}

#[test]
fn sealed_constants_stay_in_place_and_others_are_copied_as_far_as_used() {
    let memories = memories();
    let sealed = SharedMemory::create_sealed(b"sealed").unwrap();
    let sealed = memories.register(&description(6), vec![sealed.into()]).unwrap();
    let open = memories.register(&description(100), memfd(100)).unwrap();
    let all = memories.get_all(&[sealed, open]).unwrap();
    let model = model_with_constants(&[(0, 6), (10, 20)]);
    let pools = constant_pools(&model, &all, &Limits::default()).unwrap();
    assert!(matches!(pools[0], ConstantPool::InPlace(_)));
    assert_eq!(pools[0].as_ref(), b"sealed");
    assert_eq!(pools[1].as_ref(), [0; 30]);
    let limits = Limits {
        constant_bytes: 29,
        ..Limits::default()
    };
    let refused = constant_pools(&model, &all, &limits).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::ResourceExhaustedPersistent);
}

#[test]
fn sealed_constants_in_pages_that_may_run_out_are_copied() {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
    let Ok(huge) = memfd_create(c"test", flags) else {
        println!("SKIPPED: this kernel has no such memory");
        return;
    };
    nix::unistd::ftruncate(&huge, 2 << 20).unwrap();
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    nnhal_os::memfd::seal(&huge, seals).unwrap();
    let memories = memories();
    let handle = memories.register(&description(6), vec![huge]).unwrap();
    let all = memories.get_all(&[handle]).unwrap();
    let model = model_with_constants(&[(0, 6)]);
    let pools = constant_pools(&model, &all, &Limits::default()).unwrap();
    assert!(matches!(pools[0], ConstantPool::Copied(_)));
    assert_eq!(pools[0].as_ref(), [0; 6]);
}

#[test]
fn unknown_handle_names_its_pool() {
    let memories = memories();
    let known = memories.register(&description(10), memfd(10)).unwrap();
    let unknown = MemoryHandle(Handle {
        index: 7,
        generation: 0,
    });
    let failure = memories.get_all(&[known, unknown]).unwrap_err();
    assert_eq!(failure.place.pool, Some(1));
}
