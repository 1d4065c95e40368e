//! Performance figures between versions.
//!
//! HAL 1.0 has one figure for floats and one for everything else, 1.1 adds one for relaxed floats, 1.2 has
//! one for each operand type. Upwards a figure goes to all types that it stood for; downwards the figures of
//! the tensors stand for their families, and where the others differ that is a loss.

use super::{Downcast, Loss, v1_0, v1_1, v1_2};
use crate::{Capabilities, HalVersion, OperandPerformance, OperandType, PerformanceInfo};

/// What 1.2 and 1.3 say of what a device has no figures for.
const NO_FIGURES: PerformanceInfo = PerformanceInfo {
    exec_time: f32::MAX,
    power_usage: f32::MAX,
};

/// The types that the float figure of HAL 1.0 stands for.
const FLOATS: [OperandType; 2] = [OperandType::FLOAT32, OperandType::TENSOR_FLOAT32];

/// The types that the quantised figure of HAL 1.0 stands for.
const QUANTIZED: [OperandType; 6] = [
    OperandType::INT32,
    OperandType::UINT32,
    OperandType::TENSOR_INT32,
    OperandType::TENSOR_QUANT8_ASYMM,
    OperandType::OEM,
    OperandType::TENSOR_OEM_BYTE,
];

/// The list of 1.2 for the figures of 1.0.
fn by_operand(float32: PerformanceInfo, quantized8: PerformanceInfo) -> Vec<OperandPerformance> {
    let floats = FLOATS.map(|operand_type| OperandPerformance {
        operand_type,
        info: float32,
    });
    let quantized = QUANTIZED.map(|operand_type| OperandPerformance {
        operand_type,
        info: quantized8,
    });
    let mut all = [floats.as_slice(), quantized.as_slice()].concat();
    all.sort_by_key(|entry| entry.operand_type);
    all
}

impl From<v1_0::Capabilities> for v1_1::Capabilities {
    /// Relaxed floats are as fast as floats.
    fn from(older: v1_0::Capabilities) -> v1_1::Capabilities {
        v1_1::Capabilities {
            float32_performance: older.float32_performance,
            quantized8_performance: older.quantized8_performance,
            relaxed_float32_to_float16_performance: older.float32_performance,
        }
    }
}

impl From<v1_1::Capabilities> for v1_2::Capabilities {
    /// Each figure goes to every type of 1.0 that it stood for; other types have none.
    fn from(older: v1_1::Capabilities) -> v1_2::Capabilities {
        let relaxed = older.relaxed_float32_to_float16_performance;
        v1_2::Capabilities {
            relaxed_float32_to_float16_performance_scalar: relaxed,
            relaxed_float32_to_float16_performance_tensor: relaxed,
            operand_performance: by_operand(older.float32_performance, older.quantized8_performance),
        }
    }
}

impl From<v1_2::Capabilities> for Capabilities {
    /// IF and WHILE have no figures.
    fn from(older: v1_2::Capabilities) -> Capabilities {
        Capabilities {
            relaxed_float32_to_float16_performance_scalar: older
                .relaxed_float32_to_float16_performance_scalar,
            relaxed_float32_to_float16_performance_tensor: older
                .relaxed_float32_to_float16_performance_tensor,
            operand_performance: older.operand_performance,
            if_performance: NO_FIGURES,
            while_performance: NO_FIGURES,
        }
    }
}

impl From<v1_1::Capabilities> for Capabilities {
    fn from(older: v1_1::Capabilities) -> Capabilities {
        v1_2::Capabilities::from(older).into()
    }
}

impl From<v1_0::Capabilities> for Capabilities {
    fn from(older: v1_0::Capabilities) -> Capabilities {
        v1_1::Capabilities::from(older).into()
    }
}

