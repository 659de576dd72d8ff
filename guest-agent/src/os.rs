//! Thin wrappers over system calls that several parts need. Everything here is unsafe inside and safe
//! outside; nothing here knows what a sandbox is.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Turns the -1 of a system call into the error it stands for.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a long.
pub fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path or argument as C wants it; one with a NUL inside is EINVAL.
pub fn c_string(bytes: impl AsRef<[u8]>) -> io::Result<CString> {
    CString::new(bytes.as_ref()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// `c_string` of a path.
pub fn c_path(path: &Path) -> io::Result<CString> {
    c_string(path.as_os_str().as_bytes())
}

/// `open(2)`, always close-on-exec.
pub fn open(path: &Path, flags: libc::c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

/// `openat(2)`, always close-on-exec.
pub fn open_at(folder: RawFd, path: &Path, flags: libc::c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is NUL-terminated and outlives the call; the new descriptor is ours alone.
    unsafe {
        let fd = check(libc::openat(folder, path.as_ptr(), flags | libc::O_CLOEXEC, mode as libc::c_uint))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A pipe, both ends close-on-exec: (read, write).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which are ours after success.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Sets O_NONBLOCK on an open file description.
pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: plain fcntl on an open descriptor.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

/// `read(2)` into a buffer.
pub fn read(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// `write(2)` from a buffer.
pub fn write(fd: &impl AsRawFd, buffer: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::write(fd.as_raw_fd(), buffer.as_ptr().cast(), buffer.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// Whether reads and writes of an open file go past the page cache. Not every file system can (EINVAL).
pub fn set_direct(file: &impl AsRawFd, direct: bool) -> io::Result<()> {
    // SAFETY: plain fcntl on an open descriptor.
    unsafe {
        let flags = check(libc::fcntl(file.as_raw_fd(), libc::F_GETFL))?;
        let flags = if direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        check(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags))?;
    }
    Ok(())
}

/// Mounts; absent source, type or data are passed as the kernel expects them.
pub fn mount(
    source: &str,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    data: Option<&str>,
) -> io::Result<()> {
    let (source, target, kind) = (c_string(source)?, c_path(target)?, c_string(kind)?);
    let data = data.map(c_string).transpose()?;
    let data = data.as_ref().map_or(std::ptr::null(), |text| text.as_ptr().cast());
    // SAFETY: all strings are NUL-terminated and outlive the call.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data) })?;
    Ok(())
}

/// Fills a buffer with random bytes from the kernel.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    // SAFETY: the buffer is valid for its length; up to 256 bytes are never cut short.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    bytes
}

/// Random bytes as lower-case hex: 2 N digits.
pub fn random_hex<const N: usize>() -> String {
    random::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a signal; a negative pid means a process group.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain system call.
    check(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// Reads a file of at most `limit` bytes; a longer one is EFBIG. For files of the image and of /proc.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::from(open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0)?);
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(bytes)
}

/// Milliseconds since the machine booted, its pauses included.
pub fn uptime_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// A raw socket on which a read waits no longer than this.
pub fn raw_socket(family: libc::c_int, protocol: libc::c_int, receive_max: Duration) -> io::Result<OwnedFd> {
    // SAFETY: the new descriptor is ours; the option is a valid timeval.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = OwnedFd::from_raw_fd(check(libc::socket(family, kind, protocol))?);
        let wait = libc::timeval {
            tv_sec: receive_max.as_secs() as libc::time_t,
            tv_usec: receive_max.subsec_micros() as libc::suseconds_t,
        };
        check(libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            std::ptr::from_ref(&wait).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        ))?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_in_a_path_is_refused() {
        assert_eq!(c_string("a\0b").unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn bounded_reads_refuse_longer_files() {
        let path = std::env::temp_dir().join(format!("sandlot-bounded-{}", std::process::id()));
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        assert_eq!(read_bounded(&path, 4).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        std::fs::remove_file(&path).unwrap();
    }
}
