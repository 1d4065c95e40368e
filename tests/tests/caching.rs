//! Compilation caching in files of the client's (cases C of the VTS inventory), for a float and a quantised
//! model.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use nnhal::wire::{
    CacheFiles, Call, Event, Execute, ExecutionForm, Message, Object, PrepareModel, PrepareModelFromCache,
    PreparedModelHandle, Reply,
};
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, Operand, OperandType, Operation, OperationType};
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use nnhal_tests::{DaemonOptions, RawClient, TestDaemon, add_model, request_in_one_memory};

const EXE: &str = env!("CARGO_BIN_EXE_nnhal-test-daemon");
const TOKEN: [u8; 32] = [42; 32];

/// Elements of the models' tensors.
const ELEMENTS: u32 = 4;

struct Bench {
    client: RawClient,
    _daemon: TestDaemon,
    dir: tempfile::TempDir,
}

/// The two files of an entry, the model's first.
#[derive(Debug)]
struct Files {
    paths: [PathBuf; 2],
    files: [File; 2],
}

impl Files {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }

    fn bytes(&self, index: usize) -> Vec<u8> {
        std::fs::read(&self.paths[index]).unwrap()
    }
}

fn one_each() -> CacheFiles {
    CacheFiles::new(1, 1)
}

/// `last = first + second`, computed after as many operations as there are, each adding the second.
fn chain(operations: u32, quantized: bool) -> PrepareModel {
    let mut prepare = add_model(ELEMENTS);
    let main = &mut prepare.model.main;
    if quantized {
        for index in [0, 1, 3] {
            main.operands[index].operand_type = OperandType::TENSOR_QUANT8_ASYMM;
            main.operands[index].scale = 1.0;
        }
    }
    main.operands[1].number_of_consumers = operations;
    main.operands[2].number_of_consumers = operations;
    let mut input = 0;
    main.operations.clear();
    for _ in 1..operations {
        let temporary = main.operands.len() as u32;
        let mut operand = Operand::new(main.operands[3].operand_type, &[ELEMENTS]);
        operand.scale = main.operands[3].scale;
        operand.lifetime = nnhal_hal::OperandLifeTime::TemporaryVariable;
        operand.number_of_consumers = 1;
        main.operands.push(operand);
        main.operations.push(add(input, temporary));
        input = temporary;
    }
    main.operations.push(add(input, 3));
    prepare
}

fn add(input: u32, output: u32) -> Operation {
    Operation {
        operation_type: OperationType::ADD,
        inputs: vec![input, 1, 2],
        outputs: vec![output],
    }
}

impl Bench {
    fn new() -> Bench {
        let daemon = TestDaemon::start(EXE, &DaemonOptions::default());
        Bench {
            client: RawClient::connect(&daemon.runtime_dir(), "nnhal-reference"),
            _daemon: daemon,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn files(&self, name: &str) -> Files {
        let paths = ["model", "data"].map(|kind| self.dir.path().join(format!("{name}-{kind}")));
        let open = |path: &PathBuf| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path).unwrap()
        };
        let files = [open(&paths[0]), open(&paths[1])];
        Files { paths, files }
    }

