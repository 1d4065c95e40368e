//! The inputs and outputs of a model, by the first of its signatures.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::functions::{Functions, Layout, Pointer, TensorType};
use crate::owned::{Owned, checked, made};

/// The model's entry that is called: the first, which LiteRT makes up for models that name none.
pub(crate) const SIGNATURE: usize = 0;

/// The signature of a compiled model.
#[derive(Debug)]
pub(crate) struct Signature<'a> {
    functions: &'static Functions,
    environment: &'a Owned,
    compiled: &'a Owned,
    /// It is the model's.
    signature: Pointer,
}

impl<'a> Signature<'a> {
    /// That of a model, which was compiled to `compiled`.
    pub(crate) fn of(
        functions: &'static Functions,
        environment: &'a Owned,
        model: &'a Owned,
        compiled: &'a Owned,
    ) -> Result<Signature<'a>, Error> {
        let signature = made("LiteRtGetModelSignature", |place| {
            (functions.GetModelSignature)(model.pointer(), SIGNATURE, place)
        })?;
        Ok(Signature {
            functions,
            environment,
            compiled,
            signature,
        })
    }

    /// A buffer for each input.
    pub(crate) fn inputs(&self) -> Result<Vec<Buffer>, Error> {
        let functions = self.functions;
        let mut count = 0;
        checked(
            "LiteRtGetNumSignatureInputs",
            (functions.GetNumSignatureInputs)(self.signature, &raw mut count),
        )?;
        (0..count).map(|input| self.input(input)).collect()
    }

    fn input(&self, input: usize) -> Result<Buffer, Error> {
        let functions = self.functions;
        let tensor = made("LiteRtGetSignatureInputTensorByIndex", |place| {
            (functions.GetSignatureInputTensorByIndex)(self.signature, input, place)
        })?;
        let mut layout = Layout::default();
        checked(
            "LiteRtGetCompiledModelInputTensorLayout",
            (functions.GetCompiledModelInputTensorLayout)(
                self.compiled.pointer(),
                SIGNATURE,
                input,
                &raw mut layout,
            ),
        )?;
        let requirements = made("LiteRtGetCompiledModelInputBufferRequirements", |place| {
            (functions.GetCompiledModelInputBufferRequirements)(
                self.compiled.pointer(),
                SIGNATURE,
                input,
                place,
            )
        })?;
        self.buffer(tensor, layout, requirements)
    }

    /// A buffer for each output.
    pub(crate) fn outputs(&self) -> Result<Vec<Buffer>, Error> {
        let functions = self.functions;
        let mut count = 0;
        checked(
            "LiteRtGetNumSignatureOutputs",
            (functions.GetNumSignatureOutputs)(self.signature, &raw mut count),
        )?;
        let mut layouts = vec![Layout::default(); count];
        checked(
            "LiteRtGetCompiledModelOutputTensorLayouts",
            (functions.GetCompiledModelOutputTensorLayouts)(
                self.compiled.pointer(),
                SIGNATURE,
                count,
                layouts.as_mut_ptr(),
                true,
            ),
        )?;
        let outputs = layouts.into_iter().enumerate();
        outputs
            .map(|(output, layout)| self.output(output, layout))
            .collect()
    }

    fn output(&self, output: usize, layout: Layout) -> Result<Buffer, Error> {
        let functions = self.functions;
        let tensor = made("LiteRtGetSignatureOutputTensorByIndex", |place| {
            (functions.GetSignatureOutputTensorByIndex)(self.signature, output, place)
        })?;
        let requirements = made("LiteRtGetCompiledModelOutputBufferRequirements", |place| {
            (functions.GetCompiledModelOutputBufferRequirements)(
                self.compiled.pointer(),
                SIGNATURE,
                output,
                place,
            )
        })?;
        self.buffer(tensor, layout, requirements)
    }

    /// A buffer for a tensor, whose own type may leave extents open that the compiled model's layout has.
    fn buffer(&self, tensor: Pointer, layout: Layout, requirements: Pointer) -> Result<Buffer, Error> {
        let functions = self.functions;
        let mut of_tensor = TensorType::default();
        checked(
            "LiteRtGetRankedTensorType",
            (functions.GetRankedTensorType)(tensor, &raw mut of_tensor),
        )?;
        let ty = TensorType { layout, ..of_tensor };
        let mut index = 0;
        checked(
            "LiteRtGetTensorIndex",
            (functions.GetTensorIndex)(tensor, &raw mut index),
        )?;
        Buffer::new(functions, self.environment.pointer(), index, &ty, requirements)
    }
}
