//! The tags of NNAPI's verbose log, as targets of `tracing`'s events, and the filter that selects them.

/// Choosing devices, dividing and preparing models, caching.
pub const COMPILATION: &str = "compilation";
/// Operations computed by a CPU.
pub const CPUEXE: &str = "cpuexe";
/// What goes between client and driver, and what the driver does.
pub const DRIVER: &str = "driver";
/// Executions and their steps.
pub const EXECUTION: &str = "execution";
/// Devices: found, opened, lost; memories.
pub const MANAGER: &str = "manager";
/// Models as they are built and checked.
pub const MODEL: &str = "model";

/// All tags, in NNAPI's order.
pub const ALL: [&str; 6] = [MODEL, COMPILATION, EXECUTION, CPUEXE, MANAGER, DRIVER];

/// The environment variable that says what is logged.
pub const LOG_VARIABLE: &str = "NNHAL_LOG";

/// What is logged if the variable is not set or makes no sense.
pub const DEFAULT_FILTER: &str = "warn";

/// A filter in the form of `debug.nn.vlog` as directives of the `tracing` ecosystem: items are separated by
/// commas, colons between tags or spaces; `1` and `all` stand for all tags; a tag may have a level behind it
/// (`driver=debug`); a level alone is for everything else. What names no tag is passed on as it is, so that
/// modules can be selected too.
///
/// ```
/// use nnhal::diag::tags::directives;
/// assert_eq!(directives("compilation:execution"), "warn,compilation=trace,execution=trace");
/// assert_eq!(directives("info,driver=debug"), "info,driver=debug");
/// ```
#[must_use]
pub fn directives(filter: &str) -> String {
    let mut found: Vec<String> = Vec::new();
    let mut has_default = false;
    for item in filter.split([',', ' ']).flat_map(split_tags) {
        match item {
            "" => {}
            "1" | "all" => found.extend(ALL.map(|tag| format!("{tag}=trace"))),
            tag if ALL.contains(&tag) => found.push(format!("{tag}=trace")),
            other => {
                has_default |= LEVELS.contains(&other.to_ascii_lowercase().as_str());
                found.push(other.to_owned());
            }
        }
    }
    if !has_default {
        found.insert(0, DEFAULT_FILTER.to_owned());
    }
    found.join(",")
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// `a:b` is two tags; `a::b=debug` is a module.
fn split_tags(item: &str) -> Vec<&str> {
    if item.contains("::") {
        vec![item]
    } else {
        item.split(':').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tags_are_selected_by_either_word() {
        let expected =
            "warn,model=trace,compilation=trace,execution=trace,cpuexe=trace,manager=trace,driver=trace";
        assert_eq!(directives("all"), expected);
        assert_eq!(directives(" 1 "), expected);
    }

    #[test]
    fn modules_and_levels_are_passed_on() {
        assert_eq!(
            directives("nnhal_client::runtime=debug model"),
            "warn,nnhal_client::runtime=debug,model=trace"
        );
        assert_eq!(directives("error"), "error");
        assert_eq!(directives(""), "warn");
    }
}
