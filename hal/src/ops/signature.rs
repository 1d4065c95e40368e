//! Signatures: which operand types in which HAL version.

use crate::{HalVersion, OperandLifeTime, OperandType};

use super::context::{OpError, OperandInfo, OperationContext};

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

/// What leaving a parameter off stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A `BOOL` of this value.
    Bool(bool),
    /// An `INT32` of this value.
    Int32(i32),
}

impl DefaultValue {
    /// Whether the operand is known to have this value.
    pub(super) fn is_value_of(self, operand: &OperandInfo<'_>) -> bool {
        let Some(bytes) = operand.bytes else { return false };
        match (self, operand.ty()) {
            (DefaultValue::Bool(value), OperandType::BOOL) => bytes == [u8::from(value)],
            (DefaultValue::Int32(value), OperandType::INT32) => bytes == value.to_ne_bytes(),
            _ => false,
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
    /// Whether only a finished model must keep the rank. Android's check of an operation that is added to a
    /// model leaves such ranks to the execution, and programs, its own tests among them, add what they never
    /// finish.
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

    /// A required list of 32-bit integers.
    #[must_use]
    pub const fn integers(name: &'static str) -> Param {
        Param::new(name, Ty::Is(OperandType::TENSOR_INT32)).rank(Rank::Is(1))
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

/// One list of parameters out of several. `N` must be their total.
pub(super) const fn join<const N: usize>(lists: &[&[Param]]) -> [Param; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut index = 0;
        while index < lists[list].len() {
            all[at] = lists[list][index];
            at += 1;
            index += 1;
        }
        list += 1;
    }
    assert!(at == N);
    all
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
    /// A rule that the operands must keep for the binding to be legal in `since`. Variants are tried in
    /// order: where a later version has no such rule, a variant of that version follows.
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

/// Whether an operand with this lifetime counts as omitted.
#[must_use]
pub fn is_omitted(lifetime: OperandLifeTime) -> bool {
    lifetime == OperandLifeTime::NoValue
}

#[cfg(test)]
mod tests {
    use super::DefaultValue;
    use crate::ops::OperandInfo;
    use crate::{Operand, OperandType, Shape};

    #[test]
    fn default_is_recognised_by_type_and_bytes_and_only_where_they_are_known() {
        let (boolean, integer) = (
            Operand::new(OperandType::BOOL, &[]),
            Operand::new(OperandType::INT32, &[]),
        );
        let is = |default: DefaultValue, operand, bytes| {
            default.is_value_of(&OperandInfo {
                operand,
                shape: Shape::SCALAR,
                rank_known: true,
                shape_known: true,
                bytes,
            })
        };
        assert!(is(DefaultValue::Bool(false), &boolean, Some(&[0])));
        assert!(!is(DefaultValue::Bool(false), &boolean, Some(&[1])));
        assert!(!is(DefaultValue::Bool(false), &boolean, None));
        assert!(is(DefaultValue::Int32(-1), &integer, Some(&[0xff; 4])));
        assert!(!is(DefaultValue::Int32(-1), &integer, Some(&[0xff; 3])));
        assert!(!is(DefaultValue::Int32(0), &boolean, Some(&[0])));
    }
}
