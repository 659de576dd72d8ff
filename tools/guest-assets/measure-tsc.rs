// Prints how fast this host's time stamp counter runs, in kHz. The VMM driver runs it once a boot:
// a guest under software emulation reads the host's counter and has no other clock to calibrate
// it against, so its kernel is told the rate on the command line (`tsc_early_khz`).
use std::arch::x86_64::_rdtsc;
use std::time::{Duration, Instant};

/// Both clocks read as close together as the scheduler lets us: the narrowest of many tries.
fn read_both() -> (u64, Instant) {
    let mut best: Option<(u64, Instant, u64)> = None;
    for _ in 0..64 {
        let before = unsafe { _rdtsc() };
        let now = Instant::now();
        let after = unsafe { _rdtsc() };
        let width = after.wrapping_sub(before);
        if best.is_none_or(|(_, _, narrowest)| width < narrowest) {
            best = Some((before.wrapping_add(width / 2), now, width));
        }
    }
    let (ticks, now, _) = best.expect("64 tries");
    (ticks, now)
}

fn main() {
    let (ticks_at_start, start) = read_both();
    std::thread::sleep(Duration::from_millis(150));
    let (ticks_at_end, end) = read_both();
    let nanoseconds = end.duration_since(start).as_nanos() as f64;
    let khz = ticks_at_end.wrapping_sub(ticks_at_start) as f64 * 1e6 / nanoseconds;
    println!("{}", khz.round() as u64);
}
