//! The tables of the `.tflite` format, as far as they are read, with the numbers of their fields.

use super::reader::{Deferred, Numbers, Text, table};

table! {
    /// The root.
    Model<'a> {
        version: u32 = 0, 0;
        operator_codes: Vec<OperatorCode<'a>> = Vec::new(), 1;
        subgraphs: Vec<SubGraph<'a>> = Vec::new(), 2;
        description: Text<'a> = Text::default(), 3;
        buffers: Vec<Buffer<'a>> = Vec::new(), 4;
        signatures: Vec<Signature<'a>> = Vec::new(), 7;
    }
}

table! {
    /// A kind of operator that the model uses. Codes above 127 did not fit the first field and have one of
    /// their own.
    OperatorCode<'a> {
        deprecated_builtin_code: i8 = 0, 0;
        custom_code: Text<'a> = Text::default(), 1;
        builtin_code: i32 = 0, 3;
    }
}

table! {
    /// A graph: the first of a model is its main graph, others belong to control flow.
    SubGraph<'a> {
        tensors: Vec<Tensor<'a>> = Vec::new(), 0;
        inputs: Numbers<'a, i32> = Numbers::default(), 1;
        outputs: Numbers<'a, i32> = Numbers::default(), 2;
        operators: Vec<Operator<'a>> = Vec::new(), 3;
    }
}

table! {
    /// A value of a graph.
    Tensor<'a> {
        shape: Numbers<'a, i32> = Numbers::default(), 0;
        element_type: i8 = 0, 1;
        buffer: u32 = 0, 2;
        name: Text<'a> = Text::default(), 3;
        quantization: Option<Quantization<'a>> = None, 4;
        is_variable: bool = false, 5;
        sparsity: Option<Sparsity<'a>> = None, 6;
        shape_signature: Numbers<'a, i32> = Numbers::default(), 7;
        external_buffer: u32 = 0, 10;
    }
}

table! {
    /// How integers stand for real numbers: one scale, or one for each index along a dimension.
    Quantization<'a> {
        scale: Numbers<'a, f32> = Numbers::default(), 2;
        zero_point: Numbers<'a, i64> = Numbers::default(), 3;
        details_type: u8 = 0, 4;
        quantized_dimension: i32 = 0, 6;
    }
}

table! {
    /// How the elements of a sparse constant are stored.
    Sparsity<'a> {
        traversal_order: Numbers<'a, i32> = Numbers::default(), 0;
        block_map: Numbers<'a, i32> = Numbers::default(), 1;
        dim_metadata: Vec<DimensionMetadata<'a>> = Vec::new(), 2;
    }
}

table! {
    /// One level of a sparse constant: dense with an extent, or compressed with segments and indices.
    DimensionMetadata<'a> {
        format: i8 = 0, 0;
        dense_size: i32 = 0, 1;
        array_segments_type: u8 = 0, 2;
        array_segments: Deferred<'a> = Deferred::default(), 3;
        array_indices_type: u8 = 0, 4;
        array_indices: Deferred<'a> = Deferred::default(), 5;
    }
}

table! {
    /// Sparse indices of 32 bits.
    Int32Vector<'a> {
        values: Numbers<'a, i32> = Numbers::default(), 0;
    }
}

table! {
    /// Sparse indices of 16 bits.
    Uint16Vector<'a> {
        values: Numbers<'a, u16> = Numbers::default(), 0;
    }
}

table! {
    /// Sparse indices of 8 bits.
    Uint8Vector<'a> {
        values: Numbers<'a, u8> = Numbers::default(), 0;
    }
}

table! {
    /// A node of a graph. Absent optional inputs have the tensor index -1.
    Operator<'a> {
        opcode_index: u32 = 0, 0;
        inputs: Numbers<'a, i32> = Numbers::default(), 1;
        outputs: Numbers<'a, i32> = Numbers::default(), 2;
        options_type: u8 = 0, 3;
        options: Deferred<'a> = Deferred::default(), 4;
        intermediates: Numbers<'a, i32> = Numbers::default(), 8;
        second_options_type: u8 = 0, 11;
        second_options: Deferred<'a> = Deferred::default(), 12;
    }
}

table! {
    /// The bytes of a constant: in the table, or in the file after all tables at `offset` (of more than 1) if
    /// the model is too large for a FlatBuffer.
    Buffer<'a> {
        data: Numbers<'a, u8> = Numbers::default(), 0;
        offset: u64 = 0, 1;
        size: u64 = 0, 2;
    }
}

table! {
    /// Names for the inputs and outputs of a graph, better ones than those of its tensors.
    Signature<'a> {
        inputs: Vec<TensorMap<'a>> = Vec::new(), 0;
        outputs: Vec<TensorMap<'a>> = Vec::new(), 1;
        key: Text<'a> = Text::default(), 2;
        subgraph_index: u32 = 0, 4;
    }
}

table! {
    /// The name of one input or output.
    TensorMap<'a> {
        name: Text<'a> = Text::default(), 0;
        tensor_index: u32 = 0, 1;
    }
}
