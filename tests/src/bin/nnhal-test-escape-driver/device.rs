//! The device: orders in, results out.

use std::sync::Arc;
use std::time::Duration;

use nnhal_device::{Control, Device, Execution, InputSource, PrepareOptions, PreparedModel};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceType, Failure, HalVersion, NumberOfCacheFiles,
    OperationSupport, PerformanceInfo, Shape,
};
use nnhal_tests::escape::{NUMBERS, RAW, THREADS, Way};

use super::ways;

#[derive(Debug)]
pub(crate) struct Escape {
    info: DeviceInfo,
}

impl Escape {
    pub(crate) fn new(name: &str) -> Escape {
        Escape {
            info: DeviceInfo {
                name: name.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                device_type: DeviceType::Other,
                hal_version: HalVersion::V1_3,
                capabilities: Capabilities::uniform(PerformanceInfo::REFERENCE, []),
                extensions: Vec::new(),
                cache_files: NumberOfCacheFiles::default(),
            },
        }
    }
}

impl Device for Escape {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supported_operations(&self, model: &ValidModel, _: &dyn ConstantPools) -> Vec<OperationSupport> {
        vec![OperationSupport::Supported; model.model().main.operations.len()]
    }

    fn prepare(
        &self,
        _: Arc<ValidModel>,
        _: &dyn ConstantPools,
        _: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        Ok(Arc::new(Prepared))
    }
}

#[derive(Debug)]
struct Prepared;

impl PreparedModel for Prepared {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        Ok(Box::new(Run {
            shape: Shape::default(),
            order: vec![0; NUMBERS * 4],
            result: vec![0; NUMBERS * 4],
        }))
    }
}

#[derive(Debug)]
struct Run {
    shape: Shape,
    order: Vec<u8>,
    result: Vec<u8>,
}

impl Execution for Run {
    fn set_input(
        &mut self,
        _: usize,
        shape: &Shape,
        source: &dyn InputSource,
        _: &Control<'_>,
    ) -> Result<(), Failure> {
        self.shape = *shape;
        source.read(0, &mut self.order)
    }

    fn omit_input(&mut self, _: usize) -> Result<(), Failure> {
        Err(Failure::invalid_argument("there is no order"))
    }

    fn run(&mut self, _: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let (numbers, _) = self.order.as_chunks::<4>();
        let number = |at: usize| numbers.get(at).map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let result = if number(0) == RAW {
            let argument = |at: usize| {
                let [low, high] = [number(2 + 2 * at), number(3 + 2 * at)].map(i32::cast_unsigned);
                (u64::from(high) << 32 | u64::from(low)).cast_signed()
            };
            let arguments = [0, 1, 2, 3, 4, 5].map(argument);
            ways::call(i64::from(number(1)), arguments)
        } else if number(0) == THREADS {
            // As many as there can be.
            let start = |_: &i32| {
                let thread = std::thread::Builder::new().stack_size(16 << 10);
                thread.spawn(std::thread::park).is_ok()
            };
            (0..number(1)).take_while(start).count() as i64
        } else {
            let way = usize::try_from(number(0)).ok().and_then(|at| Way::ALL.get(at));
            let way = *way.ok_or_else(|| Failure::invalid_argument("there is no such way out"))?;
            ways::try_out(way, i64::from(number(1)), &ways::Prepared::in_jail())
        };
        self.result[..8].copy_from_slice(&result.to_le_bytes());
        Ok(None)
    }

    fn output(&self, _: usize) -> Option<(&Shape, &[u8])> {
        Some((&self.shape, &self.result))
    }

    fn release_memory(&mut self) {}
}
