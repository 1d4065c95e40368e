//! What the devices on the CPU say of their performance.
//!
//! The HAL's figures are relative to the platform's reference, which here is `nnhal-reference`; that of
//! `nnhal-cpu` were measured once by `nnhal bench capabilities` and are compiled in, so that they are the
//! same from start to start.

use std::collections::BTreeMap;

use nnhal_hal::{Capabilities, Failure, OperandPerformance, OperandType, PerformanceInfo};
use serde::Deserialize;

/// What was measured, and under which conditions.
const TABLE: &str = include_str!("cpu_performance.toml");

/// The measured table: execution times by what they are for.
#[derive(Debug, Deserialize)]
struct Table {
    exec_time: BTreeMap<String, f32>,
}

impl Table {
    fn figure(&self, key: &str) -> Result<PerformanceInfo, Failure> {
        let figure = self
            .exec_time
            .get(key)
            .filter(|figure| figure.is_finite() && **figure > 0.0);
        figure.map(|figure| relative(*figure)).ok_or_else(|| {
            Failure::general(format!(
                "the table of nnhal-cpu's execution times has no positive figure for {key:?}; write it anew by `nnhal \
                 bench capabilities`"
            ))
        })
    }
}

/// What `nnhal-reference` says.
pub(super) fn reference() -> Capabilities {
    Capabilities::uniform(PerformanceInfo::REFERENCE, types())
}

/// What `nnhal-cpu` says.
///
/// # Errors
/// The table that this was built with lacks a figure.
pub(super) fn fast() -> Result<Capabilities, Failure> {
    of_table(TABLE)
}

fn of_table(text: &str) -> Result<Capabilities, Failure> {
    let table: Table = toml::from_str(text).map_err(|error| {
        Failure::general(format!(
            "the table of nnhal-cpu's execution times is none: {error}"
        ))
    })?;
    let of_type = |operand_type: OperandType| {
        // No operation takes one, so there is nothing to measure; integers are integers.
        let measured = match operand_type {
            OperandType::UINT32 => OperandType::INT32,
            other => other,
        };
        Ok(OperandPerformance {
            operand_type,
            info: table.figure(&measured.to_string())?,
        })
    };
    Ok(Capabilities {
        relaxed_float32_to_float16_performance_scalar: table.figure("relaxed FLOAT32")?,
        relaxed_float32_to_float16_performance_tensor: table.figure("relaxed TENSOR_FLOAT32")?,
        operand_performance: types().map(of_type).collect::<Result<_, Failure>>()?,
        if_performance: table.figure("IF")?,
        while_performance: table.figure("WHILE")?,
    })
}

/// The types that have a figure, in order.
fn types() -> impl Iterator<Item = OperandType> {
    let types = OperandType::ALL.iter().copied();
    types.filter(|ty| *ty != OperandType::SUBGRAPH && !ty.is_oem())
}

/// A figure for time and energy: on one processor the one follows the other.
fn relative(figure: f32) -> PerformanceInfo {
    PerformanceInfo {
        exec_time: figure,
        power_usage: figure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_covers_every_operand_type_and_nothing_that_there_is_not() {
        let capabilities = fast().unwrap();
        let listed: Vec<_> = capabilities
            .operand_performance
            .iter()
            .map(|entry| entry.operand_type)
            .collect();
        assert_eq!(listed, types().collect::<Vec<_>>());
        assert!(listed.is_sorted());
        for ty in types() {
            let info = capabilities.lookup(ty);
            assert!(info.exec_time > 0.0 && info.exec_time < 10.0, "{ty}: {info:?}");
        }
        let table: Table = toml::from_str(TABLE).unwrap();
        let names: Vec<String> = types().map(|ty| ty.to_string()).collect();
        let others = ["IF", "WHILE", "relaxed FLOAT32", "relaxed TENSOR_FLOAT32"];
        for key in table.exec_time.keys() {
            assert!(names.contains(key) || others.contains(&&**key), "{key}");
        }
    }

    #[test]
    fn the_table_says_how_it_was_measured() {
        let table: toml::Table = toml::from_str(TABLE).unwrap();
        let conditions = table["conditions"].as_table().unwrap();
        assert_eq!(conditions["build"].as_str(), Some("optimised"));
        for key in ["cpu", "kernel", "load_before"] {
            assert!(
                conditions[key].as_str().is_some_and(|value| !value.is_empty()),
                "{key}"
            );
        }
    }

    #[test]
    fn types_with_kernels_of_their_own_are_faster_than_the_reference() {
        let capabilities = fast().unwrap();
        for ty in [
            OperandType::TENSOR_FLOAT32,
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL,
        ] {
            assert!(capabilities.lookup(ty).exec_time < 1.0, "{ty}");
        }
    }

    #[test]
    fn figures_that_are_missing_or_not_positive_are_named() {
        for text in ["[exec_time]\n\"relaxed FLOAT32\" = 0.0", "[exec_time]"] {
            let failure = of_table(text).unwrap_err();
            assert!(failure.detail.contains("relaxed FLOAT32"), "{failure}");
        }
        assert!(of_table("nonsense").is_err());
    }
}
