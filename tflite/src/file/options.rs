//! The option tables of operators, as far as they are read, with the numbers of their fields and the code by
//! which an operator says which of them it carries.

use super::reader::{Numbers, Table, Text, table};

/// Where an operator carries its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Union {
    /// In `BuiltinOptions`.
    First,
    /// In `BuiltinOptions2`, which came when the first one had no room left.
    Second,
}

/// A table of a union of operator options.
pub(crate) trait Options<'a>: Table<'a> + Default {
    /// The name in the format, for messages.
    const NAME: &'static str;
    /// The union.
    const UNION: Union;
    /// The value of the union's type field.
    const CODE: u8;
}

macro_rules! options {
    (of $union:ident $($name:ident $(<$life:lifetime>)? = $code:literal {
        $($field:ident: $ty:ty = $default:expr, $number:literal;)*
    })*) => {$(
        table! {
            #[doc = concat!("`", stringify!($name), "` of the format.")]
            $name $(<$life>)? { $($field: $ty = $default, $number;)* }
        }

        options!(@union $union $name $(<$life>)? = $code);
    )*};
    (@union $union:ident $name:ident<$life:lifetime> = $code:literal) => {
        impl<$life> Options<$life> for $name<$life> {
            const NAME: &'static str = stringify!($name);
            const UNION: Union = Union::$union;
            const CODE: u8 = $code;
        }
    };
    (@union $union:ident $name:ident = $code:literal) => {
        impl<'a> Options<'a> for $name {
            const NAME: &'static str = stringify!($name);
            const UNION: Union = Union::$union;
            const CODE: u8 = $code;
        }
    };
}

options! {
    of First

    Conv2DOptions = 1 {
        padding: i8 = 0, 0;
        stride_w: i32 = 0, 1;
        stride_h: i32 = 0, 2;
        activation: i8 = 0, 3;
        dilation_w: i32 = 1, 4;
        dilation_h: i32 = 1, 5;
    }
    DepthwiseConv2DOptions = 2 {
        padding: i8 = 0, 0;
        stride_w: i32 = 0, 1;
        stride_h: i32 = 0, 2;
        depth_multiplier: i32 = 0, 3;
        activation: i8 = 0, 4;
        dilation_w: i32 = 1, 5;
        dilation_h: i32 = 1, 6;
    }
    LSHProjectionOptions = 4 {
        kind: i8 = 0, 0;
    }
    Pool2DOptions = 5 {
        padding: i8 = 0, 0;
        stride_w: i32 = 0, 1;
        stride_h: i32 = 0, 2;
        filter_width: i32 = 0, 3;
        filter_height: i32 = 0, 4;
        activation: i8 = 0, 5;
    }
    SVDFOptions = 6 {
        rank: i32 = 0, 0;
        activation: i8 = 0, 1;
    }
    RNNOptions = 7 {
        activation: i8 = 0, 0;
    }
    FullyConnectedOptions = 8 {
        activation: i8 = 0, 0;
        weights_format: i8 = 0, 1;
        keep_num_dims: bool = false, 2;
        asymmetric_quantize_inputs: bool = false, 3;
    }
    SoftmaxOptions = 9 {
        beta: f32 = 0.0, 0;
    }
    ConcatenationOptions = 10 {
        axis: i32 = 0, 0;
        activation: i8 = 0, 1;
    }
    AddOptions = 11 {
        activation: i8 = 0, 0;
    }
    L2NormOptions = 12 {
        activation: i8 = 0, 0;
    }
    LocalResponseNormalizationOptions = 13 {
        radius: i32 = 0, 0;
        bias: f32 = 0.0, 1;
        alpha: f32 = 0.0, 2;
        beta: f32 = 0.0, 3;
    }
    LSTMOptions = 14 {
        activation: i8 = 0, 0;
        cell_clip: f32 = 0.0, 1;
        proj_clip: f32 = 0.0, 2;
        kernel_type: i8 = 0, 3;
    }
    ResizeBilinearOptions = 15 {
        align_corners: bool = false, 2;
        half_pixel_centers: bool = false, 3;
    }
    ReshapeOptions<'a> = 17 {
        new_shape: Numbers<'a, i32> = Numbers::default(), 0;
    }
    SpaceToDepthOptions = 19 {
        block_size: i32 = 0, 0;
    }
    MulOptions = 21 {
        activation: i8 = 0, 0;
    }
    GatherOptions = 23 {
        axis: i32 = 0, 0;
        batch_dims: i32 = 0, 1;
    }
    ReducerOptions = 27 {
        keep_dims: bool = false, 0;
    }
    SubOptions = 28 {
        activation: i8 = 0, 0;
    }
    DivOptions = 29 {
        activation: i8 = 0, 0;
    }
    SqueezeOptions<'a> = 30 {
        squeeze_dims: Numbers<'a, i32> = Numbers::default(), 0;
    }
    SequenceRNNOptions = 31 {
        time_major: bool = false, 0;
        activation: i8 = 0, 1;
    }
    StridedSliceOptions = 32 {
        begin_mask: i32 = 0, 0;
        end_mask: i32 = 0, 1;
        ellipsis_mask: i32 = 0, 2;
        new_axis_mask: i32 = 0, 3;
        shrink_axis_mask: i32 = 0, 4;
        offset: bool = false, 5;
    }
    SplitOptions = 35 {
        num_splits: i32 = 0, 0;
    }
    TransposeConvOptions = 49 {
        padding: i8 = 0, 0;
        stride_w: i32 = 0, 1;
        stride_h: i32 = 0, 2;
        activation: i8 = 0, 3;
    }
    FakeQuantOptions = 58 {
        min: f32 = 0.0, 0;
        max: f32 = 0.0, 1;
        num_bits: i32 = 0, 2;
        narrow_range: bool = false, 3;
    }
    PackOptions = 59 {
        axis: i32 = 0, 1;
    }
    OneHotOptions = 61 {
        axis: i32 = 0, 0;
    }
    UnpackOptions = 64 {
        axis: i32 = 0, 1;
    }
    BidirectionalSequenceLSTMOptions = 69 {
        activation: i8 = 0, 0;
        cell_clip: f32 = 0.0, 1;
        proj_clip: f32 = 0.0, 2;
        merge_outputs: bool = false, 3;
        time_major: bool = true, 4;
    }
    BidirectionalSequenceRNNOptions = 70 {
        time_major: bool = false, 0;
        activation: i8 = 0, 1;
        merge_outputs: bool = false, 2;
    }
    UnidirectionalSequenceLSTMOptions = 71 {
        activation: i8 = 0, 0;
        cell_clip: f32 = 0.0, 1;
        proj_clip: f32 = 0.0, 2;
        time_major: bool = false, 3;
        diagonal_recurrent_tensors: bool = false, 5;
    }
    ResizeNearestNeighborOptions = 74 {
        align_corners: bool = false, 0;
        half_pixel_centers: bool = false, 1;
    }
    LeakyReluOptions = 75 {
        alpha: f32 = 0.0, 0;
    }
    MirrorPadOptions = 77 {
        mode: i8 = 0, 0;
    }
    ReverseSequenceOptions = 87 {
        seq_dim: i32 = 0, 0;
        batch_dim: i32 = 0, 1;
    }
    IfOptions = 92 {
        then_subgraph: i32 = 0, 0;
        else_subgraph: i32 = 0, 1;
    }
    WhileOptions = 93 {
        cond_subgraph: i32 = 0, 0;
        body_subgraph: i32 = 0, 1;
    }
    DepthToSpaceOptions = 94 {
        block_size: i32 = 0, 0;
    }
    BatchMatMulOptions = 101 {
        adj_x: bool = false, 0;
        adj_y: bool = false, 1;
    }
    CumsumOptions = 102 {
        exclusive: bool = false, 0;
        reverse: bool = false, 1;
    }
    CallOnceOptions = 103 {
        init_subgraph_index: i32 = 0, 0;
    }
    Conv3DOptions = 106 {
        padding: i8 = 0, 0;
        stride_d: i32 = 0, 1;
        stride_w: i32 = 0, 2;
        stride_h: i32 = 0, 3;
        activation: i8 = 0, 4;
        dilation_d: i32 = 1, 5;
        dilation_w: i32 = 1, 6;
        dilation_h: i32 = 1, 7;
    }
    VarHandleOptions<'a> = 111 {
        container: Text<'a> = Text::default(), 0;
        shared_name: Text<'a> = Text::default(), 1;
    }
    RandomOptions = 114 {
        seed: i64 = 0, 0;
        seed2: i64 = 0, 1;
    }
    BucketizeOptions<'a> = 115 {
        boundaries: Numbers<'a, f32> = Numbers::default(), 0;
    }
    GeluOptions = 116 {
        approximate: bool = false, 0;
    }
}

