//! The same model in this process: what executing costs without a driver.

use std::sync::Arc;

use nnhal_cpu::{Execution, KernelSet, Program, RunOptions};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{NoPools, Shape};

use crate::models::{self, ADDEND};
use crate::{Contestant, Error, Result};

const NAME: &str = "in_process";

/// The model, with nobody in between.
#[derive(Debug)]
pub struct InProcess {
    execution: Execution,
    shape: Shape,
    input: Vec<u8>,
    output: Vec<u8>,
    count: u32,
}

impl InProcess {
    /// Makes the model that adds to `count` values ready.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(count: u32) -> Result<InProcess> {
        let model = models::add(count)?;
        let valid =
            ValidModel::new(Arc::new(model.hal().clone()), &NoPools, &[]).map_err(Error::row(NAME))?;
        let program =
            Program::with_kernels(Arc::new(valid), &NoPools, KernelSet::Fast).map_err(Error::row(NAME))?;
        Ok(InProcess {
            execution: Execution::new(Arc::new(program)),
            shape: Shape::new(&[count]).map_err(Error::row(NAME))?,
            input: vec![0; count as usize * 4],
            output: vec![0; count as usize * 4],
            count: 0,
        })
    }
}

impl Contestant for InProcess {
    fn name(&self) -> &'static str {
        NAME
    }

    fn payload_bytes(&self) -> u64 {
        self.input.len() as u64
    }

    fn others(&self) -> Vec<u32> {
        Vec::new()
    }

    fn begin(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn trip(&mut self) -> Result<()> {
        // Exact in float32.
        self.count = (self.count + 1) % 1_000_000;
        let value = self.count as f32;
        self.input[..4].copy_from_slice(&value.to_ne_bytes());
        let failed = |error| Error::row(NAME)(error);
        let input = self.execution.input(0, &self.shape).map_err(failed)?;
        input.copy_from_slice(&self.input);
        self.execution.run(&RunOptions::default()).map_err(failed)?;
        if let Some((_, bytes)) = self.execution.output(0) {
            self.output.copy_from_slice(bytes);
        }
        if self.output[..4] == (value + ADDEND).to_ne_bytes() {
            Ok(())
        } else {
            Err(Error::wrong_answer(NAME))
        }
    }
}
