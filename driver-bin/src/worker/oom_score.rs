//! How readily the system ends this process when memory runs out.

use nnhal::diag::tags;

/// How readily the system ends a worker when memory runs out, beside all else at 0: before the supervisor and
/// what other programs do, as browsers have it for the processes of their pages.
const SCORE: i32 = 300;

const FILE: &str = "/proc/self/oom_score_adj";

/// Has the system end this worker before others. To be called before the jail, which has no files. A
/// supervisor cannot do it: as it is not dumpable, its processes are closed to it while they are executed.
pub(super) fn raise() {
    let current = std::fs::read_to_string(FILE).ok();
    let current: i32 = current.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if current >= SCORE {
        return;
    }
    if let Err(error) = std::fs::write(FILE, SCORE.to_string()) {
        tracing::warn!(target: tags::DRIVER, %error, "the system may end the supervisor before a worker when memory runs out");
    }
}
