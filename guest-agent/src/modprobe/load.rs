//! Hands one module file to the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::os;

/// The kernel unpacks the file itself (CONFIG_MODULE_DECOMPRESS); `linux/module.h`.
const MODULE_INIT_COMPRESSED_FILE: libc::c_int = 4;
const COMPRESSED: [&str; 3] = ["xz", "zst", "gz"];

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is there now.
    Loaded,
    /// It was there before.
    WasLoaded,
}

/// Loads a module file, compressed or not.
pub fn load_file(path: &Path, parameters: &str) -> io::Result<Outcome> {
    let file = os::open(path, libc::O_RDONLY, 0)?;
    let parameters = os::c_string(parameters)?;
    let compressed = path.extension().is_some_and(|end| COMPRESSED.iter().any(|known| end == *known));
    let flags = if compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    // SAFETY: an open file and a NUL-terminated string.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), flags) };
    match os::check_long(result) {
        Ok(_) => Ok(Outcome::Loaded),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(Outcome::WasLoaded),
        Err(error) => Err(error),
    }
}
