//! `libneuralnetworks.so` called by C programs, which are compiled against its header and run in processes of
//! their own beside the real daemon.

mod program;

use std::path::Path;

use program::{
    library, run_beside_vendor, run_case, run_example, run_example_with_driver, run_with_deaths,
    run_without_driver,
};

#[test]
fn n001_null_pointers_and_stale_ones_are_told() {
    run_case("models", "n001");
}

#[test]
fn call_that_fails_leaves_no_pointer_behind() {
    run_case("models", "nulled");
}

#[test]
fn n010_operands_that_contradict_themselves_are_bad_data() {
    run_case("models", "n010");
}

#[test]
fn n011_operand_after_finish_is_bad_state() {
    run_case("models", "n011");
}

#[test]
fn n012_operand_beyond_32_bits_is_bad_data() {
    run_case("models", "n012");
}

#[test]
fn n013_parameters_of_channels_must_fit_their_operand() {
    run_case("models", "n013");
}

#[test]
fn n014_value_has_the_length_of_its_operand() {
    run_case("models", "n014");
}

#[test]
fn n015_value_in_a_memory_lies_inside_it() {
    run_case("models", "n015");
}

#[test]
fn n016_hardware_buffers_are_not_there() {
    run_case("models", "n016");
}

#[test]
fn n017_value_that_is_a_model_must_be_finished() {
    run_case("models", "n017");
}

#[test]
fn n018_value_of_an_oem_type_has_any_length() {
    run_case("models", "n018");
}

#[test]
fn n019_operation_must_fit_its_signature() {
    run_case("models", "n019");
}

#[test]
fn n020_inputs_and_outputs_are_listed_once() {
    run_case("models", "n020");
}

#[test]
fn n021_relaxing_after_finish_is_bad_state() {
    run_case("models", "n021");
}

#[test]
fn n022_model_without_anything_and_second_finish_are_refused() {
    run_case("models", "n022");
}

#[test]
fn n023_cycles_and_unwritten_operands_are_bad_data_and_any_order_is_fine() {
    run_case("models", "n023");
}

#[test]
fn n030_compilation_of_an_unfinished_model_is_bad_state() {
    run_case("models", "n030");
}

#[test]
fn n031_lists_of_devices_are_checked_before_the_model() {
    run_case("models", "n031");
}

#[test]
fn n032_supported_operations_check_devices_before_the_model() {
    run_case("models", "n032");
}

#[test]
fn n033_unknown_preferences_and_priorities_are_bad_data() {
    run_case("models", "n033");
}

#[test]
fn n034_time_limit_of_a_compilation_needs_one_named_device() {
    run_case("models", "n034");
}

#[test]
fn n035_compilation_after_finish_is_closed() {
    run_case("models", "n035");
}

#[test]
fn n036_executions_and_bursts_need_a_finished_compilation() {
    run_case("models", "n036");
}

#[test]
fn n040_arguments_have_the_length_and_type_of_their_operand() {
    run_case("executions", "n040");
}

#[test]
fn n041_arguments_lie_inside_their_memories() {
    run_case("executions", "n041");
}

#[test]
fn n042_sizes_beyond_32_bits_are_errors() {
    run_case("executions", "n042");
}

#[test]
fn n043_device_memory_is_used_for_its_roles_and_after_it_was_written() {
    run_case("executions", "n043");
}

#[test]
fn n044_measuring_and_limits_need_one_named_device() {
    run_case("executions", "n044");
}

#[test]
fn n045_execution_after_its_start_is_closed() {
    run_case("executions", "n045");
}

#[test]
fn n046_durations_are_there_after_a_measured_run() {
    run_case("executions", "n046");
}

#[test]
fn n047_shapes_are_there_after_the_run() {
    run_case("executions", "n047");
}

#[test]
fn n048_executions_heed_their_time_limit() {
    run_case("executions", "n048");
}

#[test]
fn n050_descriptors_that_are_none_make_no_events() {
    run_case("executions", "n050");
}

#[test]
fn n051_executions_wait_for_their_dependencies() {
    run_case("executions", "n051");
}

#[test]
fn timeouts_end_the_wait_for_dependencies() {
    run_case("executions", "timeouts");
}

#[test]
fn n060_bursts_take_executions_of_their_compilation_one_at_a_time() {
    run_case("executions", "n060");
}

#[test]
fn n070_roles_are_checked_when_they_are_added() {
    run_case("executions", "n070");
}

#[test]
fn n071_roles_must_not_contradict_each_other() {
    run_case("executions", "n071");
}

#[test]
fn n072_dimensions_must_not_contradict_the_roles() {
    run_case("executions", "n072");
}

#[test]
fn n073_descriptions_without_roles_or_unfinished_give_no_memory() {
    run_case("executions", "n073");
}

#[test]
fn n074_copies_check_sizes_and_state() {
    run_case("executions", "n074");
}

#[test]
fn reusable_execution_is_computed_in_every_way() {
    run_case("executions", "reuse");
}

#[test]
fn objects_may_be_freed_in_any_order() {
    run_case("executions", "lifetimes");
}

#[test]
fn streams_of_reusable_executions_have_nothing_of_each_other() {
    for case in ["buffers", "in_place", "memories", "shapes", "too_small"] {
        run_case("streams", case);
    }
}

