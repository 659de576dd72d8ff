//! The JSON forms of `/init` and `/fixups`, as in `packages/protocol/src/guest-api.ts`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What makes a restored machine somebody.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestInit {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Wall clock of the host, milliseconds since 1970.
    pub time_unix_ms: f64,
    /// 32 or more fresh random bytes, base64.
    pub entropy_base64: String,
    /// Name of the machine.
    pub hostname: String,
    /// 32 hex digits.
    pub machine_id: String,
    /// Text of /etc/resolv.conf.
    pub resolv_conf: String,
    /// The image's configuration.
    pub image: ImageConfig,
    /// Environment given at create.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secrets, over all else.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// Grow the root file system to its device.
    pub grow_root: bool,
    /// Fraction of a CPU; 0 or absent: no limit.
    #[serde(default)]
    pub cpu_limit: f64,
    /// The sandbox has rebooted: the names on its disk are its own by now.
    #[serde(default)]
    pub rebooted: bool,
    /// The image's init and its arguments: it becomes process 1 with the next RESET. Empty: we stay that.
    #[serde(default)]
    pub init: Vec<String>,
}

/// Image semantics. ENTRYPOINT and CMD are the host's affair: it sends a finished start command.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageConfig {
    /// `NAME=value` lines.
    #[serde(default)]
    pub env: Vec<String>,
    /// USER.
    #[serde(default)]
    pub user: String,
    /// WORKDIR.
    #[serde(default)]
    pub working_dir: String,
}

/// Milliseconds that each part of init took.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestInitResult {
    /// Root and the other mounts.
    pub mount_ms: f64,
    /// Growth of the root file system.
    pub grow_ms: f64,
    /// Names and identity files.
    pub names_ms: f64,
    /// The agent's own binary run as a command.
    pub probe_ms: f64,
    /// `/bin/bash`, `/bin/sh` or nothing.
    pub shell: String,
    /// Name of the machine.
    pub hostname: String,
}

/// What a machine restored from a snapshot of a sandbox gets anew.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestFixups {
    /// Wall clock of the host, milliseconds since 1970.
    pub time_unix_ms: f64,
    /// 32 or more fresh random bytes, base64.
    pub entropy_base64: String,
    /// The other side of its TCP connections is not to be reached any more.
    #[serde(default)]
    pub abort_connections: bool,
    /// Absent: it stays who it is.
    pub identity: Option<Identity>,
}

/// Who a copy of a machine becomes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Name of the machine.
    pub hostname: String,
    /// 32 hex digits.
    pub machine_id: String,
    /// Over the environment that it has.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Answer of `/fixups`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestFixed {
    /// Our wall clock, after it was set.
    pub time_unix_ms: f64,
}
