//! What a node says of itself: log lines, as text on a terminal and as JSON otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The variable that sets the level: `info` (the default), `debug`, or a directive such as `berth::gateway=debug`.
pub const LEVEL_VARIABLE: &str = "BERTH_LOG";

/// Starts logging to stderr, once for the process.
///
/// # Errors
/// When [`LEVEL_VARIABLE`] is no directive; says so in words.
pub fn start() -> Result<(), String> {
    let directives = std::env::var(LEVEL_VARIABLE).ok().filter(|directives| !directives.is_empty());
    let filter = EnvFilter::try_new(directives.as_deref().unwrap_or("info"))
        .map_err(|error| format!("{LEVEL_VARIABLE}: {error}; write for example info or berth=debug"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.with_target(false).init()
    } else {
        log.json().with_current_span(false).with_span_list(false).init()
    }
    Ok(())
}