#[test]
fn trace_has_the_last_calls_before_the_exit() {
    // It ends as soon as the driver has computed five times.
    let trace = program::trace_of_case("streams", "in_place");
    let runs = trace.matches("\"name\":\"run\"").count();
    assert_eq!(runs, 5, "{trace}");
}

#[test]
fn library_stays_when_a_program_closes_it() {
    let dynamic = inspected("readelf", &["-d"]);
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn large_values_are_read_when_the_model_is_finished() {
    run_case("executions", "large_values");
}

#[test]
fn output_over_its_inputs_leaves_what_is_behind_it() {
    run_case("executions", "in_place");
}

#[test]
fn branches_are_models_of_their_own() {
    run_case("executions", "control_flow");
}

#[test]
fn recurrent_layers_have_the_activations_that_tflite_sends() {
    run_case("executions", "recurrent_activations");
}

#[test]
fn library_and_devices_say_what_they_are() {
    run_case("executions", "introspection");
}

#[test]
fn extension_of_a_vendor_computes() {
    run_beside_vendor("extensions", "extension", vendor_driver::FIBONACCI);
}

#[test]
fn program_whose_device_dies_is_told_and_goes_on() {
    run_with_deaths("named", None);
}

#[test]
fn program_with_all_devices_is_told_that_they_died() {
    run_with_deaths("all", None);
}

#[test]
fn program_whose_models_are_trusted_has_its_results_though_devices_die() {
    run_with_deaths("all", Some("cpu"));
}

#[test]
fn program_that_wants_recovery_has_its_results_whenever_its_device_dies() {
    run_with_deaths("named_recovered", None);
    run_with_deaths("all_recovered", None);
}

#[test]
fn environment_gives_recovery_to_programs_that_know_nothing_of_it() {
    run_with_deaths("named_recovered", Some("2"));
    run_with_deaths("all_recovered", Some("2"));
}

#[test]
fn setting_of_recovery_that_says_nothing_is_an_error() {
    run_with_deaths("bad_setting", Some("often"));
}

#[test]
fn example_classifies_on_one_device_and_on_all() {
    for arguments in [&["nnhal-reference"][..], &[]] {
        let printed = run_example(arguments);
        assert!(
            printed.contains("probabilities: 0.1173 0.8668 0.0159"),
            "{printed}"
        );
        assert!(
            printed.contains("probabilities: 0.2653 0.7214 0.0132"),
            "{printed}"
        );
    }
}

#[test]
fn driver_that_cannot_be_started_is_warned_of_once_with_what_would_be_right() {
    for driver in ["/nonexistent/nnhald", "/dev/null", "/bin/cat"] {
        let said = run_example_with_driver(Path::new(driver));
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARN")).collect();
        let [warning] = warnings[..] else { panic!("{said}") };
        for part in [
            driver,
            "NNHAL_DRIVER names it, and must name a driver",
            "the only device",
        ] {
            assert!(warning.contains(part), "{warning}");
        }
    }
    let said = run_example_with_driver(Path::new(env!("CARGO_BIN_EXE_nnhal-test-daemon")));
    assert!(!said.contains("the only device"), "{said}");
}

/// What a tool of binutils says of the library.
fn inspected(tool: &str, options: &[&str]) -> String {
    let output = std::process::Command::new(tool)
        .args(options)
        .arg(library())
        .output()
        .expect("binutils");
    assert!(output.status.success(), "{tool}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn process_that_forks_beside_first_calls_leaves_no_call_hanging() {
    run_without_driver("forks");
}

#[test]
fn library_has_the_name_that_programs_ask_for() {
    let dynamic = inspected("readelf", &["-d"]);
    assert!(
        dynamic.contains("Library soname: [libneuralnetworks.so]"),
        "{dynamic}"
    );
}

#[test]
fn library_exports_its_interface_and_nothing_else() {
    let symbols = inspected("nm", &["-D", "--defined-only", "--format=just-symbols"]);
    let header = std::fs::read_to_string(program::include_dir().join("NeuralNetworks.h")).expect("a header");
    let symbols = symbols.lines().filter(|symbol| !symbol.is_empty());
    let exported: Vec<&str> = symbols.filter_map(|symbol| symbol.split('@').next()).collect();
    for symbol in &exported {
        assert!(
            header.contains(&format!("{symbol}(")),
            "{symbol} is not in the header"
        );
    }
    // 69 functions to feature level 5, 2 of level 8, 4 for extensions, the text of the last error and the
    // policy of recovery.
    assert_eq!(exported.len(), 77, "{exported:?}");
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn functions_have_the_versions_of_the_public_library() {
    let options = [
        "-D",
        "--defined-only",
        "--with-symbol-versions",
        "--format=just-symbols",
    ];
    let symbols = inspected("nm", &options);
    for symbol in symbols.lines().filter(|symbol| !symbol.is_empty()) {
        let version = if symbol.starts_with("ANeuralNetworks") {
            "LIBNEURALNETWORKS"
        } else {
            "NNHAL_1.0"
        };
        assert!(symbol.ends_with(&format!("@@{version}")), "{symbol}");
    }
}
