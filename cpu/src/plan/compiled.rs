//! Programs that are kept, and made ready again without packing their weights.
//!
//! The compiled form of a program is its packed weights and nothing else: which there are and how large each
//! is follows from the model, so what was kept holds no offset, count or code that could be wrong. Whatever
//! its bytes are, the program that is restored from them computes something without reading beyond them; that
//! they are those of this model is for whoever kept them to make sure.

use std::sync::Arc;

use nnhal_hal::ConstantPools;
use nnhal_hal::validate::ValidModel;
use nnhal_os::buffer::AlignedSlice;

use super::error::ProgramError;
use super::kernel_set::KernelSet;
use super::lower::Plan;
use super::node::Node;
use super::program::Program;
use crate::fast::{self, Packing};
use crate::interrupt::Interrupt;

/// What is kept of a program.
#[derive(Debug)]
pub struct CompiledProgram<'a> {
    /// The packed weights of one operation after the other. They are kept one behind the other, each from a
    /// multiple of [`nnhal_os::buffer::ALIGNMENT`] on.
    pub parts: Vec<&'a [u8]>,
    /// The constants that a restored program does not need: index of the graph, the main graph's being 0, and
    /// of the operand in it.
    pub replaced: Vec<(usize, u32)>,
}

/// Names the form of what is kept by this build on this processor. What was kept in another form must not be
/// restored.
#[must_use]
pub fn compiled_form() -> String {
    format!(
        "layout {} for {} {}",
        fast::LAYOUT,
        std::env::consts::ARCH,
        fast::instruction_set()
    )
}

