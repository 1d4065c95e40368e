use std::ffi::{c_int, c_void};

use nnhal_client::runtime::Direction;

use super::arguments::{objects, operand};
use crate::burst::Burst;
use crate::compilation::Compilation;
use crate::event::Event;
use crate::execution::{Execution, NewArgument, too_small};
use crate::ffi::{ConstHandle, Handle, In, Out, guard, guard_free};
use crate::handles;
use crate::memory::Memory;
use crate::result::{Failure, Outcome};
use crate::types::{
    ANeuralNetworksBurst, ANeuralNetworksCompilation, ANeuralNetworksEvent, ANeuralNetworksExecution,
    ANeuralNetworksMemory, ANeuralNetworksOperandType,
};

/// Makes an execution of a finished compilation.
///
/// `BAD_STATE` if the compilation is not finished, or finishing it has failed. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_create(
    compilation: Handle<ANeuralNetworksCompilation>,
    execution: Out<Handle<ANeuralNetworksExecution>>,
) -> c_int {
    guard("ANeuralNetworksExecution_create", || {
        compilation.expect("compilation")?;
        execution.clear("execution")?;
        let compilation = handles::get::<Compilation>(&compilation, "compilation")?;
        handles::create::<Execution>(execution, Execution::new(compilation)?)
    })
}

/// Frees an execution; NULL is no error. One that is computing is not freed. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_free(execution: Handle<ANeuralNetworksExecution>) {
    guard_free("ANeuralNetworksExecution_free", || {
        handles::take::<Execution>(&execution, Execution::expect_idle).map(drop)
    });
}

fn set(
    execution: &Handle<ANeuralNetworksExecution>,
    direction: Direction,
    index: i32,
    described: In<ANeuralNetworksOperandType>,
    argument: impl FnOnce() -> Outcome<NewArgument>,
) -> Outcome {
    handles::with::<Execution, _>(execution, "execution", |execution| {
        let argument = argument()?;
        let described = described.optional().map(operand).transpose()?;
        execution.set(direction, index, described.as_ref(), argument)
    })
}

fn in_memory(
    memory: &ConstHandle<ANeuralNetworksMemory>,
    offset: usize,
    length: usize,
) -> Outcome<NewArgument> {
    Ok(NewArgument::Memory {
        memory: handles::get_const::<Memory>(memory, "memory")?,
        offset,
        length,
    })
}

/// Says where an input's value is, which must stay as it is until the execution has ended. `type` gives
/// dimensions that the model leaves open, and may be NULL. A NULL buffer with length 0 leaves an optional
/// input out.
///
/// `BAD_DATA` if there is no such input, the type does not fit it, or the length is not that of its value;
/// `BAD_STATE` if it is set already or the computation has started. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setInput(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    r#type: In<ANeuralNetworksOperandType>,
    buffer: In<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksExecution_setInput", || {
        set(&execution, Direction::Input, index, r#type, || {
            if buffer.is_null() && length == 0 {
                return Ok(NewArgument::Omitted);
            }
            Ok(NewArgument::Input(buffer.bytes(length, "buffer")?))
        })
    })
}

/// As `ANeuralNetworksExecution_setInput` for a value in a memory. Offset and length are 0 for a memory that
/// was made from a description, which must have this input.
///
/// Also `BAD_DATA` if the range is not inside the memory. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setInputFromMemory(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    r#type: In<ANeuralNetworksOperandType>,
    memory: ConstHandle<ANeuralNetworksMemory>,
    offset: usize,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksExecution_setInputFromMemory", || {
        set(&execution, Direction::Input, index, r#type, || {
            in_memory(&memory, offset, length)
        })
    })
}

/// Says where an output's value goes, which nobody else uses until the execution has ended. `type` gives
/// dimensions that the model leaves open, and may be NULL.
///
/// `BAD_DATA` if there is no such output, the type does not fit it, or the length is not that of its value,
/// where that is known; `BAD_STATE` if it is set already or the computation has started. Since feature
/// level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setOutput(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    r#type: In<ANeuralNetworksOperandType>,
    buffer: Out<c_void>,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksExecution_setOutput", || {
        set(&execution, Direction::Output, index, r#type, || {
            if buffer.is_null() && length == 0 {
                return Ok(NewArgument::Omitted);
            }
            Ok(NewArgument::Output(buffer.room(length, "buffer")?))
        })
    })
}

