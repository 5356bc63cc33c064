use std::io;

/// The time since boot in milliseconds, suspended time included (clock_gettime(2), `CLOCK_BOOTTIME`).
pub fn boottime_ms() -> i64 {
    let time = read_clock(libc::CLOCK_BOOTTIME);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

/// The wall clock in nanoseconds since 1970 (clock_gettime(2), `CLOCK_REALTIME`).
pub fn realtime_ns() -> i64 {
    let time = read_clock(libc::CLOCK_REALTIME);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn read_clock(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the kernel to fill.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "BUG: clock {clock} must exist on Linux");
    time
}

/// Identifies this boot: the first 63 bits of `/proc/sys/kernel/random/boot_id` (random(4)).
pub fn boot_id() -> io::Result<i64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let id = u64::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok((id >> 1).cast_signed())
}