options! {
    of Second

    StablehloScatterOptions<'a> = 7 {
        update_window_dims: Numbers<'a, i64> = Numbers::default(), 1;
        inserted_window_dims: Numbers<'a, i64> = Numbers::default(), 2;
        scatter_dims_to_operand_dims: Numbers<'a, i64> = Numbers::default(), 3;
        index_vector_dim: i64 = 0, 4;
        update_computation_subgraph_index: i32 = 0, 6;
    }
    StablehloPadOptions<'a> = 10 {
        edge_padding_low: Numbers<'a, i64> = Numbers::default(), 0;
        edge_padding_high: Numbers<'a, i64> = Numbers::default(), 1;
        interior_padding: Numbers<'a, i64> = Numbers::default(), 2;
    }
    StablehloReduceWindowOptions<'a> = 13 {
        window_dimensions: Numbers<'a, i64> = Numbers::default(), 0;
        window_strides: Numbers<'a, i64> = Numbers::default(), 1;
        base_dilations: Numbers<'a, i64> = Numbers::default(), 2;
        window_dilations: Numbers<'a, i64> = Numbers::default(), 3;
        padding: Numbers<'a, i64> = Numbers::default(), 4;
        body_subgraph_index: i32 = 0, 5;
    }
    StablehloGatherOptions<'a> = 16 {
        offset_dims: Numbers<'a, i64> = Numbers::default(), 0;
        collapsed_slice_dims: Numbers<'a, i64> = Numbers::default(), 1;
        start_index_map: Numbers<'a, i64> = Numbers::default(), 2;
        index_vector_dim: i64 = 0, 3;
        slice_sizes: Numbers<'a, i64> = Numbers::default(), 4;
    }
    StablehloRngBitGeneratorOptions = 19 {
        algorithm: i8 = 0, 0;
    }
    ReduceWindowOptions = 20 {
        reduce_function: i32 = 0, 0;
    }
    StableHLOCompositeOptions<'a> = 21 {
        name: Text<'a> = Text::default(), 0;
        decomposition_subgraph_index: i32 = 0, 1;
    }
    StablehloCaseOptions<'a> = 23 {
        branch_subgraph_indices: Numbers<'a, i32> = Numbers::default(), 0;
    }
}