/// As `ANeuralNetworksExecution_setOutput` for a value in a memory. Offset and length are 0 for a memory that
/// was made from a description, which must have this output.
///
/// Also `BAD_DATA` if the range is not inside the memory. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setOutputFromMemory(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    r#type: In<ANeuralNetworksOperandType>,
    memory: ConstHandle<ANeuralNetworksMemory>,
    offset: usize,
    length: usize,
) -> c_int {
    guard("ANeuralNetworksExecution_setOutputFromMemory", || {
        set(&execution, Direction::Output, index, r#type, || {
            in_memory(&memory, offset, length)
        })
    })
}

/// Starts the computation, whose end the event tells. The execution and its buffers must stay until then.
///
/// `BAD_DATA` if an argument is not set; `BAD_STATE` if it has started before and is not reusable. Since
/// feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_startCompute(
    execution: Handle<ANeuralNetworksExecution>,
    event: Out<Handle<ANeuralNetworksEvent>>,
) -> c_int {
    guard("ANeuralNetworksExecution_startCompute", || {
        execution.expect("execution")?;
        event.clear("event")?;
        let execution = handles::get::<Execution>(&execution, "execution")?;
        handles::create::<Event>(event, execution.start()?)
    })
}

/// Starts the computation when everything in `dependencies` is done, and gives an event that others can
/// depend on. `duration` limits how long it may take from then on, in nanoseconds; 0 is no limit.
///
/// `BAD_DATA` if an argument is not set, a dimension of an output is not known, or there is a limit and the
/// compilation was not made for exactly one named device; `BAD_STATE` if it has started before and is not
/// reusable. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_startComputeWithDependencies(
    execution: Handle<ANeuralNetworksExecution>,
    dependencies: In<ConstHandle<ANeuralNetworksEvent>>,
    num_dependencies: u32,
    duration: u64,
    event: Out<Handle<ANeuralNetworksEvent>>,
) -> c_int {
    guard("ANeuralNetworksExecution_startComputeWithDependencies", || {
        execution.expect("execution")?;
        event.clear("event")?;
        let execution = handles::get::<Execution>(&execution, "execution")?;
        let dependencies = match num_dependencies {
            0 => Vec::new(),
            count => objects::<Event>(dependencies, count, "dependencies")?,
        };
        let started = execution.start_with_dependencies(&dependencies, duration)?;
        handles::create::<Event>(event, started)
    })
}

/// Computes and waits for the end.
///
/// `BAD_DATA` if an argument is not set; `BAD_STATE` if it has started before and is not reusable;
/// `OUTPUT_INSUFFICIENT_SIZE` if a buffer is too small, of which
/// `ANeuralNetworksExecution_getOutputOperandDimensions` tells more. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_compute(execution: Handle<ANeuralNetworksExecution>) -> c_int {
    guard("ANeuralNetworksExecution_compute", || {
        handles::with::<Execution, _>(&execution, "execution", |execution| execution.compute())
    })
}

/// Computes by a burst of the same compilation and waits for the end.
///
/// As `ANeuralNetworksExecution_compute`; also `BAD_DATA` if the burst is of another compilation, and
/// `BAD_STATE` if another execution uses it. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_burstCompute(
    execution: Handle<ANeuralNetworksExecution>,
    burst: Handle<ANeuralNetworksBurst>,
) -> c_int {
    guard("ANeuralNetworksExecution_burstCompute", || {
        handles::with::<Execution, _>(&execution, "execution", |execution| {
            handles::with::<Burst, _>(&burst, "burst", |burst| execution.compute_by_burst(burst))
        })
    })
}

/// Limits how long the computation may take from its start, in nanoseconds; 0 is no limit.
///
/// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if the computation
/// has started. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setTimeout(
    execution: Handle<ANeuralNetworksExecution>,
    duration: u64,
) -> c_int {
    guard("ANeuralNetworksExecution_setTimeout", || {
        handles::get::<Execution>(&execution, "execution")?.set_timeout(duration)
    })
}

