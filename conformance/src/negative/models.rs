//! The models that mutations start from.

use std::collections::BTreeSet;
use std::sync::Arc;

use nnhal_hal::ops;
use nnhal_hal::{Model, OperationType};

use crate::corpus::{Corpus, Specification};
use crate::generator::Recipe;
use crate::generator::choices::Choices;
use crate::implementation::ModelWithPools;
use crate::instance::{Instance, Variation};

/// Models with more constants than this are left out: every mutant is a copy.
const MOST_CONSTANT_BYTES: usize = 1 << 16;

/// Seeds that are tried for each operation.
const SEEDS: u64 = 24;

/// A valid model and where it comes from.
#[derive(Clone, Debug)]
pub struct BaseModel {
    /// The case or the seed.
    pub name: String,
    /// The model.
    pub model: ModelWithPools,
    /// A request that it runs.
    pub request: nnhal_hal::Request,
}

/// A set of valid models over every operation: random ones, and one case of the corpus for every way in which
/// the corpus uses an operation. Says on the standard error stream if there is no corpus.
#[must_use]
pub fn base_models() -> Vec<BaseModel> {
    let mut models = random_models();
    let root = Corpus::default_root();
    match Corpus::open(&root) {
        Ok(corpus) => models.extend(of_corpus(&corpus)),
        Err(error) => eprintln!("SKIPPED the models of the conformance corpus, random ones only: {error}"),
    }
    models
}

/// Random models of each operation by itself.
#[must_use]
pub fn random_models() -> Vec<BaseModel> {
    let mut models = Vec::new();
    let mut seen = BTreeSet::new();
    let table = ops::entries().chain(ops::tflite::entries());
    let table = table.map(|entry| entry.operation);
    let control_flow = [OperationType::IF, OperationType::WHILE];
    for operation in table.chain(control_flow) {
        let Some(recipe) = Recipe::single(operation) else {
            continue;
        };
        for seed in 0..SEEDS {
            let Some(generated) = recipe.generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            if seen.insert(usage(&generated.model.model)) {
                models.push(BaseModel {
                    name: format!("{operation}, seed {seed}"),
                    model: generated.model,
                    request: generated.request,
                });
            }
        }
    }
    models
}

fn of_corpus(corpus: &Corpus) -> Vec<BaseModel> {
    let mut models = Vec::new();
    let mut seen = BTreeSet::new();
    for path in &corpus.files {
        let Ok(specification) = Specification::read(path) else {
            continue;
        };
        for case in &specification.cases {
            // The HAL's tests leave the same variations out.
            let varied = case.name.contains("_as_internal") || case.name.contains("all_tensors_as_inputs");
            if case.expect_failure || varied {
                continue;
            }
            let Ok(instance) = Instance::new(&specification, case, Variation::default()) else {
                continue;
            };
            let model = &instance.model.model;
            let known = model
                .subgraphs()
                .flat_map(|(_, graph)| &graph.operations)
                .all(|operation| {
                    let operation = operation.operation_type;
                    operation.is_control_flow() || ops::entry(operation).is_some()
                });
            let small = model.operand_values.len() <= MOST_CONSTANT_BYTES;
            if known && small && seen.insert(usage(model)) {
                models.push(BaseModel {
                    name: case.name.clone(),
                    model: ModelWithPools {
                        model: Arc::clone(model),
                        pools: Arc::clone(&instance.model.pools),
                    },
                    request: instance.request,
                });
            }
        }
    }
    models
}

/// How a model uses its operations: two models with the same break the same way.
fn usage(model: &Model) -> String {
    let mut usage = String::new();
    for (_, graph) in model.subgraphs() {
        for operation in &graph.operations {
            usage.push_str(&format!("{}(", operation.operation_type));
            for argument in operation.inputs.iter().chain(&operation.outputs) {
                if let Some(operand) = graph.operands.get(*argument as usize) {
                    let rank = operand.dimensions.len();
                    usage.push_str(&format!(
                        "{} {rank} {:?},",
                        operand.operand_type, operand.lifetime
                    ));
                }
            }
            usage.push_str(");");
        }
        usage.push('|');
    }
    usage
}
