//! The header as the sources make it.

use std::path::Path;

/// The sources with something for the header, in its order.
const SOURCES: [&str; 14] = [
    "codes.rs",
    "operation_codes.rs",
    "types.rs",
    "ffi/pointer.rs",
    "exports/memory.rs",
    "exports/model.rs",
    "exports/compilation.rs",
    "exports/execution.rs",
    "exports/burst.rs",
    "exports/event.rs",
    "exports/device.rs",
    "exports/memory_desc.rs",
    "exports/extension.rs",
    "exports/nnhal.rs",
];

/// The header.
///
/// # Panics
///
/// If the sources cannot be read.
pub(crate) fn header() -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("a configuration");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(package.join("src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("sources").write(&mut text);
    plain(&String::from_utf8(text).expect("a text"))
}

/// The types that stand for pointers in the sources, as C knows them: pointers.
fn plain(text: &str) -> String {
    let blocks = text.split("\n\n");
    let (typedefs, kept): (Vec<&str>, Vec<&str>) = blocks.partition(|block| pointer(block).is_some());
    let mut pointers: Vec<(&str, &str)> = typedefs.into_iter().filter_map(pointer).collect();
    // No name is a part of one that was replaced before.
    pointers.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let kept: Vec<String> = kept.into_iter().map(tagged).collect();
    let mut text = kept.join("\n\n");
    for (name, target) in pointers {
        // A constant pointer has its `const` behind what it points to.
        let target = match target.strip_prefix("const ConstHandle_") {
            Some(object) => format!("const {}*const *", object.trim_end_matches('*')),
            None => target.to_owned(),
        };
        text = text.replace(&format!("{name} "), &target);
    }
    text
}

/// A structure with a tag, so that it can be declared ahead.
fn tagged(block: &str) -> String {
    let name = block
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("} ")?.strip_suffix(';'));
    match name {
        Some(name) => block.replace("typedef struct {", &format!("typedef struct {name} {{")),
        None => block.to_owned(),
    }
}

/// The name and the target of a type that stands for a pointer, if the block defines one.
fn pointer(block: &str) -> Option<(&str, &str)> {
    let typedef = block
        .lines()
        .last()?
        .strip_prefix("typedef ")?
        .strip_suffix(';')?;
    let star = typedef.rfind('*')?;
    let (target, name) = typedef.split_at(star + 1);
    let is_ours = ["In_", "Out_", "Handle_", "ConstHandle_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    is_ours.then_some((name, target))
}

/// Feature levels, how many functions each adds, and their names without `ANeuralNetworks`; 0 are the
/// functions for extensions.
#[allow(dead_code, reason = "the example prints the header only")]
pub(crate) const FUNCTIONS: [(u32, usize, &[&str]); 6] = [
    (
        27,
        23,
        &[
            "Memory_createFromFd",
            "Memory_free",
            "Model_create",
            "Model_free",
            "Model_finish",
            "Model_addOperand",
            "Model_setOperandValue",
            "Model_setOperandValueFromMemory",
            "Model_addOperation",
            "Model_identifyInputsAndOutputs",
            "Compilation_create",
            "Compilation_free",
            "Compilation_setPreference",
            "Compilation_finish",
            "Execution_create",
            "Execution_free",
            "Execution_setInput",
            "Execution_setInputFromMemory",
            "Execution_setOutput",
            "Execution_setOutputFromMemory",
            "Execution_startCompute",
            "Event_wait",
            "Event_free",
        ],
    ),
    (28, 1, &["Model_relaxComputationFloat32toFloat16"]),
    (
        29,
        19,
        &[
            "_getDeviceCount",
            "_getDevice",
            "Device_getName",
            "Device_getType",
            "Device_getVersion",
            "Device_getFeatureLevel",
            "Model_getSupportedOperationsForDevices",
            "Model_setOperandSymmPerChannelQuantParams",
            "Compilation_createForDevices",
            "Compilation_setCaching",
            "Execution_compute",
            "Execution_burstCompute",
            "Execution_getOutputOperandRank",
            "Execution_getOutputOperandDimensions",
            "Execution_setMeasureTiming",
            "Execution_getDuration",
            "Burst_create",
            "Burst_free",
            "Memory_createFromAHardwareBuffer",
        ],
    ),
    (
        30,
        19,
        &[
            "MemoryDesc_create",
            "MemoryDesc_free",
            "MemoryDesc_addInputRole",
            "MemoryDesc_addOutputRole",
            "MemoryDesc_setDimensions",
            "MemoryDesc_finish",
            "Memory_createFromDesc",
            "Memory_copy",
            "Compilation_setPriority",
            "Compilation_setTimeout",
            "Execution_setTimeout",
            "Execution_setLoopTimeout",
            "_getDefaultLoopTimeout",
            "_getMaximumLoopTimeout",
            "Model_setOperandValueFromModel",
            "Event_createFromSyncFenceFd",
            "Event_getSyncFenceFd",
            "Execution_startComputeWithDependencies",
            "Device_wait",
        ],
    ),
    (
        31,
        7,
        &[
            "_getRuntimeFeatureLevel",
            "Execution_setReusable",
            "Execution_enableInputAndOutputPadding",
            "Compilation_getPreferredMemoryAlignmentForInput",
            "Compilation_getPreferredMemoryAlignmentForOutput",
            "Compilation_getPreferredMemoryPaddingForInput",
            "Compilation_getPreferredMemoryPaddingForOutput",
        ],
    ),
    (
        0,
        6,
        &[
            "Device_getExtensionSupport",
            "Model_getExtensionOperandType",
            "Model_getExtensionOperationType",
            "Model_setOperandExtensionData",
            "Compilation_addExtensionAttribute",
            "Execution_addExtensionAttribute",
        ],
    ),
];
