//! The digit classifier and its images, inside this binary so that the demo needs nothing else.

use nnhal_client::TfliteModel;

use crate::accuracy::Circumstances;
use crate::comparison::{Comparison, OutputReport};
use crate::error::Error;
use crate::feed::{self, NamedArray, Sequence, Value};
use crate::npy::Array;
use crate::present;
use crate::session::Session;

macro_rules! file {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../models/digits/", $name)))
    };
}

/// One of the two forms of the classifier, as the names and bytes of its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DigitFiles {
    model: (&'static str, &'static [u8]),
    images: (&'static str, &'static [u8]),
    expected: (&'static str, &'static [u8]),
}

/// In float32.
pub(crate) const FLOAT: DigitFiles = DigitFiles {
    model: file!("digits_float.tflite"),
    images: file!("images_float.npy"),
    expected: file!("expected_float.npy"),
};

/// Quantized.
pub(crate) const INT8: DigitFiles = DigitFiles {
    model: file!("digits_int8.tflite"),
    images: file!("images_int8.npy"),
    expected: file!("expected_int8.npy"),
};

const TRUTH: (&str, &[u8]) = file!("truth.npy");

/// The classifier, ready to be called.
#[derive(Debug)]
pub(crate) struct Digits {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// The model.
    pub(crate) model: TfliteModel,
    /// The images, one a call.
    pub(crate) images: Sequence,
    expected: Sequence,
    truth: Vec<f64>,
}

/// What classifying all images came to.
#[derive(Debug)]
pub(crate) struct Score {
    /// How many digits were recognised.
    pub(crate) right: usize,
    /// Of how many.
    pub(crate) images: usize,
    /// How the outputs compare with the recorded ones.
    pub(crate) outputs: Vec<OutputReport>,
}

impl Digits {
    /// Reads the files.
    pub(crate) fn load(files: DigitFiles) -> Result<Digits, Error> {
        let (name, bytes) = files.model;
        let model = TfliteModel::from_bytes(name, bytes)?;
        let images = feed::inputs(&model, &[array(files.images)?])?;
        let expected = feed::expectations(&model, &[array(files.expected)?], images.len())?;
        let (_, truth) = array(TRUTH)?;
        Ok(Digits {
            name,
            model,
            images,
            expected,
            truth: truth.to_f64(),
        })
    }

    /// Classifies all images.
    pub(crate) fn classify(
        &self,
        session: &mut Session<'_>,
        circumstances: Circumstances,
    ) -> Result<Score, Error> {
        let mut comparison = Comparison::new(&self.model, &self.expected, circumstances);
        let mut right = 0;
        for (call, image) in self.images.iter().enumerate() {
            let (results, _) = session.call(image)?;
            comparison.add(call, results);
            right += usize::from(self.recognised(results) == self.truth.get(call).copied());
        }
        Ok(Score {
            right,
            images: self.images.len(),
            outputs: comparison.into_reports(),
        })
    }

    /// The digit that the outputs stand for.
    fn recognised(&self, results: &[Value]) -> Option<f64> {
        let (tensor, value) = self.model.outputs.iter().zip(results).next()?;
        let best = present::best_classes(tensor, value, &[]);
        best.first().map(|class| class.class as f64)
    }
}

fn array((name, bytes): (&str, &[u8])) -> Result<NamedArray, Error> {
    let array = Array::parse(bytes).map_err(Error::array(name.as_ref()))?;
    Ok((name.into(), array))
}

#[cfg(test)]
mod tests {
    use super::{Digits, FLOAT, INT8};
    use crate::accuracy::Circumstances;
    use crate::in_process::InProcess;
    use crate::session::Session;

    #[test]
    fn both_forms_recognise_99_of_100_and_agree_with_the_recorded_outputs() {
        for files in [FLOAT, INT8] {
            let digits = Digits::load(files).unwrap();
            let executor = InProcess::new(&digits.model.model, nnhal_cpu::KernelSet::Reference).unwrap();
            let mut session = Session::new(&digits.model, Box::new(executor));
            let circumstances = Circumstances {
                is_reference_device: true,
                has_float16_weights: false,
            };
            let score = digits.classify(&mut session, circumstances).unwrap();
            assert_eq!((score.right, score.images), (99, 100), "{}", digits.name);
            assert_eq!(score.outputs[0].deviation.wrong, 0, "{:?}", score.outputs);
        }
    }
}
