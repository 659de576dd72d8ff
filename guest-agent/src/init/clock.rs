//! Wall clock and randomness: what every restored machine must get anew before anything else runs in it.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::os;

/// `linux/random.h`.
const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;
/// Bytes mixed in at most.
const ENTROPY_MAX_BYTES: usize = 256;

/// Sets the wall clock to milliseconds since 1970.
pub fn set(unix_ms: f64) -> io::Result<()> {
    if !(0.0..=1e15).contains(&unix_ms) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let now = libc::timespec {
        tv_sec: (unix_ms / 1000.0) as libc::time_t,
        tv_nsec: ((unix_ms % 1000.0) * 1e6) as libc::c_long,
    };
    // SAFETY: a valid timespec.
    os::check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &now) })?;
    Ok(())
}

/// The wall clock, in milliseconds since 1970.
pub fn now_unix_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1000.0)
}

/// `struct rand_pool_info`.
#[repr(C)]
struct RandPoolInfo {
    entropy_bits: libc::c_int,
    size: libc::c_int,
    bytes: [u8; ENTROPY_MAX_BYTES],
}

/// Mixes fresh bytes into the kernel's generator and makes it use them at once: until then two machines
/// of one template would draw the same numbers.
pub fn add_entropy(bytes: &[u8]) -> io::Result<()> {
    let bytes = &bytes[..bytes.len().min(ENTROPY_MAX_BYTES)];
    let mut info = RandPoolInfo {
        entropy_bits: bytes.len() as libc::c_int * 8,
        size: bytes.len() as libc::c_int,
        bytes: [0; ENTROPY_MAX_BYTES],
    };
    info.bytes[..bytes.len()].copy_from_slice(bytes);
    let random = os::open(Path::new("/dev/urandom"), libc::O_RDWR, 0)?;
    // SAFETY: a struct of the form the kernel reads, and a request without argument.
    unsafe {
        os::check(libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &info))?;
        os::check(libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG, 0))?;
    }
    Ok(())
}
