//! The matching of an operation against the signatures of its entry.

use crate::{HalVersion, OperandType};

use super::context::{OpError, OperandInfo, OperationContext};
use super::operation_entry::OperationEntry;
use super::signature::{Form, Param, Presence, Ty, Variant};

/// How an operation fits its entry.
#[derive(Clone, Copy, Debug)]
pub struct SignatureMatch {
    /// The form.
    pub form: &'static Form,
    /// The variant; `None` for operations without type variables.
    pub variant: Option<&'static Variant>,
    /// The first HAL version in which this use of the operation is legal.
    pub since: HalVersion,
}

impl OperationEntry {
    /// The types that a parameter of one of the forms may have under some variant, each with the first HAL
    /// version that has it there, in the order of the variants. Outputs belong to the form that came first.
    #[must_use]
    pub fn types_of(&self, form: &Form, param: &Param) -> Vec<(OperandType, HalVersion)> {
        let operation = self.operation.since().unwrap_or(HalVersion::V1_0);
        let floor = operation.max(form.since).max(param.since);
        let listed: Vec<(OperandType, HalVersion)> = match param.ty {
            Ty::Is(only) => vec![(only, floor)],
            Ty::AnyOf(types) => types.iter().map(|(ty, since)| (*ty, floor.max(*since))).collect(),
            Ty::Var(variable) => self
                .variants
                .iter()
                .filter_map(|variant| Some((*variant.types.get(variable)?, floor.max(variant.since))))
                .collect(),
        };
        let mut types: Vec<(OperandType, HalVersion)> = Vec::new();
        for (ty, since) in listed {
            match types.iter_mut().find(|(known, _)| *known == ty) {
                Some((_, earliest)) => *earliest = since.min(*earliest),
                None => types.push((ty, since)),
            }
        }
        types
    }

