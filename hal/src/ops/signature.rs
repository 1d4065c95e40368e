//! Signatures: which operand types in which HAL version, and the matching of an operation against them.

use crate::{HalVersion, OperandLifeTime, OperandType};

use super::{DefaultValue, OpError, OperandInfo, OperationContext, OperationEntry};

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Ty {
    /// The type that the matching [`Variant`] binds to this variable.
    Var(usize),
    /// Always this type.
    Is(OperandType),
    /// Any of these, each since its version, whatever the variant.
    AnyOf(&'static [(OperandType, HalVersion)]),
}

/// Whether a parameter may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be there.
    Required,
    /// Its place must be there, its value may be omitted (lifetime `NO_VALUE`, or no value in the request).
    Omissible,
    /// The argument list may end before it.
    Trailing,
    /// It may occur any number of times, at least once. At most one parameter of a form.
    Repeated,
}

/// The ranks that a tensor may have. Scalars are known by their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Any.
    Any,
    /// Exactly this.
    Is(usize),
    /// From the first to the second, inclusive.
    Between(usize, usize),
    /// One of these.
    OneOf(&'static [usize]),
}

impl Rank {
    pub(super) fn allows(self, rank: usize) -> bool {
        match self {
            Rank::Any => true,
            Rank::Is(only) => rank == only,
            Rank::Between(low, high) => (low..=high).contains(&rank),
            Rank::OneOf(ranks) => ranks.contains(&rank),
        }
    }
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rank::Any => f.write_str("any"),
            Rank::Is(rank) => write!(f, "{rank}"),
            Rank::Between(low, high) => write!(f, "{low} to {high}"),
            Rank::OneOf(ranks) => {
                for (index, rank) in ranks.iter().enumerate() {
                    write!(f, "{}{rank}", if index == 0 { "" } else { " or " })?;
                }
                Ok(())
            }
        }
    }
}

/// One place in an operation's argument or result list.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name that messages and documentation use.
    pub name: &'static str,
    /// Its type.
    pub ty: Ty,
    /// First HAL version that has the parameter.
    pub since: HalVersion,
    /// Whether it may be left out.
    pub presence: Presence,
    /// Its rank, if a tensor.
    pub rank: Rank,
    /// Whether only a finished model must keep the rank. Android's check of an operation that is added to a model leaves
    /// such ranks to the execution, and programs, its own tests among them, add what they never finish.
    pub rank_is_late: bool,
    /// What leaving it off stands for, if that can be said as a value.
    pub default: Option<DefaultValue>,
}

impl Param {
    /// A required parameter of HAL 1.0 with any rank.
    #[must_use]
    pub const fn new(name: &'static str, ty: Ty) -> Param {
        Param {
            name,
            ty,
            since: HalVersion::V1_0,
            presence: Presence::Required,
            rank: Rank::Any,
            rank_is_late: false,
            default: None,
        }
    }

    /// A required scalar of this type.
    #[must_use]
    pub const fn scalar(name: &'static str, ty: OperandType) -> Param {
        Param::new(name, Ty::Is(ty))
    }

    /// The same, with this rank.
    #[must_use]
    pub const fn rank(mut self, rank: Rank) -> Param {
        self.rank = rank;
        self
    }

    /// The same, with this rank, which only a finished model must keep.
    #[must_use]
    pub const fn late_rank(mut self, rank: Rank) -> Param {
        self.rank_is_late = true;
        self.rank(rank)
    }

    /// The same, this value being what leaving it off stands for.
    #[must_use]
    pub const fn default(mut self, value: DefaultValue) -> Param {
        self.default = Some(value);
        self
    }

    /// The same, its value omissible.
    #[must_use]
    pub const fn omissible(mut self) -> Param {
        self.presence = Presence::Omissible;
        self
    }

    /// The same, at the end of the list and free to be left off; there since this version.
    #[must_use]
    pub const fn trailing(mut self, since: HalVersion) -> Param {
        self.presence = Presence::Trailing;
        self.since = since;
        self
    }

    /// The same, any number of times.
    #[must_use]
    pub const fn repeated(mut self) -> Param {
        self.presence = Presence::Repeated;
        self
    }
}

/// A rule between operands. What is not known yet is no violation.
pub type Rule = fn(&dyn OperationContext) -> Result<(), OpError>;

/// A legal binding of the type variables.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// First HAL version that has it.
    pub since: HalVersion,
    /// The type of each variable, by number.
    pub types: &'static [OperandType],
    /// A rule that the operands must keep for the binding to be legal in `since`. Variants are tried in order: where a
    /// later version has no such rule, a variant of that version follows.
    pub only_if: Option<Rule>,
}

impl Variant {
    /// The binding `types`, legal since `since`.
    #[must_use]
    pub const fn new(since: HalVersion, types: &'static [OperandType]) -> Variant {
        Variant {
            since,
            types,
            only_if: None,
        }
    }

    /// The same, legal only for operands that keep this rule.
    #[must_use]
    pub const fn only_if(mut self, rule: Rule) -> Variant {
        self.only_if = Some(rule);
        self
    }
}

/// One argument list.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Name for messages and documentation, such as "explicit padding".
    pub name: &'static str,
    /// First HAL version that has it.
    pub since: HalVersion,
    /// The parameters.
    pub inputs: &'static [Param],
}

impl Form {
    /// The only or usual form, there since the operation is.
    #[must_use]
    pub const fn default(inputs: &'static [Param]) -> Form {
        Form {
            name: "default",
            since: HalVersion::V1_0,
            inputs,
        }
    }

    /// A named form, there since the operation is.
    #[must_use]
    pub const fn named(name: &'static str, inputs: &'static [Param]) -> Form {
        Form {
            name,
            since: HalVersion::V1_0,
            inputs,
        }
    }

    /// The same, there since this version.
    #[must_use]
    pub const fn since(mut self, version: HalVersion) -> Form {
        self.since = version;
        self
    }

    /// How many arguments the form takes, least and most; `usize::MAX` for any number.
    #[must_use]
    pub fn arity(&self) -> (usize, usize) {
        let trailing = self
            .inputs
            .iter()
            .filter(|param| param.presence == Presence::Trailing)
            .count();
        let most = if self
            .inputs
            .iter()
            .any(|param| param.presence == Presence::Repeated)
        {
            usize::MAX
        } else {
            self.inputs.len()
        };
        (self.inputs.len() - trailing, most)
    }

    /// The parameter that the argument `index` of `count` stands for.
    #[must_use]
    pub fn param(&self, index: usize, count: usize) -> Option<&'static Param> {
        let repeated = self
            .inputs
            .iter()
            .position(|param| param.presence == Presence::Repeated);
        param_at(self.inputs, repeated, index, count)
    }
}

fn param_at(
    params: &'static [Param],
    repeated: Option<usize>,
    index: usize,
    count: usize,
) -> Option<&'static Param> {
    let Some(repeated) = repeated else {
        return params.get(index);
    };
    let copies = (count + 1).checked_sub(params.len())?;
    if index < repeated {
        params.get(index)
    } else if index < repeated + copies {
        params.get(repeated)
    } else {
        params.get(index + 1 - copies)
    }
}

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
    /// The types that a parameter of one of the forms may have under some variant, each with the first HAL version
    /// that has it there, in the order of the variants. Outputs belong to the form that came first.
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

/// Whether an operand with this lifetime counts as omitted.
#[must_use]
pub fn is_omitted(lifetime: OperandLifeTime) -> bool {
    lifetime == OperandLifeTime::NoValue
}
