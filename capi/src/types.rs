//! The structures of the interface.

use crate::ffi::In;

/// What an operation computes: a value of `OperationCode`, or of a vendor's extension.
pub type ANeuralNetworksOperationType = i32;

/// An operand: its type, its dimensions and its quantisation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case, reason = "the names are the public interface's own")]
pub struct ANeuralNetworksOperandType {
    /// A value of `OperandCode`, or of a vendor's extension.
    pub r#type: i32,
    /// Number of dimensions; 0 for scalars, and for tensors of unknown rank.
    pub dimensionCount: u32,
    /// The dimensions, outermost first; 0 for an extent that is not known. NULL if there are none.
    pub dimensions: In<u32>,
    /// Real units of one step, for quantised types; 0 for others.
    pub scale: f32,
    /// The value that means 0.0, for asymmetric quantised types; 0 for others.
    pub zeroPoint: i32,
}

/// The scales of an operand of type `ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL`. Since feature level 29.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case, reason = "the names are the public interface's own")]
pub struct ANeuralNetworksSymmPerChannelQuantParams {
    /// The dimension that the scales belong to.
    pub channelDim: u32,
    /// Number of scales: the extent of that dimension.
    pub scaleCount: u32,
    /// The scales, each above 0.
    pub scales: In<f32>,
}

/// Bytes that this process and drivers share, or memory of a device.
#[derive(Debug)]
pub struct ANeuralNetworksMemory {
    _private: [u8; 0],
}

/// A model: a graph of operations over operands.
#[derive(Debug)]
pub struct ANeuralNetworksModel {
    _private: [u8; 0],
}

/// A model that is made ready to be executed on devices.
#[derive(Debug)]
pub struct ANeuralNetworksCompilation {
    _private: [u8; 0],
}

/// One execution of a compilation, or many one after the other if it is reusable.
#[derive(Debug)]
pub struct ANeuralNetworksExecution {
    _private: [u8; 0],
}

/// Executions of one compilation in quick succession.
#[derive(Debug)]
pub struct ANeuralNetworksBurst {
    _private: [u8; 0],
}

/// Something that will have happened: the end of an execution, or the signal of a fence.
#[derive(Debug)]
pub struct ANeuralNetworksEvent {
    _private: [u8; 0],
}

/// A device.
#[derive(Debug)]
pub struct ANeuralNetworksDevice {
    _private: [u8; 0],
}

/// What a memory of devices shall be for.
#[derive(Debug)]
pub struct ANeuralNetworksMemoryDesc {
    _private: [u8; 0],
}

/// A hardware buffer of Android, which this system does not have.
#[derive(Debug)]
pub struct AHardwareBuffer {
    _private: [u8; 0],
}