    /// The form and variant that the operation's operands fit.
    ///
    /// # Errors
    /// The closest form's first mismatch: the argument, what it is and what it must be.
    pub fn match_signature(&'static self, context: &dyn OperationContext) -> Result<SignatureMatch, OpError> {
        let count = context.input_count();
        let fitting: Vec<&'static Form> = self
            .forms
            .iter()
            .filter(|form| {
                let (least, most) = form.arity();
                (least..=most).contains(&count)
            })
            .collect();
        if fitting.is_empty() {
            return Err(OpError::operation(format!(
                "has {count} inputs, {}",
                self.arities()
            )));
        }
        self.check_output_count(context)?;
        let none = [None];
        let bound: Vec<Option<&'static Variant>> = self.variants.iter().map(Some).collect();
        let variants: &[Option<&'static Variant>] = if bound.is_empty() { &none } else { &bound };
        let mut closest: Option<(usize, OpError)> = None;
        for form in fitting {
            for variant in variants {
                match self.match_one(context, form, *variant) {
                    Ok(found) => return Ok(found),
                    Err((depth, error)) => {
                        if closest.as_ref().is_none_or(|(best, _)| depth > *best) {
                            closest = Some((depth, error));
                        }
                    }
                }
            }
        }
        Err(closest.map_or_else(
            || OpError::operation("has no legal signature"),
            |(_, error)| error,
        ))
    }

    fn arities(&self) -> String {
        let mut text = String::from("takes ");
        for (index, form) in self.forms.iter().enumerate() {
            if index > 0 {
                text.push_str(" or ");
            }
            match form.arity() {
                (least, usize::MAX) => text.push_str(&format!("at least {least}")),
                (least, most) if least == most => text.push_str(&least.to_string()),
                (least, most) => text.push_str(&format!("{least} to {most}")),
            }
            if self.forms.len() > 1 {
                text.push_str(&format!(" ({})", form.name));
            }
        }
        text
    }

    fn check_output_count(&self, context: &dyn OperationContext) -> Result<(), OpError> {
        let (count, listed) = (context.output_count(), self.outputs.len());
        let optional = self
            .outputs
            .iter()
            .filter(|param| param.presence == Presence::Trailing)
            .count();
        let legal = if self.outputs_repeat {
            count >= listed
        } else {
            (listed - optional..=listed).contains(&count)
        };
        if legal {
            return Ok(());
        }
        let expected = match (self.outputs_repeat, optional) {
            (true, _) => format!("at least {listed}"),
            (false, 0) => listed.to_string(),
            (false, optional) => format!("{} to {listed}", listed - optional),
        };
        Err(OpError::operation(format!(
            "has {count} outputs, gives {expected}"
        )))
    }

    /// The match of one form under one variant, or how many arguments fitted and the first that did not.
    fn match_one(
        &'static self,
        context: &dyn OperationContext,
        form: &'static Form,
        variant: Option<&'static Variant>,
    ) -> Result<SignatureMatch, (usize, OpError)> {
        let mut since = form.since.max(self.operation.since().unwrap_or(HalVersion::V1_0));
        if let Some(variant) = variant {
            since = since.max(variant.since);
        }
        let count = context.input_count();
        for index in 0..count {
            let Some(param) = form.param(index, count) else {
                return Err((index, OpError::input(index, "is one too many")));
            };
            let wanted = Wanted { param, variant };
            match context.input(index) {
                Some(input) => {
                    // The dimensions of an input that the request may omit may say nothing.
                    let says_nothing =
                        param.presence == Presence::Omissible && !input.shape.is_fully_specified();
                    let known = known_rank(context, param, &input).filter(|_| !says_nothing);
                    since = since.max(
                        wanted
                            .check(input.ty(), known)
                            .map_err(|m| (index, OpError::input(index, m)))?,
                    );
                }
                None if param.presence == Presence::Omissible => {
                    // Also what is omitted must be of a type that could stand here.
                    if let Some(ty) = context.declared_type(index) {
                        since = since.max(
                            wanted
                                .check(ty, None)
                                .map_err(|m| (index, OpError::input(index, m)))?,
                        );
                    }
                }
                None => {
                    let message = format!("({}) is omitted but not optional", param.name);
                    return Err((index, OpError::input(index, message)));
                }
            }
            since = since.max(param.since);
        }
        for index in 0..context.output_count() {
            let param = &self.outputs[index.min(self.outputs.len() - 1)];
            let Some(output) = context.output(index) else {
                continue;
            };
            let wanted = Wanted { param, variant };
            let known = known_rank(context, param, &output);
            since = since.max(
                wanted
                    .check(output.ty(), known)
                    .map_err(|message| (count + index, OpError::output(index, message)))?,
            );
            since = since.max(param.since);
        }
        if let Some(rule) = variant.and_then(|variant| variant.only_if) {
            rule(context).map_err(|error| (usize::MAX, error))?;
        }
        Ok(SignatureMatch { form, variant, since })
    }
}

/// The rank of an operand, if it is known and counts already.
fn known_rank(context: &dyn OperationContext, param: &Param, operand: &OperandInfo<'_>) -> Option<usize> {
    let counts = operand.rank_known && !(param.rank_is_late && context.being_added());
    counts.then(|| operand.shape.rank())
}

struct Wanted {
    param: &'static Param,
    variant: Option<&'static Variant>,
}

impl Wanted {
    /// The version that this type needs here.
    fn check(&self, ty: OperandType, rank: Option<usize>) -> Result<HalVersion, String> {
        let name = self.param.name;
        let since = match self.param.ty {
            Ty::Is(only) if ty == only => Ok(HalVersion::V1_0),
            Ty::Is(only) => Err(format!("({name}) is {ty}, must be {only}")),
            Ty::AnyOf(types) => types
                .iter()
                .find(|(allowed, _)| *allowed == ty)
                .map(|(_, since)| *since)
                .ok_or_else(|| {
                    format!(
                        "({name}) is {ty}, must be one of {}",
                        list(types.iter().map(|t| t.0))
                    )
                }),
            Ty::Var(variable) => match self.variant.and_then(|variant| variant.types.get(variable)) {
                Some(bound) if *bound == ty => Ok(HalVersion::V1_0),
                Some(bound) => Err(format!(
                    "({name}) is {ty}, must be {bound} beside the other operands"
                )),
                None => Err(format!("({name}) is {ty}, which no variant of the operation has")),
            },
        }?;
        match rank {
            Some(rank) if ty.is_tensor() && !self.param.rank.allows(rank) => Err(format!(
                "({name}) has rank {rank}, must have rank {}",
                self.param.rank
            )),
            _ => Ok(since),
        }
    }
}

fn list(types: impl Iterator<Item = OperandType>) -> String {
    types.map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
}
