//! Every operation of the extension is drawn in all that its entry allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use nnhal_hal::ops::{self, Form, OperationEntry, Param, Rank, Ty, Variant};
use nnhal_hal::{HalVersion, MAX_RANK, Model, OperandType, OperationType};

use crate::generator::Recipe;
use crate::generator::choices::Choices;

/// Models of each operation.
const MODELS: u64 = 1000;

/// What was drawn of an operation.
struct Drawn {
    entry: &'static OperationEntry,
    /// The types of inputs and of outputs.
    types: BTreeSet<(Vec<OperandType>, Vec<OperandType>)>,
    most_rank: usize,
}

impl Drawn {
    fn of(entry: &'static OperationEntry) -> Drawn {
        let recipe = Recipe::single(entry.operation).unwrap();
        let mut drawn = Drawn {
            entry,
            types: BTreeSet::new(),
            most_rank: 0,
        };
        for seed in 0..MODELS {
            let Some(generated) = recipe.generate(&mut Choices::from_seed(seed)) else {
                continue;
            };
            let main = &generated.model.model.main;
            let [inputs, outputs] = [&main.operations[0].inputs, &main.operations[0].outputs].map(|list| {
                let operands = list.iter().map(|argument| &main.operands[*argument as usize]);
                operands.collect::<Vec<_>>()
            });
            let ranks = inputs
                .iter()
                .chain(&outputs)
                .map(|operand| operand.dimensions.len());
            drawn.most_rank = ranks.chain([drawn.most_rank]).max().unwrap_or(0);
            let [inputs, outputs] =
                [inputs, outputs].map(|list| list.iter().map(|operand| operand.operand_type).collect());
            drawn.types.insert((inputs, outputs));
        }
        drawn
    }

    /// The types that stood for each parameter in calls of this form with so many arguments.
    fn calls(&self, form: &Form, count: usize) -> impl Iterator<Item = Vec<(&'static Param, OperandType)>> {
        let outputs = self.entry.outputs;
        self.types.iter().filter_map(move |(inputs, given)| {
            let taken = (0..inputs.len()).map(|index| form.param(index, inputs.len()));
            let params = taken.collect::<Option<Vec<_>>>()?;
            let of_outputs = (0..given.len()).map(|index| &outputs[index.min(outputs.len() - 1)]);
            let types = inputs.iter().chain(given).copied();
            (inputs.len() == count).then(|| params.into_iter().chain(of_outputs).zip(types).collect())
        })
    }

    /// What the entry allows and no model has.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let entry = self.entry;
        for form in entry.forms {
            let (least, most) = form.arity();
            let lengths = if most == usize::MAX {
                least..=least + 1
            } else {
                least..=most
            };
            for count in lengths {
                for variant in entry.variants {
                    if !self.calls(form, count).any(|call| is_of(&call, variant)) {
                        missing.push(format!(
                            "{} with {count} inputs of {:?}",
                            form.name, variant.types
                        ));
                    }
                }
                if self.calls(form, count).next().is_none() {
                    missing.push(format!("{} with {count} inputs", form.name));
                }
            }
            let params = form.inputs.iter().chain(entry.outputs);
            for (param, types) in params.filter_map(|param| Some((param, any_of(param)?))) {
                for (ty, _) in types {
                    let has = |call: Vec<(&Param, OperandType)>| {
                        call.iter()
                            .any(|(of, found)| of.name == param.name && found == ty)
                    };
                    let (least, most) = form.arity();
                    if !(least..=most).any(|count| self.calls(form, count).any(has)) {
                        missing.push(format!("{} of {ty}", param.name));
                    }
                }
            }
        }
        if allows_every_rank(entry) && self.most_rank < MAX_RANK {
            missing.push(format!("a rank above {}", self.most_rank));
        }
        missing
    }
}

/// Whether a call has the types of a variant.
fn is_of(call: &[(&Param, OperandType)], variant: &Variant) -> bool {
    call.iter().all(|(param, ty)| match param.ty {
        Ty::Var(variable) => variant.types.get(variable) == Some(ty),
        Ty::Is(_) | Ty::AnyOf(_) => true,
    })
}

fn any_of(param: &Param) -> Option<&'static [(OperandType, HalVersion)]> {
    match param.ty {
        Ty::AnyOf(types) => Some(types),
        Ty::Var(_) | Ty::Is(_) => None,
    }
}

/// Whether some input may have as many axes as tensors have.
fn allows_every_rank(entry: &OperationEntry) -> bool {
    let forms = entry.forms.iter();
    forms
        .flat_map(|form| form.inputs.iter().map(move |param| (form, param)))
        .any(|(form, param)| {
            let is_tensor = entry.types_of(form, param).iter().any(|(ty, _)| ty.is_tensor());
            is_tensor && matches!(param.rank, Rank::Any | Rank::Between(_, MAX_RANK))
        })
}

#[test]
fn operations_are_drawn_with_every_type_argument_list_and_rank() {
    let mut wrong = Vec::new();
    for entry in ops::tflite::entries() {
        let missing = Drawn::of(entry).missing();
        if !missing.is_empty() {
            wrong.push(format!("{}: {}", entry.operation, missing.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "never drawn:\n{}", wrong.join("\n"));
}

#[test]
fn extended_models_may_choose_another_prefix() {
    let mut extended = 0;
    for seed in 0..MODELS {
        let Some(generated) = Recipe::with_extension().generate(&mut Choices::from_seed(seed)) else {
            continue;
        };
        let mut other = Model::clone(&generated.model.model);
        let Some(mapping) = other.extension_name_to_prefix.first_mut() else {
            continue;
        };
        extended += 1;
        mapping.prefix = 1;
        for graph in std::iter::once(&mut other.main).chain(&mut other.referenced) {
            for operation in &mut graph.operations {
                let kind = &mut operation.operation_type;
                if kind.is_extension() {
                    *kind = OperationType::extension(1, kind.extension_number());
                }
            }
            for operand in &mut graph.operands {
                let ty = &mut operand.operand_type;
                if ty.is_extension() {
                    *ty = OperandType::extension(1, ty.extension_number());
                }
            }
        }
        assert_ne!(other, *generated.model.model);
        assert_eq!(Arc::new(other).with_fixed_prefix(), generated.model.model);
    }
    assert!(extended > MODELS / 2, "{extended} models have the extension");
}