#[cfg(test)]
impl CompiledProgram<'_> {
    /// The parts as they are given back to [`Program::restore`].
    pub(crate) fn joined(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        for part in &self.parts {
            bytes.resize(bytes.len().next_multiple_of(nnhal_os::buffer::ALIGNMENT), 0);
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl Program {
    /// What to keep of this program; `None` if it packed nothing.
    #[must_use]
    pub fn compiled(&self) -> Option<CompiledProgram<'_>> {
        let parts: Vec<&[u8]> = self.plans.iter().flat_map(|plan| packed(plan)).collect();
        let replaced = self
            .plans
            .iter()
            .enumerate()
            .flat_map(|(graph, made)| made.replaced.iter().map(move |&operand| (graph, operand)));
        (!parts.is_empty()).then(|| CompiledProgram {
            replaced: replaced.collect(),
            parts,
        })
    }

    /// Makes `model` ready with the fast kernels and the packed weights that were kept of it. They stay where
    /// they are. `pools` may lack the constants that were replaced.
    ///
    /// # Errors
    ///
    /// [`ProgramError::UnfitCompiled`] and [`ProgramError::MissingConstant`] if what was kept is not this
    /// model's.
    pub fn restore(
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        compiled: AlignedSlice,
        interrupt: &dyn Interrupt,
    ) -> Result<Program, ProgramError> {
        let mut packing = Packing::Kept(compiled);
        let program = Program::make(model, pools, (KernelSet::Fast, &mut packing), interrupt)?;
        if packing.is_complete() {
            Ok(program)
        } else {
            Err(ProgramError::UnfitCompiled)
        }
    }
}

/// What a plan has packed, operation by operation.
fn packed(plan: &Plan) -> Vec<&[u8]> {
    let mut packing: Vec<&Node> = plan.nodes.iter().flat_map(Node::leaves).collect();
    packing.sort_by_key(|node| node.number());
    let steps = packing.into_iter().filter_map(Node::step);
    steps
        .flat_map(|step| step.packed())
        .map(AlignedSlice::bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{
        DataLocation, ErrorStatus, MemoryPool, Model, Operand, OperandLifeTime, OperandType, Operation,
        OperationType, Shape,
    };
    use nnhal_os::buffer::{ALIGNMENT, AlignedBuffer};

    use super::*;
    use crate::{Execution, NeverInterrupted, RunOptions};

    const CHANNELS: u32 = 32;
    const FILTERS: u32 = 20;

    /// A convolution, a depthwise convolution and a fully connected layer behind each other, with their
    /// constants in one pool.
    struct Network {
        model: Model,
        pool: Vec<u8>,
        ty: OperandType,
    }

    impl Network {
        fn new(ty: OperandType) -> Network {
            let mut network = Network {
                model: Model::default(),
                pool: Vec::new(),
                ty,
            };
            let input = network.tensor(&[1, 5, 5, CHANNELS], OperandLifeTime::SubgraphInput);
            let filter = network.weights(&[FILTERS, 3, 3, CHANNELS]);
            let bias = network.bias(FILTERS);
            let parameters = [1, 1, 1, 1].map(|value| network.scalar(value));
            let first = network.tensor(&[1, 5, 5, FILTERS], OperandLifeTime::TemporaryVariable);
            network.operation(
                OperationType::CONV_2D,
                &[&[input, filter, bias][..], &parameters].concat(),
                first,
            );
            let filter = network.weights(&[1, 3, 3, FILTERS]);
            let bias = network.bias(FILTERS);
            let parameters = [1, 1, 1, 1, 0].map(|value| network.scalar(value));
            let second = network.tensor(&[1, 5, 5, FILTERS], OperandLifeTime::TemporaryVariable);
            let inputs = [&[first, filter, bias][..], &parameters].concat();
            network.operation(OperationType::DEPTHWISE_CONV_2D, &inputs, second);
            let filter = network.weights(&[10, 25 * FILTERS]);
            let bias = network.bias(10);
            let activation = network.scalar(0);
            let last = network.tensor(&[1, 10], OperandLifeTime::SubgraphOutput);
            let inputs = [second, filter, bias, activation];
            network.operation(OperationType::FULLY_CONNECTED, &inputs, last);
            network.model.main.input_indexes = vec![input];
            network.model.main.output_indexes = vec![last];
            network.model.pools = vec![MemoryPool {
                size: network.pool.len() as u64,
            }];
            network
        }

        fn push(&mut self, operand: Operand) -> u32 {
            self.model.main.operands.push(operand);
            self.model.main.operands.len() as u32 - 1
        }

        fn typed(&self, dimensions: &[u32]) -> Operand {
            let mut operand = Operand::new(self.ty, dimensions);
            if self.ty != OperandType::TENSOR_FLOAT32 {
                operand.scale = 0.5;
                operand.zero_point = 3;
            }
            operand
        }

        fn tensor(&mut self, dimensions: &[u32], lifetime: OperandLifeTime) -> u32 {
            let operand = self.typed(dimensions).with_lifetime(lifetime);
            self.push(operand)
        }

        fn constant(&mut self, operand: Operand, bytes: &[u8]) -> u32 {
            let mut operand = operand.with_lifetime(OperandLifeTime::ConstantReference);
            operand.location = DataLocation {
                pool_index: 0,
                offset: self.pool.len() as u32,
                length: bytes.len() as u32,
            };
            self.pool.extend(bytes);
            self.push(operand)
        }

        fn weights(&mut self, dimensions: &[u32]) -> u32 {
            let count = dimensions.iter().product::<u32>();
            let bytes: Vec<u8> = (0..count).flat_map(|at| self.element(at * 7 % 31)).collect();
            let mut operand = self.typed(dimensions);
            operand.zero_point *= 2;
            // So that multipliers are small enough for every kind of product.
            operand.scale /= 4.0;
            self.constant(operand, &bytes)
        }

        fn element(&self, value: u32) -> Vec<u8> {
            match self.ty {
                OperandType::TENSOR_FLOAT32 => (value as f32 / 8.0 - 2.0).to_ne_bytes().to_vec(),
                _ => vec![value as u8],
            }
        }

        fn bias(&mut self, count: u32) -> u32 {
            let mut operand = Operand::new(OperandType::TENSOR_INT32, &[count]);
            let mut bytes: Vec<u8> = (0..count as i32).flat_map(i32::to_ne_bytes).collect();
            if self.ty == OperandType::TENSOR_FLOAT32 {
                operand.operand_type = self.ty;
                bytes = (0..count).flat_map(|at| (at as f32).to_ne_bytes()).collect();
            } else {
                operand.scale = 0.0625;
            }
            self.constant(operand, &bytes)
        }

        fn scalar(&mut self, value: i32) -> u32 {
            self.constant(Operand::new(OperandType::INT32, &[]), &value.to_ne_bytes())
        }

        fn operation(&mut self, operation_type: OperationType, inputs: &[u32], output: u32) {
            for &input in inputs {
                self.model.main.operands[input as usize].number_of_consumers += 1;
            }
            self.model.main.operations.push(Operation {
                operation_type,
                inputs: inputs.to_vec(),
                outputs: vec![output],
            });
        }

        fn valid(&self) -> Arc<ValidModel> {
            Arc::new(ValidModel::new(Arc::new(self.model.clone()), &vec![&self.pool], &[]).unwrap())
        }

        fn prepared(&self, kernels: KernelSet) -> Program {
            Program::with_kernels(self.valid(), &vec![&self.pool], kernels).unwrap()
        }

        /// The pool without the constants that a restored program does not need.
        fn reduced<'a>(&'a self, program: &Program) -> Reduced<'a> {
            let replaced = program.compiled().unwrap().replaced.into_iter();
            Reduced {
                pool: &self.pool,
                missing: replaced
                    .map(|(graph, operand)| {
                        assert_eq!(graph, 0);
                        self.model.main.operands[operand as usize].location.offset as usize
                    })
                    .collect(),
            }
        }

        fn result(&self, program: Program) -> Vec<u8> {
            let mut execution = Execution::new(Arc::new(program));
            let shape = Shape::new(&[1, 5, 5, CHANNELS]).unwrap();
            let bytes: Vec<u8> = (0..25 * CHANNELS).flat_map(|at| self.element(at % 13)).collect();
            execution.input(0, &shape).unwrap().copy_from_slice(&bytes);
            execution.run(&RunOptions::default()).unwrap();
            execution.output(0).unwrap().1.to_vec()
        }
    }

    struct Reduced<'a> {
        pool: &'a [u8],
        missing: Vec<usize>,
    }

    impl ConstantPools for Reduced<'_> {
        fn bytes(&self, _: usize) -> Option<&[u8]> {
            None
        }

        fn size(&self, _: usize) -> Option<u64> {
            Some(self.pool.len() as u64)
        }

        fn range(&self, _: usize, offset: usize, length: usize) -> Option<&[u8]> {
            let bytes = self.pool.get(offset..offset + length);
            bytes.filter(|_| !self.missing.contains(&offset))
        }
    }

    fn kept(program: &Program) -> Vec<u8> {
        program.compiled().unwrap().joined()
    }

    fn restore(
        network: &Network,
        pools: &dyn ConstantPools,
        compiled: &[u8],
    ) -> Result<Program, ProgramError> {
        let model = Arc::new(ValidModel::new(Arc::new(network.model.clone()), pools, &[]).unwrap());
        let compiled = AlignedBuffer::copy_of(compiled).unwrap().into();
        Program::restore(model, pools, compiled, &NeverInterrupted)
    }

    const TYPES: [OperandType; 2] = [OperandType::TENSOR_FLOAT32, OperandType::TENSOR_QUANT8_ASYMM];

    #[test]
    fn restored_programs_compute_the_same_without_the_filters() {
        for ty in TYPES {
            let network = Network::new(ty);
            let program = network.prepared(KernelSet::Fast);
            let (kept, reduced) = (kept(&program), network.reduced(&program));
            assert_eq!(reduced.missing.len(), 2, "the two filters that are not small");
            let restored = restore(&network, &reduced, &kept).unwrap();
            assert_eq!(
                restored.compiled().unwrap().parts,
                program.compiled().unwrap().parts
            );
            let expected = network.result(program);
            assert_eq!(network.result(restored), expected);
            if ty != OperandType::TENSOR_FLOAT32 {
                assert_eq!(network.result(network.prepared(KernelSet::Reference)), expected);
            }
        }
    }

    #[test]
    fn reference_programs_keep_nothing() {
        let network = Network::new(OperandType::TENSOR_FLOAT32);
        assert!(network.prepared(KernelSet::Reference).compiled().is_none());
    }

    #[test]
    fn kept_bytes_of_any_other_length_are_refused_and_any_bytes_of_the_length_are_safe() {
        for ty in TYPES {
            let network = Network::new(ty);
            let program = network.prepared(KernelSet::Fast);
            let (kept, reduced) = (kept(&program), network.reduced(&program));
            let short = (0..kept.len()).step_by(61).chain(kept.len() - 100..kept.len());
            for length in short {
                let error = restore(&network, &reduced, &kept[..length]).unwrap_err();
                assert!(matches!(error, ProgramError::UnfitCompiled), "{length}: {error}");
                assert_eq!(error.status(), ErrorStatus::GeneralFailure);
            }
            for more in [1, 63, 64, 65, 1000] {
                let longer = [&kept[..], &vec![0; more]].concat();
                let restored = restore(&network, &reduced, &longer);
                // What follows the last part up to the next line is padding.
                let is_padding = kept.len() + more <= kept.len().next_multiple_of(ALIGNMENT);
                assert_eq!(restored.is_ok(), is_padding, "{more} more");
            }
            let noise: Vec<u8> = (0..kept.len()).map(|at| (at * 151 + 17) as u8).collect();
            let restored = restore(&network, &reduced, &noise).unwrap();
            assert_eq!(network.result(restored).len(), network.result(program).len());
        }
    }

    #[test]
    fn constants_that_are_needed_and_missing_are_named() {
        let network = Network::new(OperandType::TENSOR_FLOAT32);
        let program = network.prepared(KernelSet::Fast);
        let kept = kept(&program);
        let mut reduced = network.reduced(&program);
        let bias = network.model.main.operands[2].location.offset as usize;
        reduced.missing.push(bias);
        let error = restore(&network, &reduced, &kept).unwrap_err();
        assert!(
            matches!(error, ProgramError::MissingConstant { operand: 2 }),
            "{error}"
        );
    }

    #[test]
    fn filters_that_are_missing_are_not_packed() {
        for ty in TYPES {
            let network = Network::new(ty);
            let reduced = network.reduced(&network.prepared(KernelSet::Fast));
            let model = ValidModel::new(Arc::new(network.model.clone()), &reduced, &[]).unwrap();
            let error = Program::with_kernels(Arc::new(model), &reduced, KernelSet::Fast).unwrap_err();
            assert!(matches!(error, ProgramError::MissingConstant { .. }), "{error}");
        }
    }

    /// If this fails, weights are packed otherwise than before: count [`fast::LAYOUT`] up and write the new
    /// sums here.
    #[test]
    fn packed_weights_are_laid_out_as_their_version_says() {
        let sums = TYPES.map(|ty| {
            let program = Network::new(ty).prepared(KernelSet::Fast);
            // FNV-1a.
            let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            kept(&program).iter().fold(0xcbf2_9ce4_8422_2325, fold)
        });
        // Weights for products of bytes are laid out otherwise.
        let of_bytes = match fast::instruction_set() {
            "amx" | "avx512" => 1_042_057_175_935_210_125,
            // Its depthwise layers multiply no bytes.
            "neon-dotprod" => 9_004_141_744_071_108_185,
            _ => 4_954_416_915_776_117_319,
        };
        assert_eq!((fast::LAYOUT, sums), (15, [5_305_636_182_905_620_312, of_bytes]));
        assert!(compiled_form().starts_with("layout 15 for "));
    }
}