    fn save(
        &mut self,
        mut model: PrepareModel,
        cache: CacheFiles,
        fds: &[BorrowedFd<'_>],
    ) -> Result<PreparedModelHandle, Failure> {
        model.cache = cache;
        model.token = TOKEN;
        self.launch(Call::PrepareModel(Box::new(model)), fds)
    }

    fn load(
        &mut self,
        cache: CacheFiles,
        token: [u8; 32],
        fds: &[BorrowedFd<'_>],
    ) -> Result<PreparedModelHandle, Failure> {
        let call = Call::PrepareModelFromCache(PrepareModelFromCache {
            deadline_ns: None,
            cache,
            token,
        });
        self.launch(call, fds)
    }

    fn launch(&mut self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<PreparedModelHandle, Failure> {
        match self.client.call(call, fds)? {
            Reply::Launched => {}
            other => panic!("{other:?}"),
        }
        match self.client.event() {
            Event::Prepared(prepared) => prepared,
            other @ Event::Executed(_) => panic!("{other:?}"),
        }
    }

    fn saved(&mut self, name: &str, quantized: bool) -> Files {
        let files = self.files(name);
        self.save(chain(1, quantized), one_each(), &files.fds()).unwrap();
        files
    }

    /// What the model computes: `1 + operations * 2` where it is one of [`chain`].
    fn result(&mut self, model: PreparedModelHandle, quantized: bool) -> u32 {
        let size = if quantized { 1 } else { 4 };
        let memory = SharedMemory::create(u64::from(3 * ELEMENTS * size)).unwrap();
        let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
        for index in 0..2 * ELEMENTS {
            let value = if index < ELEMENTS { 1_u8 } else { 2 };
            let bytes: &[u8] = if quantized {
                &[value]
            } else {
                &f32::from(value).to_le_bytes()
            };
            mapping
                .as_slice()
                .write_at(u64::from(index * size), bytes)
                .unwrap();
        }
        let memory = self.client.register(&memory);
        let call = Call::Execute(Execute {
            prepared_model: model,
            request: request_in_one_memory(memory, 2, 1, ELEMENTS * size),
            form: ExecutionForm::Synchronous,
            measure: MeasureTiming::No,
            deadline_ns: None,
            loop_timeout_ns: None,
        });
        match self.client.call(call, &[]) {
            Ok(Reply::Executed(result)) => assert_eq!(result.outcome, Ok(())),
            other => panic!("{other:?}"),
        }
        let mut bytes = vec![0; size as usize];
        let slice = mapping.as_slice();
        slice.read_at(u64::from(2 * ELEMENTS * size), &mut bytes).unwrap();
        match bytes[..] {
            [value] => u32::from(value),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]) as u32,
            _ => unreachable!(),
        }
    }

    fn expect_miss(&mut self, case: &str, files: &Files, token: [u8; 32]) {
        let failure = self.load(one_each(), token, &files.fds()).unwrap_err();
        assert_eq!(failure.status, ErrorStatus::GeneralFailure, "{case}: {failure}");
    }
}

#[test]
fn saved_models_are_found_and_compute_the_same() {
    let mut bench = Bench::new();
    for quantized in [false, true] {
        let files = bench.saved(&format!("c01-{quantized}"), quantized);
        let loaded = bench.load(one_each(), TOKEN, &files.fds()).unwrap();
        assert_eq!(bench.result(loaded, quantized), 3, "C01");

        let mut files = bench.files(&format!("c02-{quantized}"));
        for file in &mut files.files {
            file.write_all_at(&[0xEE; 9000], 0).unwrap();
            file.seek(SeekFrom::Start(77)).unwrap();
        }
        bench.save(chain(1, quantized), one_each(), &files.fds()).unwrap();
        let loaded = bench.load(one_each(), TOKEN, &files.fds()).unwrap();
        assert_eq!(bench.result(loaded, quantized), 3, "C02");
    }
}

/// Handles that are not what the device asked for: what is sent for model and data, by descriptors of each
/// handle.
fn wrong_handles() -> Vec<(&'static str, &'static str, CacheFiles)> {
    let handles = |model: &[u8], data: &[u8]| CacheFiles {
        model: model.to_vec(),
        data: data.to_vec(),
    };
    vec![
        ("C03", "C07", handles(&[1, 1], &[1])),
        ("C04", "C08", handles(&[], &[1])),
        ("C05", "C09", handles(&[1], &[1, 1])),
        ("C06", "C10", handles(&[1], &[])),
        ("C11", "C15", handles(&[2], &[1])),
        ("C12", "C16", handles(&[0], &[1])),
        ("C13", "C17", handles(&[1], &[2])),
        ("C14", "C18", handles(&[1], &[0])),
    ]
}

#[test]
fn wrong_handles_save_nothing_and_find_nothing() {
    let mut bench = Bench::new();
    for quantized in [false, true] {
        for (save, load, counts) in wrong_handles() {
            let spare = bench.files("spare");
            let files = bench.files(&format!("{save}-{quantized}"));
            let mut fds = files.fds();
            fds.extend(spare.fds());
            fds.truncate(counts.fd_count());
            let prepared = bench.save(chain(1, quantized), counts.clone(), &fds).unwrap();
            assert_eq!(bench.result(prepared, quantized), 3, "{save}");
            let refused = bench.load(counts.clone(), TOKEN, &fds).unwrap_err();
            assert_eq!(refused.status, ErrorStatus::InvalidArgument, "{save}: {refused}");
            bench.save(chain(1, quantized), one_each(), &files.fds()).unwrap();
            let refused = bench.load(counts, TOKEN, &fds).unwrap_err();
            assert_eq!(refused.status, ErrorStatus::InvalidArgument, "{load}: {refused}");
        }
    }
    let refused = bench.load(CacheFiles::default(), TOKEN, &[]).unwrap_err();
    assert_eq!(refused.status, ErrorStatus::InvalidArgument, "no handles at all");
}

#[test]
fn files_of_the_wrong_access_save_nothing_and_find_nothing() {
    let mut bench = Bench::new();
    for (index, save, load) in [(0, "C19", "C21"), (1, "C20", "C22")] {
        let mut files = bench.files(save);
        files.files[index] = File::open(&files.paths[index]).unwrap();
        let prepared = bench.save(chain(1, false), one_each(), &files.fds()).unwrap();
        assert_eq!(bench.result(prepared, false), 3, "{save}");
        bench.expect_miss(save, &files, TOKEN);

        let mut files = bench.saved(load, true);
        files.files[index] = OpenOptions::new().write(true).open(&files.paths[index]).unwrap();
        bench.expect_miss(load, &files, TOKEN);
    }
    let mut files = bench.files("pipe");
    let (read, _write) = std::io::pipe().unwrap();
    files.files[1] = File::from(std::os::fd::OwnedFd::from(read));
    bench.save(chain(1, false), one_each(), &files.fds()).unwrap();
    bench.expect_miss("a pipe", &files, TOKEN);
}

#[test]
fn files_of_another_model_are_not_taken() {
    let mut bench = Bench::new();
    for quantized in [false, true] {
        let own = bench.saved(&format!("own-{quantized}"), quantized);
        let other = bench.files(&format!("other-{quantized}"));
        bench.save(chain(2, quantized), one_each(), &other.fds()).unwrap();
        std::fs::copy(&other.paths[0], &own.paths[0]).unwrap();
        bench.expect_miss("C25", &own, TOKEN);
    }
}

#[test]
fn flipped_bits_and_other_lengths_are_noticed() {
    let mut bench = Bench::new();
    for quantized in [false, true] {
        let files = bench.saved(&format!("flip-{quantized}"), quantized);
        for (index, case, append) in [(0, "C26", "C27"), (1, "C28", "C29")] {
            let whole = files.bytes(index);
            for seed in 0..10_usize {
                let at = seed.wrapping_mul(0x9E37_79B9) % whole.len();
                files.files[index]
                    .write_all_at(&[whole[at] ^ (1 << (seed % 8))], at as u64)
                    .unwrap();
                bench.expect_miss(case, &files, TOKEN);
                files.files[index].write_all_at(&[whole[at]], at as u64).unwrap();
            }
            for more in 1..=256 {
                files.files[index].set_len(whole.len() as u64 + more).unwrap();
                bench.expect_miss(append, &files, TOKEN);
            }
            files.files[index].set_len(whole.len() as u64).unwrap();
        }
        for bit in 0..256 {
            let mut token = TOKEN;
            token[bit / 8] ^= 1 << (bit % 8);
            bench.expect_miss("C30", &files, token);
        }
        let loaded = bench.load(one_each(), TOKEN, &files.fds()).unwrap();
        assert_eq!(bench.result(loaded, quantized), 3);
    }
}

/// Copies other content over the files again and again while `work` is done.
fn while_overwritten<T>(target: &Files, contents: [[Vec<u8>; 2]; 2], work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for content in contents.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for (file, bytes) in target.files.iter().zip(content) {
                    file.write_all_at(bytes, 0).unwrap();
                    file.set_len(bytes.len() as u64).unwrap();
                }
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn files_that_change_during_the_call_give_one_model_or_none() {
    const OPERATIONS: u32 = 100;
    let mut bench = Bench::new();
    let own = bench.files("own");
    let other = bench.files("other");
    bench
        .save(chain(OPERATIONS, false), one_each(), &own.fds())
        .unwrap();
    bench
        .save(chain(OPERATIONS / 2, false), one_each(), &other.fds())
        .unwrap();
    let contents = || [&own, &other].map(|files| [files.bytes(0), files.bytes(1)]);
    let contents = contents();
    let target = bench.files("target");
    for round in 0..100 {
        let saving = while_overwritten(&target, contents.clone(), || {
            bench.save(chain(OPERATIONS, false), one_each(), &target.fds())
        });
        let saved = saving.unwrap();
        assert_eq!(
            bench.result(saved, false),
            1 + 2 * OPERATIONS,
            "C23, round {round}"
        );
        let loads = [
            bench.load(one_each(), TOKEN, &target.fds()),
            while_overwritten(&target, contents.clone(), || {
                bench.load(one_each(), TOKEN, &target.fds())
            }),
        ];
        for loaded in loads {
            match loaded {
                Err(failure) => assert_eq!(failure.status, ErrorStatus::GeneralFailure),
                Ok(model) => {
                    // Both were saved under this token, so either is right; a mixture is not.
                    let result = bench.result(model, false);
                    let is_whole = [1 + 2 * OPERATIONS, 1 + OPERATIONS].contains(&result);
                    assert!(is_whole, "C23, C24, round {round}: {result}");
                }
            }
        }
    }
}

/// A client that gives up preparing from a cache gets its answer before everything has been done.
#[test]
fn preparation_from_cache_that_is_cancelled_ends() {
    let mut bench = Bench::new();
    let files = bench.files("long");
    bench.save(chain(3000, false), one_each(), &files.fds()).unwrap();
    for _ in 0..20 {
        let call = Call::PrepareModelFromCache(PrepareModelFromCache {
            deadline_ns: None,
            cache: one_each(),
            token: TOKEN,
        });
        let id = bench.client.send(call, &files.fds()).unwrap();
        bench.client.send(Call::Cancel { id }, &[]).unwrap();
        let mut replies = 0;
        let mut prepared = None;
        while replies < 2 || prepared.is_none() {
            match bench.client.receive().unwrap().0 {
                Message::Reply { id: of, result } => {
                    replies += 1;
                    assert!(of != id || result == Ok(Reply::Launched), "{result:?}");
                }
                Message::Event {
                    event: Event::Prepared(outcome),
                    ..
                } => prepared = Some(outcome),
                other => panic!("{other:?}"),
            }
        }
        match prepared.unwrap() {
            Err(failure) => {
                assert_eq!(failure.status, ErrorStatus::GeneralFailure);
                assert!(failure.detail.contains("cancelled"), "{failure}");
                // The entry is as good as before.
                bench.load(one_each(), TOKEN, &files.fds()).unwrap();
                return;
            }
            // It was done before the second call had been read.
            Ok(model) => {
                let release = Call::Release {
                    object: Object::PreparedModel(model),
                };
                bench.client.call(release, &[]).unwrap();
            }
        }
    }
    panic!("no preparation was cancelled in time");
}
