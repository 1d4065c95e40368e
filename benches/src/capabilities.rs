//! How fast the fast kernels of the CPU are beside the reference kernels, measured by the reference workload:
//! what the device `nnhal-cpu` says of itself.
//!
//! Both execute the same model in this process, on one thread, in rounds in which they take turns. The figure
//! is the ratio of the fastest executions of all, which other programs disturbed least.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use nnhal_client::f16;
use nnhal_cpu::{Execution, KernelSet, Program, RunOptions};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{NoPools, OperandType, Shape};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::workloads::{self, Workload};
use crate::{Error, Result};

/// How long the executions of one set of kernels last in each round, at least.
const ROUND_NANOS: u128 = 2_000_000;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What it is for; see [`Workload::key`].
    pub key: String,
    /// What was computed.
    pub what: &'static str,
    /// The time of the reference kernels, in nanoseconds: the fastest execution.
    pub reference_ns: f64,
    /// Time relative to it.
    pub exec_time: f64,
}

/// All figures. Displayed, it is the table that `nnhal-driver` is built with.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Under which conditions they were measured.
    pub conditions: Conditions,
    /// In the order of the workloads.
    pub figures: Vec<Figure>,
}

/// Measures all workloads; `done` is told of each that is through.
///
/// # Errors
/// A workload cannot be executed.
pub fn measure(rounds: u32, mut done: impl FnMut()) -> Result<Table> {
    let conditions = Conditions::of_this_machine(rounds);
    let mut figures = Vec::new();
    for workload in workloads::all()? {
        figures.push(figure(&workload, rounds)?);
        done();
    }
    Ok(Table { conditions, figures })
}

/// How many workloads there are.
///
/// # Errors
/// Never.
pub fn count() -> Result<usize> {
    Ok(workloads::all()?.len())
}

fn figure(workload: &Workload, rounds: u32) -> Result<Figure> {
    let mut reference = prepared(workload, KernelSet::Reference)?;
    let mut fast = prepared(workload, KernelSet::Fast)?;
    let mut fastest = [f64::INFINITY; 2];
    for _ in 0..rounds {
        for (fastest, execution) in fastest.iter_mut().zip([&mut reference, &mut fast]) {
            *fastest = fastest.min(best(execution)?);
        }
    }
    Ok(Figure {
        key: workload.key.clone(),
        what: workload.what,
        reference_ns: fastest[0],
        exec_time: fastest[1] / fastest[0],
    })
}

fn prepared(workload: &Workload, kernels: KernelSet) -> Result<Execution> {
    let failed = |error: &dyn fmt::Display| Error::row::<String>(&workload.key)(error.to_string());
    let hal = workload.model.hal().clone();
    let model = ValidModel::new(Arc::new(hal), &NoPools, &[]).map_err(|error| failed(&error))?;
    let model = Arc::new(model);
    let program =
        Program::with_kernels(Arc::clone(&model), &NoPools, kernels).map_err(|error| failed(&error))?;
    let mut execution = Execution::new(Arc::new(program));
    let main = &model.model().main;
    for (index, at) in main.input_indexes.iter().enumerate() {
        let operand = &main.operands[*at as usize];
        let shape = Shape::new(&operand.dimensions).map_err(|error| failed(&error))?;
        let bytes = execution.input(index, &shape).map_err(|error| failed(&error))?;
        fill(operand.operand_type, bytes);
    }
    run(&mut execution)?;
    Ok(execution)
}

/// Values of which nothing is special: floats between -2 and 2, integers from 0 to 99.
fn fill(ty: OperandType, bytes: &mut [u8]) {
    let noise = |at: usize| (at as u32).wrapping_mul(0x9E37_79B9) >> 16;
    let float = |at: usize| (noise(at) % 4001) as f32 / 1000.0 - 2.0;
    match ty {
        OperandType::TENSOR_FLOAT32 => {
            for (at, value) in bytes.chunks_exact_mut(4).enumerate() {
                value.copy_from_slice(&float(at).to_ne_bytes());
            }
        }
        OperandType::TENSOR_FLOAT16 => {
            for (at, value) in bytes.chunks_exact_mut(2).enumerate() {
                value.copy_from_slice(&f16::from_f32(float(at)).to_ne_bytes());
            }
        }
        // A loop that counts from here ends.
        OperandType::TENSOR_INT32 if bytes.len() == 4 => bytes.fill(0),
        OperandType::TENSOR_INT32 => {
            for (at, value) in bytes.chunks_exact_mut(4).enumerate() {
                value.copy_from_slice(&(noise(at) % 100).to_ne_bytes());
            }
        }
        OperandType::TENSOR_BOOL8 => {
            for (at, value) in bytes.iter_mut().enumerate() {
                *value = noise(at) as u8 & 1;
            }
        }
        _ => {
            for (at, value) in bytes.iter_mut().enumerate() {
                *value = noise(at) as u8;
            }
        }
    }
}

fn run(execution: &mut Execution) -> Result<()> {
    execution
        .run(&RunOptions::default())
        .map_err(Error::row("an execution"))
}

/// The fastest execution of as many as fit into a round, in nanoseconds.
fn best(execution: &mut Execution) -> Result<f64> {
    let start = Instant::now();
    let mut best = u128::MAX;
    loop {
        let before = Instant::now();
        run(execution)?;
        best = best.min(before.elapsed().as_nanos());
        if start.elapsed().as_nanos() >= ROUND_NANOS {
            return Ok(best as f64);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conditions {
            version,
            cpu,
            cpus_online,
            kernel,
            load_before,
            optimised,
            rounds,
            ..
        } = &self.conditions;
        let build = if *optimised { "optimised" } else { "not optimised" };
        writeln!(
            f,
            "# Execution times of nnhal-cpu relative to nnhal-reference, by the reference workload (benches/src/workloads.rs).\n\
             # Written by `nnhal bench capabilities`; nnhal-driver is built with this file.\n\n\
             [conditions]\n\
             version = {version:?}\n\
             cpu = {cpu:?}\n\
             processors = {cpus_online}\n\
             kernel = {kernel:?}\n\
             load_before = {load_before:?}\n\
             build = {build:?}\n\
             rounds = {rounds}\n\n\
             [exec_time]"
        )?;
        let figures: BTreeMap<&str, &Figure> = self
            .figures
            .iter()
            .map(|figure| (figure.key.as_str(), figure))
            .collect();
        for (key, figure) in figures {
            // No figure may be 0.
            let exec_time = figure.exec_time.max(0.01);
            writeln!(f, "{key:?} = {exec_time:.2} # {}", figure.what)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_with_both_sets_of_kernels() {
        let workloads = workloads::all().unwrap();
        for workload in &workloads {
            for kernels in [KernelSet::Reference, KernelSet::Fast] {
                prepared(workload, kernels).unwrap();
            }
        }
        let keys: std::collections::BTreeSet<_> = workloads.iter().map(|workload| &workload.key).collect();
        assert_eq!(keys.len(), workloads.len(), "each key once");
    }

    #[test]
    fn tables_have_a_line_for_each_figure() {
        let table = Table {
            conditions: Conditions::of_this_machine(3),
            figures: vec![Figure {
                key: "TENSOR_FLOAT32".to_owned(),
                what: "image network",
                reference_ns: 5.0,
                exec_time: 0.123_4,
            }],
        };
        let text = table.to_string();
        assert!(
            text.contains("\n[exec_time]\n\"TENSOR_FLOAT32\" = 0.12 # image network\n"),
            "{text}"
        );
    }
}
