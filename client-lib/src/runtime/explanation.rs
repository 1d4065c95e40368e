//! What a compilation did, for people.

use std::fmt;

use nnhal_hal::OperationType;

/// Which operation went where, and why not elsewhere. Its text is a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The devices that were asked, in their order.
    pub devices: Vec<String>,
    /// One for each operation of the main graph.
    pub operations: Vec<OperationExplanation>,
    /// What runs, in this order.
    pub steps: Vec<StepExplanation>,
    /// Why the whole model runs on the CPU of this process, if it does instead of what was chosen.
    pub fallback: Option<String>,
}

/// Where one operation went.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationExplanation {
    /// What it computes.
    pub operation: OperationType,
    /// The device with the lowest cost.
    pub device: String,
    /// What each device said, in the order of [`Explanation::devices`].
    pub answers: Vec<Answer>,
}

/// What a device said of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It can run it, at this cost relative to the CPU.
    Cost(f32),
    /// It cannot, or may not.
    Unsupported(String),
}

/// Operations that one device runs together.
#[derive(Clone, Debug, PartialEq)]
pub struct StepExplanation {
    /// The device.
    pub device: String,
    /// The operations, by their index in the main graph.
    pub operations: Vec<usize>,
    /// How many bytes it reads of what other steps computed.
    pub bytes_in: usize,
    /// How many bytes it computes for other steps.
    pub bytes_out: usize,
    /// How many of them stay in the device's own memory.
    pub bytes_kept: usize,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Cost(cost) if *cost >= f32::MAX => {
                f.write_str("supported, without a figure for the type (taken last)")
            }
            Answer::Cost(cost) => write!(f, "supported at cost {cost}"),
            Answer::Unsupported(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operation) in self.operations.iter().enumerate() {
            writeln!(
                f,
                "operation {index} {} on {}",
                operation.operation, operation.device
            )?;
            for (device, answer) in self.devices.iter().zip(&operation.answers) {
                if *device != operation.device || self.devices.len() == 1 {
                    writeln!(f, "    {device}: {answer}")?;
                } else {
                    writeln!(f, "  * {device}: {answer}")?;
                }
            }
        }
        if let Some(reason) = &self.fallback {
            writeln!(
                f,
                "the whole model runs on the CPU of this process instead: {reason}"
            )?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(
                f,
                "step {index} on {}: operations {}; {} bytes from other steps, {} bytes for them, {} of which stay in \
                 the device",
                step.device,
                Ranges(&step.operations),
                step.bytes_in,
                step.bytes_out,
                step.bytes_kept
            )?;
        }
        Ok(())
    }
}

/// Rising numbers, with runs of them as `first-last`.
struct Ranges<'a>(&'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|one, next| one + 1 == *next);
        for (index, run) in runs.enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match run {
                [first, .., last] => write!(f, "{first}-{last}")?,
                [only] => write!(f, "{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_operations_are_short() {
        assert_eq!(Ranges(&[0, 1, 2, 5, 7, 8]).to_string(), "0-2, 5, 7-8");
        assert_eq!(Ranges(&[]).to_string(), "");
    }

    #[test]
    fn text_says_where_everything_went_and_why_not_elsewhere() {
        let explanation = Explanation {
            devices: vec!["a-x".into(), "a-y".into()],
            operations: vec![OperationExplanation {
                operation: OperationType::ADD,
                device: "a-y".into(),
                answers: vec![Answer::Unsupported("too slow".into()), Answer::Cost(0.5)],
            }],
            steps: vec![StepExplanation {
                device: "a-y".into(),
                operations: vec![0],
                bytes_in: 0,
                bytes_out: 4,
                bytes_kept: 0,
            }],
            fallback: None,
        };
        let text = explanation.to_string();
        assert!(text.contains("operation 0 ADD on a-y"), "{text}");
        assert!(
            text.contains("    a-x: too slow\n  * a-y: supported at cost 0.5"),
            "{text}"
        );
        assert!(
            text.contains("step 0 on a-y: operations 0; 0 bytes from other steps, 4 bytes"),
            "{text}"
        );
    }
}
