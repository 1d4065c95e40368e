//! Models.

use std::sync::Arc;

use crate::ops::Earliest;
use crate::{ConstantPools, Extension, HalVersion, Model, OperandType, Subgraph, SubgraphIndex, TypeLayouts};

use super::context::{ModelContext, ModelError};
use super::{graph, limits};

/// A model that keeps every rule of the HAL.
#[derive(Clone, Debug)]
pub struct ValidModel {
    model: Arc<Model>,
    layouts: TypeLayouts,
    version: HalVersion,
    /// What each operation of the main graph needs of a version.
    earliest: Arc<[Earliest]>,
}

impl ValidModel {
    /// Checks `model`. `pools` holds the bytes of its pools; `extensions` are those whose operand types are
    /// known here, so that numbers outside them can be refused, and dimensions and sizes checked as for
    /// standard types.
    ///
    /// # Errors
    /// The first rule that is broken; the HAL status is INVALID_ARGUMENT.
    pub fn new(
        model: Arc<Model>,
        pools: &dyn ConstantPools,
        extensions: &[Extension],
    ) -> Result<ValidModel, ModelError> {
        check_counts(&model)?;
        check_extension_prefixes(&model)?;
        let model = model.with_fixed_prefix();
        let context = ModelContext {
            model: &model,
            pools,
            layouts: TypeLayouts::of(&model, extensions),
        };
        check_constant_bytes(&context)?;
        let mut version = HalVersion::V1_0;
        if model.relax_computation_float32_to_float16 {
            version = HalVersion::V1_1;
        }
        let mut earliest = Vec::new();
        let mut of_referenced = Vec::with_capacity(model.referenced.len());
        for (at, subgraph) in model.subgraphs() {
            let versions = graph::check(&context, at, subgraph)?;
            version = version.max(versions.first);
            match at {
                SubgraphIndex::Main => earliest = versions.operations,
                SubgraphIndex::Referenced(_) => of_referenced.push(versions.first),
            }
        }
        check_subgraph_nesting(&model)?;
        count_what_is_run(&model, of_referenced, &mut earliest);
        let layouts = context.layouts;
        Ok(ValidModel {
            model,
            layouts,
            version,
            earliest: earliest.into(),
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<Model> {
        Arc::clone(&self.model)
    }

    /// What the model's operand types are, those of extensions included.
    #[must_use]
    pub fn layouts(&self) -> &TypeLayouts {
        &self.layouts
    }

    /// The first HAL version that can express the model. The relaxed flag counts as 1.1, although 1.0 may
    /// drop it.
    #[must_use]
    pub fn version(&self) -> HalVersion {
        self.version
    }

    /// What each operation of the main graph needs of a version.
    pub(super) fn earliest(&self) -> &[Earliest] {
        &self.earliest
    }
}

/// Has each IF and WHILE of the main graph need what the graphs need that it runs. `versions` holds what each
/// referenced graph needs by itself.
fn count_what_is_run(model: &Model, mut versions: Vec<HalVersion>, earliest: &mut [Earliest]) {
    let most = |graph: &Subgraph, versions: &[HalVersion]| {
        let run = references(graph).into_iter();
        run.map(|at| versions[at]).max().unwrap_or(HalVersion::V1_0)
    };
    // What a graph needs arrives at those above it one level a round; their depth is bounded.
    loop {
        let mut has_changed = false;
        for (at, graph) in model.referenced.iter().enumerate() {
            let version = versions[at].max(most(graph, &versions));
            has_changed |= version != std::mem::replace(&mut versions[at], version);
        }
        if !has_changed {
            break;
        }
    }
    for (operation, earliest) in model.main.operations.iter().zip(earliest) {
        if !operation.operation_type.is_control_flow() {
            continue;
        }
        let operands = operation
            .inputs
            .iter()
            .map(|&input| &model.main.operands[input as usize]);
        for operand in operands.filter(|operand| operand.operand_type == OperandType::SUBGRAPH) {
            let version = versions[operand.location.offset as usize];
            earliest.version = earliest.version.max(version);
            earliest.full = earliest.full.max(version);
        }
    }
}

fn check_counts(model: &Model) -> Result<(), ModelError> {
    let total =
        |count: fn(&Subgraph) -> usize| model.subgraphs().map(|(_, graph)| count(graph)).sum::<usize>();
    let bounded = |what: &str, count: usize, most: usize| {
        if count <= most {
            return Ok(());
        }
        Err(ModelError::model(format!(
            "has {count} {what}, at most {most} are accepted"
        )))
    };
    bounded(
        "operands",
        total(|graph| graph.operands.len()),
        limits::MAX_OPERANDS,
    )?;
    bounded(
        "operations",
        total(|graph| graph.operations.len()),
        limits::MAX_OPERATIONS,
    )?;
    bounded(
        "referenced graphs",
        model.referenced.len(),
        limits::MAX_REFERENCED_SUBGRAPHS,
    )?;
    bounded(
        "extensions",
        model.extension_name_to_prefix.len(),
        limits::MAX_EXTENSIONS,
    )?;
    bounded("pools", model.pools.len(), limits::MAX_POOLS)
}

/// Constants together must not be many times what the model stores for them.
fn check_constant_bytes(context: &ModelContext<'_>) -> Result<(), ModelError> {
    let model = context.model;
    let pool_bytes = |index: usize| context.pools.size(index).unwrap_or(0);
    let stored = model.operand_values.len() as u64 + (0..model.pools.len()).map(pool_bytes).sum::<u64>();
    let named = model
        .subgraphs()
        .flat_map(|(_, graph)| &graph.operands)
        .filter(|operand| operand.lifetime.is_constant())
        .map(|operand| u64::from(operand.location.length))
        .sum::<u64>();
    let most = (stored * limits::MAX_CONSTANT_SHARING).max(limits::FREE_CONSTANT_BYTES);
    if named <= most {
        return Ok(());
    }
    Err(ModelError::model(format!(
        "has constants of {named} bytes together but stores {stored}; at most {most} are accepted, so that copies of \
         constants that share bytes stay bounded"
    )))
}

fn check_extension_prefixes(model: &Model) -> Result<(), ModelError> {
    let mappings = &model.extension_name_to_prefix;
    for (index, mapping) in mappings.iter().enumerate() {
        if mapping.prefix == 0 {
            return Err(ModelError::model(format!(
                "extension {:?} has prefix 0, which is reserved for standard types",
                mapping.name
            )));
        }
        if !Extension::is_valid_name(&mapping.name) {
            return Err(ModelError::model(format!(
                "extension name {:?} must consist of a-z, 0-9, '_' and '.', with at least one '.'",
                mapping.name
            )));
        }
        let twice = mappings[..index]
            .iter()
            .any(|earlier| earlier.prefix == mapping.prefix || earlier.name == mapping.name);
        if twice {
            return Err(ModelError::model(format!(
                "extension {:?} with prefix {} repeats a name or prefix; the mapping must be one to one",
                mapping.name, mapping.prefix
            )));
        }
    }
    Ok(())
}

/// References between graphs must not form a cycle, nor nest deeper than executions may, nor multiply beyond
/// what an execution may keep.
fn check_subgraph_nesting(model: &Model) -> Result<(), ModelError> {
    /// What is known of a graph.
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Unknown,
        Open,
        Known(Nesting),
    }
    /// A graph whose references are being followed.
    struct Visit {
        graph: usize,
        pending: Vec<usize>,
        nesting: Nesting,
    }
    let visit = |graph: usize| Visit {
        graph,
        pending: references(&model.referenced[graph]),
        nesting: Nesting::of(&model.referenced[graph]),
    };
    let at = SubgraphIndex::Referenced;
    let mut states = vec![State::Unknown; model.referenced.len()];
    for root in 0..model.referenced.len() {
        if states[root] != State::Unknown {
            continue;
        }
        // Depth first, on a stack of our own: the model decides how deep it goes.
        let mut stack = vec![visit(root)];
        states[root] = State::Open;
        while let Some(top) = stack.last_mut() {
            let Some(next) = top.pending.pop() else {
                top.nesting.check(at(top.graph))?;
                states[top.graph] = State::Known(top.nesting);
                let nesting = top.nesting;
                stack.pop();
                if let Some(above) = stack.last_mut() {
                    above.nesting.add(nesting);
                }
                continue;
            };
            match states[next] {
                State::Known(nesting) => top.nesting.add(nesting),
                State::Open => {
                    return Err(ModelError::Graph {
                        graph: at(next),
                        message: "refers to itself through IF or WHILE; references must not form a cycle"
                            .into(),
                    });
                }
                State::Unknown => {
                    states[next] = State::Open;
                    stack.push(visit(next));
                }
            }
        }
    }
    let mut main = Nesting::of(&model.main);
    for graph in references(&model.main) {
        if let State::Known(nesting) = states[graph] {
            main.add(nesting);
        }
    }
    main.check_operands(SubgraphIndex::Main)
}

/// The graphs that a graph refers to, each as often as its operations run it, and at least once.
fn references(graph: &Subgraph) -> Vec<usize> {
    graph
        .operands
        .iter()
        .filter(|operand| operand.operand_type == OperandType::SUBGRAPH)
        .flat_map(|operand| {
            let times = operand.number_of_consumers.max(1) as usize;
            std::iter::repeat_n(operand.location.offset as usize, times)
        })
        .collect()
}

/// How deep and how large a graph is with all that it runs.
#[derive(Clone, Copy, PartialEq)]
struct Nesting {
    depth: usize,
    operands: usize,
}

impl Nesting {
    fn of(graph: &Subgraph) -> Nesting {
        Nesting {
            depth: 1,
            operands: graph.operands.len(),
        }
    }

    /// Takes in a graph that this one runs.
    fn add(&mut self, inner: Nesting) {
        self.depth = self.depth.max(inner.depth + 1);
        self.operands = self.operands.saturating_add(inner.operands);
    }

    fn check(&self, graph: SubgraphIndex) -> Result<(), ModelError> {
        if self.depth > limits::MAX_SUBGRAPH_DEPTH {
            let message = format!("is nested more than {} deep", limits::MAX_SUBGRAPH_DEPTH);
            return Err(ModelError::Graph { graph, message });
        }
        self.check_operands(graph)
    }

    fn check_operands(&self, graph: SubgraphIndex) -> Result<(), ModelError> {
        if self.operands > limits::MAX_RUN_OPERANDS {
            let message = format!(
                "has {} operands with all graphs that it runs, each counted for every place that runs it; at most {} \
                 are accepted",
                self.operands,
                limits::MAX_RUN_OPERANDS
            );
            return Err(ModelError::Graph { graph, message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ValidModel;
    use crate::validate::limits;
    use crate::{Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Subgraph};

    fn truth(lifetime: OperandLifeTime) -> Operand {
        Operand::new(OperandType::TENSOR_BOOL8, &[1]).with_lifetime(lifetime)
    }

    /// A graph that negates its input.
    fn leaf() -> Subgraph {
        let mut input = truth(OperandLifeTime::SubgraphInput);
        input.number_of_consumers = 1;
        Subgraph {
            operands: vec![input, truth(OperandLifeTime::SubgraphOutput)],
            operations: vec![Operation {
                operation_type: OperationType::LOGICAL_NOT,
                inputs: vec![0],
                outputs: vec![1],
            }],
            input_indexes: vec![0],
            output_indexes: vec![1],
        }
    }

    /// A graph that runs graph `next` in both branches of each of `count` IFs.
    fn branching(next: u32, count: u32) -> Subgraph {
        let mut input = truth(OperandLifeTime::SubgraphInput);
        input.number_of_consumers = 2 * count;
        let mut reference = Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph);
        reference.location.offset = next;
        reference.number_of_consumers = 2 * count;
        let outputs = (0..count).map(|_| truth(OperandLifeTime::SubgraphOutput));
        Subgraph {
            operands: [input, reference].into_iter().chain(outputs).collect(),
            operations: (0..count)
                .map(|number| Operation {
                    operation_type: OperationType::IF,
                    inputs: vec![0, 1, 1, 0],
                    outputs: vec![2 + number],
                })
                .collect(),
            input_indexes: vec![0],
            output_indexes: (2..2 + count).collect(),
        }
    }

    fn validate(main: Subgraph, referenced: Vec<Subgraph>) -> Result<(), String> {
        let model = Model {
            main,
            referenced,
            ..Model::default()
        };
        ValidModel::new(Arc::new(model), &NoPools, &[])
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    /// `depth` graphs, each running the next, the last one a leaf.
    fn chain(depth: usize) -> Vec<Subgraph> {
        (1..depth)
            .map(|next| branching(next as u32, 1))
            .chain([leaf()])
            .collect()
    }

    #[test]
    fn graphs_nest_up_to_the_limit() {
        assert_eq!(
            validate(branching(0, 1), chain(limits::MAX_SUBGRAPH_DEPTH)),
            Ok(())
        );
        let error = validate(branching(0, 1), chain(limits::MAX_SUBGRAPH_DEPTH + 1)).unwrap_err();
        assert!(error.contains("nested more than 16 deep"), "{error}");
    }

    #[test]
    fn graphs_that_refer_to_each_other_in_a_circle_are_refused() {
        let error = validate(branching(0, 1), vec![branching(1, 1), branching(0, 1)]).unwrap_err();
        assert!(error.contains("must not form a cycle"), "{error}");
    }

    #[test]
    fn graphs_that_multiply_beyond_memory_are_refused() {
        // Each level runs the next in 16 IFs of two branches: 32 times over, although only the first result
        // counts.
        let fan = |next: u32| {
            let mut graph = branching(next, 16);
            graph.output_indexes.truncate(1);
            for operand in &mut graph.operands[3..] {
                operand.lifetime = OperandLifeTime::TemporaryVariable;
            }
            graph
        };
        assert_eq!(validate(branching(0, 1), vec![fan(1), fan(2), leaf()]), Ok(()));
        let deep = (1..6).map(fan).chain([leaf()]).collect();
        let error = validate(branching(0, 1), deep).unwrap_err();
        assert!(
            error.contains("each counted for every place that runs it"),
            "{error}"
        );
    }

    #[test]
    fn models_name_no_more_extensions_than_can_be_looked_through() {
        let validate = |count: u16| {
            let mapping = |prefix| crate::ExtensionNameAndPrefix {
                name: format!("com.acme.a{prefix}"),
                prefix,
            };
            let model = Model {
                main: leaf(),
                extension_name_to_prefix: (1..=count).map(mapping).collect(),
                ..Model::default()
            };
            ValidModel::new(Arc::new(model), &NoPools, &[]).map_err(|error| error.to_string())
        };
        assert!(validate(256).is_ok());
        let error = validate(257).unwrap_err();
        assert!(error.contains("has 257 extensions, at most 256"), "{error}");
    }

    #[test]
    fn constants_that_name_the_same_bytes_too_often_are_refused() {
        let length = 1 << 20;
        let main = leaf();
        let mut constant =
            Operand::new(OperandType::TENSOR_BOOL8, &[length]).with_lifetime(OperandLifeTime::ConstantCopy);
        constant.location.length = length;
        let validate = |copies: usize| {
            let mut main = main.clone();
            main.operands
                .extend(std::iter::repeat_n(constant.clone(), copies));
            let model = Model {
                main,
                operand_values: vec![0; length as usize],
                ..Model::default()
            };
            ValidModel::new(Arc::new(model), &NoPools, &[])
        };
        assert!(validate(64).is_ok());
        let error = validate(65).unwrap_err().to_string();
        assert!(
            error.contains("has constants of 68157440 bytes together but stores 1048576"),
            "{error}"
        );
    }
}
