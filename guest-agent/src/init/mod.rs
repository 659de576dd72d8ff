//! `/init` and `/fixups`: what makes a restored machine somebody. In this order: clock, entropy, root,
//! names, environment, probe.

mod base64;
mod clock;
mod connections;
pub mod contract;
mod names;
pub mod root;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use h2::RecvStream;
use http::StatusCode;
use serde::de::DeserializeOwned;

use self::contract::{GuestFixed, GuestFixups, GuestInit, GuestInitResult, Identity};
use crate::agent::Agent;
use crate::boot::{self, devices, modules, mounts};
use crate::exec::contract::ExecStart;
use crate::exec::lookup;
use crate::exec::start::{self, Life};
use crate::http::body;
use crate::http::error::{CallError, plain_reason};
use crate::log;
use crate::sandbox::Sandbox;

/// Largest request: environments can be long.
const REQUEST_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Fewer random bytes would not be fresh enough to tell machines apart.
const ENTROPY_MIN_BYTES: usize = 32;
/// Where systemd keeps its journals.
const JOURNALS: [&str; 2] = ["/run/log/journal", "/var/log/journal"];
/// How long the first command may take, under emulation and load.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// `POST /init`.
pub async fn post_init(agent: &Rc<Agent>, body: &mut RecvStream) -> Result<GuestInitResult, CallError> {
    let request: GuestInit = read_request(body).await?;
    let entropy = check_entropy(&request.entropy_base64)?;
    agent.begin_init()?;
    let mut result = GuestInitResult { hostname: request.hostname.clone(), ..GuestInitResult::default() };
    if agent.place.is_machine() {
        become_machine(agent, &request, &entropy, &mut result)?;
    }
    let sandbox = sandbox_of(agent, &request, &result.hostname);
    make_working_dir(agent, &sandbox.working_dir);
    agent.end_init(sandbox);
    result.shell = find_shell(agent);
    let begun = Instant::now();
    probe(agent).await?;
    result.probe_ms = milliseconds(begun);
    if agent.place.is_machine() && !request.init.is_empty() {
        agent.next_init.replace(Some(request.init));
    }
    Ok(result)
}

/// `POST /fixups`: a machine restored from a snapshot gets the time, fresh randomness and, if it is a copy, a new
/// identity; all else goes on. Doing it again changes nothing.
pub async fn post_fixups(agent: &Agent, body: &mut RecvStream) -> Result<GuestFixed, CallError> {
    let request: GuestFixups = read_request(body).await?;
    let entropy = check_entropy(&request.entropy_base64)?;
    agent.require_initialised()?;
    if agent.place.is_machine() {
        step("set the clock", clock::set(request.time_unix_ms))?;
        step("mix in entropy", clock::add_entropy(&entropy))?;
    }
    if request.abort_connections && agent.place.is_machine() {
        // Without it they end when somebody writes to them.
        note("abort the connections of before", connections::abort_all());
    }
    if let Some(identity) = request.identity {
        become_another(agent, identity)?;
    }
    Ok(GuestFixed { time_unix_ms: clock::now_unix_ms() })
}

fn become_another(agent: &Agent, identity: Identity) -> Result<(), CallError> {
    if agent.place.is_machine() {
        let old = agent.sandbox().hostname.clone();
        step("set the hostname", names::set_hostname(&identity.hostname))?;
        // A sandbox may have made these unwritable; its clone is usable all the same.
        note("rename the machine in /etc", names::rename_host_files(&old, &identity.hostname));
        let old_id = names::read_machine_id();
        note("write /etc/machine-id", names::write_machine_id(&identity.machine_id));
        if let (Some(old_id), Some(id)) = (old_id, names::read_machine_id()) {
            note("keep the journal", names::move_journals(&JOURNALS, &old_id, &id));
        }
    }
    agent.change_sandbox(|sandbox| {
        sandbox.id = identity.sandbox_id;
        sandbox.environment.set("HOSTNAME", &identity.hostname);
        sandbox.environment.set_all(&identity.env);
        sandbox.hostname = identity.hostname;
    });
    Ok(())
}

async fn read_request<T: DeserializeOwned>(body: &mut RecvStream) -> Result<T, CallError> {
    let bytes = body::read_all(body, REQUEST_MAX_BYTES).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| CallError::invalid(format!("the request is not valid: {error}")))
}

fn check_entropy(text: &str) -> Result<Vec<u8>, CallError> {
    base64::decode(text)
        .filter(|bytes| bytes.len() >= ENTROPY_MIN_BYTES)
        .ok_or_else(|| CallError::invalid(format!("entropyBase64 must be {ENTROPY_MIN_BYTES} bytes or more")))
}

fn step<T>(action: &str, result: io::Result<T>) -> Result<T, CallError> {
    result.map_err(|error| {
        log!("init: {action}: {error}");
        CallError::from_io(action, &error)
    })
}