impl Capabilities {
    /// Which figures an older version would say wrongly: it has one figure where these differ. Empty if the
    /// device may be described by the older version; what is then merely left out is in [`Downcast::losses`].
    #[must_use]
    pub fn compliant_with(&self, version: HalVersion) -> Vec<Loss> {
        if version >= HalVersion::V1_2 {
            return Vec::new();
        }
        let float = self.lookup(OperandType::TENSOR_FLOAT32);
        let quantized = self.lookup(OperandType::TENSOR_QUANT8_ASYMM);
        let scalar = self.relaxed_float32_to_float16_performance_scalar;
        let tensor = self.relaxed_float32_to_float16_performance_tensor;
        let mut pairs = Vec::new();
        if version == HalVersion::V1_0 {
            pairs.push((
                "relaxed float32 scalars".to_owned(),
                scalar,
                "TENSOR_FLOAT32",
                float,
            ));
            pairs.push((
                "relaxed float32 tensors".to_owned(),
                tensor,
                "TENSOR_FLOAT32",
                float,
            ));
        } else {
            let name = "relaxed float32 scalars".to_owned();
            pairs.push((name, scalar, "relaxed float32 tensors", tensor));
        }
        for ty in FLOATS {
            pairs.push((ty.to_string(), self.lookup(ty), "TENSOR_FLOAT32", float));
        }
        for ty in QUANTIZED {
            pairs.push((ty.to_string(), self.lookup(ty), "TENSOR_QUANT8_ASYMM", quantized));
        }
        pairs
            .into_iter()
            .filter(|(_, own, _, family)| own != family)
            .map(|(part, _, family, _)| {
                let reason = format!("differs from {family}; HAL {version} has one figure for both");
                Loss::new(part, reason)
            })
            .collect()
    }

    /// The figures as HAL 1.2 can say them: without IF and WHILE, and without types of 1.3.
    #[must_use]
    pub fn to_v1_2(&self) -> Downcast<v1_2::Capabilities> {
        let control_flow = [("IF", self.if_performance), ("WHILE", self.while_performance)];
        let dropped = control_flow.iter().filter(|(_, info)| *info != NO_FIGURES);
        let mut losses: Vec<Loss> = dropped
            .map(|(part, _)| Loss::new(*part, "its figures came with HAL 1.3 and are left out"))
            .collect();
        let (kept, newer): (Vec<_>, Vec<_>) = self.operand_performance.iter().partition(|entry| {
            let since = entry.operand_type.since();
            since.is_some_and(|since| since <= HalVersion::V1_2)
        });
        losses.extend(newer.iter().map(|entry| left_out(entry, HalVersion::V1_2)));
        Downcast {
            value: v1_2::Capabilities {
                relaxed_float32_to_float16_performance_scalar: self
                    .relaxed_float32_to_float16_performance_scalar,
                relaxed_float32_to_float16_performance_tensor: self
                    .relaxed_float32_to_float16_performance_tensor,
                operand_performance: kept,
            },
            losses,
        }
    }

    /// The figures as HAL 1.1 can say them: those of the tensors stand for their families.
    #[must_use]
    pub fn to_v1_1(&self) -> Downcast<v1_1::Capabilities> {
        Downcast {
            value: v1_1::Capabilities {
                float32_performance: self.lookup(OperandType::TENSOR_FLOAT32),
                quantized8_performance: self.lookup(OperandType::TENSOR_QUANT8_ASYMM),
                relaxed_float32_to_float16_performance: self.relaxed_float32_to_float16_performance_tensor,
            },
            losses: self.losses_before_1_2(HalVersion::V1_1),
        }
    }

    /// The figures as HAL 1.0 can say them: those of the tensors stand for their families.
    #[must_use]
    pub fn to_v1_0(&self) -> Downcast<v1_0::Capabilities> {
        Downcast {
            value: v1_0::Capabilities {
                float32_performance: self.lookup(OperandType::TENSOR_FLOAT32),
                quantized8_performance: self.lookup(OperandType::TENSOR_QUANT8_ASYMM),
            },
            losses: self.losses_before_1_2(HalVersion::V1_0),
        }
    }