/// Limits how long each WHILE may take, in nanoseconds; at most `ANeuralNetworks_getMaximumLoopTimeout`
/// counts.
///
/// `BAD_STATE` if the computation has started. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setLoopTimeout(
    execution: Handle<ANeuralNetworksExecution>,
    duration: u64,
) -> c_int {
    guard("ANeuralNetworksExecution_setLoopTimeout", || {
        handles::get::<Execution>(&execution, "execution")?.set_loop_timeout(duration)
    })
}

/// Says whether the computation is measured, for `ANeuralNetworksExecution_getDuration`.
///
/// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if the computation
/// has started. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setMeasureTiming(
    execution: Handle<ANeuralNetworksExecution>,
    measure: bool,
) -> c_int {
    guard("ANeuralNetworksExecution_setMeasureTiming", || {
        handles::get::<Execution>(&execution, "execution")?.set_measure_timing(measure)
    })
}

/// How long a measured computation took, in nanoseconds, by a value of `DurationCode`; `UINT64_MAX` if the
/// device does not tell.
///
/// `BAD_DATA` for other values; `BAD_STATE` if the execution has not ended, has failed or was not measured.
/// Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_getDuration(
    execution: ConstHandle<ANeuralNetworksExecution>,
    durationCode: i32,
    duration: Out<u64>,
) -> c_int {
    guard("ANeuralNetworksExecution_getDuration", || {
        let execution = handles::get_const::<Execution>(&execution, "execution")?;
        duration.expect("duration")?;
        duration.write(u64::MAX);
        duration.write(execution.duration(durationCode)?);
        Ok(())
    })
}

/// The number of dimensions of an output, after the execution.
///
/// `BAD_STATE` if it has not ended or nothing is known of its outputs; `BAD_DATA` if there is no such output;
/// `OUTPUT_INSUFFICIENT_SIZE`, with the value, if the buffer was too small. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_getOutputOperandRank(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    rank: Out<u32>,
) -> c_int {
    guard("ANeuralNetworksExecution_getOutputOperandRank", || {
        let execution = handles::get::<Execution>(&execution, "execution")?;
        rank.expect("rank")?;
        let shape = execution.output_shape(index)?;
        rank.write(u32::try_from(shape.dimensions.len()).unwrap_or(u32::MAX));
        if shape.is_sufficient {
            Ok(())
        } else {
            Err(too_small(index, &shape))
        }
    })
}

/// The dimensions of an output, after the execution. `dimensions` has room for as many as
/// `ANeuralNetworksExecution_getOutputOperandRank` says.
///
/// As `ANeuralNetworksExecution_getOutputOperandRank`; also `BAD_DATA` for a scalar, which has none. Since
/// feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_getOutputOperandDimensions(
    execution: Handle<ANeuralNetworksExecution>,
    index: i32,
    dimensions: Out<u32>,
) -> c_int {
    guard("ANeuralNetworksExecution_getOutputOperandDimensions", || {
        let execution = handles::get::<Execution>(&execution, "execution")?;
        dimensions.expect("dimensions")?;
        let shape = execution.output_shape(index)?;
        if shape.dimensions.is_empty() {
            return Err(Failure::bad_data(format!(
                "output {index} is a scalar, which has no dimensions"
            )));
        }
        dimensions.write_all(&shape.dimensions);
        if shape.is_sufficient {
            Ok(())
        } else {
            Err(too_small(index, &shape))
        }
    })
}

/// Says whether the execution can be computed more than once, one after the other, with the same arguments.
///
/// `BAD_STATE` if the computation has started. Since feature level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_setReusable(
    execution: Handle<ANeuralNetworksExecution>,
    reusable: bool,
) -> c_int {
    guard("ANeuralNetworksExecution_setReusable", || {
        handles::get::<Execution>(&execution, "execution")?.set_reusable(reusable)
    })
}

/// Says whether buffers may be longer than their values, whose first bytes are used then.
///
/// `BAD_STATE` after the first input or output was set. Since feature level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksExecution_enableInputAndOutputPadding(
    execution: Handle<ANeuralNetworksExecution>,
    enable: bool,
) -> c_int {
    guard("ANeuralNetworksExecution_enableInputAndOutputPadding", || {
        handles::get::<Execution>(&execution, "execution")?.enable_padding(enable)
    })
}