/// For what a usable machine can lack, depending on its image.
fn note<T>(action: &str, result: io::Result<T>) {
    if let Err(error) = result {
        log!("init: {action}: {error}");
    }
}

fn milliseconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 100_000.0).round() / 100.0
}

fn become_machine(
    agent: &Agent,
    request: &GuestInit,
    entropy: &[u8],
    result: &mut GuestInitResult,
) -> Result<(), CallError> {
    step("set the clock", clock::set(request.time_unix_ms))?;
    step("mix in entropy", clock::add_entropy(entropy))?;

    let begun = Instant::now();
    note("mount the module disk", modules::mount_disk());
    step("make the sandbox's disk the root", root::enter())?;
    result.mount_ms = milliseconds(begun);

    if request.grow_root {
        let begun = Instant::now();
        step("grow the root file system", root::grow())?;
        result.grow_ms = milliseconds(begun);
    }

    check_init(&request.init)?;

    let begun = Instant::now();
    if request.rebooted {
        let own = names::read_hostname().filter(|name| names::set_hostname(name).is_ok());
        if own.is_none() {
            step("set the hostname", names::set_hostname(&request.hostname))?;
        }
        result.hostname = own.unwrap_or_else(|| request.hostname.clone());
    } else {
        step("set the hostname", names::set_hostname(&request.hostname))?;
        note("write /etc/hosts", names::write_host_files(&request.hostname, boot::network::is_configured()));
        note("write /etc/machine-id", names::write_machine_id(&request.machine_id));
    }
    if !request.rebooted || !names::can_resolve() {
        note("write /etc/resolv.conf", names::write_resolv_conf(&request.resolv_conf));
    }
    note("offer kernel modules", modules::offer_in_root());
    note("show the security modules", mounts::offer_security());
    devices::take_groups_of_image();
    if request.init.is_empty() {
        note("mount binfmt_misc", mounts::mount_binfmt());
    }
    result.names_ms = milliseconds(begun);

    if request.cpu_limit > 0.0 {
        if let Some(cgroups) = &agent.cgroups {
            step("limit the CPU", cgroups.set_cpu_limit(request.cpu_limit))?;
        }
    }
    Ok(())
}

/// The image must have the init that was asked for, or process 1 would have nothing to become.
fn check_init(argv: &[String]) -> Result<(), CallError> {
    let Some(program) = argv.first() else {
        return Ok(());
    };
    let refused = |why: &str| {
        let message = format!("the image has no init at {program}: {why}");
        Err(CallError::new(StatusCode::UNPROCESSABLE_ENTITY, "ENOINIT", message))
    };
    match std::fs::metadata(program) {
        Ok(found) if !found.is_file() => refused("it is not a file"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => refused("it may not be executed"),
        Ok(_) => Ok(()),
        Err(error) => refused(&plain_reason(&error)),
    }
}

fn sandbox_of(agent: &Agent, request: &GuestInit, hostname: &str) -> Sandbox {
    let mut environment = agent.system_environment();
    environment.set("HOSTNAME", hostname);
    environment.set_lines(&request.image.env);
    environment.set_all(&request.env);
    environment.set_all(&request.secrets);
    let working_dir = match request.image.working_dir.as_str() {
        "" => "/".to_string(),
        path => format!("/{}", path.trim_start_matches('/')),
    };
    Sandbox {
        id: request.sandbox_id.clone(),
        hostname: hostname.to_string(),
        environment,
        user: request.image.user.clone(),
        working_dir,
    }
}

/// As Docker does it: made if missing, owned by root.
fn make_working_dir(agent: &Agent, path: &str) {
    note("make the image's WORKDIR", std::fs::create_dir_all(agent.place.path(Path::new(path))));
}

fn find_shell(agent: &Agent) -> String {
    let sandbox = agent.sandbox();
    let path = sandbox.environment.get("PATH").unwrap_or(lookup::DEFAULT_PATH);
    lookup::shell(path, Path::exists).unwrap_or_default()
}

/// A machine is ready only when a command has run in it.
async fn probe(agent: &Rc<Agent>) -> Result<(), CallError> {
    let spec = ExecStart {
        argv: vec![start::PROBE.to_string()],
        cwd: Some("/".to_string()),
        user: Some("0".to_string()),
        ..ExecStart::default()
    };
    let exec = start::start(agent, &spec, Life::Stream);
    let failed = |reason: String| {
        CallError::new(StatusCode::INTERNAL_SERVER_ERROR, "EIO", format!("no command can run: {reason}"))
    };
    tokio::time::timeout(PROBE_TIMEOUT, exec.until_ended())
        .await
        .map_err(|_| failed(format!("the first one did not end within {} s", PROBE_TIMEOUT.as_secs())))?;
    match exec.info().end {
        Some(end) if end.exit_code == 0 => Ok(()),
        Some(end) => Err(failed(end.error.unwrap_or(format!("the first one ended with {}", end.exit_code)))),
        None => Err(failed("the first one has no end".to_string())),
    }
}