    fn losses_before_1_2(&self, version: HalVersion) -> Vec<Loss> {
        let mut losses = self.compliant_with(version);
        let control_flow = self.to_v1_2().losses.into_iter();
        losses.extend(control_flow.filter(|loss| loss.part == "IF" || loss.part == "WHILE"));
        let newer = self.operand_performance.iter().filter(|entry| {
            entry.info != NO_FIGURES
                && !FLOATS.contains(&entry.operand_type)
                && !QUANTIZED.contains(&entry.operand_type)
        });
        losses.extend(newer.map(|entry| left_out(entry, version)));
        losses
    }
}

fn left_out(entry: &OperandPerformance, version: HalVersion) -> Loss {
    let reason = format!("HAL {version} does not have the type; its figures are left out");
    Loss::new(entry.operand_type.to_string(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(figure: f32) -> PerformanceInfo {
        PerformanceInfo {
            exec_time: figure,
            power_usage: figure * 2.0,
        }
    }

    const OLDEST: v1_0::Capabilities = v1_0::Capabilities {
        float32_performance: PerformanceInfo {
            exec_time: 0.5,
            power_usage: 0.6,
        },
        quantized8_performance: PerformanceInfo {
            exec_time: 0.7,
            power_usage: 0.8,
        },
    };

    #[test]
    fn figures_of_1_0_go_to_the_types_that_they_stood_for() {
        let latest = Capabilities::from(OLDEST);
        let types: Vec<u32> = latest
            .operand_performance
            .iter()
            .map(|entry| entry.operand_type.0)
            .collect();
        assert_eq!(types, [0, 1, 2, 3, 4, 5, 10_000, 10_001]);
        assert_eq!(latest.lookup(OperandType::FLOAT32), OLDEST.float32_performance);
        assert_eq!(
            latest.lookup(OperandType::TENSOR_INT32),
            OLDEST.quantized8_performance
        );
        assert_eq!(latest.lookup(OperandType::TENSOR_FLOAT16), NO_FIGURES);
        assert_eq!(
            (latest.if_performance, latest.while_performance),
            (NO_FIGURES, NO_FIGURES)
        );
        let relaxed = latest.relaxed_float32_to_float16_performance_tensor;
        assert_eq!(relaxed, OLDEST.float32_performance);
    }

    #[test]
    fn differing_relaxed_figures_are_said_by_1_1_but_not_by_1_0() {
        let mut latest = Capabilities::from(OLDEST);
        latest.relaxed_float32_to_float16_performance_scalar = info(0.3);
        latest.relaxed_float32_to_float16_performance_tensor = info(0.3);
        assert_eq!(latest.compliant_with(HalVersion::V1_1), []);
        assert_eq!(latest.compliant_with(HalVersion::V1_0).len(), 2);
        latest.relaxed_float32_to_float16_performance_scalar = info(0.4);
        let losses = latest.compliant_with(HalVersion::V1_1);
        assert_eq!(losses.len(), 1);
        let text = losses[0].to_string();
        assert!(
            text.contains("relaxed float32 scalars: differs from relaxed float32 tensors"),
            "{text}"
        );
        assert_eq!(latest.compliant_with(HalVersion::V1_2), []);
    }

    #[test]
    fn families_that_differ_stand_in_the_way_of_1_1_and_others_are_left_out() {
        let mut latest = Capabilities::from(OLDEST);
        latest.operand_performance[1].info = info(3.0);
        let text = latest.compliant_with(HalVersion::V1_1)[0].to_string();
        assert!(text.contains("INT32: differs from TENSOR_QUANT8_ASYMM"), "{text}");

        let mut latest = Capabilities::from(OLDEST);
        latest.operand_performance.push(OperandPerformance {
            operand_type: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            info: info(1.0),
        });
        latest.operand_performance.sort_by_key(|entry| entry.operand_type);
        latest.while_performance = info(2.0);
        assert_eq!(latest.compliant_with(HalVersion::V1_0), []);
        for losses in [
            latest.to_v1_0().losses,
            latest.to_v1_1().losses,
            latest.to_v1_2().losses,
        ] {
            let parts: Vec<&str> = losses.iter().map(|loss| loss.part.as_str()).collect();
            assert_eq!(parts, ["WHILE", "TENSOR_QUANT8_ASYMM_SIGNED"]);
        }
    }
}
