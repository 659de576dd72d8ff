//! Programs that the kernel itself runs, as the machine's root and in its namespaces, from paths of the image. The
//! root of a sealed view writes the image's disk and can make the kernel call them, so before there is such a view
//! they are out of its reach. `request-key` has a fixed path: its calls are taken from views (`exec/filter.rs`). So
//! has TOMOYO's loader: the kernel's command line moves it (`packages/vmm/src/qemu/argv.ts`).

use std::io;

use crate::boot::modules;
use crate::log;

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// The kernel's default: a file.
const CORE_FILE: &str = "core";

/// Puts module helper and core handler out of reach.
pub fn put_out_of_reach() -> io::Result<()> {
    modules::insist_on_helper()?;
    if std::fs::read_to_string(CORE_PATTERN)?.starts_with('|') {
        log!("view: core dumps become files, because a handler in the image could be replaced from a view");
        std::fs::write(CORE_PATTERN, CORE_FILE)?;
    }
    Ok(())
}
