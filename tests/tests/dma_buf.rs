//! Memory that devices share (dma-buf), with the real daemon: by the descriptor of a `udmabuf` or of a dma
//! heap, where the kernel has one and lets this user make buffers; without, the test says so and ends.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nnhal_client::{
    Devices, ErrorStatus, ExecuteOptions, Memory, Model, ModelBuilder, OperationType, PrepareOptions,
    Request, TensorType,
};
use nnhal_os::dma_buf;
use nnhal_tests::{DaemonOptions, TestDaemon};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");

/// A page: the least that a dma-buf has.
const BYTES: u64 = 4096;

/// A dma-buf, or why there is none here.
fn buffer() -> Result<OwnedFd, String> {
    let heaps = ["/dev/dma_heap/system", "/dev/dma_heap/default_cma_region"];
    let mut reasons = Vec::new();
    let udmabuf = File::options().read(true).write(true).open("/dev/udmabuf");
    match udmabuf.map_err(|error| error.to_string()) {
        Ok(device) => match dma_buf::of_memfd(&device, BYTES) {
            Ok(buffer) => return Ok(buffer),
            Err(error) => reasons.push(format!("/dev/udmabuf: {error}")),
        },
        Err(error) => reasons.push(format!("/dev/udmabuf: {error}")),
    }
    for heap in heaps {
        let made = File::open(heap)
            .map_err(|error| error.to_string())
            .and_then(|heap| dma_buf::of_heap(&heap, BYTES).map_err(|error| error.to_string()));
        match made {
            Ok(buffer) => return Ok(buffer),
            Err(error) => reasons.push(format!("{heap}: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// `output = input + input`, four floats.
fn double() -> Model {
    let mut model = ModelBuilder::new();
    let x = model.input(TensorType::float32(&[4]));
    let no_activation = model.scalar(0_i32);
    let sum = model.output(TensorType::float32(&[4]));
    model.operation(OperationType::ADD, &[x, x, no_activation], &[sum]);
    model.finish().unwrap()
}

#[test]
fn dma_bufs_are_memories() {
    let fd = match buffer() {
        Ok(fd) => fd,
        Err(reasons) => {
            println!("SKIPPED: this kernel gives no dma-buf ({reasons})");
            return;
        }
    };
    assert!(dma_buf::is_dma_buf(fd.as_fd()).unwrap());
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device("nnhal-reference").unwrap();
    let prepared = device.prepare(&double(), &PrepareOptions::new()).unwrap();
    let memories = [
        Memory::from_fd(fd.try_clone().unwrap(), 0, BYTES, true).unwrap(),
        Memory::from_hardware_buffer(fd.try_clone().unwrap(), BYTES, true).unwrap(),
    ];
    for memory in &memories {
        memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        memory.write(64, &[0.0_f32; 4]).unwrap();
        let request = Request::new().input(memory, 0..16).output(memory, 64..80);
        prepared.execute(&request, &ExecuteOptions::new()).unwrap();
        assert_eq!(memory.read::<f32>(64, 4).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    }
    let too_large = Memory::from_fd(fd, 0, BYTES + 1, true).unwrap();
    let request = Request::new().input(&too_large, 0..16).output(&too_large, 64..80);
    let refused = prepared.execute(&request, &ExecuteOptions::new()).unwrap_err();
    assert_eq!(refused.status(), ErrorStatus::InvalidArgument, "{refused}");
}

/// The hardware buffer's role works with any memory that can be mapped, as the reference's own tests have it.
#[test]
fn hardware_buffers_of_bytes_are_memories() {
    let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
    let devices = Devices::open_in(daemon.runtime_dir()).unwrap();
    let device = devices.device("nnhal-reference").unwrap();
    let prepared = device.prepare(&double(), &PrepareOptions::new()).unwrap();
    let file = OwnedFd::from(nnhal_os::shm::SharedMemory::create(BYTES).unwrap());
    let memory = Memory::from_hardware_buffer(file, BYTES, true).unwrap();
    memory.write(0, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let request = Request::new().input(&memory, 0..16).output(&memory, 64..80);
    prepared.execute(&request, &ExecuteOptions::new()).unwrap();
    assert_eq!(memory.read::<f32>(64, 4).unwrap(), [2.0, 4.0, 6.0, 8.0]);
}
