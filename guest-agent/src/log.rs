//! One line at a time on standard error: the serial console of a machine, or the terminal of a test.
//! A serial line is slow under emulation, so only rare events are logged.

use std::io::Write;

/// Writes one line with the time since boot. Used through the `log!` macro.
pub fn line(text: std::fmt::Arguments<'_>) {
    let uptime = crate::os::uptime_ms();
    let line = format!("sandlot-agent [{}.{:03}] {text}\r\n", uptime / 1000, uptime % 1000);
    // Nobody may be reading the console: that is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// `log!("what {happened}")`.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => { $crate::log::line(format_args!($($argument)*)) };
}
