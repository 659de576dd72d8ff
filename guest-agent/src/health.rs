//! `GET /health`: that the agent answers, and what the machine's memory and ports look like.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::agent::Agent;
use crate::os;

/// Files of /proc are cut here.
const PROC_MAX_BYTES: u64 = 1024 * 1024;
/// State "listening" in /proc/net/tcp.
const TCP_LISTEN: &str = "0A";

/// Process-wide state of the guest (`GuestHealth` in the contract).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    version: &'static str,
    initialised: bool,
    agent_pid: u32,
    uptime_ms: u64,
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    oom_kills: u64,
    execs: usize,
    listening: Vec<u16>,
}

/// Looks at the machine now.
pub fn health(agent: &Agent) -> Health {
    let memory = read("/proc/meminfo");
    Health {
        version: env!("CARGO_PKG_VERSION"),
        initialised: agent.is_initialised(),
        agent_pid: std::process::id(),
        uptime_ms: os::uptime_ms(),
        memory_total_bytes: field(&memory, "MemTotal:") * 1024,
        memory_available_bytes: field(&memory, "MemAvailable:") * 1024,
        oom_kills: field(&read("/proc/vmstat"), "oom_kill "),
        execs: agent.execs.running(),
        listening: listening(),
    }
}

fn read(path: &str) -> String {
    let bytes = os::read_bounded(Path::new(path), PROC_MAX_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reading a table walks all hash buckets of the kernel, which takes milliseconds; the count of sockets
/// says whether that is worth it.
fn listening() -> Vec<u16> {
    let mut ports = BTreeSet::new();
    let tables =
        [("/proc/net/sockstat", "TCP: inuse ", "tcp"), ("/proc/net/sockstat6", "TCP6: inuse ", "tcp6")];
    for (counts, field_name, table) in tables {
        if field(&read(counts), field_name) > 0 {
            ports.extend(listening_ports(&read(&format!("/proc/net/{table}"))));
        }
    }
    ports.into_iter().collect()
}

/// Lines are `sl local_address rem_address st ...` with hexadecimal `address:port`.
fn listening_ports(table: &str) -> impl Iterator<Item = u16> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next()?;
        let state = columns.nth(1)?;
        if state != TCP_LISTEN {
            return None;
        }
        u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_ports_of_a_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 0:0\n   1: 0F02000A:D431 0202000A:0050 01 0:0\n";
        assert_eq!(listening_ports(table).collect::<Vec<_>>(), [8080]);
    }

    #[test]
    fn fields_of_meminfo_and_vmstat() {
        assert_eq!(field("MemTotal:  2048 kB\nMemFree: 1 kB", "MemTotal:"), 2048);
        assert_eq!(field("oom_kill 3\noom_kill_x 9", "oom_kill "), 3);
        assert_eq!(field("", "MemTotal:"), 0);
    }
}
